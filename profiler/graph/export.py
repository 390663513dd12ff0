"""`graph export`: export a diffusers folder to ONNX graphs and verify them against torch.

Weights are read from safetensors only, because pickles can run code. model_index.json is
compared with known classes; no path or class comes from it. bfloat16 graphs are verified in
float32 with bfloat16 weights, because ONNX Runtime's CPU provider has few kernels of that type.
"""

from __future__ import annotations

import gc
import importlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from profiler.errors import InputError, OutputError, install_command
from profiler.files import read_file
from profiler.graph.export_models import (
    clip,
    flux,
    image_decoder,
    qwen,
    qwen_decoder,
    qwen_image,
    sd3,
    t5,
)
from profiler.graph.export_torch import (
    DTYPES,
    ExportOptions,
    PartGraph,
    Trial,
    export_graph,
    map_parameters,
    quiet_libraries,
    with_affine_layer_norms,
)
from profiler.graph.model import all_tensors, nodes, read_model, save_model
from profiler.graph.verify import Expected, OutputDifference, check_outputs, expected_outputs
from profiler.pipelines.model_layouts import check_widths

# --- The parts of each pipeline: their classes, and how they become graphs.


@dataclass(frozen=True, slots=True)
class PartKind:
    """A kind of part: `submodule` in the source, `folder` in the output, its class, and the
    function (module, static sizes, `scale` pixels per latent, `dtype` of torch) that makes its
    graph."""

    submodule: str
    library: str
    class_name: str
    build: Callable[..., PartGraph]
    folder: str = ""

    @property
    def out(self) -> str:
        """The output folder of its graph."""
        return self.folder or self.submodule


def _text(function: Callable[..., PartGraph], **options: Any) -> Callable[..., PartGraph]:
    """Adapt `function` of a text encoder, which has neither latents nor float inputs."""

    def build(module: Any, static: Any, **_: Any) -> PartGraph:
        return function(module, static, **options)

    return build


def _clip(submodule: str, class_name: str, pooled: str) -> PartKind:
    return PartKind(submodule, "transformers", class_name, _text(clip, pooled=pooled))


_projected = partial(_clip, class_name="CLIPTextModelWithProjection", pooled="text_embeds")
_vae = PartKind("vae", "diffusers", "AutoencoderKL", image_decoder, "vae_decoder")


def _t5(submodule: str) -> PartKind:
    return PartKind(submodule, "transformers", "T5EncoderModel", _text(t5))


PIPELINES: Mapping[str, tuple[PartKind, ...]] = {
    "StableDiffusion3Pipeline": (
        _projected("text_encoder"),
        _projected("text_encoder_2"),
        _t5("text_encoder_3"),
        PartKind("transformer", "diffusers", "SD3Transformer2DModel", sd3),
        _vae,
    ),
    "FluxPipeline": (
        _clip("text_encoder", "CLIPTextModel", "pooler_output"),
        _t5("text_encoder_2"),
        PartKind("transformer", "diffusers", "FluxTransformer2DModel", flux),
        _vae,
    ),
    "QwenImagePipeline": (
        PartKind(
            *("text_encoder", "transformers", "Qwen2_5_VLForConditionalGeneration"), _text(qwen)
        ),
        PartKind("transformer", "diffusers", "QwenImageTransformer2DModel", qwen_image),
        PartKind(*("vae", "diffusers", "AutoencoderKLQwenImage", qwen_decoder, "vae_decoder")),
    ),
}
"""The parts of pipelines by class in model_index.json, in the order in which a run calls them."""


def find_pipeline(class_name: object, where: object) -> tuple[PartKind, ...]:
    """The parts of a pipeline. Raises InputError for a class that is not exported."""
    if not isinstance(class_name, str) or class_name not in PIPELINES:
        raise InputError(
            f"{where} is of a {str(class_name)[:80]!r}, which is not exported: give one of "
            f"{', '.join(PIPELINES)}"
        )
    return PIPELINES[class_name]


# --- A local diffusers folder: its parts, and the files that are copied unchanged.
#
# The contents of model_index.json are only compared with known values: no path and no class comes
# from it.


