"""What `trainingkit recover --inspect` prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainingkit.core.units import format_bytes

if TYPE_CHECKING:
    from trainingkit.core.runfolder import RunFolder
    from trainingkit.recovery.journal import Lead, Scan, Survey


def print_survey(found: Survey, run: RunFolder) -> None:
    """Snapshots, segments, damage, reach."""
    lines = [f"Run: {run.root}", "", "Snapshots, newest first"]
    lines += [f"  {_lead(lead)}" for lead in found.leads] or ["  none"]
    lines += ["", "Journal"]
    lines += [f"  {_scan(each)}" for each in found.scans] or ["  none"]
    if found.in_memory:
        lines += ["", "Memory of this host", *(f"  step {step}" for step in found.in_memory)]
    lines += ["", *_reach(found)]
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


def _reach(found: Survey) -> list[str]:
    newest = found.newest
    if newest is None:
        return ["No snapshot is whole: there is nothing to go back to."]
    ranges = ", ".join(f"{first} to {last}" if first < last else str(first) for first, last in found.reach())
    lines = [f"Covered: steps {ranges}", f"A resume goes on from step {newest.end}."]
    if found.in_memory and found.in_memory[-1] > newest.found.step:
        lines.append(
            f"It puts the snapshot of step {found.in_memory[-1]} together first, if hosts' memory has all of it."
        )
    return lines
