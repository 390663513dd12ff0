"""Recognize traces of RBLN's profiler: a folder of numbered files, or one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from profiler.errors import InputError
from profiler.importers.importer import Importer, Option, head_of, reader

# --- The files that RBLN's profiler writes: numbered shards, and one aggregate of them all.
#
# traces/rbln_20260902_012906319_0.pb   the first runtime call of the process
# traces/rbln_20260902_012906319_1.pb   the second, …
# traces/rbln_20260902_012906319.pb     all of them again: never counted beside its shards


_OWN_NAME = re.compile(r"(rbln_[0-9]{8}_[0-9]+)(?:_([0-9]{1,18}))?\.pb")
_ANY_NAME = re.compile(r"(.+)_([0-9]{1,18})\.pb")
_TRACKS = (  # names that no other producer uses
    b"Neural Engine Clusters",
    b"General Compute Engine",
    b"Neural DMA",
    b"Task DMA",
    b"External HDMA",
    b"Device HDMA",
    b"Device Workload",
)
_ASKED = 8  # files of a folder that are checked
_OURS = b"profile_sd3.trace"  # in every file of a bundle, imported ones included


class Shard(Struct, frozen=True):
    """The trace of one runtime call; `number` is the call's in the process, -1 if unnumbered.

    If a file holds several calls, a shard is one of them (`is_part`), with the runtime instance and
    the workload in its names, -1 if they have none.
    """

    path: Path
    number: int
    is_part: bool = False
    instance: int = -1
    workload: int = -1


class Capture(Struct, frozen=True):
    """The files of one profiled process: its shards in order of their number.

    `aggregate` is the file with the content of all, None if there is none or it is the only file.
    If the shards are not `in_order`, their order is not known.
    """

    source: Path
    stem: str
    shards: tuple[Shard, ...]
    aggregate: Path | None
    in_order: bool = True


def missing_numbers(shards: Sequence[Shard]) -> list[int]:
    """The missing numbers between the first shard and the last; at most 1,000."""
    missing: list[int] = []
    for before, after in pairwise(shard.number for shard in shards):
        missing.extend(range(before + 1, min(after, before + 1_001 - len(missing))))
    return missing


def is_rbln(head: bytes) -> bool:
    """Whether a file that starts with `head` looks like a trace of RBLN's profiler."""
    return head[:1] == b"\n" and _OURS not in head and any(name in head for name in _TRACKS)


def is_capture(path: Path, head: bytes) -> bool:
    """Whether a file that starts with `head`, or one of the first traces in a folder, is RBLN's. A
    call that was cut short leaves an empty file, so several are checked."""
    if not path.is_dir():
        return is_rbln(head)
    return any(is_rbln(head_of(file)) for file in _traces(path)[:_ASKED])


def find_capture(path: Path) -> Capture:
    """The capture at `path`, a folder or one file of it; a file is imported alone.

    Raises InputError if there is none, or more than one.
    """
    if path.is_file():
        _, number = _split(path, own=_OWN_NAME.fullmatch(path.name) is not None)
        return Capture(path, path.stem, (Shard(path, number),), None)
    files = _traces(path)
    if not files:
        raise InputError(f"{path} holds no .pb file: give the folder that RBLN's profiler wrote to")
    return _capture(path, files, own=_OWN_NAME.fullmatch(files[0].name) is not None)


def _traces(folder: Path) -> list[Path]:
    """The traces in a folder, by name; only those with RBLN's own names, if there are any."""
    try:
        files = sorted(file for file in folder.iterdir() if file.name.endswith(".pb"))
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror or error}") from error
    return [file for file in files if _OWN_NAME.fullmatch(file.name)] or files


def _capture(folder: Path, files: list[Path], *, own: bool) -> Capture:
    shards: dict[str, list[Shard]] = {}
    aggregates: dict[str, Path] = {}
    for file in files:
        stem, number = _split(file, own=own)
        if number < 0:
            aggregates[stem] = file
        else:
            shards.setdefault(stem, []).append(Shard(file, number))
    every = [shard for found in shards.values() for shard in found]
    alone = len({shard.number for shard in every}) == len(every) == len(shards)
    if len(shards) > 1 and alone and len(aggregates) <= 1:  # each has a time of its own in its name
        first = min(shards)
        shards = {first: every}
        aggregates = dict.fromkeys([first], *aggregates.values()) if aggregates else {}
    stems = sorted({*shards, *aggregates})
    if len(stems) > 1:
        raise InputError(
            f"{folder} holds {len(stems)} captures ({', '.join(stems[:3])}"
            f"{', …' if len(stems) > 3 else ''}): move each to a folder of its own"
        )
    stem = stems[0]
    if not shards:
        return Capture(folder, stem, (Shard(aggregates[stem], -1),), None)
    ordered = sorted(shards[stem], key=lambda shard: (shard.number, shard.path.name))
    for before, after in pairwise(ordered):
        if before.number == after.number:
            both = f"{before.path.name} and {after.path.name}"
            raise InputError(f"{folder} holds {both}, the same call twice: remove one")
    return Capture(folder, stem, tuple(ordered), aggregates.get(stem))


def _split(file: Path, *, own: bool) -> tuple[str, int]:
    """The stem and the number of a file; -1 for an unnumbered file.

    The name of an aggregate ends in digits, too: those of its time.
    """
    match = (_OWN_NAME if own else _ANY_NAME).fullmatch(file.name)
    if match is None:
        return file.stem, -1
    return match[1], int(match[2]) if match[2] else -1


# --- Traces of RBLN's profiler: a folder of numbered files, or one of them.


_ACCEPTS = "a folder of RBLN's rbln_<date>_<time>_<n>.pb, or one of them"


IMPORTER = Importer(
    name="rbln",
    title="RBLN",
    accepts=_ACCEPTS,
    recognises=is_capture,
    read=reader(__name__, _ACCEPTS),
    options=(
        Option(
            "pipeline",
            str,
            "what ran, to label its calls by: sd3, sd3-no-guidance, sdxl, flux, …, or a YAML file "
            "(docs/rbln.md); guessed from the files if it is left out",
        ),
        Option("steps", int, "denoising steps", least=1),
        Option("skip", int, "leading calls that were warm-up"),
        Option(
            "run",
            Path,
            "the bundle of the same run as profile-sd3 recorded it, to label its calls by, instead "
            "of pipeline and steps",
        ),
    ),
    capabilities=frozenset({"timeline", "bytes", "cycles"}),
    seen="the formats of 0.11 and 0.12, by their documentation",
)
