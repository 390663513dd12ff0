"""The collectives of one rank: kernels of NCCL and RCCL, what each is, and which of its kind.

A collective is known by its process group and number (`Seq`); by its group, kind and order, where
recorders write no numbers; by its stream, kind and order, where they write no groups.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from profiler.grammars.collectives import CollectiveKind, collective_kind
from profiler.kineto.collectives import CollectiveArgs
from profiler.kineto.events import Scalar, whole
from profiler.kineto.names import queue
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.manifest_ranks import MatchedBy

__all__ = ["Among", "RankCollective", "collectives_of"]

_BYTES = {  # of an element, by c10's names of types
    "double": 8,
    "long": 8,
    "complexfloat": 8,
    "float": 4,
    "int": 4,
    "half": 2,
    "bfloat16": 2,
    "short": 2,
    "char": 1,
    "byte": 1,
    "bool": 1,
}
_NO_ARGS = CollectiveArgs()
_LARGEST = 1 << 50  # bytes of a message
Among = tuple[str, ...]


class RankCollective(Struct, frozen=True):
    """One collective on one rank, in ns of its file. `among` says which others it is counted with,
    `number` its place among them; `size` is that of the group. None is what nobody tells."""

    start_ns: int
    end_ns: int
    kind: CollectiveKind
    group: str
    size: int | None
    sent_bytes: int | None
    received_bytes: int | None
    among: Among
    number: int
    matched_by: MatchedBy

    @property
    def told(self) -> bool:
        """Whether its producer tells more than the name of its kernel."""
        return self.matched_by is not MatchedBy.STREAM_ORDER


def collectives_of(trace: KinetoTrace) -> list[RankCollective]:
    """The collectives of a trace, in order of their begins."""
    rows = [
        row
        for row in trace.rows_of("kernel").tolist()
        if queue("kernel", trace.events.name_of(row))[1] == "collective"
    ]
    rows.sort(key=lambda row: (int(trace.start_ns[row]), row))
    counted: Counter[Among] = Counter()
    return [_collective(trace, row, counted) for row in rows]


def _collective(trace: KinetoTrace, row: int, counted: Counter[Among]) -> RankCollective:
    event, args = trace.events[row], trace.collectives.get(row, _NO_ARGS)
    kind = collective_kind(str(args.name)) if args.name is not None else collective_kind(event.name)
    among, matched_by = _among(args, kind)
    if matched_by is MatchedBy.STREAM_ORDER:
        stream = event.args.stream if event.args is not None else event.tid
        among = (str(stream), kind)
    number = counted[among]
    counted[among] += 1
    start = int(trace.start_ns[row])
    size = whole(args.size, 0)
    element = _element(args.dtype)
    return RankCollective(
        start_ns=start,
        end_ns=start + int(trace.duration_ns[row]),
        kind=kind,
        group=_text(args.group),
        size=size if size > 0 else None,
        sent_bytes=_bytes(args.sent, element),
        received_bytes=_bytes(args.received, element),
        among=among,
        number=number,
        matched_by=matched_by,
    )


def _among(args: CollectiveArgs, kind: CollectiveKind) -> tuple[Among, MatchedBy]:
    """With which others a collective is counted: those of one number are few, often one."""
    if args.group is None:
        return (), MatchedBy.STREAM_ORDER
    group = (_text(args.group), _text(args.members))
    sequence = whole(args.sequence, -1)
    if sequence >= 0:
        return (*group, kind, str(sequence)), MatchedBy.SEQUENCE
    return (*group, kind), MatchedBy.GROUP_ORDER


def _text(value: Scalar) -> str:
    return "" if value is None else str(value).strip('"')


def _element(dtype: Scalar) -> int:
    """The bytes of an element, 0 where its type is not known."""
    name = _text(dtype).lower()
    return 1 if name.startswith("float8") else _BYTES.get(name, 0)


def _bytes(elements: Scalar, element: int) -> int | None:
    count = whole(elements, -1)
    return count * element if element and 0 <= count < _LARGEST else None