_MOST_JSON_BYTES = 64 << 20
_BESIDES = ("scheduler", "tokenizer", "tokenizer_2", "tokenizer_3")
_COPIED = {".json", ".txt", ".model", ".jinja"}
_MOST_COPIED_BYTES = 256 << 20  # of one file: Qwen's vocabularies have some ten MB


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A part of the pipeline, and the folder with its config.json and weights."""

    kind: PartKind
    folder: Path


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """A pipeline: its folder, class, the parts that it has, and pixels per latent."""

    path: Path
    class_name: str
    parts: tuple[SourcePart, ...]
    scale: int

    def chosen(self, names: Sequence[str]) -> tuple[SourcePart, ...]:
        """The parts with these names, all without names. Raises InputError for another name."""
        have = [part.kind.submodule for part in self.parts]
        for name in names:
            if name not in have:
                raise InputError(
                    f"--parts {name}: this {self.class_name} has no such part: give some of "
                    f"{', '.join(have)}"
                )
        return tuple(p for p in self.parts if not names or p.kind.submodule in names)


def open_source(path: Path) -> SourceFolder:
    """Open the pipeline in the folder, without reading weights.

    Raises InputError if there is none, or one that is not exported.
    """
    if not path.is_dir():
        raise InputError(
            f"{path} is no folder: give a diffusers pipeline's, with model_index.json; "
            "`hf download REPOSITORY --local-dir FOLDER` fetches one"
        )
    index = read_json(path / "model_index.json")
    kinds = find_pipeline(index.get("_class_name"), path)
    parts = tuple(
        SourcePart(kind, path / kind.submodule) for kind in kinds if _listed(index, kind, path)
    )
    if not parts:
        raise InputError(f"{path / 'model_index.json'} lists no part of its pipeline: fetch it")
    for part in parts:
        read_json(part.folder / "config.json")
    return SourceFolder(path, str(index["_class_name"]), parts, _scale(path))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file. Raises InputError if it is missing or something else."""
    try:
        content = json.loads(read_file(path, _MOST_JSON_BYTES).decode())
    except FileNotFoundError:
        raise InputError(f"{path} is missing: copy the pipeline's folder whole") from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}): fetch it again") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object: fetch it again")
    return content


def _listed(index: dict[str, Any], kind: PartKind, path: Path) -> bool:
    """Whether the pipeline has the part. Raises InputError if it is of another class."""
    entry = index.get(kind.submodule)
    if entry is None or entry == [None, None]:
        return False
    if not isinstance(entry, list) or len(entry) != 2 or entry[1] != kind.class_name:
        found = entry[1] if isinstance(entry, list) and len(entry) == 2 else entry
        raise InputError(
            f"{path / 'model_index.json'}: {kind.submodule} is {str(found)[:80]!r} where "
            f"{kind.class_name} is exported: export this pipeline with optimum"
        )
    return True


def _scale(path: Path) -> int:
    """Pixels per latent, from the VAE's configuration; 8 if there is none."""
    if not (path / "vae" / "config.json").is_file():
        return 8
    config = read_json(path / "vae" / "config.json")
    halvings = config.get("temperal_downsample")
    blocks = config.get("block_out_channels")
    if isinstance(halvings, list):
        return int(2 ** len(halvings[:8]))
    return int(2 ** (len(blocks[:8]) - 1)) if isinstance(blocks, list) and blocks else 8


def copy_files(source: SourceFolder, parts: Sequence[SourcePart], out: Path) -> None:
    """Copy model_index.json, the parts' config.json, tokenizers and scheduler below `out`."""
    _copy(source.path, source.path / "model_index.json", out / "model_index.json")
    for part in parts:
        _copy(source.path, part.folder / "config.json", out / part.kind.out / "config.json")
    for name in _BESIDES:
        folder = source.path / name
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            if file.suffix in _COPIED and file.is_file():
                _copy(source.path, file, out / name / file.name)


