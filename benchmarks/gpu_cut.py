"""Cut a torch trace to what its analysis needs, small enough to be kept beside tests.

    python benchmarks/gpu_cut.py TRACE.json.gz OUT.json.gz [--launching]

Events stay; of their arguments those stay that name operators, shapes, types, streams,
correlations, and what launches need. `--launching`: of the host's operators those alone in which
something was launched. Times are from the first event on, paths are cut to file names, and nothing
else of the machine is kept but the device's properties.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from bisect import bisect_left
from pathlib import Path
from typing import Any

_KEPT = (
    "External id",
    "correlation",
    "cbid",
    "device",
    "stream",
    "bytes",
    "Input Dims",
    "Input type",
    "Concrete Inputs",
    "Python id",
    "Python parent id",
    "Python module id",
    "Device Id",
    "Device Type",
    "Bytes",
    "Total Allocated",
    "Total Reserved",
    "grid",
    "block",
    "labels",
    "name",
    "sort_index",
)
_TOP = ("schemaVersion", "deviceProperties", "record_shapes", "with_stack", "with_modules")
_NEED_VALUES = re.compile(r"conv|attention|softmax|norm|matmul|mm$|cat$|index|slice", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w.])(?:/[\w.@+-]+)+/(?=[\w.@+-]+)")


def cut(trace: dict[str, Any], *, launching: bool = False) -> dict[str, Any]:
    """The trace without what no analysis reads."""
    kept = {key: trace[key] for key in _TOP if key in trace}
    events = [event for event in trace["traceEvents"] if event.get("ph") not in ("s", "f")]
    if launching:
        runtime = ("cuda_runtime", "cuda_driver")
        moments = sorted(event["ts"] for event in events if event.get("cat") in runtime)
        events = [event for event in events if _launches(event, moments)]
    first = min(event["ts"] for event in events if event.get("ph") == "X")
    return {**kept, "traceEvents": [_event(event, first) for event in events]}


def _launches(event: dict[str, Any], moments: list[float]) -> bool:
    """Whether it is no operator of the host's, or one in which the runtime was called."""
    if event.get("cat") != "cpu_op":
        return True
    end = event["ts"] + event.get("dur", 0)
    return bisect_left(moments, event["ts"]) < bisect_left(moments, end)


def _event(event: dict[str, Any], first: float) -> dict[str, Any]:
    found = {key: value for key, value in event.items() if key != "args"}
    found["name"] = _PATH.sub("", str(event.get("name", "")))
    if "ts" in event:
        found["ts"] = round(event["ts"] - first, 3)
    args = {key: value for key, value in event.get("args", {}).items() if key in _KEPT}
    if not _NEED_VALUES.search(found["name"]):
        args.pop("Concrete Inputs", None)
    if args:
        found["args"] = args
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--launching", action="store_true")
    options = parser.parse_args()
    source, target = options.source, options.target
    with gzip.open(source, "rt") as file:
        trace = json.load(file)
    text = json.dumps(cut(trace, launching=options.launching), separators=(",", ":")).encode()
    target.write_bytes(gzip.compress(text, 9, mtime=0))
    print(f"{source.name}: {source.stat().st_size:,} -> {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
