"""The manifest: what a snapshot folder must hold, byte for byte. It is written last, so having one means whole.

`manifest.json` lists every other file with its size and CRC-32, and carries a CRC-32 over its own content. A
reader accepts only the exact text that a writer of this version would have written, so any flipped bit in it shows.
"""

from __future__ import annotations

import dataclasses
import json
import stat
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainingkit.core.files import crc32_of

MANIFEST = "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and CRC-32 (zlib's polynomial) of one file."""

    bytes: int
    crc32: int


@dataclass(frozen=True)
class Manifest:
    """Facts about one snapshot.

    Args:
        step: steps that were committed when it was taken.
        world_size: ranks that took part; each left a `rank-{r}.json`.
        time_s: seconds since the epoch when the manifest was made.
        files: every other file of the folder, by plain name.
    """

    step: int
    world_size: int
    time_s: float
    files: Mapping[str, FileRecord]

    @property
    def total_bytes(self) -> int:
        """Bytes of all listed files."""
        return sum(record.bytes for record in self.files.values())


class BadManifest(Exception):
    """A manifest that cannot be trusted; the text says why."""


def render(manifest: Manifest) -> str:
    """The one text of a manifest."""
    files = {name: dataclasses.asdict(manifest.files[name]) for name in sorted(manifest.files)}
    body = {
        "format": FORMAT,
        "step": manifest.step,
        "world_size": manifest.world_size,
        "time_s": manifest.time_s,
        "files": files,
    }
    crc = zlib.crc32(json.dumps(body, separators=(",", ":")).encode())
    return json.dumps({**body, "crc32": crc}, indent=1) + "\n"


def parse(raw: bytes) -> Manifest:
    """The manifest that `raw` spells.

    Raises:
        BadManifest: not JSON, not of this format, wrong types, or not the exact text that its content gives.
    """
    try:
        table = json.loads(raw)
        if table["format"] != FORMAT:
            raise BadManifest(f"found format {table['format']!r}, expected {FORMAT}")
        files = {_plain(name): _record(entry) for name, entry in table["files"].items()}
        manifest = Manifest(_count(table["step"]), _count(table["world_size"]), float(table["time_s"]), files)
        same = render(manifest).encode() == raw
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise BadManifest(f"it cannot be read ({type(error).__name__}: {error})") from error
    if not same:
        raise BadManifest("its content does not match its own checksum")
    return manifest


def read(folder: Path) -> Manifest:
    """The manifest of a snapshot folder. Raises BadManifest, also when there is none or it cannot be opened."""
    try:
        return parse((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise BadManifest("there is none, so the snapshot was not finished") from error
    except OSError as error:
        raise BadManifest(f"it cannot be opened ({error.strerror})") from error


def mismatch(folder: Path, manifest: Manifest, *, checksums_of: set[str] | None = None) -> str | None:
    """What differs between the folder and its manifest, in words, or None.

    Names, kinds and sizes are compared first; contents are read afterwards.

    Args:
        checksums_of: names whose content is read; None for all.
    """
    try:
        present = {entry.name: entry.lstat() for entry in folder.iterdir()}
        return _differing_names(present, manifest) or _differing_content(folder, manifest, checksums_of)
    except OSError as error:
        return f"{error.filename or folder} cannot be read ({error.strerror})"


def _differing_names(present: Mapping[str, Any], manifest: Manifest) -> str | None:
    missing = sorted(set(manifest.files) - set(present))
    if missing:
        return f"{missing[0]} is missing, expected {manifest.files[missing[0]].bytes} bytes"
    extra = sorted(set(present) - set(manifest.files) - {MANIFEST})
    if extra:
        return f"{extra[0]} is not listed in the manifest, expected only the {len(manifest.files)} files it lists"
    for name, record in manifest.files.items():
        if not stat.S_ISREG(present[name].st_mode):
            return f"{name} is not a regular file"
        if present[name].st_size != record.bytes:
            return f"{name} has the wrong size: found {present[name].st_size} bytes, expected {record.bytes}"
    return None


def _differing_content(folder: Path, manifest: Manifest, names: set[str] | None) -> str | None:
    for name, record in manifest.files.items():
        if names is None or name in names:
            crc = crc32_of(folder / name)
            if crc != record.crc32:
                return f"{name} has changed: found CRC-32 {crc:08x}, expected {record.crc32:08x}"
    return None


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _plain(name: str) -> str:
    if name in ("", ".", "..", MANIFEST) or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a file in the folder")
    return name


def _record(entry: Any) -> FileRecord:
    return FileRecord(_count(entry["bytes"]), _count(entry["crc32"]))
