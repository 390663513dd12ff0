"""Documents of torch.profiler's events as recorders spell them, and as none should."""

from __future__ import annotations

import json

from hypothesis import strategies as st

_TEXTS = st.sampled_from(("aten::mm", "", 'a "quoted" \\ name', "naïve\u2028", "Memcpy", "x" * 70))
_TIMES = st.one_of(
    st.integers(-5, 1 << 51),
    st.decimals(0, 10**12, places=3).map(float),
    st.sampled_from((0.0005, 1.0015, 51.778000000000006, 1773709742341309.55, 1e9, None)),
)
_NUMBERS = st.one_of(
    st.integers(-(1 << 40), 1 << 40),
    st.sampled_from((None, "7", "seven", 1.5, (1 << 63) - 1, -(1 << 63), 1 << 63)),
)
_VALUES = st.sampled_from(([], [[2, 3], [4]], ["float", ""], {"a": [1, None]}, "text", None, 3))
_ARGS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("External id", "correlation", "Sequence number", "bytes"), _NUMBERS),
        **dict.fromkeys(("device", "stream", "graph node id", "Fwd thread id", "name"), _NUMBERS),
        **dict.fromkeys(("Input Dims", "Input type", "grid"), _VALUES),
        "copy kind": st.sampled_from(("HtoD", None)),
        "Python id": st.integers(0, 9),
    },
)
events = st.fixed_dictionaries(
    {"ph": st.sampled_from("XXXXXXXBEMiCsf")},
    optional={
        "cat": st.sampled_from(("cpu_op", "kernel", "gpu_memcpy", "python_function", "")),
        "name": st.one_of(_TEXTS, st.sampled_from(("[memory]", "thread_name", "process_name"))),
        "pid": st.sampled_from((0, 1, "0", "Spans", None)),
        "tid": st.sampled_from((7, "stream 7", None)),
        "ts": _TIMES,
        "dur": _TIMES,
        "args": st.one_of(st.none(), _ARGS),
    },
)
"""Events of a trace, complete and others, as Python's values."""

documents = st.builds(
    lambda listed, around, compact: json.dumps(
        {**around, "traceEvents": listed, "end": 1},
        separators=(",", ":") if compact else None,
        ensure_ascii=compact,
    ).encode(),
    st.lists(events, max_size=8),
    st.sampled_from(({}, {"schemaVersion": 1, "deviceProperties": [{"id": 0}]})),
    st.booleans(),
)
"""The texts of files."""
