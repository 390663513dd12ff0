"""`--max-size`: beyond it calls are recorded without their operators.

    limit = SizeLimit(most_bytes)
    source = LimitedSource(source, limit)      # leaves out what begins when it is reached
    limit.wrote(bytes)                         # of the bundle, so far
    limit.lost(invocation)                     # this call has none, for it
    limit.drops()                              # which calls those are

How much a run writes is known when call files are written. Calls that were traced before and whose
files come behind the limit lose their operators as well, so that a run exceeds it by one call's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from profiler.capture.invocations import Invocation
from profiler.drop_reasons import DropReason
from profiler.events import Drop, DropKind
from profiler.notes import Note

__all__ = ["LimitedSource", "SizeLimit"]


@dataclass(slots=True)
class _Lost:
    """How many calls of a submodule have no operators, and the first of them."""

    count: int
    first: int
    file: str


class SizeLimit:
    """The `most` bytes that a run may write, None for any number. `reached` never goes back."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.reached = False
        self._lost: dict[str, _Lost] = {}

    def wrote(self, size: int) -> None:
        """The bundle has so many bytes by now."""
        if self.most is not None and size >= self.most:
            self.reached = True

    def lost(self, invocation: Invocation) -> None:
        """A call that has returned is recorded without its operators."""
        invocation.drop_told = True
        call = invocation.as_call()
        known = self._lost.setdefault(call.submodule, _Lost(0, call.index, call.file_name))
        known.count += 1
        if call.index < known.first:
            known.first, known.file = call.index, call.file_name

    def drops(self) -> Iterator[Drop]:
        """A drop for each submodule: how many calls, and from which on."""
        for submodule, lost in self._lost.items():
            detail = Note.of(DropReason.SIZE_REACHED, size=self.most or 0, file=lost.file)
            yield Drop(DropKind.UNTRACED_CALL, submodule, lost.count, "calls", detail)


class LimitedSource:
    """An `OperatorSource` that gives `source` no call that begins when the limit is reached."""

    def __init__(self, source: Any, limit: SizeLimit) -> None:
        self._source = source
        self._limit = limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def before(self, invocation: Invocation) -> None:
        """Begin, or leave it out, which `CallWriter` tells of when the call has returned."""
        if self._limit.reached:
            invocation.left_out = invocation.beyond_size = invocation.recorded
            self._source.leave_out(invocation)
        else:
            self._source.before(invocation)

    def after(self, invocation: Invocation) -> None:
        """The source hears of its own calls alone."""
        if not invocation.beyond_size:
            self._source.after(invocation)
