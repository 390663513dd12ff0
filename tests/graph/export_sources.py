"""Diffusers folders with tiny random weights: written once, on demand, by real pipelines."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from profiler.graph.export.torch_program import quiet_libraries
from tests.capture import tiny_diffusers

__all__ = ["source_folder"]

_MAKERS = {
    "sd3": tiny_diffusers.sd3,
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
