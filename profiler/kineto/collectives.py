"""What Kineto's kernels of NCCL and RCCL tell of the collective that they are: read apart from
other events, of which none has these keys."""

from __future__ import annotations

import msgspec

from profiler.kineto.events import Scalar
from profiler.typed_json import decoded

__all__ = ["CollectiveArgs", "collective_args"]


class CollectiveArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "name": "Collective name",
        "sent": "In msg nelems",
        "received": "Out msg nelems",
        "size": "Group size",
        "group": "Process Group Name",
        "members": "Process Group Ranks",
        "sequence": "Seq",
    },
):
    """`sent` and `received` are numbers of elements of `dtype`, `size` is that of the process
    group, `members` are the ranks in it as a text, cut behind thirty."""

    name: Scalar = None
    sent: Scalar = None
    received: Scalar = None
    dtype: Scalar = None
    size: Scalar = None
    group: Scalar = None
    members: Scalar = None
    sequence: Scalar = None


class _Event(msgspec.Struct, gc=False):
    cat: str = ""
    args: CollectiveArgs | None = None


class _Events(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815  the key's own name


def collective_args(data: bytes | bytearray) -> dict[int, CollectiveArgs]:
    """What the kernels among `traceEvents` tell, by their place there; nothing where one has such
    keys in another form than Kineto's."""
    try:
        events = decoded(data, _Events, strict=False).traceEvents
    except msgspec.MsgspecError:
        return {}
    return {
        place: event.args
        for place, event in enumerate(events)
        if event.cat.lower() == "kernel" and event.args is not None and event.args.name is not None
    }
