"""`graph optimize`: optimize ONNX models, verify their outputs and keep module paths.

Each optimizer runs in its own process, so a crash, its output and its memory stay there.
Optimizers lose metadata and rename nodes, but they keep the names of surviving values. Module
paths are restored by these names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from profiler.errors import InputError, install_command
from profiler.files import read_file
from profiler.graph.fix import name_nodes, number_names
from profiler.graph.model import (
    CATEGORY,
    COMMAND_INDEX,
    LAYER,
    OPERATION,
    Kind,
    all_tensors,
    external_files,
    kinds,
    model_files,
    module_scopes,
    output_folder,
    path_of,
    read_graph,
    read_model,
    refuse_over_input,
    write_model,
    write_path,
)
from profiler.graph.optimize.rewrites import remove_inserted_casts, write_for_mmdit_fusion
from profiler.graph.shapes import random_inputs, refuse_unknown_sizes
from profiler.graph.verify import OutputDifference, verify

# --- Restore module paths and other node metadata on the nodes of an optimized model.
#
# Optimizers lose metadata, rename nodes and write new ones. They hardly ever change the name of a
# value that survives. So a node is, in this order,
#
# 1. the node that wrote one of its values before, if it still has that type: all metadata is kept;
# 2. a replacement of the nodes between that value and other surviving values: it gets the longest
#    module path that contains all of these;
# 3. the node of its name and type that wrote a value which no longer exists;
# 4. a part of the nodes that read its values: it gets their module path.
#
# Nodes that compute only sizes or constants count only if nothing else was replaced.


_MOST_CONFIG_BYTES = 64 << 20
_MOST_REPLACED = 512  # nodes that one can replace
_OF_PARTS = (LAYER, COMMAND_INDEX, OPERATION, CATEGORY)


@dataclass(frozen=True, slots=True)
class KeptPaths:
    """The nodes of the optimized model by origin of their module path: those that `survived`, those
    that replace others (`fused`), and those `without` one; `had` and `before` count nodes with a
    path, and all nodes, of the original model."""

    survived: int
    fused: int
    without: int
    had: int
    before: int


def keep_paths(before: ir.Model, after: ir.Model) -> KeptPaths:
    """Write the metadata of the nodes of `before` on those of `after`, in place."""
    sources = _Sources(before, after)
    nodes = list(after.graph.all_nodes())
    found = {node: sources.of(node) for node in nodes}
    _from_readers(nodes, found)
    survived = fused = without = 0
    for node in nodes:
        replaced = found[node]
        if len(replaced) == 1 and _alike(node, replaced[0]):
            node.metadata_props.update(replaced[0].metadata_props)
            node.doc_string = node.doc_string or replaced[0].doc_string
        else:
            _write_common(node, sources.deciding(replaced))
        if not path_of(node):
            without += 1
        elif len(replaced) == 1 and _alike(node, replaced[0]):
            survived += 1
        else:
            fused += 1
    _number_once(nodes)
    earlier = list(before.graph.all_nodes())
    return KeptPaths(survived, fused, without, sum(map(bool, map(path_of, earlier))), len(earlier))


class _Sources:
    """Finds the nodes of `before` that a node of `after` replaces."""

    def __init__(self, before: ir.Model, after: ir.Model) -> None:
        self._writers = {
            output.name: node
            for node in before.graph.all_nodes()
            for output in node.outputs
            if output.name
        }
        self._named = {node.name: node for node in before.graph.all_nodes() if node.name}
        self._there = {value.name for graph in after.graphs() for value in graph.inputs}
        self._there |= {name for graph in after.graphs() for name in graph.initializers}
        self._there |= {o.name for node in after.graph.all_nodes() for o in node.outputs}
        self._kinds = kinds(before)

    def of(self, node: ir.Node) -> tuple[ir.Node, ...]:
        """Return the nodes that `node` replaces; empty if its values are all new."""
        anchors = [self._writers[o.name] for o in node.outputs if o.name in self._writers]
        for anchor in anchors:
            if _alike(node, anchor):
                return (anchor,)
        if anchors:
            return self._replaced(anchors)
        namesake = self._named.get(node.name or "")
        if namesake is None or not _alike(node, namesake):
            return ()
        gone = all(output.name not in self._there for output in namesake.outputs)
        return (namesake,) if gone else ()

    def _replaced(self, anchors: Iterable[ir.Node]) -> tuple[ir.Node, ...]:
        """Return the anchors, and the nodes before them whose values no longer exist."""
        found = dict.fromkeys(anchors)
        pending = list(found)
        while pending and len(found) < _MOST_REPLACED:
            for value in pending.pop().inputs:
                writer = None if value is None or value.name in self._there else value.producer()
                if writer is not None and writer not in found:
                    found[writer] = None
                    pending.append(writer)
        return tuple(found)

    def deciding(self, replaced: tuple[ir.Node, ...]) -> list[ir.Node]:
        """Return those of `replaced` that compute data; all if none does."""
        data = [
            node
            for node in replaced
            if any(self._kinds.get(output, Kind.DATA) == Kind.DATA for output in node.outputs)
        ]
        return data or list(replaced)


def _alike(node: ir.Node, other: ir.Node) -> bool:
    return node.op_type == other.op_type and node.domain == other.domain


def _from_readers(nodes: list[ir.Node], found: dict[ir.Node, tuple[ir.Node, ...]]) -> None:
    """Give nodes without a known origin the origins of the nodes that read their values."""
    for node in reversed(nodes):
        if found[node]:
            continue
        readers = (use.node for output in node.outputs for use in output.uses())
        known = (other for reader in readers for other in found.get(reader, ()))
        found[node] = tuple(dict.fromkeys(known))[:_MOST_REPLACED]


def _write_common(node: ir.Node, replaced: list[ir.Node]) -> None:
    """Write the longest common module path of all `replaced` on the node and, if they were parts of
    one layer, their part of a split operation."""
    known = [other for other in replaced if path_of(other)]
    if not known:
        return
    chains = [module_scopes(other) for other in known]
    if all(chains):
        shared = [pair for pair in chains[0] if all(pair in chain for chain in chains)]
        if shared:
            write_path(node, shared)
    else:
        path = _common(path_of(other) for other in known)
        if path:
            node.metadata_props[LAYER] = path
    _write_part(node, [other.metadata_props for other in replaced])


def _write_part(node: ir.Node, metadata: list[Mapping[str, str]]) -> None:
    parts = [one for one in metadata if one.get(COMMAND_INDEX, "").isdecimal()]
    if not parts or len({one.get(LAYER) for one in metadata}) > 1:
        return
    computing = [one for one in parts if CATEGORY not in one]
    first = min(computing or parts, key=lambda one: int(one[COMMAND_INDEX]))
    for key in _OF_PARTS:
        if key in first:
            node.metadata_props[key] = first[key]


def _common(paths: Iterable[str]) -> str:
    """Return the longest common dotted prefix of the paths, "" if there is none."""
    shared, *others = [path.split(".") for path in paths]
    for other in others:
        same = [one == two for one, two in zip(shared, other, strict=False)]
        shared = shared[: same.index(False) if False in same else len(same)]
    return ".".join(shared)


def _number_once(nodes: list[ir.Node]) -> None:
    """Keep a command's number only on the last of its nodes; the others keep the layer."""
    seen: set[tuple[str, str]] = set()
    for node in reversed(nodes):
        index = node.metadata_props.get(COMMAND_INDEX)
        if index is None:
            continue
        key = (node.metadata_props.get(LAYER, ""), index)
        if key in seen:
            del node.metadata_props[COMMAND_INDEX]
        seen.add(key)


