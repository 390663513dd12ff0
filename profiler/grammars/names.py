"""Parse operator and layer names of torch, ONNX, TensorRT and RBLN into module paths.

    parse_name("i0_12_W3_linear_196_0")        → layer linear_196, command 0
    parse_name("/encoder/layers.0/fc1/MatMul") → module path encoder.layers.0.fc1
    parse_name("Conv_5 + Add_6 + Relu_7")      → op types Conv, Add, Relu

Grammars are tried in order, and the first match is used. Other packages add one under the entry
point group `profile_sd3.grammars`, as an object with `name` and `parse`. These are tried before
the built-in ones. One that cannot be loaded is skipped with a line on stderr.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from itertools import pairwise, takewhile, zip_longest
from typing import Protocol

from msgspec import Struct

from profiler.plugins import plugins

# --- Collectives between ranks, recognized by their names from any producer.
#
# The factors are those of nccl-tests: the bytes that the slowest link carries per byte of a
# message, whatever the number of ranks.


class CollectiveKind(StrEnum):
    """The kind of a collective, in the words of torch.distributed. A name that contains the words
    of several kinds is of the first."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND_RECV = "send_recv"  # also an all-to-all or a gather that consists of sends
    BARRIER = "barrier"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    OTHER = "other"


_WORDS = {
    "crossdevicereduce": CollectiveKind.ALL_REDUCE,  # of vLLM and SGLang
    **{kind.replace("_", ""): kind for kind in CollectiveKind if kind is not CollectiveKind.OTHER},
    **dict.fromkeys(("send", "recv"), CollectiveKind.SEND_RECV),
}
_LETTERS = re.compile(r"[^a-z]")
UNNAMED_SCOPE = r"(?:\(anonymous namespace\)|<unnamed>)::"
KERNEL_PREFIX = (
    r"^(?:void |std::enable_if<.*?>::type )?"
    r"(?:(?:cutlass::(?:Kernel2?|device_kernel)|flash::enable_sm\w+)<)*"
)
"""What precedes the name of a kernel: its return type, and functions that run any kernel, which is
their template argument."""
_PARAMETERS = re.compile(r"[(<].*", re.DOTALL)
_ANONYMOUS = "(anonymous namespace)::"


def collective_kind(name: str) -> CollectiveKind:
    """The kind of a collective, from the name of an operator or a kernel."""
    letters = _LETTERS.sub("", _PARAMETERS.sub("", name.replace(_ANONYMOUS, "")).lower())
    return next((kind for word, kind in _WORDS.items() if word in letters), CollectiveKind.OTHER)


_COLLECTIVE = re.compile(
    r"(?i)^(nccl|rccl|mscclkernel|hccl|xccl|hcom_)|^deep_ep::|cross_device_reduce"
    r"|(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)"
)


@lru_cache(maxsize=4096)
def is_collective(kernel: str) -> bool:
    """Whether a kernel of that name exchanges data between ranks: those of NCCL and similar
    libraries, of symmetric memory (`multimem_all_reduce_kernel`) and of serving engines
    (`vllm::cross_device_reduce_1stage`). Kernels that Inductor fused around a collective do not."""
    name = _PARAMETERS.sub("", kernel.removeprefix("void ").replace(_ANONYMOUS, ""))
    return not name.startswith("triton_") and _COLLECTIVE.search(name) is not None


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """The bytes that the slowest link carries per byte of a message between that many ranks."""
    if ranks < 1:
        return 1.0
    others = (ranks - 1) / ranks
    if kind is CollectiveKind.ALL_REDUCE:
        return 2 * others
    spread = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    return others if kind in spread else 1.0


# --- `ParsedName`: the content of a name in any grammar.


UNNUMBERED = -1  # the name does not contain a command index


@dataclass(frozen=True, slots=True)
class ParsedName:
    """The content of a name. `layer` is the tensor-level operation and `command_index` the index of
    the command in it, `UNNUMBERED` if the name has none. `module_path` is the dotted path of its
    module, "" if the name has none; `op_types` what it computes, in order of execution, as far as
    the name says."""

    layer: str
    command_index: int = UNNUMBERED
    module_path: str = ""
    op_types: tuple[str, ...] = ()


# --- Names of ONNX nodes, as torch's exporters and ONNX Runtime's fusions write them.
#
# /encoder/layers.0/self_attn/q_proj/MatMul    TorchScript's exporter: modules, then the op type
# /conv_in/Conv_nchwc                          ... in ONNX Runtime's own layout
# node_MatMul_3/MatMulAddFusion                torch.export's: op type and number, then the fusion


