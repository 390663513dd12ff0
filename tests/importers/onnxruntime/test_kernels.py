"""Kernels of GPUs in ONNX Runtime's profiles, written by hand as its profilers write them."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.trace import DropKind
from tests.importers.onnxruntime.test_profiles import (
    BEGIN,
    commands,
    event,
    imported,
    node,
    run,
    written,
)

CUDA, ROCM = "CUDAExecutionProvider", "ROCMExecutionProvider"
GEMM = "void cutlass::Kernel<Gemm<float, 128>>(Params)"


def kernel(name, start, length, stream="7", **args):
    """A kernel as CUPTI's and roctracer's manager write it."""
    sizes = {f"{part}_{axis}": "1" for part in ("grid", "block") for axis in "xyz"}
    return event(name, start, length, cat="Kernel", tid=-1, stream=stream, **sizes, **args)


def launched(name, start, length, by, op="MatMul", **more):
    """One that names its parent, from 1.13 on: behind the parent's event."""
    return kernel(name, start, length, parent_name=f"{by}_kernel_time", op_name=op, **more)


def dropped(loaded):
    return [(one.kind, one.count, one.detail.code.value) for one in loaded.drops]


def test_kernels_are_the_devices_commands(tmp_path):
    """Each on its stream's track of the provider's device, under its node's name with the node's
    shapes, as parts of its work; copies on a track of their own; nodes stay as what the host did,
    linked to what they launched, and the call's device is the GPU."""
    dims = {"input_type_shape": [{"float": [2, 3]}], "output_type_shape": [{"float": [2, 4]}]}
    path = written(
        tmp_path / "unet_2026-05-01_10-12-12.json",
        node("in", 1, 3, provider=CUDA, op="MemcpyFromHost"),
        launched("MemcpyHostToDevice", 5, 4, by="in", op="MemcpyFromHost"),
        node("mm", 10, 5, provider=CUDA, **dims),
        launched(GEMM, 20, 30, by="mm"),
        launched("reduce<float>(float*)", 50, 8, by="mm", stream="9"),
        run(0, 70),
    )
    loaded = imported(tmp_path, path)
    dims = "float[2,3] -> float[2,4]"
    host, copied = (f"{CUDA} launches", "host"), ("stream 7 memcpy", "dma")
    assert commands(loaded, "layer", "kernel", "track", "category", "shapes") == [
        ("in", None, *host, None),
        ("in", "MemcpyHostToDevice", *copied, None),
        ("mm", None, *host, dims),
        ("mm", GEMM, "stream 7", "compute", f"{dims} part 1/2"),
        ("mm", "reduce<float>(float*)", "stream 9", "compute", f"{dims} part 2/2"),
    ]
    on_device = loaded.commands.filter(pl.col("device").cast(pl.String) == "cuda:0")
    times = on_device.select((pl.col("start_ns") - BEGIN) // 1000, pl.col("duration_ns") // 1000)
    assert times.rows() == [(5, 4), (20, 30), (50, 8)]
    assert loaded.calls["device"].cast(pl.String).to_list() == ["cuda:0"]
    assert len(loaded.flows) == 3
    assert "launches" in loaded.info.capabilities
    assert loaded.drops == ()


def test_a_kernel_belongs_to_the_run_of_its_node(tmp_path):
    """Though it ran when the next run of the same thread was under way."""
    path = written(
        tmp_path / "x.json",
        node("a", 1, 2, provider=CUDA),
        launched("k", 12, 3, by="a"),
        run(0, 5),
        node("a", 11, 2, provider=CUDA),
        launched("k", 16, 3, by="a"),
        run(10, 10),
    )
    loaded = imported(tmp_path, path)
    by_call = loaded.commands.filter(pl.col("kernel").is_not_null()).select("call", "start_ns")
    assert by_call.rows() == [(0, 12_000), (1, 16_000)]


def test_versions_that_name_no_parents(tmp_path):
    """From 1.10 to 1.12: the run is told by the time, the layer by the operator, or the kernel's
    short name; ROCm's streams are addresses and are numbered."""
    path = written(
        tmp_path / "x.json",
        node("a", 1, 2, provider=ROCM),
        kernel(GEMM, 10, 5, stream="0x5601", op_name="MatMul"),
        kernel(GEMM, 15, 5, stream="0x9902", op_name=""),
        run(0, 30),
    )
    loaded = imported(tmp_path, path)
    found = [row for row in commands(loaded, "layer", "track", "device") if row[2] != "cpu:0"]
    assert found == [
        ("MatMul", "stream 0", "rocm:0"),
        ("Gemm", "stream 1", "rocm:0"),
    ]
    assert len(loaded.flows) == 0


def test_begins_of_the_versions_that_wrote_ends(tmp_path):
    """Up to 1.9 a kernel's time is its end. A stream executes one after the other: as begins these
    overlap, as ends they follow each other. It is told."""
    ends = [(20, 10), (25, 5), (45, 20)]
    path = written(
        tmp_path / "x.json",
        node("a", 1, 2, provider=CUDA),
        *(kernel(GEMM, end, length, op_name="MatMul") for end, length in ends),
        run(0, 60),
    )
    loaded = imported(tmp_path, path)
    on_device = loaded.commands.filter(pl.col("kernel").is_not_null())
    assert on_device["start_ns"].to_list() == [10_000, 20_000, 25_000]
    assert dropped(loaded) == [(DropKind.ESTIMATED_TIMES, 3, "kernels_by_end")]


def test_kernels_that_have_no_place(tmp_path):
    """One outside of every run, one that ends before it begins, and those of a provider whose
    nodes are themselves the device's work are counted, and not among the commands."""
    path = written(
        tmp_path / "x.json",
        node("a", 1, 2, provider=CUDA),
        launched("in", 5, 2, by="a"),
        kernel("before", -50, 2),
        kernel("negative", 5, -2),
        run(0, 9),
    )
    loaded = imported(tmp_path, path)
    assert len(loaded.commands) == 2
    assert dropped(loaded) == [(DropKind.DROPPED_EVENTS, 2, "kernels_of_no_run")]
    path = written(
        tmp_path / "y.json",
        node("a", 1, 2, provider="VitisAIExecutionProvider"),
        kernel("in", 2, 1),
        run(0, 9),
    )
    loaded = imported(tmp_path, path)
    assert len(loaded.commands) == 1
    assert dropped(loaded) == [(DropKind.DROPPED_EVENTS, 1, "kernels_of_no_run")]


def test_several_sessions_with_kernels(tmp_path):
    """Each session of a folder has the kernels of its own file."""
    folder = tmp_path / "profiles"
    for second, name in enumerate(("text_encoder", "unet")):
        written(
            folder / f"{name}_2026-05-01_10-12-1{second}.json",
            node("a", 1, 2, provider=CUDA),
            launched(f"k_{name}", 3, 4, by="a"),
            run(0, 9),
        )
    loaded = imported(tmp_path, folder)
    kernels = loaded.commands.filter(pl.col("kernel").is_not_null())
    joined = kernels.join(loaded.calls.select("call", "submodule"), on="call")
    texts = joined.select(pl.col("submodule", "kernel").cast(pl.String)).rows()
    assert texts == [("text_encoder", "k_text_encoder"), ("unet", "k_unet")]


@pytest.mark.parametrize("stream", [7, None, ["x"], {}, "9" * 40, "\u202e"])
def test_streams_that_are_none(tmp_path, stream):
    """Whatever a file has in place of a stream, its kernels have a track."""
    one = kernel("k", 3, 4)
    one["args"]["stream"] = stream
    path = written(tmp_path / "x.json", node("a", 1, 2, provider=CUDA), one, run(0, 9))
    tracks = [track for (track,) in commands(imported(tmp_path, path), "track")]
    assert tracks[1] in ("stream 7", "stream 0")