# --- Infer the model type for onnxruntime.transformers from the class of the model.


MODEL_TYPES = ("mmdit", "unet", "vae", "clip", "t5", "bert")
"""The types of onnxruntime.transformers whose sizes it determines itself."""

_CLASSES = (
    (r"(SD3|Flux|QwenImage|AuraFlow).*Transformer|MMDiT", "mmdit"),
    (r"UNet|ControlNet", "unet"),
    (r"(?i)CLIP", "clip"),
    (r"(?i)T5", "t5"),
    (r"(?i)BERT", "bert"),
    (r"AutoencoderKL|Decoder$|Encoder$", "vae"),
)


def model_type_of(path: Path, model: ir.Model) -> str:
    """Return the type of the model in the file `path`, from the class in its config.json or in the
    metadata of torch's exporter. Raises InputError if neither has one."""
    for name in (*_configured(path), *_exported(model)):
        for pattern, model_type in _CLASSES:
            if re.search(pattern, name):
                return model_type
    raise InputError(
        f"{path} does not tell its class, neither in a config.json nor on its nodes: give "
        f"--model-type, one of {', '.join(MODEL_TYPES)}"
    )


def _configured(path: Path) -> Iterator[str]:
    """The names in the config.json beside the model, as diffusers and transformers write it."""
    try:
        config = json.loads(read_file(path.parent / "config.json", _MOST_CONFIG_BYTES))
        architectures = config.get("architectures") or []
        names = [config.get("_class_name"), *architectures, config.get("model_type")]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return
    yield from (name for name in names if isinstance(name, str))


