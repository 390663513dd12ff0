"""Recognize norms, activations and attention by op chains, shapes and tensor streams.

    Pow → ReduceMean → Add → Sqrt → Reciprocal → Mul → Mul      RMSNorm
    MatMul → Softmax → MatMul                                   attention

Every command is one letter, so a chain is a regular expression. Commands that only move data do
not break a chain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod

from msgspec import Struct

from profiler.analysis.flop_shapes import Shapes
from profiler.analysis.role_kernel_names import (
    FusedKernel,
    Operation,
    Place,
    Purpose,
    Sort,
    word_set,
)

# --- Chains of op types in a representative call: norms, activations and attention written by hand.
#
#     Pow → ReduceMean → Add → Sqrt → Reciprocal → Mul → Mul      RMSNorm
#     ReduceMean → Sub → Pow → ReduceMean → Add → Sqrt → Div      LayerNorm
#     LinalgVectorNorm → ClampMin → Div → Mul → Mul → Add         RMSNorm, by `normalize`
#     MatMul → Softmax → MatMul                                   attention
#     Pow → Mul → Add → Mul → Tanh → Add → Mul                    GELU, so mlp
#
# Every command is one letter, so that a chain is a regular expression; what only moves data does
# not break one.


_WORDS = {
    "p": "pow square",
    "x": "mul",
    "m": "mean reduce_mean",
    "a": "add bias_add",
    "u": "sub",
    "s": "sqrt",
    "r": "rsqrt",
    "d": "div",
    "n": "linalg_vector_norm",
    "k": "clamp_min",
    "c": "reciprocal",
    "t": "tanh",
    "e": "erf",
    "w": "where is_na_n isnan",
    "S": "softmax _softmax _safe_softmax bias_softmax soft_max cuda_soft_max q_linear_softmax",
}
_LETTERS = {word: letter for letter, some in _WORDS.items() for word in some.split()}
_BY_SORT = {Sort.MATMUL: "M", Sort.LAYOUT: ".", Sort.REORDER: ".", Sort.IDENTITY: "."}


_CHAINS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("norm", "LayerNorm", re.compile(r"m\.*u\.*[px]\.*m\.*a\.*(?:r\.*x|s\.*(?:d|c\.*x))")),
    ("norm", "RMSNorm", re.compile(r"[px]\.*m\.*a\.*(?:r\.*x|s\.*(?:d|c\.*x))(?:\.*x)?")),
    # torch.nn.functional.normalize, then a scale and a shift: Wan's
    ("norm", "RMSNorm", re.compile(r"n\.*k\.*d(?:\.*x){0,2}(?:\.*a)?")),
    ("attention", "", re.compile(r"M[.xadw]*S[.w]*M")),
    ("mlp", "", re.compile(r"p\.*x\.*a\.*x\.*t\.*a\.*x(?:\.*x)?|d\.*e\.*a\.*x(?:\.*x)?")),
)


class Chained(Struct, frozen=True):
    """The role of the chain that a kind is part of; `norm_kind` for norms, else ""."""

    role: str
    norm_kind: str


_NEARLY_ALL = 0.9  # of the commands of a kind


def chained_kinds(
    order: Sequence[int], operations: Mapping[int, Operation], mixed: Collection[int] = ()
) -> dict[int, Chained]:
    """The kinds most of whose commands are part of a chain, with its role. `order` is the kind of
    each command of the call in order of start, `operations` the operation of each kind. `mixed` are
    kinds that have the commands of all modules: of these nearly all must be part of a chain."""
    letters = {
        kind: _LETTERS.get(operation.word) or _BY_SORT.get(operation.sort, "o")
        for kind, operation in operations.items()
    }
    text = "".join(letters[kind] for kind in order)
    votes: dict[int, Counter[Chained]] = {}
    for role, norm_kind, pattern in _CHAINS:
        chained = Chained(role, norm_kind)
        for match in pattern.finditer(text):
            for at in range(*match.span()):
                if text[at] != ".":
                    votes.setdefault(order[at], Counter())[chained] += 1
    total = Counter(order)
    found = {}
    for kind, counted in votes.items():
        chained, count = counted.most_common(1)[0]
        if count > (_NEARLY_ALL if kind in mixed else 0.5) * total[kind]:
            found[kind] = chained
    return found


def after_negation(order: Sequence[int], operations: Mapping[int, Operation]) -> frozenset[int]:
    """The kinds that run directly after a negation: in attention, halves of rotated vectors."""
    negations = {kind for kind, operation in operations.items() if operation.word == "neg"}
    if not negations:
        return frozenset()
    return frozenset(kind for before, kind in pairwise(order) if before in negations)


# What may be the product of an attention with its values: also a kernel that is not known.
_MAY_WEIGHT = (Sort.MATMUL, Sort.ATTENTION, Sort.UNKNOWN)


def concluding_softmaxes(
    order: Sequence[int], operations: Mapping[int, Operation]
) -> frozenset[int]:
    """The kinds of softmax after which the call has no product and nothing of an attention. They
    make the probabilities of a classifier or sampler, since attention multiplies its own."""
    softmaxes = {n for n, one in operations.items() if _LETTERS.get(one.word) == "S"}
    if not softmaxes:
        return frozenset()
    others = [at for at, n in enumerate(order) if n not in softmaxes]
    last = max((at for at in others if operations[order[at]].sort in _MAY_WEIGHT), default=-1)
    before = set(order[: last + 1])
    return frozenset(n for n in order[last + 1 :] if n in softmaxes and n not in before)


# --- What is known of a kind of commands, and what is concluded from it.


ROLE_BY = ("producer", "category", "op_type", "class", "path", "chain", "shapes", "kernel")
"""What can decide a role: the trace's producer gave it, or the evidence of that name."""


