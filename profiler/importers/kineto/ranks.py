"""What a Kineto trace says of its job: the rank that recorded it, and its collectives."""

from __future__ import annotations

from collections import Counter

import msgspec

from profiler.files import decoded
from profiler.grammars.names import CollectiveKind, collective_kind
from profiler.importers.ranks import Among, InJob, RankCollective, matched_collective
from profiler.kineto.events import whole
from profiler.kineto.operators import CollectiveArgs, Scalar, queue
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.manifest_fields import Job, MatchedBy, Rank

# --- The collectives of one rank: kernels of NCCL and RCCL, what each is, and which of its kind.
#
# A collective is known by its process group and number (`Seq`); by its group, kind and order, if
# recorders write no numbers; by its stream, kind and order, if they write no groups.


_BYTES = {  # of an element, by c10's names of types
    **dict.fromkeys(("double", "long", "complexfloat"), 8),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("char", "byte", "bool"), 1),
}
_NO_ARGS = CollectiveArgs()
_LARGEST = 1 << 50  # bytes of a message


def collectives_of(trace: KinetoTrace) -> list[RankCollective]:
    """The collectives of a trace, in order of their begins."""
    rows = [
        row
        for row in trace.rows_of("kernel").tolist()
        if queue("kernel", trace.events.name_of(row))[1] == "collective"
    ]
    rows.sort(key=lambda row: (int(trace.start_ns[row]), row))
    counted: Counter[Among] = Counter()
    return [_rank_collective(trace, row, counted) for row in rows]


def _rank_collective(trace: KinetoTrace, row: int, counted: Counter[Among]) -> RankCollective:
    event, args = trace.events[row], trace.collectives.get(row, _NO_ARGS)
    kind = collective_kind(str(args.name)) if args.name is not None else collective_kind(event.name)
    among, matched_by = _among(args, kind)
    if matched_by is MatchedBy.STREAM_ORDER:
        stream = event.args.stream if event.args is not None else event.tid
        among = (str(stream), kind)
    number = counted[among]
    counted[among] += 1
    start = int(trace.start_ns[row])
    size, dtype = whole(args.size, 0), _text(args.dtype).lower()
    element = 1 if dtype.startswith("float8") else _BYTES.get(dtype, 0)
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


def _bytes(elements: Scalar, element: int) -> int | None:
    count = whole(elements, -1)
    return count * element if element and 0 <= count < _LARGEST else None


# --- Which rank of its job a trace is of.


def in_job(trace: KinetoTrace) -> InJob | None:
    """What a trace says of its job; None if it says nothing, or what cannot be."""
    raw = bytes(trace.header.distributedInfo)
    try:
        job = decoded(raw, InJob, strict=False) if raw else None
    except msgspec.MsgspecError:
        return None
    if job is None or not 0 <= job.rank < job.world_size < 1 << 31:
        return None
    return InJob(job.rank, job.world_size, job.backend)


def job_of_one(trace: KinetoTrace, source: str) -> Job | None:
    """The job of which one rank alone has a trace; None if it is no job of several."""
    job = in_job(trace)
    if job is None or job.world_size < 2:
        return None
    own = [one for one in collectives_of(trace) if one.has_details]
    return Job(
        world_size=job.world_size,
        backend=job.backend,
        reference=job.rank,
        ranks=(Rank(rank=job.rank, source=source),),
        collectives=tuple(matched_collective([one], [(job.rank, one.start_ns)]) for one in own),
    )
