"""Where in a model a command lies: its module path, read from the inside out.

Each module on the path says what it is for, by its class, else by its name, and the innermost that
says something decides. A class says more than a name: SD3's `norm1` is an AdaLayerNormZero, whose
projection and arithmetic are modulation and whose inner LayerNorm is the norm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache

from msgspec import Struct

from profiler.grammars.names import parse_name

__all__ = ["Place", "Places", "Purpose", "class_in", "module_path"]


class Purpose(Enum):
    """What a module is for. Of some all operations are for the same, of others it depends."""

    NORM = "norm"
    MODULATION = "modulation"
    EMBEDDING = "embedding"
    ROPE = "rope"
    ATTENTION = "attention"
    MLP = "mlp"
    CONVOLUTION = "convolution"
    RESAMPLE = "resample"
    RESNET = "resnet"
    ADAPTER = "adapter"  # beside the weights that it adapts
    HEAD = "head"  # from a language model's width to its vocabulary
    BLOCK = "block"  # adds what its parts compute to what came in


_BY_CLASS: tuple[tuple[Purpose, str], ...] = (
    (Purpose.MODULATION, r"^(SD35)?Ada(Layer|Group)|NormZero|NormContinuous|Modulation"),
    (Purpose.NORM, r"[Nn]orm(\dd)?$"),
    (Purpose.HEAD, r"LMHead|^LogitsProcessor$"),
    (Purpose.ROPE, r"[Rr]ope|Rotary|^FluxPosEmbed$|^EmbedND$"),
    (Purpose.EMBEDDING, r"Embed|^Timesteps?$|TimestepProj|TextProj|ImageProj|CaptionProj"),
    (Purpose.ATTENTION, r"AttentionBlock$"),
    (Purpose.RESNET, r"^Res(net)?Block|ResidualBlock$"),
    (
        Purpose.BLOCK,
        r"^T5Layer(Self|Cross)Attention$|^T5LayerFF$|Transformer2D|Block(\dD)?$|Layer$",
    ),
    (Purpose.ATTENTION, r"Attention|Attn"),
    (Purpose.MLP, r"FeedForward|MLP|Mlp|DenseAct|DenseGated|^GEGLU$|^SwiGLU$"),
    (Purpose.CONVOLUTION, r"Conv\dd$"),
    (Purpose.RESAMPLE, r"[Uu]psample|[Dd]ownsample|Resample"),
)
_EMBEDDED = (
    "pos|patch|token|time|add|class|position|x|context|t|y|image|label|vector|time_text|timestep|"
    "guidance|text|caption|size|pixel"
)
_EMBEDDINGS = (
    "embeddings?|embed_tokens|wte|wpe|shared|(time|add_time)_proj|(img|txt|time|vector|guidance)_in|"
    "(text|visual|caption)_projection|encoder_hid_proj|proj_(in|out)|relative_attention_bias"
)
_BY_NAME: tuple[tuple[Purpose, str], ...] = (
    (
        Purpose.MODULATION,
        r"(img|txt|)_?mod(ulation)?|adaLN_modulation|time_emb_proj|scale_shift_table|adaln_\w+",
    ),
    (Purpose.ADAPTER, r"(lora|dora|hada|lokr|oft|boft|vera|ia3)_\w+"),
    (Purpose.NORM, r"(\w+_)?norm\d*(_\w+)?|(\w+_)?layer_?norm\d*|ln_\w+|(\w+_)?layernorm"),
    (Purpose.ROPE, r"rope|rotary_emb|rotary_pos_emb|rotary"),
    (Purpose.HEAD, r"lm_head|logits_processor"),
    (Purpose.EMBEDDING, rf"({_EMBEDDED})_embed(der|ding|dings)?|{_EMBEDDINGS}"),
    (Purpose.ATTENTION, r"attn\d*|attention|self_?attn|cross_?attn|SelfAttention|EncDecAttention"),
    (
        Purpose.MLP,
        r"ff(_context)?|(\w+_)?mlp|mlp_\w+|DenseReluDense|feed_forward|act_mlp|ffn|fc\d",
    ),
    (
        Purpose.CONVOLUTION,
        r"conv(_in|_out|_shortcut|_act|\d+)?|nonlinearity|(post_)?quant_conv|skip_conv",
    ),
    (Purpose.RESAMPLE, r"(up|down)samplers?|(up|down)sample|resample"),
    (Purpose.RESNET, r"resnets?"),
    (Purpose.BLOCK, r"(\w+_)?blocks?|(\w+_)?layers?|h|stages?"),
)
_CLASSES = tuple((purpose, re.compile(pattern)) for purpose, pattern in _BY_CLASS)
_NAMES = tuple((purpose, re.compile(f"(?:{pattern})")) for purpose, pattern in _BY_NAME)
_PROJECTION = re.compile(r"to_(q|k|v|qkv|kv)|(q|k|v|qkv)(_proj)?|query|key|value")
_BLOCKS = re.compile(r"(\w*blocks?|\w*layers?|h|stages?|resnets)")
_BLOCK_CLASS = re.compile(r"\w*(Block\w*|Layer)")
_CONTEXT = re.compile(
    r"(\w+_)?context(_\w+)?|txt(_\w+)?|add_[qkv]_proj|to_add_out|norm_added_\w+|encoder_attn\w*"
)
_ADAPTED = ".base_layer"  # how peft calls what it adapts, inside what stands in its place
_NO_PATH = re.compile(r"::|^triton_|[ (<]")
_DEEPEST = 64  # modules in one another; a foreign trace may hold any text
_CLASS_NUMBER = re.compile(r"_\d+$")
_CLASS_LIKE = re.compile(r"[A-Z]\w{2,}")


class Place(Struct, frozen=True):
    """What a module path says.

    `purpose` is that of the innermost module that has one, `own_class` its class as far as known
    and `path` its path; `by` says whether the `class` or the `path` told. `child` is whether the
    command lies in a module below that one. `outer` and `outer_class` are those of the next module
    outwards that has a purpose. `block` is the block around it, `context` whether a name on the
    path belongs to the context stream, `names` the whole path.
    """

    purpose: Purpose | None = None
    by: str = ""
    child: bool = False
    outer: Purpose | None = None
    outer_class: str = ""
    own_class: str = ""
    path: str = ""
    block: str | None = None
    context: bool = False
    names: tuple[str, ...] = ()


@lru_cache(maxsize=1 << 14)
def module_path(layer: str, root: str = "") -> str:
    """The module path that a layer names, "" for the submodule itself, whose class is `root`, and
    where it has none: a word that no grammar knows is the path of a module directly in it."""
    parsed = parse_name(layer)
    path = parsed.module_path if parsed is not None else layer
    if path == root or _NO_PATH.search(path) or path.count(".") > _DEEPEST:
        return ""
    return path


@lru_cache(maxsize=1 << 14)
def class_in(name: str) -> str:
    """The class that the name of a module is, as importers of torch's traces have them, or ""."""
    return _CLASS_NUMBER.sub("", name) if _CLASS_LIKE.fullmatch(name) else ""


