"""Why a run has no allocations, and what records them."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.text import Note, NoteCode
from profiler.trace.manifest_fields import Recording

__all__ = ["NoAllocations", "why_no_allocations"]

_CAPTURE = "capture"


class NoAllocations(NoteCode):
    """Why nothing is known of what an allocator gave out."""

    NOT_ASKED_FOR = "not_asked_for"  # of a capture of ours
    NOT_IN_TRACE = "not_in_trace"  # of torch.profiler, by whoever recorded it


def why_no_allocations(
    producer: str, recording: Recording | None, counters: Iterable[str | None]
) -> Note | None:
    """Why there are no allocations, where they could have been recorded and nobody asked for them;
    `counters` are the names of those that there are, by device."""
    if recording is None or recording.profile_memory is not False:
        return None
    if any("torch" in names for names in counters if names):
        return None
    ours = producer == _CAPTURE
    return Note.of(NoAllocations.NOT_ASKED_FOR if ours else NoAllocations.NOT_IN_TRACE)