_SCOPED = re.compile(r"/((?:[^/\s]+/)*)([A-Z]\w*)")
_ONNX_NODE = re.compile(r"(node_([A-Za-z_]+?)(?:_\d+)*)(?:/(\w+))?")
_ONNX_SUFFIX = re.compile(r"(_\d+)+$")
_LAYOUT = re.compile(r"_(nchwc|nhwc|quant)$")


class OnnxNode:
    """The grammar of node names with a module path, and of torch.export's."""

    name = "onnx node"

    def parse(self, name: str) -> ParsedName | None:
        """Parse a node's name, with or without ONNX Runtime's suffix `_kernel_time`."""
        node = name.removesuffix("_kernel_time")
        scoped = _SCOPED.fullmatch(node)
        if scoped is not None:
            path = ".".join(part for part in scoped[1].split("/") if part)
            op_type = _ONNX_SUFFIX.sub("", _LAYOUT.sub("", scoped[2]))
            return ParsedName(node, module_path=path, op_types=(op_type,))
        exported = _ONNX_NODE.fullmatch(node)
        if exported is None:
            return None
        fused = (exported[3],) if exported[3] else ()
        return ParsedName(exported[1], op_types=(exported[2], *fused))


# --- The names that RBLN's profiler gives to commands, as documented for its versions.
#
#     up to 0.11   {sequence}_{layer}_{command}                              12_linear_196_0
#     from 0.12    i{instance}_{sequence}_W{workload}_{layer}_{command}      i0_12_W3_linear_196_0
#
# `i` is in Multi Stream files only, and Host commands have no `W`: without both, the two versions
# are the same. The layer is greedy: it may contain digits and underscores, and the number after the
# last underscore is the command. A name that fits neither is not a command name and stays whole.


UNNAMED = -1  # a number that the name does not contain

_PREFIX, _SUFFIX = "fused(", ")"
_RBLN_NUMBER = "[0-9]{1,18}"  # fits int64
_INDEX = "[0-9]{1,9}"  # fits int32


class CommandName(Struct, frozen=True):
    """The content of a command's name.

    `command_index` is the n-th command of its `layer`; `sequence` the execution order on the
    runtime instance; `workload` the runtime call and `instance` the runtime, `UNNAMED` if the
    name has none.
    """

    layer: str
    command_index: int
    sequence: int
    workload: int = UNNAMED
    instance: int = UNNAMED

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the layer: those joined with `+` in `fused(…)`, else the layer."""
        return _operators(self.layer)

    @property
    def op_type(self) -> str:
        """The layer without the numbers of its operators: `linear`, `fused(conv+relu)`.

        That the trailing number distinguishes operators of one kind is inferred from known names
        (`linear_196`, `paged_attn`), not documented.
        """
        kinds = [_without_number(operator) for operator in self.operators]
        return f"{_PREFIX}{'+'.join(kinds)}{_SUFFIX}" if _is_fused(self.layer) else kinds[0]


_COMMAND_NAME = re.compile(
    rf"(?:i({_RBLN_NUMBER})_)?({_RBLN_NUMBER})_(?:W({_RBLN_NUMBER})_)?(.+)_({_INDEX})", re.DOTALL
)


def parse_command_name(name: str) -> CommandName | None:
    """Parse a command's name, None if it is not one."""
    match = _COMMAND_NAME.fullmatch(name)
    if match is None:
        return None
    instance, sequence, workload, layer, index = match.groups()
    return CommandName(
        layer, int(index), int(sequence), int(workload or UNNAMED), int(instance or UNNAMED)
    )


def _is_fused(layer: str) -> bool:
    return layer.startswith(_PREFIX) and layer.endswith(_SUFFIX)


def _operators(layer: str) -> tuple[str, ...]:
    """Split `fused(a+b(c+d))` at the `+` outside inner parentheses."""
    if not _is_fused(layer):
        return (layer,)
    parts, depth, start = [], 0, len(_PREFIX)
    end = len(layer) - len(_SUFFIX)
    for position in range(start, end):
        character = layer[position]
        depth += (character == "(") - (character == ")")
        if character == "+" and depth == 0:
            parts.append(layer[start:position])
            start = position + 1
    return (*parts, layer[start:end])


def _without_number(operator: str) -> str:
    """`linear_196` → `linear`."""
    head, _, tail = operator.rpartition("_")
    while head and tail.isascii() and tail.isdigit():
        operator = head
        head, _, tail = operator.rpartition("_")
    return operator


# --- Short texts that distinguish kernels of the same name, from their template arguments.
#
# telling_apart(["void f<(ggml_type)13, 1>(int)", "void f<(ggml_type)8, 1>(int)"]) == ["13", "8"]