class Places:
    """The places of the layers of one submodule.

    `layers` are all of them, `classes` the classes of modules by path where capture kept them.
    """

    def __init__(self, layers: Iterable[str], classes: Mapping[str, str]) -> None:
        self._classes = classes
        self._root = classes.get("", "")
        self._path_of = {layer: self._path(layer) for layer in layers}
        self._paths = frozenset(self._path_of.values()) | classes.keys()
        self._parents = frozenset(
            path.rpartition(".")[0]
            for path in self._paths
            if _PROJECTION.fullmatch(path.rpartition(".")[2])
        )
        self._modulated = frozenset(
            path.rpartition(".")[0] for path in self._paths if path.endswith((".linear", ".silu"))
        )
        self._fused_mlps = frozenset(
            path.rpartition(".")[0] for path in self._paths if path.endswith(".proj_mlp")
        )
        self._adapted = frozenset(
            path.removesuffix(_ADAPTED) for path in self._paths if path.endswith(_ADAPTED)
        )
        self._known: dict[str, Place] = {}

    def of(self, layer: str) -> Place:
        """The place that a layer names; without a path nothing is known."""
        path = self._path_of[layer] if layer in self._path_of else self._path(layer)
        place = self._known.get(path)
        if place is None:
            place = self._known[path] = self._read(path)
        return place

    def _path(self, layer: str) -> str:
        return module_path(layer, self._root)

    def _read(self, path: str) -> Place:
        names = tuple(path.split(".")) if path else ()
        paths = [".".join(names[: end + 1]) for end in range(len(names))]
        classes = [self._class(own, name) for own, name in zip(paths, names, strict=True)]
        block = _block(names, classes)
        context = any(map(_is_context, names))
        found: list[tuple[int, Purpose, str]] = []
        for at in range(len(names) - 1, -1, -1):
            purpose, by = self._purpose(paths[at], names[at], classes[at])
            if path in self._adapted and at == len(names) - 1:
                purpose, by = Purpose.ADAPTER, "path"  # it scales and adds what its adapters give
            if purpose is not None:
                found.append((at, purpose, by))
        inside = (Purpose.EMBEDDING, Purpose.ATTENTION)
        if len(found) > 1 and found[0][1] is Purpose.CONVOLUTION and found[1][1] in inside:
            del found[0]  # patches are embedded, and projections made, by convolutions
        if not found:
            return Place(block=block, context=context, names=names)
        at, purpose, by = found[0]
        outer = found[1][0] if len(found) > 1 else -1
        return Place(
            purpose=purpose,
            by=by,
            child=at < len(names) - 1,
            outer=found[1][1] if len(found) > 1 else None,
            outer_class=classes[outer] if outer >= 0 else "",
            own_class=classes[at],
            path=paths[at],
            block=block,
            context=context,
            names=names,
        )

    def _class(self, path: str, name: str) -> str:
        return self._classes.get(path, "") or class_in(name)

    def _purpose(self, path: str, name: str, class_name: str) -> tuple[Purpose | None, str]:
        if class_name and _name_purpose(name) is not Purpose.ADAPTER:
            purpose = _class_purpose(class_name)
            if purpose is not None:
                return purpose, "class"
        if path in self._parents:
            return Purpose.ATTENTION, "path"
        parent, _, last = path.rpartition(".")
        if path.endswith(_ADAPTED):
            return None, ""  # it is what it was under its own name
        if last == "proj_out" and parent in self._fused_mlps:
            return Purpose.MLP, "path"
        purpose = _name_purpose(name)
        if purpose is Purpose.NORM and path in self._modulated:
            return Purpose.MODULATION, "path"
        return purpose, "path" if purpose is not None else ""


