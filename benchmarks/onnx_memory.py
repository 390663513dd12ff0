"""What the profiled session of ONNX Runtime takes in memory beside the pipeline's own.

    python benchmarks/onnx_memory.py [--size 2048] [--layers 12]

A model of float32 `MatMul`s of size x size, in a process of its own for each way to keep its
weights. Printed is by how much the process's proportional set size (PSS, Linux) has grown after a
run of the first session, and after one of a second session of the same model, opened as
`--ops first` opens it: with profiling, and with the optimized graph written beside it.
"""

from __future__ import annotations

import argparse
import gc
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
import numpy as np

WAYS = ("external", "external, session.disable_prepacking", "inside model.onnx")
MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--way", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.way is not None:
        measure(chosen.way, chosen.folder, chosen.size)
        return
    import onnxruntime

    weights = chosen.size**2 * 4 * chosen.layers / MIB
    print(f"onnxruntime {onnxruntime.__version__}, {weights:.0f} MiB of weights; growth in MiB")
    print(f"{'weights':40}{'first':>8}{'both':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for way in range(len(WAYS)):
            write_model(Path(folder), chosen.size, chosen.layers, external=way < 2)
            command = [sys.executable, __file__, "--way", str(way), "--folder", folder]
            subprocess.run([*command, "--size", str(chosen.size)], check=True)


def write_model(folder: Path, size: int, layers: int, *, external: bool) -> None:
    """`model.onnx` in the folder, and `weights.bin` where its weights are external."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for layer in range(layers):
        weight = random.standard_normal((size, size), dtype=np.float32) / size
        weights.append(numpy_helper.from_array(weight, f"weight{layer}"))
        result = "y" if layer == layers - 1 else f"x{layer}"
        nodes.append(helper.make_node("MatMul", [name, f"weight{layer}"], [result]))
        name = result
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, size]) for n in "xy"]
    graph = helper.make_graph(nodes, "chain", [ends[0]], [ends[1]], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    where: dict[str, Any] = {"save_as_external_data": True, "location": "weights.bin"}
    (folder / "weights.bin").unlink(missing_ok=True)
    onnx.save(model, str(folder / "model.onnx"), **(where if external else {}))


def measure(way: int, folder: Path, size: int) -> None:
    """One row, in this process."""
    import onnxruntime

    from profiler.capture.calls import RunClock
    from profiler.capture.onnxruntime.operators import ProfiledPart
    from profiler.capture.operator_source import SourceRequest
    from profiler.capture.recorder import Recorder
    from profiler.capture.settings import parse_ops

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if way == 1:
        options.add_session_config_entry("session.disable_prepacking", "1")
    feeds = {"x": np.ones((1, size), np.float32)}
    before = retained_bytes()
    part = Part(str(folder / "model.onnx"), options)
    part.session.run(None, feeds)
    first = retained_bytes()
    selection = parse_ops("first").of("transformer")
    with tempfile.TemporaryDirectory() as work:
        request = SourceRequest(
            "transformer", part, "cpu:0", Path(work), Recorder(RunClock.start()), 10**6, selection
        )
        source = ProfiledPart(request)
        part.session.run(None, feeds)
        both = retained_bytes()
        source.close()
    row = ((first - before) / MIB, (both - before) / MIB)
    print(f"{WAYS[way]:40}{row[0]:8.0f}{row[1]:8.0f}", flush=True)


class Part:
    """What a pipeline has: something with a session."""

    def __init__(self, path: str, options: Any) -> None:
        import onnxruntime

        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(path, options, providers=providers)


def retained_bytes() -> int:
    """This process's proportional set size: what it shares with itself counts once."""
    gc.collect()
    text = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    main()
