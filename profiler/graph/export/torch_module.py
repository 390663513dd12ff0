"""A part of a source → its torch module, in evaluation mode on the CPU.

Weights come from safetensors alone: pickled ones could run what they like.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from profiler.errors import InputError, install_command
from profiler.graph.export.options import ExportOptions
from profiler.graph.export.random_weights import map_parameters
from profiler.graph.export.source_folder import SourcePart, read_json
from profiler.graph.export.torch_program import quiet_libraries

__all__ = ["check_weights", "import_libraries", "load_module"]

_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5")
_BASES = ("diffusion_pytorch_model", "model")


def import_libraries() -> None:
    """Raises InputError where torch, diffusers and what they need are not installed."""
    for name in ("torch", "diffusers", "transformers", "accelerate", "onnxscript", "safetensors"):
        try:
            with quiet_libraries():
                importlib.import_module(name)
        except ImportError as error:
            raise InputError(
                f"graph export needs the package {name} ({error}): `{install_command('torch')}`"
            ) from error


def check_weights(part: SourcePart) -> str | None:
    """The variant of a part's safetensors: None, or `fp16` and the like in their names.

    Raises InputError where there are none, only pickled ones, or an index leads elsewhere.
    """
    names = sorted(file.name for file in part.folder.iterdir() if file.is_file())
    for index in (name for name in names if name.endswith(".safetensors.index.json")):
        files = read_json(part.folder / index).get("weight_map")
        listed = set(files.values()) if isinstance(files, dict) else {None}
        lacking = [str(name)[:80] for name in listed if name not in names]
        if lacking:
            raise InputError(
                f"{part.folder / index} names {lacking[0]!r}, which is not in its folder: copy it"
            )
    weights = [name for name in names if name.endswith(".safetensors")]
    if not weights and any(name.endswith(_PICKLED) for name in names):
        raise InputError(
            f"{part.folder} has pickled weights alone, which can run any code and are not loaded: "
            "give safetensors"
        )
    if not weights:
        raise InputError(
            f"{part.folder} has no weights: copy its safetensors, or give --random-weights"
        )
    pattern = rf"(?:{'|'.join(_BASES)})(?:\.(\w+))?(?:-\d+-of-\d+)?(?:\.\w+)?\.safetensors"
    variants = [found[1] for found in (re.fullmatch(pattern, name) for name in weights) if found]
    return None if not variants or None in variants else variants[0]


def load_module(part: SourcePart, options: ExportOptions, scratch: Path) -> Any:
    """The part in the type of `options`, with its weights or random ones.

    Random weights lie in a file in `scratch`, which stays as long as the module. Raises InputError
    where the configuration is not one of its class, or weights are missing or do not fit.
    """
    with quiet_libraries():
        kind = part.kind
        model_class = getattr(importlib.import_module(kind.library), kind.class_name)
        if options.random_weights:
            module = _with_random_weights(model_class, part, options, scratch)
        else:
            module = _with_own_weights(model_class, part, options)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return module.eval()


def _with_own_weights(model_class: Any, part: SourcePart, options: ExportOptions) -> Any:
    named = "dtype" if part.kind.library == "transformers" else "torch_dtype"
    try:
        module, found = model_class.from_pretrained(
            part.folder,
            variant=check_weights(part),
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **{named: options.torch_dtype},
        )
    except InputError:
        raise
    except Exception as error:  # safetensors, transformers and diffusers raise of every kind
        raise InputError(
            f"{part.folder} cannot be loaded as {part.kind.class_name} ({_first_line(error)}): "
            "fetch it again"
        ) from error
    missing = sorted(found["missing_keys"])
    if missing:
        raise InputError(
            f"{part.folder} lacks the weight {missing[0]} and {len(missing) - 1} more: fetch it "
            "again"
        )
    return module


def _with_random_weights(
    model_class: Any, part: SourcePart, options: ExportOptions, scratch: Path
) -> Any:
    from accelerate import init_empty_weights

    try:
        with init_empty_weights(include_buffers=False):
            if part.kind.library == "transformers":
                config = model_class.config_class.from_pretrained(
                    part.folder, local_files_only=True
                )
                module = model_class(config)
            else:
                module = model_class.from_config(model_class.load_config(part.folder))
    except Exception as error:  # as above
        raise InputError(
            f"{part.folder / 'config.json'} is no configuration of {part.kind.class_name} "
            f"({_first_line(error)}): fetch it again"
        ) from error
    map_parameters(module, scratch / "weights", options.seed, options.torch_dtype)
    if hasattr(module, "tie_weights"):
        module.tie_weights()
    for owner in module.modules():
        temporary = owner._non_persistent_buffers_set
        for name, buffer in owner.named_buffers(recurse=False):
            if buffer.is_floating_point() and name not in temporary:
                setattr(owner, name, buffer.to(options.torch_dtype))
    return module


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