@lru_cache(maxsize=1 << 12)
def _class_purpose(class_name: str) -> Purpose | None:
    for purpose, pattern in _CLASSES:
        if pattern.search(class_name):
            return purpose
    return None


@lru_cache(maxsize=1 << 14)
def _name_purpose(name: str) -> Purpose | None:
    for purpose, pattern in _NAMES:
        if pattern.fullmatch(name):
            return purpose
    return None


@lru_cache(maxsize=1 << 14)
def _is_context(name: str) -> bool:
    return _CONTEXT.fullmatch(name) is not None


@lru_cache(maxsize=1 << 14)
def _is_numbered_block(name: str) -> bool:
    """Whether the name is that of a block's class with a number."""
    number = _CLASS_NUMBER.search(name)
    return number is not None and _BLOCK_CLASS.fullmatch(name[: number.start()]) is not None


def _block(names: tuple[str, ...], classes: list[str]) -> str | None:
    """The path of the outermost numbered block, or of a middle block; None outside of blocks."""
    for at, name in enumerate(names):
        if name == "mid_block" or classes[at].startswith("UNetMidBlock"):
            return ".".join(names[: at + 1])
        if at and name.isdigit() and _BLOCKS.fullmatch(names[at - 1]):
            return ".".join(names[: at + 1])
        if _is_numbered_block(name):
            return ".".join(names[: at + 1])
    return None
