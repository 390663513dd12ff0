"""What is read of rocprofv3's JSON. Keys that are missing have a default: older versions have
fewer.

Source: ROCm/rocprofiler-sdk, source/docs/rocprofv3-schema.json. Of `metadata` the process's id
alone is read: the rest names the machine, and the command with its arguments.
"""

from __future__ import annotations

import msgspec

from profiler.importers.gpu.activity import NO_TIME
from profiler.importers.rocprofv3.rows import NO_ID

__all__ = [
    "AgentRecord",
    "Bank",
    "Buffers",
    "Call",
    "Callbacks",
    "Copy",
    "Correlation",
    "Counted",
    "Counter",
    "Dispatch",
    "Document",
    "Handle",
    "Info",
    "Kind",
    "Message",
    "Metadata",
    "Process",
    "Record",
    "Strings",
    "Symbol",
    "Value",
]


class Handle(msgspec.Struct, frozen=True, gc=False):
    """An id, as the library hands them out."""

    handle: int = NO_ID


class Correlation(msgspec.Struct, frozen=True, gc=False):
    """Which host call a record belongs to."""

    internal: int = NO_ID


class Info(msgspec.Struct, frozen=True, gc=False):
    """Where a dispatch ran, and what."""

    agent_id: Handle = Handle()
    queue_id: Handle = Handle()
    kernel_id: int = NO_ID
    dispatch_id: int = NO_ID


class Record(msgspec.Struct, frozen=True, gc=False):
    """What all records have; times in ns."""

    start_timestamp: int = NO_TIME
    end_timestamp: int = NO_TIME
    correlation_id: Correlation = Correlation()


class Dispatch(Record, frozen=True, gc=False):
    """A kernel that ran."""

    dispatch_info: Info = Info()


class Call(Record, frozen=True, gc=False):
    """A call of a runtime, or what the program marked."""

    thread_id: int = NO_ID
    kind: int = NO_ID
    operation: int = NO_ID


class Copy(Record, frozen=True, gc=False):
    """A copy between agents."""

    kind: int = NO_ID
    operation: int = NO_ID
    bytes: int = NO_ID
    dst_agent_id: Handle = Handle()
    src_agent_id: Handle = Handle()


class Value(msgspec.Struct, frozen=True, gc=False):
    """The value of a counter."""

    counter_id: Handle = Handle()
    value: float = 0.0


class Counted(msgspec.Struct, frozen=True, gc=False):
    """The counters of one dispatch."""

    dispatch_data: Dispatch = Dispatch()
    records: tuple[Value, ...] = ()


class Bank(msgspec.Struct, frozen=True, gc=False):
    """Memory of an agent."""

    size_in_bytes: int = 0


class AgentRecord(msgspec.Struct, frozen=True, gc=False):
    """A processor; `type` 2 is a GPU, which `logical_node_type_id` counts."""

    id: Handle = Handle()
    type: int = 0
    logical_node_type_id: int = NO_ID
    product_name: str = ""
    name: str = ""
    cu_count: int = 0
    mem_banks: tuple[Bank, ...] = ()


class Symbol(msgspec.Struct, frozen=True, gc=False):
    """A kernel by its id; the first has no name."""

    kernel_id: int = NO_ID
    formatted_kernel_name: str | None = None
    kernel_name: str | None = None


class Kind(msgspec.Struct, frozen=True, gc=False):
    """A kind of record and the names of its operations, by number."""

    kind: str = ""
    operations: tuple[str, ...] = ()


class Message(msgspec.Struct, frozen=True, gc=False):
    """What roctx was given, by correlation id."""

    key: int = NO_ID
    value: str = ""


class Strings(msgspec.Struct, frozen=True, gc=False):
    """Names; `buffer_records` by number of the kind."""

    buffer_records: tuple[Kind, ...] = ()
    marker_api: tuple[Message, ...] = ()


class Counter(msgspec.Struct, frozen=True, gc=False):
    """A hardware counter by its id."""

    id: Handle = Handle()
    name: str = ""


class Buffers(msgspec.Struct):
    """The records of each kind."""

    kernel_dispatch: list[Dispatch] = []
    memory_copy: list[Copy] = []
    marker_api: list[Call] = []
    hip_api: list[Call] = []
    hsa_api: list[Call] = []
    rccl_api: list[Call] = []
    rocdecode_api: list[Call] = []
    rocjpeg_api: list[Call] = []


class Callbacks(msgspec.Struct):
    """The records of hardware counters."""

    counter_collection: list[Counted] = []


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """Of the recording, its process."""

    pid: int = NO_ID


class Process(msgspec.Struct):
    """What one process did."""

    metadata: Metadata = Metadata()
    agents: list[AgentRecord] = []
    counters: list[Counter] = []
    strings: Strings = Strings()
    kernel_symbols: list[Symbol] = []
    buffer_records: Buffers = msgspec.field(default_factory=Buffers)
    callback_records: Callbacks = msgspec.field(default_factory=Callbacks)


class Document(msgspec.Struct, rename={"processes": "rocprofiler-sdk-tool"}):
    """The file."""

    processes: list[Process] = []