def _exported(model: ir.Model) -> Iterator[str]:
    """Yield the class of the outermost module in the nodes' metadata."""
    scopes = filter(None, map(module_scopes, model.graph))
    for around in scopes:
        yield around[0][1].rpartition(".")[2]
        return


# --- The optimizers of `graph optimize`; each runs in a process of its own.
#
# So a native crash, their output and their memory stay there, and modules that they add to the
# interpreter's path (onnxruntime.transformers does) do not reach ours.


DEFAULT = "ort"
LEVELS = ("basic", "extended", "all")
_PACKAGES = {  # additional package of each, which is also the name of its extra
    "onnxslim": "onnxslim",
    "onnxsim": "onnxsim",
    "ort-transformers": "sympy",
}
OPTIMIZERS = (DEFAULT, "ort-transformers", "onnxslim", "onnxsim")
_PROTOBUF_BYTES = (1 << 31) - 1
_CRASHES = {6: "abort", 9: "killed, perhaps for memory", 11: "segmentation fault", 15: "terminated"}


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer and its options: `level` is one of `LEVELS` for `ort`, `model_type` one of
    `MODEL_TYPES` for `ort-transformers`, "" to infer it from the model."""

    name: str = DEFAULT
    level: str = "basic"
    model_type: str = ""

    def check(self) -> None:
        """Raise InputError for an unknown name, level or type, and if its package is not
        installed."""
        for given, known, what in (
            (self.name, OPTIMIZERS, "optimizer"),
            (self.level, LEVELS, "level"),
            (self.model_type or MODEL_TYPES[0], MODEL_TYPES, "model type"),
        ):
            if given not in known:
                raise InputError(f"{what} {given!r} is not known: give one of {', '.join(known)}")
        package = _PACKAGES.get(self.name)
        if package is not None and importlib.util.find_spec(package) is None:
            raise InputError(
                f"{self.name} needs the package {package}: `{install_command(self.name)}`"
            )


@dataclass(frozen=True, slots=True)
class Optimized:
    """An optimized model, its optimizer (with `model_type` inferred), and additional steps
    (`done`): `attention_prepared` and `attention_left` count attentions that were rewritten for the
    MMDiT fusion, and that could not be; `casts_removed` counts removed casts to float32 that ONNX
    Runtime had inserted for its CPU."""

    model: ir.Model
    optimizer: Optimizer
    done: Mapping[str, int]


def run_optimizer(optimizer: Optimizer, source: Path, model: ir.Model, folder: Path) -> Optimized:
    """Optimize the model of the file `source`, whose content is `model`.

    `folder` must exist as long as the result is used. Raises InputError if the optimizer fails.
    """
    if optimizer.name == "ort-transformers" and not optimizer.model_type:
        optimizer = replace(optimizer, model_type=model_type_of(source, model))
    request: dict[str, Any] = asdict(optimizer) | {
        "source": str(source.absolute()),
        "data": str(source.parent.absolute()),
        "out": str((folder / "optimized.onnx").absolute()),
        "error": str((folder / "error.txt").absolute()),
    }
    done: dict[str, int] = {}
    if optimizer.model_type == "mmdit":
        prepared, done = _prepared(source, folder)
        request["source"] = str(prepared.absolute())
    _run(optimizer, request, source, model)
    optimized = read_graph(Path(request["out"]))
    for tensor in all_tensors(optimized):
        if isinstance(tensor, ir.ExternalTensor) and not _lies_in(tensor, folder):
            tensor.base_dir = source.parent.absolute()
    if optimizer.name == "ort" and optimizer.level != "all":  # layouts of `all` are float32's alone
        done = {"casts_removed": remove_inserted_casts(optimized, model)}
    counts = {name: count for name, count in done.items() if count}
    return Optimized(optimized, optimizer, counts)


def _prepared(source: Path, folder: Path) -> tuple[Path, dict[str, int]]:
    """Write the graph of `source` with attention in the form that the fusion expects; references
    external data."""
    graph = read_graph(source)
    count = write_for_mmdit_fusion(graph)
    path = folder / "prepared.onnx"
    ir.save(graph, path)
    softmaxes = sum(node.op_type == "Softmax" and not node.domain for node in graph.graph)
    return path, {"attention_prepared": count, "attention_left": softmaxes - count}


def _lies_in(tensor: ir.ExternalTensor, folder: Path) -> bool:
    """Whether the optimizer has written the data of `tensor` into `folder`."""
    return (folder / os.fspath(tensor.location)).is_file()


def _run(optimizer: Optimizer, request: dict[str, Any], source: Path, model: ir.Model) -> None:
    package_root = str(Path(__file__).parents[3])
    paths = [package_root, os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment.pop("RBLN_PROFILER", None)  # only the user's script is profiled
    finished = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "profiler.graph.optimize.runner", json.dumps(request)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if finished.returncode == 0 and Path(request["out"]).is_file():
        return
    error = Path(request["error"])
    reason = error.read_text("utf-8").strip() if error.is_file() else ""
    if not reason:
        crash = _CRASHES.get(-finished.returncode, f"exit code {finished.returncode}")
        reason = f"it ended early, {crash}"
    advice = "choose another optimizer by --with"
    if sum(tensor.nbytes for tensor in all_tensors(model)) > _PROTOBUF_BYTES:
        advice = "for more than 2 GB of weights take --with ort, or ort-transformers of type mmdit"
    raise InputError(f"{source}: {optimizer.name} cannot optimize it ({reason}): {advice}")


# --- `graph optimize`: a model's file, or all of a folder → optimized ones, outputs verified.


_INLINE_BYTES = 1 << 30  # of weights: above, external data is used


@dataclass(frozen=True, slots=True)
class OptimizedFile:
    """The result of an optimizer for the model in `source`: nodes by type (`domain.type` outside of
    ONNX's own) and bytes on disk before and after, data files included; how many nodes kept a
    module path; `done` counts additional steps; the difference of each output."""

    source: Path
    out: Path
    optimizer: Optimizer
    nodes_before: Mapping[str, int]
    nodes_after: Mapping[str, int]
    bytes_before: int
    bytes_after: int
    paths: KeptPaths
    done: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[OutputDifference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The optimization as a JSON object."""
        return {
            "model": str(self.source),
            "out": str(self.out),
            "with": self.optimizer.name,
            "level": self.optimizer.level if self.optimizer.name == "ort" else None,
            "model_type": self.optimizer.model_type or None,
            "nodes": {
                "before": sum(self.nodes_before.values()),
                "after": sum(self.nodes_after.values()),
                "by_type": {
                    name: {
                        "before": self.nodes_before.get(name, 0),
                        "after": self.nodes_after.get(name, 0),
                    }
                    for name in sorted({*self.nodes_before, *self.nodes_after})
                },
            },
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
            "module_paths": asdict(self.paths),
            "done": dict(self.done),
            "differences": [asdict(difference) for difference in self.differences],
        }


def optimize_files(
    source: Path,
    out: Path,
    optimizer: Optimizer | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
) -> list[OptimizedFile]:
    """Optimize the model in the file `source` into the file `out`, or the models of a folder into a
    copy of it, `out`: written if the outputs are the same for random inputs.

    `optimizer` is ONNX Runtime at its basic level by default; `sizes` are those of symbolic
    dimensions of the inputs. Raises InputError if a model cannot be read, run or optimized, or the
    optimizer is not installed, or no model has a dimension of such a name, and OutputError if `out`
    cannot be written, is an input, or would compute something else.
    """
    optimizer = optimizer or Optimizer()
    optimizer.check()
    models = model_files(source)
    refuse_unknown_sizes(models, sizes or {})
    if not source.is_dir():
        return [_optimize(models[0], out, optimizer, sizes)]
    without = {file for path in models for file in (path, *external_files(read_model(path)))}
    results = []
    with output_folder(source, out, without) as copy:
        for path in models:
            relative = path.relative_to(source)
            result = _optimize(path, copy / relative, optimizer, sizes)
            results.append(replace(result, out=out / relative))
    return results


def _optimize(
    path: Path, out: Path, optimizer: Optimizer, sizes: Mapping[str, int] | None
) -> OptimizedFile:
    model = read_model(path)
    data = external_files(model)
    refuse_over_input([out], [path, *data])
    try:
        inputs = random_inputs(model, sizes)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    beside = next(folder for folder in out.absolute().parents if folder.is_dir())
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=beside) as folder:
        run = run_optimizer(optimizer, path, model, Path(folder))
        optimized = run.model
        _keep_interface(path, optimizer, model, optimized)
        _tidy(model, optimized)
        paths = keep_paths(model, optimized)
        if not data:
            _take_in(optimized)

        def check(written: Path) -> tuple[OutputDifference, ...]:
            try:
                return tuple(verify(path, written, inputs, what=f"{out}: the optimized model"))
            except InputError as error:
                if str(written) not in str(error):
                    raise
                text = str(error).replace(str(written), f"what {optimizer.name} wrote")
                raise InputError(f"{path}: {text}; choose another optimizer by --with") from error

        differences = write_model(
            optimized, out, sources=[path, *data], check=check, external=bool(data)
        )
    return OptimizedFile(
        source=path,
        out=out,
        optimizer=run.optimizer,
        nodes_before=_by_type(model),
        nodes_after=_by_type(optimized),
        bytes_before=_bytes([path, *data]),
        bytes_after=_bytes([out, out.with_name(out.name + ".data")]),
        paths=paths,
        done=run.done,
        differences=differences,
    )


