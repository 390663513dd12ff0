"""Which type of model onnxruntime.transformers is to look for, from the class of the model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.metadata import module_scopes

__all__ = ["MODEL_TYPES", "model_type_of"]

MODEL_TYPES = ("mmdit", "unet", "vae", "clip", "t5", "bert")
"""Types of onnxruntime.transformers whose sizes it finds out by itself."""

_CLASSES = (
    (r"(SD3|Flux|QwenImage|AuraFlow).*Transformer|MMDiT", "mmdit"),
    (r"UNet|ControlNet", "unet"),
    (r"(?i)CLIP", "clip"),
    (r"(?i)T5", "t5"),
    (r"(?i)BERT", "bert"),
    (r"AutoencoderKL|Decoder$|Encoder$", "vae"),
)


def model_type_of(path: Path, model: ir.Model) -> str:
    """The type of the model in the file `path`, by the class that its config.json names or that
    torch's exporter has left on its nodes. Raises InputError where neither tells."""
    for name in (*_configured(path), *_exported(model)):
        for pattern, model_type in _CLASSES:
            if re.search(pattern, name):
                return model_type
    raise InputError(
        f"{path} does not tell its class, neither in a config.json nor on its nodes: give "
        f"--model-type, one of {', '.join(MODEL_TYPES)}"
    )


def _configured(path: Path) -> Iterator[str]:
    """What the config.json beside the model names, as diffusers and transformers write it."""
    try:
        config = json.loads((path.parent / "config.json").read_bytes())
        architectures = config.get("architectures") or []
        names = [config.get("_class_name"), *architectures, config.get("model_type")]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return
    yield from (name for name in names if isinstance(name, str))


def _exported(model: ir.Model) -> Iterator[str]:
    """The class of the outermost module on the nodes."""
    scopes = filter(None, map(module_scopes, model.graph))
    for around in scopes:
        yield around[0][1].rpartition(".")[2]
        return
