"""Events of torch.profiler's Chrome JSON, as far as they are read."""

from __future__ import annotations

import msgspec

__all__ = ["Args", "Event", "Scalar"]

Scalar = int | float | str | None


class Args(
    msgspec.Struct,
    gc=False,
    rename={
        "external_id": "External id",
        "dims": "Input Dims",
        "types": "Input type",
        "values": "Concrete Inputs",
        "changed": "Bytes",
        "device_type": "Device Type",
        "device_id": "Device Id",
        "allocated": "Total Allocated",
        "reserved": "Total Reserved",
        "sequence": "Sequence number",
        "forward_thread": "Fwd thread id",
    },
):
    """What is read of an event's `args`; `dims`, `types` and `values` are JSON, not decoded.
    `changed` to `reserved` are those of allocations, the last two autograd's; `finished` is false
    where an event had not ended."""

    external_id: Scalar = None
    correlation: Scalar = None
    device: Scalar = None
    stream: Scalar = None
    bytes: Scalar = None
    name: Scalar = None
    dims: msgspec.Raw = msgspec.Raw(b"")
    types: msgspec.Raw = msgspec.Raw(b"")
    values: msgspec.Raw = msgspec.Raw(b"")
    finished: bool | Scalar = None
    changed: Scalar = None
    device_type: Scalar = None
    device_id: Scalar = None
    allocated: Scalar = None
    reserved: Scalar = None
    sequence: Scalar = None
    forward_thread: Scalar = None
    kernel: Scalar = None


class Event(msgspec.Struct, gc=False):
    """One entry of `traceEvents`; times are in `KinetoTrace`."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None