def _keep_interface(path: Path, optimizer: Optimizer, before: ir.Model, after: ir.Model) -> None:
    """Restore the types and symbolic dimensions of inputs and outputs, and unused inputs. Raises
    InputError if the optimizer has otherwise changed inputs or outputs."""
    given = {value.name: value for value in after.graph.inputs}
    inputs = [given.pop(old.name, ir.Value(name=old.name)) for old in before.graph.inputs]
    outputs = [value.name for value in before.graph.outputs]
    if given or outputs != [value.name for value in after.graph.outputs]:
        raise InputError(
            f"{path}: {optimizer.name} has changed inputs or outputs: choose another optimizer by "
            "--with"
        )
    after.graph.inputs[:] = inputs
    for old, new in (
        *zip(before.graph.inputs, inputs, strict=True),
        *zip(before.graph.outputs, after.graph.outputs, strict=True),
    ):
        new.type, new.shape = old.type, old.shape


def _tidy(before: ir.Model, after: ir.Model) -> None:
    """Clean up after optimizers: unused opsets, unnamed nodes and duplicate names; restore the
    model's own metadata."""
    from onnx_ir.passes.common import RemoveUnusedOpsetsPass

    for domain in {node.domain for node in after.graph.all_nodes()} - {*after.opset_imports}:
        after.opset_imports[domain] = before.opset_imports.get(domain, 1)
    RemoveUnusedOpsetsPass()(after)
    number_names(after)
    name_nodes(after)
    after.graph.name = before.graph.name
    after.metadata_props.update(before.metadata_props)
    after.graph.metadata_props.update(before.graph.metadata_props)


def _take_in(model: ir.Model) -> None:
    """Move weights into the model itself, as in its source, if they are small enough."""
    if sum(tensor.nbytes for tensor in all_tensors(model)) <= _INLINE_BYTES:
        ir.external_data.load_to_model(model)


def _by_type(model: ir.Model) -> dict[str, int]:
    """The nodes by type, most first."""
    counted = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for node in model.graph.all_nodes()
    )
    return dict(counted.most_common())


def _bytes(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())
