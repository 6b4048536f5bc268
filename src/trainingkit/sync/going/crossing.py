"""The ways over between gradients and training apart, each at a step's border, by all ranks alike.

    check     whether there is a way back: what each rank's optimizer keeps is told to all
    take_up   all ranks hold one model, which is the agreed one; DDP's exchange off. Nothing travels.
    change    settle (a last, short round); what the old rounds still owe, the new ones pay
    go_back   settle, make one optimizer of all ranks' (`every.moments`), pay what rounds owe; DDP's exchange on

Rounds travel on the lanes and threads of the gradients, which rest meanwhile; their residuals wait in `Squeezed`.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from trainingkit.core.errors import StepError
from trainingkit.sync.control import peers_watched
from trainingkit.sync.every import EverySpec
from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.every.door import assemble, trainable_by_name
from trainingkit.sync.every.gradsync import exchange_on
from trainingkit.sync.every.kept import joint, tell
from trainingkit.sync.plain import group_of
from trainingkit.sync.squeezed import Squeezed


class Crossing:
    """Goes over for one model. What rounds carry is what could be trained when it was made, as with DDP.

    Args:
        gradients: the synchroniser of gradients, whose wire is lent.
        optimizer: over the model's parameters.
    """

    def __init__(self, gradients: Squeezed, optimizer: Optimizer) -> None:
        self._gradients = gradients
        self._ddp: DistributedDataParallel = gradients.module
        self._optimizer = optimizer
        self._named = trainable_by_name(self._ddp.module)

    def check(self) -> None:
        """See that all ranks' optimizers can become one again after they were apart, as far as they keep anything yet.

        All ranks call it before they part.

        Raises:
            StepError: on all ranks alike, where they cannot.
            PeerLost: a peer is gone.
        """
        with peers_watched():
            joint(tell(self._optimizer, group_of(self._ddp)))

    def refusal(self) -> str:
        """Why ranks must not part, as a clause; empty where they may. All ranks call it.

        Raises:
            PeerLost: a peer is gone.
        """
        try:
            self.check()
        except StepError as error:
            why = f"{error.problem.removesuffix('.')} ({error.field}: {error.found})"
            return f"ranks never train apart in this run, for there would be no way back. {why}"
        return ""

    def take_up(self, spec: EverySpec) -> EverySync:
        """Train apart from the next step on."""
        rounds = assemble(
            self._ddp,
            self._named,
            self._optimizer,
            spec,
            self._gradients.wire(str(spec.codec)),
            ranks=group_of(self._ddp).size(),
            parcel_bytes=int(self._ddp.bucket_bytes_cap),
        )
        rounds.weight = self._gradients.weight
        rounds.adopt()
        return rounds

    def change(self, old: EverySync, spec: EverySpec) -> EverySync:
        """Other rounds from the next step on; they pay what the old ones owe.

        Raises:
            PeerLost: a peer is gone.
        """
        with peers_watched():
            old.settle()
        new = self.take_up(spec)
        new.load_state_dict(old.state_dict())
        new.adopt()
        new.steps = 0
        return new

    def go_back(self, rounds: EverySync) -> None:
        """Gradients travel from the next step on.

        Raises:
            StepError: on all ranks alike, where their optimizers cannot become one; ranks are apart still.
            PeerLost: a peer is gone.
        """
        rounds.join(group_of(self._ddp), next(self._ddp.parameters()).device)
        exchange_on(self._ddp)
        self._gradients.rejoin()