class Evidence(Struct, frozen=True):
    """What is known of one kind.

    `kernel` is the function that its first command ran, "" if unknown. `rotates` is whether its
    attention module turns queries and keys by position, `rotated` whether it works on tensors of
    the dims that products with positions have, `projected` whether the command runs after that
    module's output projection, `negated` directly after a negation. `attends` is whether its
    submodule has a fused attention, or a softmax of the size of a product's scores: outside of
    transformers sizes of products say nothing. `weighs` is whether it may be one of these products.
    `concludes` is whether it is a softmax that no product follows, as those of a classifier.
    `routes` is whether it makes or reads the scores of a router's experts, `projects` whether a
    product has the width of its submodule's heads, `of_tokens` whether its rows are tokens, though
    few, if the model has no vectors of a timestep, `of_vocabulary` whether they are scores of the
    words that a product of its submodule gives. `updates` is whether it runs in an optimizer's
    pass.
    """

    op_type: str
    category: str
    operation: Operation
    place: Place
    shapes: Shapes | None = None
    chained: Chained | None = None
    rotates: bool = False
    rotated: bool = False
    projected: bool = False
    negated: bool = False
    attends: bool = False
    concludes: bool = False
    weighs: bool = False
    routes: bool = False
    projects: bool = False
    of_tokens: bool = False
    of_vocabulary: bool = False
    updates: bool = False
    kernel: str = ""


class Decision(Struct, frozen=True):
    """A role and what decided (`ROLE_BY`, "" for `other` without evidence); `norm_kind` of
    norms, "" if it is not known."""

    role: str
    by: str
    norm_kind: str = ""


# --- Image or text: which of the two streams of a joint transformer a kind works on.
#
# By names where the path has some (`ff_context`, `add_k_proj`, `txt_mlp`), else by the number of
# tokens: that of the image is what named image kinds have, or what the patch convolution gives.


_OUTSIDE = word_set("img_in x_embedder pos_embed proj_out norm_out")
_IMAGE = _OUTSIDE | word_set(
    "to_q to_k to_v to_out norm_q norm_k ff ff_net norm1 norm2 attn2 img_mlp img_mod img_norm1 "
    "img_norm2 img_attn"
)


