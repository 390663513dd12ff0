"""Diffusers folders with tiny random weights, and what `graph export` makes of them: written once a
process, on demand, by real pipelines."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from profiler.graph import export_pipeline
from profiler.graph.export import ExportedPart
from profiler.graph.export_torch import quiet_libraries
from tests.capture import tiny_diffusers

__all__ = ["exported", "source_folder"]

_MAKERS = {
    "sd3": lambda: tiny_diffusers.sd3(joint_attention_dim=64),
    "sd35": lambda: tiny_diffusers.sd3(
        qk_norm="rms_norm", dual_attention_layers=(0,), joint_attention_dim=64
    ),
    "flux": tiny_diffusers.flux,
    "qwen": tiny_diffusers.qwen_image,
}
_KEPT = tempfile.TemporaryDirectory(prefix="export-sources.")


@functools.cache
def source_folder(name: str) -> Path:
    """The folder of a tiny `sd3`, `sd35`, `flux` or `qwen`; not to be written to."""
    folder = Path(_KEPT.name) / name
    with quiet_libraries():
        _MAKERS[name]().save_pretrained(folder)
    return folder


@functools.cache
def exported(name: str) -> tuple[Path, list[ExportedPart]]:
    """The folder of graphs of the tiny `name`, not to be written to, and what is told of its parts.

    It takes half a minute of a core: tests/conftest.py lets the files that share one run in one
    process.
    """
    out = Path(_KEPT.name) / f"{name}-exported" / "onnx"
    return out, export_pipeline(source_folder(name), out)
