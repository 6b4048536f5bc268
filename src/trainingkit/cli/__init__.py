"""What did the person type? One short file per command; this room alone joins rooms that may not know each other."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

DATA_HELP = """Prepare data for training.

Example: trainingkit data build books/ tokens/ --train-bpe 8192"""

if TYPE_CHECKING:
    from cyclopts import App


def make_app() -> App:
    """The command tree. Command files import what is heavy inside their function, so that help is quick."""
    import cyclopts

    from trainingkit import __version__
    from trainingkit.cli.advise import advise
    from trainingkit.cli.bench import BENCH_HELP, bench_codec, bench_network, bench_page
    from trainingkit.cli.bench_advise import bench_advise
    from trainingkit.cli.bench_changes import bench_changes
    from trainingkit.cli.bench_exchange import bench_exchange
    from trainingkit.cli.bench_frontier import bench_frontier
    from trainingkit.cli.bench_planner import bench_planner
    from trainingkit.cli.bench_quality import bench_quality
    from trainingkit.cli.bench_recovery import bench_recovery
    from trainingkit.cli.bench_timetoloss import bench_time_to_loss
    from trainingkit.cli.data_build import data_build
    from trainingkit.cli.evaluate import evaluate
    from trainingkit.cli.export import export
    from trainingkit.cli.netlab import netlab
    from trainingkit.cli.plan import plan
    from trainingkit.cli.plan_score import plan_score
    from trainingkit.cli.probe import probe
    from trainingkit.cli.recover import recover
    from trainingkit.cli.report import report
    from trainingkit.cli.resume import resume
    from trainingkit.cli.train import train

    epilogue = "Start with: trainingkit train          (two workers, real text, about two minutes, then a page)"
    app = cyclopts.App(
        name="trainingkit",
        help="Train PyTorch models on slow links, unequal machines and machines that fail.",
        help_epilogue=epilogue,
        version=__version__,
        suppress_keyboard_interrupt=False,
        help_format="plaintext",
    )
    named = {"train": train, "resume": resume, "recover": recover, "eval": evaluate, "export": export, "report": report}
    for place, (name, command) in enumerate(named.items()):
        app.command(command, name=name, sort_key=place, help_epilogue="")
    data = cyclopts.App(name="data", help=DATA_HELP, help_format="plaintext", help_epilogue="", sort_key=len(named))
    data.command(data_build, name="build")
    app.command(data)
    app.command(advise, name="advise", sort_key=len(named) + 1, help_epilogue="")
    planner = cyclopts.App(
        name="plan", help_format="plaintext", help_epilogue="", sort_key=len(named) + 1, version_flags=()
    )
    planner.default(plan)
    planner.command(plan_score, name="score")
    app.command(planner)
    app.command(probe, name="probe", sort_key=len(named) + 1, help_epilogue="")
    app.command(netlab, name="netlab", sort_key=len(named) + 2, help_epilogue="")
    bench = cyclopts.App(
        name="bench", help=BENCH_HELP, help_format="plaintext", help_epilogue="", sort_key=len(named) + 3
    )
    benches = {"network": bench_network, "codec": bench_codec, "quality": bench_quality, "exchange": bench_exchange}
    benches |= {"frontier": bench_frontier, "changes": bench_changes, "advise": bench_advise, "page": bench_page}
    benches |= {"planner": bench_planner, "time-to-loss": bench_time_to_loss, "recovery": bench_recovery}
    for place, (name, command) in enumerate(benches.items()):
        bench.command(command, name=name, sort_key=place)
    app.command(bench)
    app.register_install_completion_command()
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: run the command, turn errors for people into their text and exit code.

    Args:
        arguments: what the person typed after `trainingkit`; by default this process's own arguments.
    """
    from trainingkit.cli.speaking import one_line, tells_all
    from trainingkit.core.errors import TrainingKitError
    from trainingkit.core.exitcodes import BAD_INPUT, FAILED, INTERRUPTED

    try:
        code = make_app()(
            sys.argv[1:] if arguments is None else arguments,
            exit_on_error=False,
            print_error=True,
            result_action="return_value",
        )
    except TrainingKitError as error:
        sys.stderr.write(f"error: {error}\n" if tells_all(error) else one_line(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    except Exception as error:
        if type(error).__module__.startswith("cyclopts"):
            sys.exit(BAD_INPUT)
        if tells_all(error):
            raise
        sys.stderr.write(one_line(error))
        sys.exit(FAILED)
    sys.exit(code if isinstance(code, int) else 0)
