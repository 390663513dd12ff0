"""Encode one window of torch 2.14's `cupti_monitor` as JSON and as .pftrace, with torch's encoder.

    python tests/importers/kineto/monitor_window.py TRACE.json.gz OUT    (torch 2.14.1, cupti-python
                                                                          13.4, no GPU needed)

TRACE is a file of torch.profiler on CUDA: its operators, annotations and Python frames are the
host's part of the window, its launches, kernels, copies and sets the device's columns. The first
`KERNELS` kernels are kept, those from `GRAPHED` on as the annotated nodes of a CUDA graph's replay.
Power, clocks, temperature and SM activity are made up, since such a trace has none.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

KERNELS, GRAPHED = 120, 100
_HOST = ("cpu_op", "user_annotation", "python_function")
_LAUNCHES = {"cuda_runtime": "runtime", "cuda_driver": "driver"}
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_COPIES = {"HtoD": 1, "DtoH": 2, "DtoD": 8}


def _events(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = [one for one in document.pop("traceEvents") if one.get("ph") == "X"]
    kernels = sorted((one for one in events if one["cat"] == "kernel"), key=lambda one: one["ts"])
    ids = {one["args"]["correlation"]: one for one in events if one["cat"] in _LAUNCHES}
    # those whose launch was recorded
    kept = [one for one in kernels if one["args"]["correlation"] in ids][:KERNELS]
    first = min(ids[one["args"]["correlation"]]["ts"] for one in kept) - 50
    last = max(one["ts"] + one["dur"] for one in kept)
    wanted = {one["args"]["correlation"] for one in kept}
    found = []
    for one in events:
        inside = first <= one["ts"] <= last
        around = one["cat"] == "python_function" and one["ts"] < first < one["ts"] + one["dur"]
        if one["cat"] in _WORK:
            correlation = one["args"]["correlation"]
            if correlation in wanted or (one["cat"] != "kernel" and inside and correlation in ids):
                found.append(one)
        elif one["cat"] in (*_HOST, *_LAUNCHES) and (inside or around):
            found.append(one)
    return document, found


def _column(values: list[Any], kind: Any = np.int64) -> np.ndarray:
    return np.array(values, dtype=kind)


def _times(events: list[dict[str, Any]], base_ns: int) -> dict[str, np.ndarray]:
    start = [base_ns + round(one["ts"] * 1000) for one in events]
    length = [round(one["dur"] * 1000) for one in events]
    ends = [begin + for_ns for begin, for_ns in zip(start, length, strict=True)]
    return {"start_ns": _column(start), "end_ns": _column(ends)}


def _work(events: list[dict[str, Any]], base_ns: int) -> dict[str, np.ndarray]:
    args = [one["args"] for one in events]
    zeros = ("channel", "channel_type", "flags", "src_kind", "dst_kind", "value", "memory_kind")
    zeros += ("static_shared_memory", "priority", "queued", "graph_id", "graph_node_id")
    grid = [one.get("grid", [0, 0, 0]) for one in args]
    block = [one.get("block", [0, 0, 0]) for one in args]
    return {
        **_times(events, base_ns),
        **{f"{name}_id": _column([a[name] for a in args]) for name in ("device", "context")},
        **{f"{name}_id": _column([a[name] for a in args]) for name in ("stream", "correlation")},
        **{name: np.zeros(len(events), dtype=np.int64) for name in zeros},
        **{f"grid_{axis}": _column([one[at] for one in grid]) for at, axis in enumerate("xyz")},
        **{f"block_{axis}": _column([one[at] for one in block]) for at, axis in enumerate("xyz")},
        "registers_per_thread": _column([one.get("registers per thread", 0) for one in args]),
        "dynamic_shared_memory": _column([one.get("shared memory", 0) for one in args]),
        "bytes": _column([one.get("bytes", 0) for one in args]),
        "copy_kind": _column(
            [
                _COPIES.get(one["name"].split()[-1 if one["cat"] == "kernel" else 1], 0)
                for one in events
            ]
        ),
        "annotation": np.full(len(events), None, dtype=object),
    }


def _launches(events: list[dict[str, Any]], base_ns: int) -> dict[str, np.ndarray]:
    return {
        **_times(events, base_ns),
        "cbid": _column([one["args"]["cbid"] for one in events]),
        "process_id": _column([one["pid"] for one in events]),
        "thread_id": _column([one["tid"] for one in events]),
        "correlation_id": _column([one["args"]["correlation"] for one in events]),
    }


def _environment(first: int, last: int) -> dict[str, np.ndarray]:
    """Each millisecond: clocks, temperature and power as CUPTI packs them."""
    times = np.arange(first, last, 1_000_000)
    count = len(times)
    power = (300_000 + 1000 * np.arange(count)).astype(np.uint64)
    clocks = np.full(count, 1980 | 2619 << 32, dtype=np.uint64)
    data = np.concatenate((clocks, np.full(count, 51, dtype=np.uint64), power))
    return {
        "start_ns": np.tile(times, 3),
        "device_id": np.zeros(3 * count, dtype=np.int64),
        "environment_kind": np.repeat([1, 2, 3], count),
        "data": data,
    }


def _window(document: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    base_ns = document["baseTimeNanoseconds"]
    of = {cat: [one for one in events if one["cat"] == cat] for cat in (*_WORK, *_LAUNCHES)}
    kernel = _work(of["kernel"], base_ns)
    kernel["name"] = np.array([one["name"] for one in of["kernel"]], dtype=object)
    order = np.argsort(kernel["start_ns"], kind="stable")
    for node, row in enumerate(order[GRAPHED:].tolist()):
        kernel["graph_id"][row], kernel["graph_node_id"][row] = 3, (3 << 32) + node + 1
        half = "attention" if node < (KERNELS - GRAPHED) // 2 else "mlp"
        kernel["annotation"][row] = [{"name": f"model.layers.1.{half}"}]
    # a replay has one launch for all of its nodes
    graphed = kernel["graph_node_id"] > 0
    replayed = {*kernel["correlation_id"][graphed].tolist()}
    kernel["correlation_id"][graphed] = min(replayed)
    launches = [one for one in of["cuda_runtime"] if one["args"]["correlation"] not in replayed]
    (graph_launch,) = [
        one for one in of["cuda_runtime"] if one["args"]["correlation"] == min(replayed)
    ]
    graph_launch["args"]["cbid"] = 311  # cudaGraphLaunch
    launches.append(graph_launch)
    ids = [one for one in events if one["cat"] in _LAUNCHES and "External id" in one["args"]]
    external = _column([one["args"]["External id"] for one in ids])
    first, last = int(kernel["start_ns"].min()), int(kernel["end_ns"].max())
    activity = np.arange(first, last, 500_000)
    (overhead,) = [{"name": ["Resource"], "start_ns": [first - 9000], "end_ns": [first - 8000]}]
    return {
        "columns": {
            "kernel": kernel,
            "gpu_memcpy": _work(of["gpu_memcpy"], base_ns),
            "gpu_memset": _work(of["gpu_memset"], base_ns),
            "cuda_runtime": _launches(launches, base_ns),
            "cuda_driver": _launches(of["cuda_driver"], base_ns),
            "external_correlation": {
                "correlation_id": _column([one["args"]["correlation"] for one in ids]),
                "external_id": external,
                "user_external_id": external,
            },
            "overhead": {
                name: np.array(values, dtype=object if name == "name" else np.int64)
                for name, values in overhead.items()
            },
            "environment": _environment(first, last),
            "pm_sampling": {
                "start_ns": activity,
                "device_id": np.zeros(len(activity), dtype=np.int64),
                "sm__cycles_active.avg.pct_of_peak_sustained_elapsed": 40.0
                + np.arange(len(activity)) % 50,
            },
        },
        "thread_resource_map": {},
        "user_annotations": {int(external[0]): "first operator"} if len(external) else {},
        "graph_deps": {},
    }


def main(trace: Path, out: Path) -> None:
    """Write window.json.gz and window.pftrace."""
    from torch.profiler._cupti.monitor_trace import merge_trace_window_into_chrome_trace

    document, events = _events(trace)
    window = _window(document, events)
    kept = ("schemaVersion", "deviceProperties", "baseTimeNanoseconds", "record_shapes")
    host = {name: document[name] for name in kept if name in document}
    host["traceEvents"] = [one for one in events if one["cat"] in _HOST]
    for one in host["traceEvents"]:
        one["pid"], one["tid"] = (25286, 25286)  # the frames of this trace have another
    cpu = out / "cpu.json"
    cpu.write_text(json.dumps(host))
    for name in ("window.json.gz", "window.pftrace"):
        merge_trace_window_into_chrome_trace(cpu, out / name, window, trace_name=name)
    cpu.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