def _copy(root: Path, file: Path, out: Path) -> None:
    """Copy a file of the source. Raises InputError if it is outside the source, or too large."""
    real, inside = file.resolve(), root.resolve()
    stores = [inside]
    if inside.parent.name == "snapshots":  # Hugging Face's cache: snapshots are links to blobs
        stores.append(inside.parent.parent / "blobs")
    if not any(real.is_relative_to(store) for store in stores):
        raise InputError(f"{file} leads to {real}, outside {root}: copy it there")
    if real.stat().st_size > _MOST_COPIED_BYTES:
        raise InputError(f"{file} has more than 256 MiB, too much for a configuration: remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(real, out)


# --- Load a part of a source as a torch module, in evaluation mode on the CPU.
#
# Weights are read from safetensors only, because pickles can run any code.


_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5")
_BASES = ("diffusion_pytorch_model", "model")


def import_libraries() -> None:
    """Import torch, diffusers and their requirements. Raises InputError if one is not installed."""
    for name in ("torch", "diffusers", "transformers", "accelerate", "onnxscript", "safetensors"):
        try:
            with quiet_libraries():
                importlib.import_module(name)
        except ImportError as error:
            raise InputError(
                f"graph export needs the package {name} ({error}): `{install_command('torch')}`"
            ) from error


def check_weights(part: SourcePart) -> str | None:
    """Return the variant of a part's safetensors: None, or `fp16` and the like from their names.

    Raises InputError if there are none, only pickled ones, or an index refers to other folders.
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
    """Load the part in the type of `options`, with its weights or random ones.

    Random weights are in a file in `scratch`, which must exist as long as the module. Raises
    InputError if the configuration is not one of its class, or weights are missing or do not fit.
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
    except Exception as error:  # safetensors, transformers and diffusers raise all kinds
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
    except Exception as error:
        raise InputError(
            f"{part.folder / 'config.json'} is no configuration of {part.kind.class_name} "
            f"({_first_line(error)}): fetch it again"
        ) from error
    map_parameters(module, scratch / "weights", options.seed, options.torch_dtype)
    if hasattr(module, "tie_weights"):
        module.tie_weights()
    for owner in module.modules():
        temporary = owner._non_persistent_buffers_set  # noqa: SLF001 - torch tells no other way
        for name, buffer in owner.named_buffers(recurse=False):
            if buffer.is_floating_point() and name not in temporary:
                setattr(owner, name, buffer.to(options.torch_dtype))
    return module


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


# --- `graph export`: a diffusers folder → a folder of ONNX graphs, which appears once verified.


@dataclass(frozen=True, slots=True)
class ExportedPart:
    """An exported part: its class, the size of its graph, and its differences from torch.

    `inputs` are axes by name, free ones as names; `layer_norms` counts those that got ones and
    zeros; `trials` are the sizes of the comparison.
    """

    submodule: str
    folder: str
    class_name: str
    opset: int
    dtype: str
    node_count: int
    weight_bytes: int
    inputs: dict[str, tuple[int | str, ...]]
    layer_norms: int
    trials: tuple[Trial, ...]
    differences: tuple[OutputDifference, ...]
    notes: tuple[str, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The part as a JSON object."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "inputs": {name: list(axes) for name, axes in self.inputs.items()},
            "compared_on": [dict(sizes) for sizes in self.trials],
            "differences": [
                {name: value for name, value in asdict(found).items() if name != "compared"}
                for found in self.differences
            ],
            "notes": list(self.notes),
        }


_PLAIN = (
    *("submodule", "folder", "class_name", "opset", "dtype", "node_count", "weight_bytes"),
    *("layer_norms", "seconds"),
)


def export_pipeline(
    source: Path,
    out: Path,
    options: ExportOptions | None = None,
    *,
    done: Callable[[ExportedPart], None] = lambda _: None,
) -> list[ExportedPart]:
    """Export the pipeline in the folder `source` to the folder `out`, in the layout of optimum.

    `done` is called after each part. `out` appears when every part has been verified against torch;
    an error leaves nothing. Raises InputError if the source cannot be used, `run` would refuse its
    parts together (not checked for chosen ones), or a part cannot be exported, OutputError if `out`
    exists or a part computes something else.
    """
    options = options or ExportOptions()
    opened = open_source(source)
    parts = opened.chosen(options.parts)
    _check_out(source, out)
    if not options.parts:
        _check_fit(opened)
    if not options.random_weights:
        for part in parts:
            check_weights(part)
    import_libraries()
    exported = []
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
            folder = Path(scratch) / out.name
            copy_files(opened, parts, folder)
            for part in parts:
                exported.append(_export_part(opened, part, folder, options))
                done(exported[-1])
            folder.replace(out)  # may replace an empty folder
    except OSError as error:
        raise OutputError(f"cannot write {out} ({error.strerror or error})") from error
    return exported


def _check_out(source: Path, out: Path) -> None:
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise OutputError(f"{out} exists already: give a folder that does not, or an empty one")
    if out.resolve().is_relative_to(source.resolve()):
        raise OutputError(f"{out} lies in the input {source}: give a folder outside it")


def _check_fit(opened: SourceFolder) -> None:
    parts = {part.kind.submodule: part.folder / "config.json" for part in opened.parts}
    try:
        check_widths(opened.class_name, {name: read_json(file) for name, file in parts.items()})
    except InputError as error:
        raise InputError(
            f"{error}, which profile-sd3 run refuses; --parts with the names of parts exports them"
        ) from error


def _export_part(
    source: SourceFolder, part: SourcePart, folder: Path, options: ExportOptions
) -> ExportedPart:
    def load(scratch: Path) -> PartGraph:
        module = load_module(part, options, scratch)
        return part.kind.build(
            module, options.static, scale=source.scale, dtype=options.torch_dtype
        )

    path = folder / part.kind.out / "model.onnx"
    return export_module(load, path, options, name=part.kind.submodule)


def export_module(
    load: Callable[[Path], PartGraph], path: Path, options: ExportOptions, *, name: str
) -> ExportedPart:
    """Write the graph of a part to `path`, and verify it against torch.

    `load` makes the part; it may keep weights in the given folder. Both are released before the
    graph is run. Raises as `export_pipeline`, and then leaves the file.
    """
    started = time.perf_counter()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".weights.", dir=path.parent) as scratch:
        written, expected = _write_part(load(Path(scratch)), path, options, name)
        gc.collect()  # torch's modules and traces are reference cycles
    _check_form(path, name)
    widen = options.dtype == "bf16"
    differences = check_outputs(path, expected, what=name, widen=widen)
    return ExportedPart(
        submodule=name,
        folder=path.parent.name,
        opset=options.opset_version,
        dtype=DTYPES[options.dtype],
        differences=tuple(differences),
        seconds=round(time.perf_counter() - started, 3),
        **written,
    )


