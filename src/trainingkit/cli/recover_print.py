"""What `trainingkit recover` prints: what is there, what setting back would do or has done."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainingkit.cli.recover_asked import Skips, Span, beyond, in_words, length_of, way_without_snapshot
from trainingkit.core.units import format_bytes

if TYPE_CHECKING:
    from trainingkit.core.runfolder import RunFolder
    from trainingkit.recovery.journal import Lead, Scan, Setback, Survey


def print_survey(found: Survey, run: RunFolder) -> None:
    """Snapshots, segments, damage, reach."""
    lines = [f"Run: {run.root}", "", "Snapshots, newest first"]
    lines += [f"  {_lead(lead)}" for lead in found.leads] or ["  none"]
    lines += ["", "Journal"]
    lines += [f"  {_scan(each)}" for each in found.scans] or ["  none"]
    if found.in_memory:
        lines += ["", "Memory of this host", *(f"  step {step}" for step in found.in_memory)]
    lines += ["", *_reach(found, run)]
    sys.stdout.write("\n".join(lines) + "\n")


def _lead(lead: Lead) -> str:
    found = lead.found
    if found.problem is not None:
        return f"step {found.step}: {'not finished' if found.unfinished else 'damaged'}: {found.problem}"
    whole = f"step {found.step}: whole, of {found.world_size} rank{'s' if found.world_size != 1 else ''}"
    if lead.base is None:
        return f"{whole}; no journal was kept when it was made"
    if not lead.covered.steps:
        return f"{whole}; the journal has no whole step after it{_why(lead)}"
    of = f" of {lead.base.world_size}" if lead.base.world_size != found.world_size else ""
    lost = ", ".join(str(rank) for rank in lead.covered.lost)
    without = f", without the records of rank {lost}" if lost else ""
    return f"{whole}; the journal{of} leads on to step {lead.end}{without}{_why(lead)}"


def _why(lead: Lead) -> str:
    return f" ({lead.covered.why})" if lead.covered.why else ""


def _scan(scan: Scan) -> str:
    name = f"rank {scan.slot.rank}  {scan.slot.path.name}  {format_bytes(scan.size)}"
    steps = f"steps {scan.entries[0].step} to {scan.entries[-1].step}" if scan.entries else "no whole step"
    if scan.problem is None:
        return f"{name}  {steps}"
    return f"{name}  {steps}, then {'cut short' if scan.cut else 'damaged'} {scan.problem}"


def _reach(found: Survey, run: RunFolder) -> list[str]:
    newest = found.newest
    lines = [f"Covered: {in_words(found.reach())}", f"A resume goes on from step {newest.end}."] if newest else []
    if found.in_memory and (newest is None or found.in_memory[-1] > newest.found.step):
        before = "It puts" if newest else "No snapshot on disk is whole. A resume puts"
        return [
            *lines,
            f"{before} the snapshot of step {found.in_memory[-1]} together first, if hosts' memory has all of it.",
        ]
    if newest is None:
        return [
            "No snapshot is whole: there is nothing to go back to.",
            f"  next step: {way_without_snapshot(found, run)}",
        ]
    return lines


def print_would(found: Survey, lead: Lead, run: RunFolder, step: int, skips: Skips) -> None:
    """What setting a run back would do."""
    moved = [f"the snapshot of step {each.found.step}" for each in found.leads if each.found.step > lead.found.step]
    if any(scan.entries and scan.entries[-1].step > step for scan in found.scans):
        moved.append(f"the journal's records after step {step}")
    moved += [f"the snapshot of step {each} in this host's memory" for each in found.in_memory]
    lines = ["", f"With --to-step {step} and without --inspect (nothing has changed now):"]
    lines += [f"  It would put aside below {run.root}/aside: {', '.join(moved)}."] if moved else []
    lines.append(f"  {_way(step, lead.found.step, step - lead.found.step, 'would go')}")
    lines += [f"  {line}" for line in _skipped(skips, length_of(run), "would leave", "would be")]
    sys.stdout.write("\n".join(lines) + "\n")


def print_done(done: Setback, run: RunFolder, skips: Skips) -> None:
    """What setting a run back has done."""
    lines = [f"Put aside: {', '.join(done.moved)}", f"  in {done.aside}"] if done.aside is not None else []
    lines.append(_way(done.step, done.snapshot_step, done.replayed, "goes"))
    lines += _skipped(skips, length_of(run), "leaves", "is")
    lines.append(f"Continue:  trainingkit resume {shlex.quote(str(run.root))}")
    sys.stdout.write("\n".join(lines) + "\n")


def _way(step: int, snapshot: int, replayed: int, goes: str) -> str:
    journal = f" and {replayed} step{'s' if replayed > 1 else ''} of the journal" if replayed else ""
    return f"A resume {goes} on from step {step}: the snapshot of step {snapshot}{journal}."


def _skipped(skips: Skips, length: int | None, leaves: str, gone: str) -> list[str]:
    lines: list[str] = []
    for span in skips.asked:
        lines.append(f"It {leaves} out the batches of steps {span[0]} to {span[1]}.")
        more = beyond(span, length)
        lines += [more] if more else []
    if skips.dropped:
        lines.append(
            f"Of an earlier --skip-batches, {spans_in_words(skips.dropped)} {gone} dropped from skips.json, because it "
            "begins after this step: those batches are trained on, unless --skip-batches names them again."
        )
    return lines


def spans_in_words(spans: Sequence[Span]) -> str:
    """Spans of steps, as they are typed."""
    return ", ".join(f"{first}..{last}" for first, last in spans)