_CLOSING = {"<": ">", "(": ")", "[": "]", "{": "}"}
_CAST = re.compile(r"^\([\w: ]+\)(?=[-\w])")
_SCOPE = re.compile(r"(?:\(anonymous namespace\)|[A-Za-z_]\w*)::(?=[\w(])")
_LAMBDA = re.compile(r"(?:::)?(?:operator ?(?:::)?(?: ?const)?(?:::)?)?[{\[]lambda.*")
_LONGEST = 40  # characters


def telling_apart(kernels: Sequence[str]) -> list[str]:
    """For each of several full kernel names, the fewest template arguments that distinguish it from
    the others; "" for all if none do."""
    arguments = [_arguments(kernel) for kernel in kernels]
    for written in (_bare, _unscoped, str.strip):
        found = _fewest([[written(text) for text in own] for own in arguments])
        if found is not None:
            return found
    return [""] * len(kernels)


def _fewest(arguments: Sequence[Sequence[str]]) -> list[str] | None:
    """The one argument that differs between all kernels, preferably not a number; else all
    arguments that differ; None if these are the same."""
    columns = [*zip_longest(*arguments, fillvalue="")]
    alone = [column for column in columns if len({*column}) == len(arguments)]
    alone.sort(key=lambda texts: ("" in texts, not any(map(str.isalpha, "".join(texts)))))
    differing = [column for column in columns if len({*column}) > 1]
    together = [", ".join(filter(None, texts)) for texts in zip(*differing, strict=True)]
    cut = (_cut(texts) for texts in (*alone, together) if texts)
    return next((texts for texts in cut if texts is not None), None)


def _cut(texts: Sequence[str]) -> list[str] | None:
    """The texts cut to a readable length, from their start or from the first difference; None if
    neither distinguishes them."""
    common = len([*_alike(texts)])
    begin = max(texts[0].rfind(mark, 0, common) for mark in "<, ") + 1
    for shown in (texts, [f"…{text[begin:]}" for text in texts]):
        cut = [text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in shown]
        if len({*cut}) == len(cut):
            return cut
    return None


def _arguments(kernel: str) -> list[str]:
    """The comma-separated arguments between the first pair of angle brackets."""
    begin = kernel.find("<")
    if begin < 0:
        return []
    cuts = [begin, *_commas(kernel, begin + 1)]
    return [kernel[a + 1 : b].strip() for a, b in pairwise(cuts)]


def _commas(text: str, begin: int) -> Iterator[int]:
    """The ends of the arguments that start at `begin`; the closing bracket is the last."""
    open_ones: list[str] = []
    for place in range(begin, len(text)):
        character = text[place]
        if character in _CLOSING:
            open_ones.append(_CLOSING[character])
        elif open_ones and character == open_ones[-1]:
            open_ones.pop()
        elif not open_ones and character in ",>":
            yield place
            if character == ">":
                return


def _unscoped(text: str) -> str:
    """The text without casts and namespaces."""
    return _SCOPE.sub("", _CAST.sub("", text.strip().removeprefix("void ")))


def _bare(text: str) -> str:
    """The text without casts, namespaces, parameters and lambdas:
    `copy_kernel(Tensor&)::{lambda(float)#1}` → `copy_kernel`."""
    found, depth = [], 0
    for character in _unscoped(text):
        depth += character == "("
        if not depth:
            found.append(character)
        depth -= character == ")" and depth > 0
    return _LAMBDA.sub("", "".join(found)).strip() or _unscoped(text)


# --- Names of TensorRT's layers: the ONNX nodes that a layer fuses, joined with ` + `.
#
# Conv_5 + Add_6 + Relu_7
# /blocks.0/attn/to_q/MatMul + /blocks.0/attn/to_q/Add
# PWN(PWN(/act/Sigmoid), /act/Mul)                        pointwise nodes
# Reformatting CopyNode for Input Tensor 0 to Conv_3      a copy into another layout
# {ForeignNode[/layers.0/Constant.../layers.11/Add]}      a part that Myelin compiled
# __myl_MulMeaAddSqrtDiv_myl0_12                          ... one kernel of it


_COPY = re.compile(r"Reformatting CopyNode for (?:Input|Output) Tensor \d+ to (.+)", re.DOTALL)
_FOREIGN = re.compile(r"\{ForeignNode\[(.+?)\.\.\.(.+?)\]\}", re.DOTALL)
_MYELIN = re.compile(r"__myl_([A-Za-z]+)(?:_myl\d+_(\d+))?")
_WORD = re.compile(r"[A-Z][a-z0-9]*")
_POINTWISE = re.compile(r"PWN\(|\)|,")
_TENSORRT_NODE = re.compile(r"(?:/?(?:[^/\s]+/)*)?([A-Z]\w*?)(?:_+\d+)*")
_SEVERAL = re.compile(r" \+ |\s*,\s*|\s+")
_HELPER = re.compile(
    r"(?:copied_)?(?:reshape|squeeze|unsqueeze|shuffle)_(?:node_)?(?:before|after)_(?=.)"
)
_BESIDE = " || "  # layers that run together, side by side


