"""Which call each file is, by our own recording of the same run.

RBLN's profiler numbers its files by runtime calls, and a bundle that we recorded says which of
those belong to which call (`submodules.*.runtime_calls` in its manifest). So nothing is described:
the n-th file is the n-th runtime call that was profiled, and has its call's names. Where their
numbers do not fit, no file is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import NO_CALL, Call
from profiler.importers.rbln.files import Capture, Shard, missing_numbers
from profiler.importers.rbln.labels import Labels, files_found, unlabelled
from profiler.importers.rbln.pipeline import ExpectedCall
from profiler.notes import Note
from profiler.trace.manifest import MANIFEST_NAME, Manifest, read_manifest
from profiler.trace.manifest_fields import Submodule
from profiler.trace.search import find_bundles

__all__ = ["label_by_run"]


@dataclass(frozen=True, slots=True, order=True)
class _RuntimeCall:
    """A runtime call that the run made; `call` is the index of the call in which, `NO_CALL` for
    warm-up and calls that failed."""

    number: int
    call: int
    profiled: bool


def label_by_run(capture: Capture, run: Path, skip: int) -> Labels:
    """Label the shards behind the first `skip` by the bundle at `run`, all of them or none.

    Files of runtime calls that belong to no call of the run (warm-up) are skipped as well. Raises
    InputError where `run` is no bundle or one that notes no runtime calls, or nothing is left.
    """
    total = len(capture.shards)
    if skip >= total:
        raise InputError(f"--skip {skip} leaves none of the {total:,} files: skip fewer")
    manifest = read_manifest(find_bundles(run)[0] / MANIFEST_NAME)
    made = _runtime_calls(manifest, run)
    leading, shards = capture.shards[:skip], capture.shards[skip:]
    profiled = [call for call in made if call.profiled]
    why_not = None if capture.in_order else Note.of(DropReason.ORDER_UNKNOWN)
    why_not = why_not or _why_not(shards, profiled, manifest.run_id, skip)
    name = manifest.info.pipeline
    if why_not:
        return Labels(leading, shards, unlabelled(shards), why_not, name, manifest.run_id)
    calls = {entry.call.index: entry.call for entry in manifest.calls}
    pairs = list(zip(shards, profiled, strict=True))
    kept = [(shard, calls[made.call]) for shard, made in pairs if made.call != NO_CALL]
    if not kept:
        raise InputError(f"every file in {capture.source} is of a warm-up call of {run}")
    apart = tuple(shard for shard, made in pairs if made.call == NO_CALL)
    return Labels(
        (*leading, *apart),
        tuple(shard for shard, _ in kept),
        tuple(_expected(call) for _, call in kept),
        None,
        name,
        manifest.run_id,
    )


def _expected(call: Call) -> ExpectedCall:
    return ExpectedCall(call.submodule, call.stage, call.branch, call.step, call.device)


def _runtime_calls(manifest: Manifest, run: Path) -> list[_RuntimeCall]:
    """All runtime calls of the run in their order."""
    known = {entry.call.index for entry in manifest.calls} | {NO_CALL}
    found: list[_RuntimeCall] = []
    for facts in manifest.info.submodules.values():
        found += _of_submodule(facts, known, run)
    if not found:
        raise InputError(
            f"{run} notes no calls of RBLN's runtimes: give a run of an optimum-rbln pipeline that "
            "was recorded with ops='all', or describe it with --pipeline"
        )
    found.sort()
    if any(before.number == after.number for before, after in pairwise(found)):
        raise InputError(f"the manifest of {run} notes a runtime call twice: record the run again")
    return found


def _of_submodule(facts: Submodule, known: set[int], run: Path) -> list[_RuntimeCall]:
    profiled = facts.writes_shards is True
    found = [_RuntimeCall(number, call, profiled) for number, call in facts.runtime_calls]
    if any(call.call not in known for call in found):
        raise InputError(f"runtime_calls in the manifest of {run} are damaged: record it again")
    return found


def _why_not(
    shards: Sequence[Shard],
    profiled: Sequence[_RuntimeCall],
    run_id: str,
    skip: int,
) -> Note | None:
    made = Note.of(DropReason.RUN_MADE, run=run_id, calls=len(profiled))
    found = (*files_found(shards, skip), made)
    if len(shards) != len(profiled):
        advice = _advice(shards, profiled)
        return Note.of(DropReason.NOT_LABELLED, found=found, advice=advice)
    if missing_numbers(shards) and not _same_gaps(shards, profiled):
        found = (*found, Note.of(DropReason.OTHER_NUMBERS))
        return Note.of(DropReason.NOT_LABELLED, found=found, advice=Note.of(DropReason.COPY_ALL))
    return None


def _same_gaps(shards: Sequence[Shard], profiled: Sequence[_RuntimeCall]) -> bool:
    """Whether the numbers of the files lie as far apart as those of the runtime calls."""
    apart = {shard.number - call.number for shard, call in zip(shards, profiled, strict=True)}
    return len(apart) == 1


def _advice(shards: Sequence[Shard], profiled: Sequence[_RuntimeCall]) -> Note:
    more = len(shards) - len(profiled)
    if not profiled:
        return Note.of(DropReason.NOTHING_PROFILED)
    if more > 0:
        return Note.of(DropReason.SKIP_EARLIER, files=more)
    return Note.of(DropReason.COPY_ALL)