def _write_part(
    graph: PartGraph, path: Path, options: ExportOptions, name: str
) -> tuple[dict[str, Any], list[Expected]]:
    """Write the model; return the properties of the part, and torch's outputs."""
    dtype, fix = options.torch_dtype, options.layernorm_fix
    with with_affine_layer_norms(graph.module, dtype, fix=fix) as norms:
        count, size = _write(graph, path, options, name)
    with quiet_libraries():
        expected = expected_outputs(graph, options.seed, widen=options.dtype == "bf16")
    facts = {
        "class_name": type(graph.module).__name__,
        "node_count": count,
        "weight_bytes": size,
        "inputs": dict(graph.inputs),
        "layer_norms": norms,
        "trials": graph.trials,
        "notes": graph.notes,
    }
    return facts, expected


def _write(graph: PartGraph, path: Path, options: ExportOptions, name: str) -> tuple[int, int]:
    """Write the model; returns its nodes, and bytes of its weights."""
    tensors = graph.draw(np.random.default_rng(options.seed), graph.trials[0])
    model = export_graph(graph, tensors, options.opset_version, name)
    save_model(model, path)
    size = sum(t.nbytes for t in all_tensors(model) if t.dtype != ir.DataType.STRING)
    return sum(1 for _ in nodes(model)), size


def _check_form(path: Path, name: str) -> None:
    """Raise InputError if the file is no valid ONNX."""
    import onnx

    read_model(path)
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = str(error).strip().splitlines()[0][:300]
        raise InputError(
            f"torch gives {name} as no valid ONNX ({reason}): choose another --opset"
        ) from error