class StreamKind(Struct, frozen=True):
    """What decides the stream of a kind, its role included."""

    submodule: str
    place: Place
    shapes: Shapes | None
    total_ns: int
    role: str


def streams_of(kinds: Sequence[StreamKind]) -> list[str | None]:
    """Return the stream of each kind: `image`, `text` or None."""
    found: list[str | None] = [None] * len(kinds)
    members: dict[str, list[int]] = {}
    for number, kind in enumerate(kinds):
        members.setdefault(kind.submodule, []).append(number)
    for numbers in members.values():
        named = {number: _by_name(kinds[number].place) for number in numbers}
        lengths = _lengths([kinds[n] for n in numbers], [named[n] for n in numbers])
        if "text" not in named.values() and "text" not in lengths.values():
            continue
        for number in numbers:
            if kinds[number].role != "rope":  # positions of both
                found[number] = named[number] or _by_length(kinds[number], lengths)
    return found


def _by_name(place: Place) -> str | None:
    if place.context:
        return "text"
    if place.names and place.names[0].startswith("single"):
        return None
    inside = place.names[2:] if place.block else place.names[:1]
    wanted = _IMAGE if place.block else _OUTSIDE
    return "image" if any(name in wanted for name in inside) else None


def _lengths(kinds: Sequence[StreamKind], named: Sequence[str | None]) -> dict[int, str]:
    """Return the stream of each number of tokens, alone and times the batch; numbers of both
    streams are left out. The text of a prompt and of a negative prompt may differ in length."""
    found: dict[str, set[int]] = {"image": set(), "text": set()}
    batches = {1}
    for kind, stream in zip(kinds, named, strict=True):
        dims = _tokens(kind.shapes)
        if stream and dims and kind.place.block:
            found[stream].add(dims[1])
            batches.add(dims[0])
    if not all(found.values()):
        image, text, batch = _by_patches(kinds)
        found = {"image": {image}, "text": {text}}
        batches.add(batch)
    wide = {
        stream: {batch * length for batch in batches for length in lengths if length > 1}
        for stream, lengths in found.items()
    }
    both = wide["image"] & wide["text"]
    return {length: stream for stream, own in wide.items() for length in own - both}


