"""What executed a run, by its trace: torch, compiled torch, ONNX Runtime, XLA.

    runtime_of(analysis)  == Runtime.TORCH

Advice depends on it: a compiled run needs no compiler, and ONNX Runtime has no torch options.
`INSTEAD` has the texts of rules that speak of torch, for runs that it does not apply to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import polars as pl

from profiler.text import Said, said
from profiler.trace.events import device_kind

if TYPE_CHECKING:
    from profiler.analysis.result import Analysis

_GENERATED = r"^(triton_(poi|red|per|tem|for)|(graph_\d+_)?cpp_fused)_"
_MUCH = 0.1  # of the commands that compute


class Runtime(StrEnum):
    """What executed a run."""

    TORCH = "torch"
    COMPILED = "compiled"
    ONNXRUNTIME = "onnxruntime"
    XLA = "xla"
    OTHER = "other"


_PRODUCERS = {
    "onnxruntime": Runtime.ONNXRUNTIME,
    "xplane": Runtime.XLA,
    **dict.fromkeys(("aihub", "openvino", "qnn", "rbln", "tensorrt", "triton"), Runtime.OTHER),
}


def runtime_of(analysis: Analysis, submodule: str | None = None) -> Runtime:
    """What executed the run, or a submodule of it: by its producer, else by its models and
    kernels."""
    run = analysis.run
    known = _PRODUCERS.get(run.producer)
    if known is not None:
        return known
    if any(submodule.model.endswith(".onnx") for submodule in run.submodules.values()):
        return Runtime.ONNXRUNTIME
    if any(device.partition("/")[2].startswith("rbln") for device in run.devices):
        return Runtime.OTHER
    return Runtime.COMPILED if is_compiled(analysis, submodule) else Runtime.TORCH


def is_compiled(analysis: Analysis, submodule: str | None = None) -> bool:
    """Whether torch.compile wrote much of what computes, in a submodule if it is given."""
    rows = analysis.kinds.table.filter(pl.col("category").cast(pl.String) == "compute")
    if submodule is not None:
        rows = rows.filter(pl.col("submodule") == submodule)
    name = pl.coalesce(pl.col("kernel", "op_type", "layer").cast(pl.String)).fill_null("")
    sums = rows.select(
        pl.col("commands").filter(name.str.contains(_GENERATED)).sum().alias("generated"),
        pl.col("commands").sum(),
    )
    generated, commands = sums.row(0)
    return bool(commands > 0 and generated >= _MUCH * commands)


_LAUNCH_LESS = (
    "Launch less: CUDA graphs or torch.compile(mode='reduce-overhead'), larger batches, fused "
    "nodes."
)
_LAUNCH_LESS_SHORT = "Launch less: CUDA graphs, torch.compile, larger batches, fused nodes"
_FUSE = (
    "torch.compile the submodule; in ONNX export activations as one operator (Gelu instead "
    "of its formula) and let the optimizer fuse them."
)
_FUSE_SHORT = "Compile the submodule, or export activations as one operator"
_NORM = (
    "Use the framework's norm (torch.nn.RMSNorm, LayerNormalization) instead of a "
    "handwritten one, compile the block, or use one kernel for norm, shift and scale."
)
_NORM_SHORT = "Use the framework's norm, or compile the block"
_SINGLE = (
    "Load the model in bfloat16 (torch_dtype=torch.bfloat16), or allow TF32 "
    "(torch.set_float32_matmul_precision('high'))."
)
_SINGLE_SHORT = "Load the model in bfloat16, or allow TF32"
_TF32 = "Load the model in bfloat16 (torch_dtype=torch.bfloat16)."
_TF32_SHORT = "Load the model in bfloat16"

_GAPS = (
    "Look at what the host does in the gaps: synchronizing (.item(), .cpu(), printing), "
    "allocation, graph breaks, lazy loading."
)
_GAPS_SHORT = "Look at what the host does in the gaps: .item(), allocation, loading"
_SYNC = (
    "The host waited until the device had nothing left, and launched only then: look for "
    ".item(), .cpu(), printing, blocking copies."
)
_SYNC_SHORT = "Remove synchronization: .item(), .cpu(), printing, blocking copies"
_BETWEEN = (
    "Look at what the host does between calls: scheduler, guidance, callbacks, "
    "post-processing; or let other requests fill the gaps."
)
_BETWEEN_SHORT = "Look at what the host does between calls: scheduler, callbacks"
_BETWEEN_CALLS = (
    "Look at what the host does between calls: loading and preparing inputs, sampling, callbacks, "
    "post-processing; or let other requests fill the gaps."
)
_BETWEEN_CALLS_SHORT = "Look at what the host does between calls: inputs, callbacks, results"
_STEP_SYNC = (
    "Find what synchronizes (timesteps compared on the device, .item(), .cpu(), "
    "nonzero() in the scheduler or a callback) and keep those values on the host."
)
_STEP_SYNC_SHORT = "Find what synchronizes (.item(), .cpu()) and keep it on the host"
_RECORD_CALLS = "Record once with call spans only to see how much is left."
_WARM_UP = (
    "Warm up before recording (run.warmup(), profile-sd3 run --warmup 2) with "
    "the same shapes, and keep the process alive between requests."
)

_JAX_GAPS = said(
    "Look at what the host does in the gaps: waiting (jax.block_until_ready, np.asarray, printing "
    "an array), tracing and compiling again for new shapes, work outside of jitted functions."
)
_JAX_GAPS_SHORT = said("Look at what the host does in the gaps: block_until_ready, retracing")
_JAX_BETWEEN = said(
    "Look at what the host does between calls: waiting for each result "
    "(jax.block_until_ready, np.asarray), tracing and compiling again, work outside of "
    "jitted functions; put the loop into one of them (lax.scan)."
)
_JAX_BETWEEN_SHORT = said("Look at what the host does between calls: block_until_ready, retracing")
_JAX_SYNC = said(
    "The host waited until the device had nothing left, and dispatched only then: wait once at the "
    "end (jax.block_until_ready), and look for np.asarray, float(), printing, jax.device_get."
)
_JAX_SYNC_SHORT = said("Wait once, at the end: block_until_ready, np.asarray, float(), printing")
_ONNX_FUSE = said(
    "Export activations and norms as one operator (Gelu, LayerNormalization), and let the "
    "optimizer fuse them (ORT_ENABLE_ALL)."
)
_XLA_FUSE = said(
    "Put these operators into one jitted function, so that XLA fuses them: look for what ends a "
    "fusion (custom calls, host callbacks, other layouts)."
)
_BREAKS = said(
    "The run is compiled, and these are outside of its kernels: look for graph breaks "
    "(TORCH_LOGS=graph_breaks), and compile the whole submodule (fullgraph=True)."
)
_BREAKS_SHORT = said("Compiled already: look for graph breaks (TORCH_LOGS=graph_breaks)")

_SIXTEEN_BITS: Mapping[Runtime, str] = {
    Runtime.ONNXRUNTIME: "Convert it to float16 (keep inputs and outputs in float32).",
    Runtime.XLA: "Compute in bfloat16 (parameters and activations), or set "
    "jax_default_matmul_precision.",
    Runtime.OTHER: "Convert it to float16 or bfloat16.",
}
_SIXTEEN_BITS_SHORT: Mapping[Runtime, str] = {
    Runtime.ONNXRUNTIME: "Convert it to float16",
    Runtime.XLA: "Compute in bfloat16",
    Runtime.OTHER: "Convert it to float16 or bfloat16",
}

INSTEAD: Mapping[str, Mapping[Runtime, str]] = {
    _LAUNCH_LESS: {
        Runtime.COMPILED: "The run is compiled already: launch less with CUDA graphs "
        "(mode='reduce-overhead') or larger batches.",
        Runtime.ONNXRUNTIME: "Launch less: CUDA graphs (enable_cuda_graph of the CUDA provider, "
        "with IO binding), larger batches, fused nodes.",
        Runtime.XLA: "Dispatch less: one jitted function a step, or the loop in it (lax.scan, "
        "lax.fori_loop), donated buffers, and inputs that are on the device already.",
        Runtime.OTHER: "Launch less: larger batches, fused layers, inputs on the device.",
    },
    _LAUNCH_LESS_SHORT: {
        Runtime.COMPILED: "Launch less: CUDA graphs (compiled already: reduce-overhead)",
        Runtime.ONNXRUNTIME: "Launch less: enable_cuda_graph, IO binding, larger batches",
        Runtime.XLA: "Dispatch less: the loop within one jitted function (lax.scan)",
        Runtime.OTHER: "Launch less: larger batches, fused layers",
    },
    _FUSE: {
        Runtime.COMPILED: _BREAKS,
        Runtime.ONNXRUNTIME: _ONNX_FUSE,
        Runtime.XLA: _XLA_FUSE,
        Runtime.OTHER: _ONNX_FUSE,
    },
    _FUSE_SHORT: {
        Runtime.COMPILED: _BREAKS_SHORT,
        Runtime.ONNXRUNTIME: "Export activations as one operator; ORT_ENABLE_ALL",
        Runtime.XLA: "Put these operators into one jitted function",
        Runtime.OTHER: "Export activations as one operator",
    },
    _NORM: {
        Runtime.COMPILED: _BREAKS,
        Runtime.ONNXRUNTIME: _ONNX_FUSE,
        Runtime.XLA: _XLA_FUSE,
        Runtime.OTHER: _ONNX_FUSE,
    },
    _NORM_SHORT: {
        Runtime.COMPILED: _BREAKS_SHORT,
        Runtime.ONNXRUNTIME: "Export norms as LayerNormalization; ORT_ENABLE_ALL",
        Runtime.XLA: "Put these operators into one jitted function",
        Runtime.OTHER: "Export norms as one operator",
    },
    _GAPS: {Runtime.XLA: _JAX_GAPS},
    _GAPS_SHORT: {Runtime.XLA: _JAX_GAPS_SHORT},
    _SYNC: {Runtime.XLA: _JAX_SYNC},
    _SYNC_SHORT: {Runtime.XLA: _JAX_SYNC_SHORT},
    _BETWEEN: {Runtime.XLA: _JAX_BETWEEN},
    _BETWEEN_CALLS: {Runtime.XLA: _JAX_BETWEEN},
    _BETWEEN_SHORT: {Runtime.XLA: _JAX_BETWEEN_SHORT},
    _BETWEEN_CALLS_SHORT: {Runtime.XLA: _JAX_BETWEEN_SHORT},
    _STEP_SYNC: {Runtime.XLA: _JAX_SYNC},
    _STEP_SYNC_SHORT: {Runtime.XLA: _JAX_SYNC_SHORT},
    _RECORD_CALLS: {Runtime.XLA: "Time it once without jax.profiler to see how much is left."},
    _WARM_UP: {
        Runtime.XLA: "Warm up before jax.profiler.start_trace: call each jitted function with the "
        "same shapes, and wait for it (jax.block_until_ready)."
    },
    **dict.fromkeys((_SINGLE, _TF32), _SIXTEEN_BITS),
    **dict.fromkeys((_SINGLE_SHORT, _TF32_SHORT), _SIXTEEN_BITS_SHORT),
}
"""By the text of a rule (its English template): the advice for runs to which it does not apply."""


def for_runtime(text: str, runtime: Runtime) -> str:
    """Return `text` with what it says of torch, in whole or in part, replaced for this runtime."""
    if not isinstance(text, Said):
        return text
    instead = INSTEAD.get(text.template, {}).get(runtime)
    if instead is not None:
        return Said(instead)
    values = {
        name: for_runtime(value, runtime) if isinstance(value, Said) else value
        for name, value in text.values.items()
    }
    return text if values == text.values else said(text.template, **values)


def is_rocm(device: str | None) -> bool:
    """Whether a device is a GPU of AMD."""
    return device_kind(device or "") in ("rocm", "hip")


_GRAPHS = {"rocm": "HIP", "hip": "HIP", "npu": "NPU"}  # by kind of device, what CUDA graphs are


def _graphs_on(device: str | None) -> str:
    return _GRAPHS.get(device_kind(device or ""), "CUDA")


def for_device(text: str, device: str | None) -> str:
    """`text`, with HIP or NPU graphs for CUDA graphs if the device is AMD's or Ascend's."""
    kind = _graphs_on(device)
    if not isinstance(text, Said) or kind == "CUDA":
        return text
    return text.changed(lambda given: _CUDA_GRAPHS.sub(kind, given))


_CUDA_GRAPHS = re.compile("CUDA(?= (graph|그래프))")


def graphs_of(analysis: Analysis) -> Said:
    """Return what one launch per call is called, for the run's runtime and devices."""
    kind = next((k for k in map(_graphs_on, analysis.run.devices) if k != "CUDA"), "CUDA")
    runtime = runtime_of(analysis)
    if runtime is Runtime.COMPILED:
        return said('{kind} graph per call (compiled already: mode="reduce-overhead")', kind=kind)
    if runtime is Runtime.ONNXRUNTIME:
        return said("{kind} graph per call (enable_cuda_graph)", kind=kind)
    if runtime is Runtime.XLA:
        return said("{kind} graph per call (--xla_gpu_enable_command_buffer)", kind=kind)
    return said("{kind} graph per call", kind=kind)