class EngineLayer(Struct, frozen=True):
    """The ONNX nodes that a layer runs, or whose tensors it prepares. With `last`, the layer
    contains all nodes from the only one in `nodes` to `last`."""

    nodes: tuple[str, ...]
    last: str = ""


def engine_layer(name: str) -> EngineLayer:
    """The nodes of a TensorRT layer; none for a kernel generated by Myelin, whose name does not
    contain them."""
    if copy := _COPY.fullmatch(name):
        return engine_layer(copy[1])
    if foreign := _FOREIGN.fullmatch(name):
        return EngineLayer((foreign[1],), foreign[2])
    if _MYELIN.fullmatch(name):
        return EngineLayer(())
    if helper := _HELPER.match(name):
        return EngineLayer((name[helper.end() :],))
    return EngineLayer(tuple(node for part in name.split(_BESIDE) for node in _nodes(part)))


class TensorRtLayer:
    """The grammar of layer names in `exportProfile` and `exportLayerInfo`."""

    name = "tensorrt layer"

    def parse(self, name: str) -> ParsedName | None:
        """Parse a layer's name; its module path is the one that its nodes share."""
        if copy := _COPY.fullmatch(name):
            return ParsedName(name, module_path=_shared(_nodes(copy[1])), op_types=("Reformat",))
        if foreign := _FOREIGN.fullmatch(name):
            return ParsedName(name, module_path=_shared([foreign[1], foreign[2]]))
        if kernel := _MYELIN.fullmatch(name):
            return ParsedName(name, op_types=tuple(_WORD.findall(kernel[1])))
        if " + " not in name and not name.startswith("PWN("):
            return None
        nodes = _nodes(name)
        found = tuple(match[1] for match in map(_TENSORRT_NODE.fullmatch, nodes) if match)
        return ParsedName(name, module_path=_shared(nodes), op_types=found) if found else None


def _nodes(name: str) -> list[str]:
    """The names of the nodes that a layer fuses."""
    return [node for node in _SEVERAL.split(_POINTWISE.sub(" ", name)) if node and node != "+"]


def _shared(nodes: list[str]) -> str:
    """The module path shared by all nodes that have a path, "" if there is none."""
    paths = [node.strip("/").split("/")[:-1] for node in nodes if "/" in node]
    return ".".join(parts[0] for parts in _alike(paths))


def _alike(several: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The leading positions at which all sequences have the same value."""
    return takewhile(lambda column: len({*column}) == 1, zip(*several, strict=False))


# --- Paths of torch modules, alone or with the operator that ran in the module.
#
# transformer_blocks.0.attn.to_q
# CLIPTextTransformer.CLIPEncoder.CLIPEncoderLayer_3.CLIPAttention/aten::bmm


_PATH = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)(?:/(\w+::\w+|triton_\w+))?")


class TorchModule:
    """The grammar of dotted module paths; a single word is one only if an operator follows."""

    name = "torch module path"

    def parse(self, name: str) -> ParsedName | None:
        """Parse a path: the module, and the operator as op type."""
        match = _PATH.fullmatch(name)
        if match is None or not (match[2] or "." in match[1]):
            return None
        return ParsedName(name, module_path=match[1], op_types=(match[2],) if match[2] else ())


# --- The grammars, tried in order; `profiler.plugins` loads those of other packages.


GROUP = "profile_sd3.grammars"


class Grammar(Protocol):
    """The naming scheme of one producer."""

    @property
    def name(self) -> str:
        """The name of the grammar."""

    def parse(self, name: str) -> ParsedName | None:
        """Parse `name`, None if it is not in this grammar."""


class RblnCommand:
    """The grammar of RBLN's command names."""

    name = "rbln command"

    def parse(self, name: str) -> ParsedName | None:
        command = parse_command_name(name)
        if command is None:
            return None
        return ParsedName(command.layer, command.command_index, "", (command.op_type,))


BUILT_IN: tuple[Grammar, ...] = (RblnCommand(), TensorRtLayer(), OnnxNode(), TorchModule())


@cache
def grammars() -> tuple[Grammar, ...]:
    """All grammars in the order in which they are tried."""
    return (*plugins(GROUP, "name", "parse"), *BUILT_IN)


def parse_name(name: str, among: Sequence[Grammar] | None = None) -> ParsedName | None:
    """Parse a name by the first grammar that fits, None if none does."""
    for grammar in grammars() if among is None else among:
        parsed = grammar.parse(name)
        if parsed is not None:
            return parsed
    return None
