"""Collectives between ranks: what their names say, in whatever words a producer has.

    collective_kind("_allgather_base")                           → all_gather
    collective_kind("ncclDevKernel_AllReduce_Sum_f32_RING_LL")   → all_reduce
    bus_factor(CollectiveKind.ALL_REDUCE, 8)                     → 1.75

The factors are those of nccl-tests: by how much a message's bytes are to be multiplied for what the
slowest link carried, whatever the number of ranks.
"""

from __future__ import annotations

import re
from enum import StrEnum

__all__ = ["CollectiveKind", "bus_factor", "collective_kind"]


class CollectiveKind(StrEnum):
    """What a collective does, in the words of torch.distributed."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND_RECV = "send_recv"  # also an all-to-all or a gather that is made of sends
    BARRIER = "barrier"
    OTHER = "other"


_WORDS = (  # the first that is in a name's letters
    ("allreduce", CollectiveKind.ALL_REDUCE),
    ("allgather", CollectiveKind.ALL_GATHER),
    ("reducescatter", CollectiveKind.REDUCE_SCATTER),
    ("alltoall", CollectiveKind.ALL_TO_ALL),
    ("broadcast", CollectiveKind.BROADCAST),
    ("sendrecv", CollectiveKind.SEND_RECV),
    ("barrier", CollectiveKind.BARRIER),
    ("reduce", CollectiveKind.REDUCE),
    ("gather", CollectiveKind.GATHER),
    ("scatter", CollectiveKind.SCATTER),
    ("send", CollectiveKind.SEND_RECV),
    ("recv", CollectiveKind.SEND_RECV),
)
_LETTERS = re.compile(r"[^a-z]")
_PARAMETERS = re.compile(r"[(<].*", re.DOTALL)


def collective_kind(name: str) -> CollectiveKind:
    """The kind that the name of a collective, an operator or a kernel says."""
    letters = _LETTERS.sub("", _PARAMETERS.sub("", name).lower())
    return next((kind for word, kind in _WORDS if word in letters), CollectiveKind.OTHER)


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Bytes that the slowest link carries for each byte of a message between so many ranks."""
    if ranks < 1:
        return 1.0
    others = (ranks - 1) / ranks
    if kind is CollectiveKind.ALL_REDUCE:
        return 2 * others
    spread = (
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.GATHER,
        CollectiveKind.SCATTER,
    )
    return others if kind in spread else 1.0
