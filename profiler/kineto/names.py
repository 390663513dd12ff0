"""Names in Kineto's events: operators, kernels, copies and their queues."""

from __future__ import annotations

import re

from profiler.events import Category

__all__ = ["copy_name", "is_compiling", "is_operator", "kernel_name", "queue"]

_NO_OPERATOR = re.compile(
    r"Torch-Compiled Region|TorchDynamo|## Call CompiledFxGraph|CompiledF|Pregraph bytecode"
    r"|AOTDispatcher|ProfilerStep"
)
_COMPILING = re.compile(
    r"(?:torch\._)?dynamo|entire_frame_compile|compile_attempt_\d+|.*\(dynamo_timed\)"
)
_LONGEST_NAME = 120  # characters; names of generated GEMM kernels have several hundred


def is_operator(name: str) -> bool:
    """Whether a CPU range is an operator, not a wrapper of torch.compile or of the profiler."""
    return _NO_OPERATOR.match(name) is None


def is_compiling(name: str) -> bool:
    """Whether a CPU range is torch.compile at work: tracing and generating code, with operators in
    it that are run on no data. torch records it among the operators."""
    return _COMPILING.fullmatch(name) is not None


def kernel_name(name: str) -> str:
    """A kernel's name without return type, template arguments and parameters.

    `void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)` →
    `at::native::reduce_kernel`.
    """
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    depth = 0
    short: list[str] = []
    for character in name:
        if character == "(" and depth == 0 and short:
            break
        depth += character == "<"
        if depth == 0:
            short.append(character)
        depth -= character == ">" and depth > 0
    text = "".join(short).strip() or name
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def copy_name(name: str) -> str:
    """`Memcpy HtoD (Pageable -> Device)` → `Memcpy HtoD`."""
    return name.split("(", maxsplit=1)[0].strip() or "Memcpy"


def queue(activity: str, name: str) -> tuple[str, Category]:
    """What follows the stream in the name of the track of device work, and its category.

    `activity` is Kineto's: `kernel`, `gpu_memcpy` or `gpu_memset`. Copies from and to the host
    are on ` memcpy` (dma), those on a device or between devices and memset on ` copy`, NCCL's and
    RCCL's kernels on ` collectives` (collective); other kernels on the stream itself (compute).
    """
    if activity == "gpu_memcpy":
        ends = copy_name(name).rpartition(" ")[2]  # HtoD, DtoH, DtoD, PtoP
        to_host = ends.startswith("H") != ends.endswith("H")
        return (" memcpy", "dma") if to_host else (" copy", "copy")
    if activity == "gpu_memset":
        return " copy", "copy"
    if name.lower().startswith(("nccl", "rccl", "mscclkernel")):
        return " collectives", "collective"
    return "", "compute"
