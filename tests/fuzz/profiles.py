"""Profiles of ONNX Runtime as seeds: what its versions write, and what is awkward in JSON."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["AWKWARD", "WORDS", "profiles"]

WORDS = (
    *('"name"', '"cat"', '"args"', '"ts"', '"dur"', '"tid"', '"Node"', '"Kernel"', '"model_run"'),
    *('"op_name"', '"provider"', '"input_type_shape"', '"output_type_shape"', "_kernel_time"),
    *('"parameter_size"', '"activation_size"', '"output_size"', '"mem_bytes_in_use"'),
    *('"parent_name"', '"profile_truncated"', "null", "true", "\\\\ud83d\\\\ude00", "1e9"),
)
"""What an event is made of, for a fuzzer's dictionary."""

_NODE = (
    '{"cat" : "Node","pid" :7,"tid" :7,"dur" :3,"ts" :40,"ph" : "X","name" :"a_kernel_time",'
    '"args" : {"op_name" : "MatMul","mem_bytes_in_use" : "300","thread_scheduling_stats" : '
    '{"main_thread": {"block_size": [], "core": -1, "Run": 0}, "sub_threads": {"140": {"core": 0}}}'
    ',"node_index" : "0","input_type_shape" : [{"float":[1,64]}],"output_type_shape" : '
    '[{"float":[1]}],"parameter_size" : "23","provider" : "CPUExecutionProvider",'
    '"activation_size" : "96","output_size" : "4"}}'
)
_FENCE = (
    '{"cat" : "Node","tid" :7,"dur" :0,"ts" :40,"name" :"a_fence_before",'
    '"args" : {"op_name" : "MatMul"}}'
)
_RUN = '{"cat" : "Session","tid" :7,"dur" :9,"ts" :39,"name" :"model_run","args" : {}}'
_KERNEL = (
    '{"cat" : "Kernel","tid" :0,"dur" :2,"ts" :41,"name" :"gemm","args" : {"stream" : "7",'
    '"parent_name" : "a_kernel_time","op_name" : "MatMul","grid_x" : 5}}'
)
_FULL = '{"cat":"Session","name":"profile_truncated","args":{"dropped_event_count":"12"}}'
_NAMED = '{"cat":"Node","args":{},"name":%s}'

AWKWARD = tuple(
    text.encode("utf-8", "surrogatepass")
    for text in (
        *("", "[", "]", "[]", "[ ]", ",", "[,]", "{}", "[[]]", "null", "\ufeff[]", "[]]"),
        *(f"[{_RUN},]", f"[{_RUN}", f"{_RUN}]", f"{_RUN},", f"{_RUN} {_RUN}", f"{_RUN},,{_RUN}"),
        *(_NAMED % name for name in ('"\\u00e4_kernel_time"', '"\\ud83d\\ude00_kernel_time"')),
        *(
            _NAMED % name
            for name in ('"\\ud83d_kernel_time"', '"\\x_kernel_time"', '"ä_kernel_time"')
        ),
        *(_NAMED % name for name in ('"\t_kernel_time"', '"\ud800_kernel_time"', '"_kernel_time')),
        *(_NAMED % name for name in ("null", "7", '"\\"\\\\\\/\\b\\f\\n\\r\\t_kernel_time"')),
        *(_NODE.replace(":40", f":{time}") for time in (1 << 50, -(1 << 50), "4.0", "4e1", "04")),
        *(_NODE.replace(":40", f":{time}") for time in ("-0", "-", '"4"', "null", 10**40, "+4")),
        *(_NODE.replace('"tid" :7', f'"tid" :{thread}') for thread in (1 << 62, -(1 << 62), 2**64)),
        *(_NODE.replace('"core": -1', f'"core": {value}') for value in ("1e999", "-", "1.", "01")),
        *(_NODE.replace("[]", value) for value in ("[1,]", "[" * 80 + "]" * 80, '{"a":1,"a":2}')),
        *(_NODE.replace('"300"', value) for value in ("300", '"-3"', f'"{"9" * 30}"', "null")),
        _NODE.replace('"name" :', '"name" : "b_kernel_time", "name" :'),
        _NODE.replace('"args" :', '"args" : null, "args" :'),
        _NODE.replace('"dur" :3', '"dur" :-3'),
        _NODE.replace('"op_name"', '"op\\u005fname"'),
        _KERNEL.replace('"dur" :2', '"dur" :-2'),
        _KERNEL.replace('"a_kernel_time"', "{}"),
        _NODE.replace('"args" : {', '"args" : null, "more" : {'),
        "[\n" + ",\n".join(_NODE.replace(",", ",\n") for _ in range(3)) + "\n]",
    )
)
"""Texts of which each has one thing that a reader may take for another; many are no profile."""


def profiles() -> Iterator[bytes]:
    """Profiles, whole and cut, then what is awkward."""
    for events in ((_NODE, _RUN), (_FENCE, _NODE, _RUN, _NODE, _KERNEL, _RUN, _FULL), (_KERNEL,)):
        text = ("[\n" + ",\n".join(events) + "\n]\n").encode()
        yield text
        yield text[2:]
        yield text[: len(text) * 2 // 3]
        yield text.replace(b"\n", b"")
    yield from AWKWARD
