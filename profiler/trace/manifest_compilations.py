"""What a manifest says of code that was compiled while the run went on.

Texts are of the user's program and of its compiler: bounded here, escaped where they are shown.
`docs/file-format.md` describes the keys.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from profiler.trace.manifest_fields import LARGEST, Fields

__all__ = ["LONGEST_NAME", "LONGEST_REASON", "Compilation", "GraphBreak"]

LONGEST_NAME = 200  # characters
LONGEST_REASON = 500

_Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
_Reason = Annotated[str, Meta(max_length=LONGEST_REASON)]
_Count = Annotated[int, Meta(ge=0, le=LARGEST)]  # also nanoseconds
_Time = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_CallIndex = Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]


class GraphBreak(Fields, frozen=True, kw_only=True):
    """Why the compiler ended a graph before the code's end, `times` times; `place` is the line of
    the program, "" where the compiler does not tell."""

    reason: _Reason
    place: _Name = ""
    times: _Count = 1


class Compilation(Fields, frozen=True, kw_only=True):
    """One compilation of `function`, from `start_ns` on the run's clock for `duration_ns`, in the
    call of index `call`, -1 in a pipeline call outside of every call.

    `id` is the compiler's own. `recompile_reason` says why what had been compiled before did not
    do, "" for a first compilation. `failure` says why it came to nothing: the code then runs as it
    is. `forgotten` counts compilations before this one of which the compiler has kept nothing but
    how long they took, `forgotten_ns` together.
    """

    id: _Name = ""
    function: _Name = ""
    call: _CallIndex = -1
    start_ns: _Time
    duration_ns: _Count
    recompile_reason: _Reason = ""
    failure: _Reason = ""
    graph_breaks: tuple[GraphBreak, ...] = ()
    forgotten: _Count = 0
    forgotten_ns: _Count = 0