def _by_patches(kinds: Sequence[StreamKind]) -> tuple[int, int, int]:
    """Image and text tokens and the batch, from the patch convolution and joint attention."""
    image = batch = 0
    for kind in kinds:
        if kind.role not in ("convolution", "embedding") or kind.shapes is None:
            continue
        x, w, *_ = (*(tensor.dims for tensor in kind.shapes.inputs), (), ())
        if len(x) == len(w) == 4 and w[1] == x[1] and w[2] == w[3] > 1 and not x[2] % w[2]:
            batch, image = x[0], (x[2] // w[2]) * (x[3] // w[3])
    if not image:
        return 0, 0, 1
    joint: Counter[int] = Counter()
    for kind in kinds:
        if kind.role == "attention" and kind.shapes and kind.shapes.inputs:
            joint.update(
                {n - image: kind.total_ns for n in kind.shapes.inputs[0].dims[1:3] if n > image}
            )
    return image, joint.most_common(1)[0][0] if joint else 0, batch


def _tokens(shapes: Shapes | None) -> tuple[int, ...]:
    """The dims of the three-dimensional input with most tokens, () if there is none."""
    if shapes is None:
        return ()
    dims = [tensor.dims for tensor in shapes.inputs if len(tensor.dims) == 3]
    return max(dims, key=lambda d: d[1], default=())


def _by_length(kind: StreamKind, lengths: Mapping[int, str]) -> str | None:
    """The stream to which all known numbers of tokens in the inputs belong, else None."""
    if kind.shapes is None or not lengths or kind.place.names[:1] == ("single_transformer_blocks",):
        return None
    streams = set()
    for tensor in kind.shapes.inputs:
        dims = tensor.dims
        if len(dims) == 3 or len(dims) == 4:
            streams.add(lengths.get(dims[1]) or lengths.get(dims[2] if len(dims) == 4 else -1))
        elif len(dims) == 2:
            streams.add(lengths.get(dims[0]))
    streams.discard(None)
    return streams.pop() if len(streams) == 1 else None


# --- What the shapes of a command say of what it is for.


VOCABULARY = 20_000  # from this width on a product may be of a language model's vocabulary
_WIDEST_HEAD = 512  # of the single one of an autoencoder; those of transformers have 256 at most
_VECTORS = 16  # rows up to which a product works on vectors of the batch, not on tokens


def single_input(shapes: Shapes | None) -> bool:
    """Whether there is one input: ONNX Runtime does not list weights."""
    return shapes is not None and shapes.outputs is not None and len(shapes.inputs) == 1


def has_number(shapes: Shapes | None) -> bool:
    """Whether one of the first two inputs is a single number."""
    return shapes is not None and any(not tensor.dims for tensor in shapes.inputs[:2])


def turns(shapes: Shapes | None) -> bool:
    """Whether the first two inputs have at least three dimensions: parts of queries or keys."""
    if shapes is None or len(shapes.inputs) < 2:
        return False
    return all(len(tensor.dims) > 2 and tensor.floating for tensor in shapes.inputs[:2])


def pairs(shapes: Shapes | None) -> bool:
    """Whether first and second numbers of pairs, [..., 1] each, become pairs, [..., 2], or pairs
    become these: stack and unbind, as ONNX has them."""
    if shapes is None or shapes.outputs is None:
        return False
    first, second = (tuple(t.dims for t in side) for side in (shapes.inputs, shapes.outputs))
    return _halves_of(first, second[:1]) or _halves_of(second, first[:1])


def _halves_of(halves: tuple[tuple[int, ...], ...], whole: tuple[tuple[int, ...], ...]) -> bool:
    """Whether two tensors [..., 1] are the halves of the `whole` [..., 2]."""
    return any(
        len(dims) > 3 and dims[-1] == 2 and halves == ((*dims[:-1], 1),) * 2 for dims in whole
    )


def in_groups(shapes: Shapes | None) -> bool:
    """Whether channels and pixels were folded into groups, [b,groups,n]: ONNX has a GroupNorm as
    an InstanceNormalization of these."""
    return shapes is not None and bool(shapes.inputs) and len(shapes.inputs[0].dims) == 3


def two_activations(shapes: Shapes) -> bool:
    """Whether a product is of two batches of matrices: weights are a matrix."""
    return len(shapes.inputs) > 1 and all(len(tensor.dims) > 2 for tensor in shapes.inputs[:2])


def expands_weight(shapes: Shapes) -> bool:
    """Whether a batched product [b,m,k] by [b,k,n] is a layer with its weight expanded over the
    batch, as torch computes it on tokens that are not contiguous: both sides of the matrix are
    wider than any head, whose width scores and what they weight have on one side."""
    tensors = [tensor.dims for tensor in shapes.inputs[:3]]  # the result may stand behind them
    return any(
        len(left) == len(right) == 3
        and left[0] == right[0]
        and left[2] == right[1]
        and min(right[1:]) > _WIDEST_HEAD
        for left, right in pairwise(tensors)
    )


def of_images(shapes: Shapes | None) -> bool:
    """Whether the largest input is a batch of images or videos."""
    tensors = shapes.inputs if shapes is not None else ()
    largest = max(tensors, key=lambda tensor: tensor.size, default=None)
    return largest is not None and len(largest.dims) in (4, 5)


def weighs(product: Shapes, softmax: Shapes) -> bool:
    """Whether a product of two batches of matrices may make the scores of a softmax, or weight by
    them, forward or backward: one of its matrices has their size."""
    left, right = (tensor.dims for tensor in product.inputs[:3][-2:])
    if len(left) < 2 or len(right) < 2:
        return False
    batch = max(prod(left[:-2]), prod(right[:-2]))
    scores = softmax.inputs[0]
    return any(
        batch * rows * columns == scores.size and scores.dims[-1:] in ((rows,), (columns,))
        for rows, columns in (left[-2:], right[-2:], (left[-2], right[-1]), (left[-2], right[-2]))
    )


def only_integers(text: str | None) -> bool:
    """Whether the text in `shapes` has tensors of integers or truth values alone."""
    return text is not None and "float" not in text and ("int" in text or "bool" in text)


def only_vectors(shapes: Shapes | None) -> bool:
    """Whether no input has more than a batch and a width."""
    return shapes is not None and all(len(tensor.dims) <= 2 for tensor in shapes.inputs)


def same_dims(shapes: Shapes) -> bool:
    """Whether the first two inputs are of one shape and contain tokens or images."""
    if len(shapes.inputs) < 2:
        return False
    first, second = shapes.inputs[0].dims, shapes.inputs[1].dims
    return first == second and len(first) >= 2


def broadcasts(shapes: Shapes) -> bool:
    """Whether a vector of the batch meets tokens or pixels ([b,1,d] with [b,n,d], [b,c,1,1] with
    [b,c,h,w]), or is itself changed by a number (1 + scale)."""
    tensors = [tensor.dims for tensor in shapes.inputs[:2]]
    if len(tensors) < 2:
        return False
    small, large = sorted(tensors, key=lambda dims: (len(dims), dims))
    if small in ((), (1,)):
        return len(large) == 3 and large[1] == 1
    if len(small) != len(large):
        return len(small) == 2 and len(large) == 3 and small[-1] == large[-1]
    return small != large and 1 in small[1:]


def bias_of_channels(shapes: Shapes) -> bool:
    """Whether [1,c,1,1] meets [n,c,h,w], or the like of a video: a bias for each channel."""
    tensors = [tensor.dims for tensor in shapes.inputs[:2]]
    if len(tensors) < 2 or len(tensors[0]) not in (4, 5) or len(tensors[0]) != len(tensors[1]):
        return False
    large, small = tensors
    channels = large[1]
    return large != small and small == (1, channels, *(1 for _ in large[2:]))


def rotated_dims(shapes: Shapes | None) -> tuple[int, ...] | None:
    """The dims of queries or keys that meet the cosines or sines of their positions, which all
    heads share: [b,s,h,d] with [1,s,1,d], or [b,h,s,d] with [1,1,s,d]; None for anything else."""
    tensors = shapes.inputs[:2] if shapes is not None else ()
    if len(tensors) < 2 or not all(len(t.dims) == 4 and t.floating for t in tensors):
        return None
    small, large = sorted((tensor.dims for tensor in tensors), key=prod)
    one, (_, first, second, width) = small[1:3], large
    shared = small[3] == width and 1 < width <= _WIDEST_HEAD and first > 1 < second
    return large if shared and one in ((first, 1), (1, second)) else None


def projection_of(shapes: Shapes, *, of_heads: bool, vectors: bool = True) -> str:
    """Return the role of a product [rows, k] by [k, n] in a transformer, "" if its sizes do not
    say.

    Products of vectors project conditioning; of tokens, those that keep the width belong to
    attention and those that widen it three times or more, or narrow it so, to the mlp. From a
    model's width to a vocabulary they are of the model's head, which is none of these. Few rows are
    `vectors`, or else tokens of a decoding step; a product `of_heads` has a width of heads, which
    says more than ratios do.
    """
    product = product_sizes(shapes)
    if product is None:
        return ""
    rows, k, n = product
    if _of_vocabulary(rows, k, n):
        return ""
    if vectors and rows <= _VECTORS:
        return "modulation" if n >= 2 * k and n % k == 0 else "embedding"
    if of_heads or n in (k, 3 * k):
        return "qkv_projection"
    if 2.5 * k <= n <= 8 * k or 2.5 * n <= k <= 8 * n:
        return "mlp"
    return "embedding"


def products_of_tokens(products: Mapping[int, tuple[int, int, int]]) -> frozenset[int]:
    """Which of the products, as rows, inner and outer size, work on tokens unless they work on a
    timestep: with weights that meet many rows elsewhere, or if none meets many."""
    most: dict[tuple[int, int], int] = {}
    for rows, k, n in products.values():
        most[k, n] = max(rows, most.get((k, n), 0))
    decoding = max(most.values(), default=0) <= _VECTORS
    return frozenset(
        number for number, (_, k, n) in products.items() if decoding or most[k, n] > _VECTORS
    )


class Heads(Struct, frozen=True):
    """How wide all queries of an attention are together, and all keys, which are fewer if several
    heads of queries share one."""

    queries: int
    keys: int

    def give(self, n: int) -> bool:
        """Whether a product with a result `n` wide makes keys, or all that an attention reads."""
        shared = self.keys < self.queries
        return n == self.queries + 2 * self.keys or (shared and n in (self.keys, 2 * self.keys))


def heads_of(word: str, shapes: Shapes | None) -> Heads | None:
    """The heads of a fused attention, by the dims of its queries and keys: [b,h,s,d] in torch's,
    [b,s,h,d] or [tokens,h,d] in others'; None if these do not say."""
    tensors = [t.dims for t in shapes.inputs[:2]] if shapes is not None else []
    if len(tensors) < 2 or {*map(len, tensors)} not in ({3}, {4}):
        return None
    of_torch = "scaled_dot_product" in word
    if tensors[0][-1] != tensors[1][-1] or (of_torch and len(tensors[0]) == 3):
        return None
    queries, keys = (dims[1 if of_torch else -2] * dims[-1] for dims in tensors)
    return Heads(queries, keys) if 0 < keys <= queries else None


def projections_of(
    products: Mapping[int, tuple[int, int, int]], heads: Iterable[Heads]
) -> frozenset[int]:
    """Which of the products, as rows, inner and outer size, project into or out of attentions with
    these heads: of grouped ones no ratio of widths says so."""
    found: set[int] = set()
    for one in heads:
        models = {k for _, k, n in products.values() if one.give(n)}
        for number, (_, k, n) in products.items():
            gives_queries = n == one.queries and k in models
            takes_result = k == one.queries and n in models and k not in models
            if (one.give(n) and k in models) or gives_queries or takes_result:
                found.add(number)
    return frozenset(found)


# --- Which products and tensors are a router's, by the dims of what chooses experts.


_EXPERTS = 1024  # no router chooses from more


def scores_of_experts(shapes: Shapes | None, *, beside_tokens: bool) -> frozenset[tuple[int, int]]:
    """The rows and width of tensors that go in and may be scores of experts; if tokens go in beside
    them, narrower than these."""
    tensors = [t.dims for t in shapes.inputs if t.floating and len(t.dims) > 1] if shapes else []
    widest = max((dims[-1] for dims in tensors), default=0)
    return frozenset(
        (prod(dims[:-1]), dims[-1])
        for dims in tensors
        if 1 < dims[-1] <= _EXPERTS and not (beside_tokens and dims[-1] == widest)
    )


def _of_vocabulary(rows: int, k: int, n: int) -> bool:
    """Whether one side is a vocabulary: wider than an mlp, and than all shifts, scales and gates
    of a block (12 widths in HiDream)."""
    narrow, wide = sorted((k, n))
    modulates = rows <= _VECTORS and n % k == 0 and n <= 12 * k
    return wide >= VOCABULARY and wide > 8 * narrow and not modulates


def product_sizes(shapes: Shapes) -> tuple[int, int, int] | None:
    """Rows, inner and outer size of a product with weights; a bias may come first."""
    matrices = [tensor.dims for tensor in shapes.inputs if len(tensor.dims) >= 2]
    if len(matrices) == 1 and shapes.outputs:
        width = shapes.outputs[0].dims[-1:] or (0,)
        matrices.append((matrices[0][-1], *width))
    if len(matrices) < 2 or not (len(matrices[1]) == 2 or expands_weight(shapes)):
        return None
    left, right = matrices[0], matrices[1][-2:]
    if not left[-1] or not all(right):
        return None
    k = left[-1]
    if k not in right:
        return None
    n = right[1] if right[0] == k else right[0]
    rows = 1
    for size in left[:-1]:
        rows *= size
    return rows, k, n


def modulation_width(shapes: Shapes) -> int:
    """Return how many vectors of the model's width one input vector contains: 6 for shift, scale
    and gate of two parts, 2 for shift and scale; 0 if there is none."""
    widths = [tensor.dims[-1] for tensor in shapes.inputs if len(tensor.dims) == 3]
    vectors = [tensor.dims[1] for tensor in shapes.inputs if len(tensor.dims) == 2]
    found = {
        vector // width
        for width in widths
        for vector in vectors
        if width > 1 and vector % width == 0 and vector // width in (2, 3, 6, 9)
    }
    return max(found, default=0)


# --- Which norm it is: by class, by op type, by the chain that it is written as.


_ADAPTIVE = (  # what a class's name holds
    ("Continuous", "AdaLayerNormContinuous"),
    ("AdaGroupNorm", "AdaGroupNorm"),
    ("Zero", "AdaLayerNormZero"),
    ("Ada", "AdaLayerNorm"),
)
_PLAIN = (
    ("RMS", "RMSNorm"),
    ("T5LayerNorm", "RMSNorm"),  # no mean is taken off
    ("GroupNorm", "GroupNorm"),
    ("BatchNorm", "BatchNorm"),
    ("InstanceNorm", "InstanceNorm"),
    ("LayerNorm", "LayerNorm"),
)
_FUSED = (  # words of a fused kernel
    ("native_group_norm", "GroupNorm"),
    ("group_norm", "GroupNorm"),
    ("native_batch_norm", "BatchNorm"),
    ("native_layer_norm", "LayerNorm"),
    ("layer_norm", "LayerNorm"),
    ("rms_norm", "RMSNorm"),
    ("_fused_rms_norm", "RMSNorm"),
    ("sub", "LayerNorm"),  # written out: the mean is taken off
    ("rsqrt", "RMSNorm"),
    ("sqrt", "RMSNorm"),
)


def norm_kind(found: Evidence) -> str:
    """The kind of a norm, "" if it is unknown."""
    place, operation = found.place, found.operation
    inner = place.purpose is Purpose.NORM
    adaptive = _named(place.outer_class if inner else place.own_class, _ADAPTIVE)
    by_class = _named(place.own_class, _PLAIN) if inner else ""
    chained = found.chained.norm_kind if found.chained else ""
    own = by_class or _of_operation(found) or operation.norm_kind or chained
    if not adaptive and _is_modulated(place) and own in ("", "LayerNorm"):
        return "AdaLayerNorm"
    return adaptive or own


def fused_norm(found: Evidence, fused: FusedKernel) -> str:
    """The kind of a norm in a kernel that torch.compile wrote. One that shifts and scales by parts
    of a vector is adaptive: six parts of it make a Zero, two a Continuous one."""
    width = modulation_width(found.shapes) if found.shapes else 0
    if Sort.NORM in fused.sorts and "mul" in fused.words and width:
        return "AdaLayerNormContinuous" if width == 2 else "AdaLayerNormZero"
    return next((kind for word, kind in _FUSED if word in fused.words), "")


def _named(class_name: str, marks: tuple[tuple[str, str], ...]) -> str:
    return next((kind for mark, kind in marks if mark in class_name), "")


def _is_modulated(place: Place) -> bool:
    return place.purpose is Purpose.NORM and place.outer is Purpose.MODULATION


def _of_operation(found: Evidence) -> str:
    """Return the kind of norm that an op type is although its name does not say so, else ""."""
    word = found.operation.word
    if word == "instance_normalization" and in_groups(found.shapes):
        return "GroupNorm"  # as ONNX has it
    return "RMSNorm" if word == "linalg_vector_norm" else ""
