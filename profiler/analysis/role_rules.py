"""Decide the role of each command: attention, mlp, norm, modulation, embedding and others.

    decide(SubmoduleKinds(rows, classes, order).evidence(number))

The first evidence that applies decides: an unambiguous op type, the class of the innermost
module, the names on its path, the op chain, the shapes, the kernel's name. `decide` lists what
each role includes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from profiler.analysis.flop_shapes import Shapes, parse_shapes
from profiler.analysis.role_kernel_names import (
    FusedKernel,
    Operation,
    Place,
    Places,
    Purpose,
    Sort,
    fused_kernel,
    library_kernel,
    operation_of,
    word_set,
    writes_cache,
)
from profiler.analysis.role_patterns import (
    VOCABULARY,
    Decision,
    Evidence,
    Heads,
    after_negation,
    bias_of_channels,
    broadcasts,
    chained_kinds,
    concluding_softmaxes,
    expands_weight,
    fused_norm,
    has_number,
    heads_of,
    norm_kind,
    of_images,
    only_integers,
    only_vectors,
    pairs,
    product_sizes,
    products_of_tokens,
    projection_of,
    projections_of,
    rotated_dims,
    same_dims,
    scores_of_experts,
    single_input,
    turns,
    two_activations,
    weighs,
)
from profiler.grammars.names import parse_name
from profiler.trace.events import component_of

# --- Roles by the names of kernels: those that torch.compile wrote, and those of libraries.


# In this order.
_BY_SORT = (Sort.ATTENTION, Sort.CONVOLUTION, Sort.RESAMPLE, Sort.EMBEDDING, Sort.ROPE)
_SAMPLING = word_set("argmax argmin topk multinomial sort exponential")
_SPLITTING_OPS = word_set("split split_with_sizes chunk unbind unsqueeze select slice")
_TURNED = word_set("mul cat stack neg view_as_complex")


def role_of_name(name: str) -> str:
    """The role of a kernel by its name alone, whole or cut: `matmul` and `elementwise` if the name
    says what it computes but not what for, `other` if it does not say."""
    fused = fused_kernel(name)
    if fused is not None:
        return _alone(fused)
    found = library_kernel(name)
    return found.role if found is not None else "other"


def of_fused(found: Evidence, fused: FusedKernel) -> Decision:
    """Decide the role of a kernel that torch.compile wrote, by the rarest of the operations in it.
    A norm keeps the residual, gate and modulation that were fused with it. Shapes say more than the
    name."""
    if _is_norm(fused):
        return Decision("norm", "kernel", fused_norm(found, fused))
    if found.shapes is None:
        return Decision(_alone(fused), "kernel")
    role = _by_sort(fused)
    if role == "matmul" and found.attends:
        role = projection_of(found.shapes, of_heads=found.projects) or role
    if not role and Sort.ACTIVATION in fused.sorts:
        role = _of_activation(found, fused.words)
    return Decision(role or _of_arithmetic(fused) or "elementwise", "kernel")


def _is_norm(fused: FusedKernel) -> bool:
    words = fused.words
    return Sort.NORM in fused.sorts or bool(words & {"rsqrt", "sqrt"} and "mean" in words)


def _by_sort(fused: FusedKernel) -> str:
    """Return the role by an operation that can have no other, "" if there is none."""
    role = next((sort.value for sort in _BY_SORT if sort in fused.sorts), "")
    if not role and Sort.MATMUL in fused.sorts:  # torch.compile's own product
        return "mlp" if Sort.ACTIVATION in fused.sorts else "matmul"
    return role


def _of_arithmetic(fused: FusedKernel) -> str:
    words = fused.words
    if {"cos", "sin"} <= words and words & {"arange", "exp"}:
        return "embedding"
    if {"cos", "sin"} <= words and words & _TURNED:  # a rotation multiplies, a table is joined
        return "rope"
    if words & {"view_as_complex", "neg"}:
        return "rope"
    if not fused.arithmetic:
        return "data_movement"
    if "mul" in words:
        return "modulation"
    return "residual" if "add" in words and not words & {"cos", "sin"} else ""


def _of_activation(found: Evidence, words: frozenset[str]) -> str:
    """Return the role of an activation: SiLU of a vector prepares a modulation; others are between
    products."""
    if "silu" in words and only_vectors(found.shapes):
        return "modulation"
    return "convolution" if of_images(found.shapes) else "mlp"


def _alone(fused: FusedKernel) -> str:
    """Return the role by the words of the name alone; `elementwise` if several parts of a model
    have them."""
    if fused.foreach:
        return "optimizer"
    if _is_norm(fused):
        return "norm"
    if fused.words & _SAMPLING:
        return "sampling"
    role = _by_sort(fused)
    if not role and Sort.ACTIVATION in fused.sorts:
        role = _activation_alone(fused)
    elif not role and fused.words and not fused.arithmetic:
        role = "data_movement"
    return role or _arithmetic_alone(fused)


def _activation_alone(fused: FusedKernel) -> str:
    """Return the role of an activation by the product or convolution that it follows, or by its
    gate; without these `elementwise`."""
    if Sort.CONVOLUTION in fused.after:
        return "convolution"
    gated = fused.words & {"silu", "gelu"} and "mul" in fused.words
    return "mlp" if gated or Sort.MATMUL in fused.after else "elementwise"


def _arithmetic_alone(fused: FusedKernel) -> str:
    """Return the role of arithmetic: rotary positions rotate by cosine and sine, modulation scales
    and shifts by parts of a vector, a residual only adds."""
    words, arithmetic = fused.words, fused.arithmetic
    if {"cos", "sin"} <= words and words & {"arange", "exp"}:
        return "embedding"
    turns = {"cos", "sin"} <= words or words & {"view_as_complex", "neg"}
    if turns and "mul" in words:
        return "rope"
    if {"add", "mul"} <= words and words & _SPLITTING_OPS and arithmetic <= {"add", "mul"}:
        return "modulation"
    return "residual" if arithmetic == {"add"} else "elementwise"


def routing_or(role: str, kernel: str) -> str:
    """Return the role, or `router` if the kernel says so: the name of an operator such as TopK does
    not say what it chooses from."""
    if role not in ("sampling", "mlp", "other") or not kernel:
        return role
    return "router" if role_of_name(kernel) == "router" else role


def of_kernel(found: Evidence) -> Decision | None:
    """Decide the role by the name of a library's kernel, if the operation is unknown; sizes of a
    product say more. None if no name is known."""
    if found.operation.sort is not Sort.UNKNOWN:
        return None
    kernel = library_kernel(found.op_type)
    if kernel is None and found.kernel:
        kernel = library_kernel(found.kernel)
    if kernel is None or kernel.role == "other":
        return None
    role = kernel.role
    if role == "matmul" and found.shapes is not None and found.attends:
        role = projection_of(found.shapes, of_heads=found.projects) or role
    return Decision(role, "kernel", kernel.norm_kind)


# --- What is known of the kinds of one submodule: each from its names and shapes, and from what
# runs before and after it in a representative call.


_PRODUCTS = (Sort.MATMUL, Sort.CONVOLUTION)
_OPTIMIZER = "optimizer"  # what importers call that pass of a training step
_MARKS = frozenset(("neg", "view_as_complex"))
_CHOICES = word_set("topk top_k")
_CHOICES_OF_TOKENS = word_set("argmax topk top_k sort")
_SOFTMAX = word_set("softmax _softmax")


class KindRow(NamedTuple):
    """Columns of `Kinds.table` that decide the role of a kind."""

    submodule: str | None
    layer: str
    place: str
    op_type: str | None
    category: str
    shapes: str | None
    kernel: str | None
    total_ns: int


class SubmoduleKinds:
    """The kinds of one submodule and what its representative call says of them."""

    def __init__(
        self, rows: Mapping[int, KindRow], classes: Mapping[str, str], order: list[int]
    ) -> None:
        self._rows = rows
        self._named = next(iter(rows.values())).submodule is not None  # the scheduler is no model
        name = component_of(next(iter(rows.values())).submodule or "")
        places = Places({row.place for row in rows.values()}, classes, name)
        self._places: dict[int, Place] = {
            # an operator that lies in no module is called by its own name
            n: places.of("" if row.place == row.op_type else row.place)
            for n, row in rows.items()
        }
        self._operations: dict[int, Operation] = {
            n: operation_of(row.op_type or _named_operation(row.layer)) for n, row in rows.items()
        }
        self._negated = after_negation(order, self._operations)
        attention = {
            n: place.path if place.purpose is Purpose.ATTENTION else ""
            for n, place in self._places.items()
        }
        self._attention = attention
        softmaxes = {n: self._softmax(n) for n in rows}
        gates = {n for n, shapes in softmaxes.items() if shapes and self._is_gate(shapes)}
        counting = {n for n, row in rows.items() if only_integers(row.shapes)}  # shapes and masks
        chained = [n for n in order if n not in counting and n not in gates]
        nowhere = {n for n, row in rows.items() if row.place == row.op_type and not row.shapes}
        self._chained = chained_kinds(chained, self._operations, nowhere)
        self._rotating = frozenset(
            path for n, path in attention.items() if path and self._marks_rotation(n)
        )
        self._rotated = {dims for n in rows if (dims := self._rotated_by(n)) is not None}
        self._projected = self._after_projection(order)
        concluding = concluding_softmaxes(order, self._operations)
        self._concluding = {n for n in concluding if not attention[n]} | gates
        attending = [softmaxes[n] for n in rows if self._attention_in(n)]
        self._weighing = self._products_of([*filter(None, attending)])
        sizeless = any(shapes is None for shapes in attending)
        self._attends = bool(self._weighing) or sizeless
        if sizeless:  # of a fused attention, or of a softmax of unknown size
            self._weighing = self._products_of(None)
        products = self._sizes_of_products()
        self._of_tokens = products_of_tokens(products)
        self._projecting = projections_of(products, self._heads())
        self._routing = self._of_routers(products, order)
        self._vocabularies = frozenset(n for _, _, n in products.values() if n >= VOCABULARY)

    def evidence(self, number: int) -> Evidence:
        """Return the evidence for the role of a kind."""
        row = self._rows[number]
        shapes = parse_shapes(row.shapes) if self._named else None
        rotated = shapes is not None and any(t.dims in self._rotated for t in shapes.inputs[:2])
        return Evidence(
            op_type=row.op_type or "",
            category=row.category,
            operation=self._operations[number],
            place=self._places[number],
            shapes=shapes,
            rotated=rotated and self._attends,
            negated=number in self._negated,
            chained=self._chained.get(number),
            rotates=self._attention[number] in self._rotating,
            projected=number in self._projected,
            attends=self._attends,
            concludes=number in self._concluding,
            weighs=number in self._weighing,
            routes=number in self._routing,
            projects=number in self._projecting,
            of_tokens=number in self._of_tokens,
            of_vocabulary=shapes is not None and self._scores_words(shapes),
            updates=_OPTIMIZER in (row.submodule, row.place.partition(".")[0]),
            kernel=row.kernel or "",
        )

    def _scores_words(self, shapes: Shapes) -> bool:
        """Whether the first input is as wide as a vocabulary whose scores a product makes."""
        first = shapes.inputs[:1]
        return any(t.floating and t.dims and t.dims[-1] in self._vocabularies for t in first)

    def _attention_in(self, number: int) -> bool:
        """Whether a kind shows that the submodule attends: a fused attention or the softmax of one,
        by its name, by what torch.compile fused it with, or by its place."""
        operation = self._operations[number]
        if number in self._concluding:
            return False
        if operation.sort is Sort.ATTENTION or self._attention[number]:
            return True
        if operation.sort is not Sort.UNKNOWN:
            return False
        name = self._rows[number].op_type or ""
        fused = fused_kernel(name)
        if fused is not None:
            return Sort.ATTENTION in fused.sorts | fused.after
        return role_of_name(name) == "attention"

    def _role_by_name(self, number: int) -> str:
        """The role by the names of op type and kernel, "" if the operation of the kind is known."""
        row = self._rows[number]
        if self._operations[number].sort is not Sort.UNKNOWN:
            return ""
        return routing_or(role_of_name(row.op_type or ""), row.kernel or "")

    def _heads(self) -> set[Heads]:
        """The heads of the submodule's fused attentions."""
        return {
            heads
            for n, operation in self._operations.items()
            if operation.sort is Sort.ATTENTION or self._role_by_name(n) == "attention"
            if (heads := heads_of(operation.word, parse_shapes(self._rows[n].shapes))) is not None
        }

    def _sizes_of_products(self) -> dict[int, tuple[int, int, int]]:
        """Rows, inner and outer size of products with weights outside of attention modules."""
        found: dict[int, tuple[int, int, int]] = {}
        for n, operation in self._operations.items():
            product = operation.sort is Sort.MATMUL or self._role_by_name(n) == "matmul"
            shapes = parse_shapes(self._rows[n].shapes) if product else None
            sizes = product_sizes(shapes) if shapes is not None else None
            if sizes is not None and not self._attention[n]:
                found[n] = sizes
        return found

    def _of_routers(
        self, products: Mapping[int, tuple[int, int, int]], order: Sequence[int]
    ) -> frozenset[int]:
        """Products that make the scores of experts, and softmax and top-k of these. They have the
        size of what a router's kernel or experts read, or of a top-k before other products."""
        given = {(rows, n) for rows, k, n in products.values() if n < k}
        last = max((at for at, n in enumerate(order) if n in products), default=-1)
        chosen = {n for n in order[: last + 1] if self._operations[n].word in _CHOICES}
        scores: set[tuple[int, int]] = set()
        for n, row in self._rows.items():
            role, name = self._role_by_name(n), f"{row.op_type} {row.kernel}".lower()
            experts = (role == "mlp" and "moe" in name) or "moe_forward" in name
            if experts or role == "router" or (n in chosen and not self._attention[n]):
                scores |= scores_of_experts(parse_shapes(row.shapes), beside_tokens=experts)
        scores &= given
        routing = {n for n, (rows, k, width) in products.items() if (rows, width) in scores}
        for n, operation in self._operations.items():
            if operation.word in (*_CHOICES, *_SOFTMAX) and not self._attention[n]:
                own = scores_of_experts(parse_shapes(self._rows[n].shapes), beside_tokens=False)
                routing |= {n} if own & scores else set()
        return frozenset(routing)

    def _softmax(self, number: int) -> Shapes | None:
        """The shapes of a softmax outside of attention modules, else None."""
        plain = "softmax" in (self._rows[number].op_type or "").lower()
        if plain and self._role_by_name(number) == "router":
            return None
        if not plain or self._attention[number] or fused_kernel(self._rows[number].op_type or ""):
            return None
        shapes = parse_shapes(self._rows[number].shapes)
        return shapes if shapes is not None and shapes.inputs else None

    def _is_gate(self, softmax: Shapes) -> bool:
        """Whether a softmax is of vectors that no product made, such as a router's or a gate's."""
        vectors = all(len(tensor.dims) <= 2 for tensor in softmax.inputs)
        return vectors and not self._products_of([softmax])

    def _products_of(self, softmaxes: Sequence[Shapes] | None) -> frozenset[int]:
        """The products of two activations that may make, or be weighted by, the scores of one of
        the softmaxes; all such products if no softmaxes are given."""
        found = set()
        for number, operation in self._operations.items():
            if operation.sort is not Sort.MATMUL:
                continue
            shapes = parse_shapes(self._rows[number].shapes)
            if shapes is None or not two_activations(shapes) or expands_weight(shapes):
                continue
            if softmaxes is None or any(weighs(shapes, softmax) for softmax in softmaxes):
                found.add(number)
        return frozenset(found)

    def _marks_rotation(self, number: int) -> bool:
        """Whether, within attention, only rotary positions have this operation."""
        word = self._operations[number].word
        return word in _MARKS or (word == "sub" and turns(parse_shapes(self._rows[number].shapes)))

    def _rotated_by(self, number: int) -> tuple[int, ...] | None:
        """The dims of queries or keys that a product with positions rotates, outside of attention
        modules, else None."""
        if self._operations[number].word != "mul" or self._attention[number]:
            return None
        return rotated_dims(parse_shapes(self._rows[number].shapes))

    def _after_projection(self, order: list[int]) -> frozenset[int]:
        """Return the kinds of attention modules' own operations that run only after the output
        projection. That is the last projection, if it follows the attention itself."""
        core: dict[str, int] = {}
        output: dict[str, int] = {}
        for at, number in enumerate(order):
            path, sort = self._attention[number], self._operations[number].sort
            if path and sort is Sort.ATTENTION:
                core[path] = at
                output.pop(path, None)
            elif path in core and self._places[number].child and sort in _PRODUCTS:
                output[path] = at
        after: set[int] = set()
        before: set[int] = set()
        for at, number in enumerate(order):
            path = self._attention[number]
            if path and not self._places[number].child:
                (after if at > output.get(path, len(order)) else before).add(number)
        return frozenset(after - before)


def _named_operation(layer: str) -> str:
    """The op type that a layer's name starts with, the layer itself if it has none."""
    parsed = parse_name(layer)
    return parsed.op_types[0] if parsed is not None and parsed.op_types else layer


# --- Which role a kind of command has, and which evidence decided.
#
# The first evidence decides: an op type that can be nothing else, the class of the innermost module
# with a purpose, the names on its path, the chain that the command is part of, its shapes, the
# kernel's name. What belongs to which role:
#
# - `attention`: scores, softmax, weighting, masks and position biases; `qkv_projection`: every
#   projection into and out of it.
# - `mlp` and `convolution` have the activations that stand between their products.
# - `router`: the gate of a mixture of experts, with its top-k; the experts are `mlp`.
# - `sampling`: what chooses the next token.
# - `adapter`: all that a LoRA or another adapter computes beside the weights that it adapts, its
#   casts included; the weights themselves keep their role.
# - `modulation`: shift, scale and gate from a conditioning vector, and the projection of it.
# - `embedding`: of tokens, patches, positions and timesteps, and the projections into and out of
#   a model's width.
# - `data_movement`: copies, reshapes, concatenations and casts, but not those that are part of a
#   norm, a modulation, an embedding or rotary positions.
# - `matmul` and `elementwise`: a product, and arithmetic, whose place is not known.


_MOVES = (Sort.LAYOUT, Sort.REORDER)
_ROPE_WORDS = word_set(
    "mul add sub neg stack unbind view_as_complex view_as_real type_as sin cos complex"
)
_CERTAIN = (Sort.ATTENTION, Sort.NORM, Sort.RESAMPLE, Sort.ROPE)
# Modules all of whose operations have one purpose.
_WHOLE = (Purpose.NORM, Purpose.MODULATION, Purpose.EMBEDDING, Purpose.ROPE)
_SMALL_PARTS = (Sort.NORM, Sort.ROPE, Sort.UNKNOWN)  # a fused operation may be named after one
_RANDOM = word_set(
    "rand randn rand_like randn_like randint randperm random normal uniform bernoulli random_normal"
    " random_normal_like random_uniform random_uniform_like"
)
_PURPOSE_OPS = (Purpose.MLP, Purpose.CONVOLUTION, Purpose.RESAMPLE)
_BY_CATEGORY = {"dma": "data_movement", "copy": "data_movement", "collective": "collective"}
_WITHOUT_PLACE = {Sort.MATMUL: "matmul", Sort.ARITHMETIC: "elementwise"}
_FILLS = ("fill", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like")  # as memset


def decide(found: Evidence) -> Decision | None:
    """The role of a kind and what decided it; None for host work, which has none."""
    if found.category in ("host", "sync"):
        return None
    if found.category in _BY_CATEGORY:
        return Decision(_BY_CATEGORY[found.category], "category")
    fused = fused_kernel(found.op_type)
    if fused is not None:
        return of_fused(found, fused)
    if found.place.purpose in (Purpose.ADAPTER, Purpose.ROUTER, Purpose.SAMPLING):
        return Decision(found.place.purpose.value, found.place.by)
    if _attends_by_kernel(found):
        return Decision("attention", "kernel")
    decision = _of_router(found) or _of_sampler(found) or _of_update(found) or _of_operation(found)
    decision = decision or _of_place(found) or _of_chain(found)
    return decision or _of_shapes(found) or of_kernel(found) or _last(found)


def _of_router(found: Evidence) -> Decision | None:
    """Decide what chooses experts outside of a router's module: beside the experts in their
    mixture, by the size of their scores, or in a kernel of its own."""
    choices = found.operation.word in (*_CHOICES, *_SOFTMAX)
    if found.place.purpose is Purpose.MLP and choices:
        return Decision("router", found.place.by)
    if found.routes:
        return Decision("router", "shapes")
    unknown = found.operation.sort is Sort.UNKNOWN
    if unknown and routing_or("other", found.kernel) == "router":
        return Decision("router", "kernel")
    return None


def _of_sampler(found: Evidence) -> Decision | None:
    """Decide what chooses from a vocabulary outside of a sampler's module."""
    chooses = found.operation.word in _CHOICES_OF_TOKENS and found.of_vocabulary
    return Decision("sampling", "shapes") if chooses else None


def _attends_by_kernel(found: Evidence) -> bool:
    """Whether the kernel is one of attention although the operator or module is named after a small
    part of it, such as RopeFlashAttention."""
    if not found.kernel or found.operation.sort not in _SMALL_PARTS:
        return False
    small = found.operation.sort is not Sort.UNKNOWN or found.place.purpose in _WHOLE
    kernel = library_kernel(found.kernel) if small else None
    return kernel is not None and kernel.role == "attention"


def _of_operation(found: Evidence) -> Decision | None:
    """Decide the role of op types that can have no other."""
    sort = found.operation.sort
    if found.operation.word in _RANDOM:
        return Decision("random", "op_type")
    if found.concludes:
        return Decision("elementwise", "chain")
    if sort in _CERTAIN:
        kind = norm_kind(found) if sort is Sort.NORM else ""
        return Decision(sort.value, "op_type", kind)
    if sort is Sort.REORDER or (sort is Sort.UNKNOWN and writes_cache(found.op_type)):
        return Decision("data_movement", "op_type")
    special = (Purpose.ATTENTION, Purpose.EMBEDDING, Purpose.MODULATION)
    if sort is Sort.CONVOLUTION and found.place.purpose not in special:
        return Decision("convolution", "op_type")
    return None


def _of_update(found: Evidence) -> Decision | None:
    """Decide that arithmetic of an optimizer's pass is its update, neither a residual nor a
    modulation."""
    arithmetic = found.operation.sort is Sort.ARITHMETIC and found.operation.word not in _FILLS
    return Decision("optimizer", "path") if found.updates and arithmetic else None


def _of_place(found: Evidence) -> Decision | None:
    """Decide the role by the innermost module that has a purpose."""
    place, sort, purpose = found.place, found.operation.sort, found.place.purpose
    if purpose is None:
        return None
    if sort is Sort.IDENTITY:
        decision = Decision("other", "op_type")
    elif purpose is Purpose.EMBEDDING and place.outer is Purpose.ATTENTION:
        decision = Decision("attention", place.by)  # a table of position biases
    elif purpose in _WHOLE:
        kind = norm_kind(found) if purpose is Purpose.NORM else ""
        decision = Decision(purpose.value, place.by, kind)
    elif purpose is Purpose.ATTENTION:
        decision = _in_attention(found)
    elif sort in _MOVES:
        decision = Decision("data_movement", "op_type")
    elif purpose is Purpose.HEAD:
        return Decision("matmul", place.by) if sort is Sort.MATMUL else None
    elif purpose is Purpose.CONVOLUTION and sort is Sort.ACTIVATION and only_vectors(found.shapes):
        decision = Decision("modulation", "shapes")  # of the timestep's vector, activated
    elif purpose in _PURPOSE_OPS:
        decision = Decision(purpose.value, place.by)
    else:
        return _in_block(found)
    return decision


def _in_attention(found: Evidence) -> Decision:
    """Decide the role in an attention module: projections are modules in it, the rest is its
    own."""
    place, operation, role = found.place, found.operation, "attention"
    moves = operation.sort in _MOVES
    weights = operation.sort is Sort.MATMUL and single_input(found.shapes)
    if (place.child and not moves) or weights or operation.sort is Sort.CONVOLUTION:
        role = "qkv_projection"
    elif found.projected and operation.word in ("add", "div", "mul"):
        role = "residual"
    elif found.rotates and (_turns(found) or _rotates_half(found)):
        role = "rope"
    elif moves:
        return Decision("data_movement", "op_type")
    return Decision(role, place.by)


def _turns(found: Evidence) -> bool:
    """Whether a kind is arithmetic of queries or keys with positions, not of scores with a
    number."""
    return found.operation.word in _ROPE_WORDS and not has_number(found.shapes)


def _rotates_half(found: Evidence) -> bool:
    """Whether a kind is `cat((-second, first))`, or splits or joins pairs, as rotary positions
    do."""
    joins = found.operation.word in ("cat", "concat", "stack")
    return (joins and found.negated) or (
        (joins or found.operation.word == "split") and pairs(found.shapes)
    )


def _in_block(found: Evidence) -> Decision | None:
    """Decide the role in a block, which adds what its parts compute, and applies gates and
    modulation itself."""
    place, operation = found.place, found.operation
    if found.chained is not None:
        return _of_chain(found)
    if operation.sort is Sort.ACTIVATION:
        return Decision("convolution" if place.purpose is Purpose.RESNET else "mlp", place.by)
    if operation.word not in ("add", "mul", "sub", "div", "bias_add"):
        return None
    vector = found.shapes is not None and broadcasts(found.shapes)
    modulates = operation.word == "mul" or vector
    return Decision("modulation" if modulates else "residual", place.by)


def _of_chain(found: Evidence) -> Decision | None:
    chained = found.chained
    return Decision(chained.role, "chain", chained.norm_kind) if chained is not None else None


def _of_shapes(found: Evidence) -> Decision | None:
    """Decide the role by shapes if no path does: products by their sizes, arithmetic by what it
    broadcasts."""
    sort = found.operation.sort
    if sort in _MOVES:
        return Decision("data_movement", "op_type")
    if sort is Sort.EMBEDDING:
        return Decision("embedding", "op_type")
    role = _shaped(found, found.shapes) if found.shapes is not None else ""
    return Decision(role, "shapes") if role else None


def _shaped(found: Evidence, shapes: Shapes) -> str:
    word, role = found.operation.word, ""
    if word == "einsum" and len(shapes.inputs) == 1:
        role = "data_movement"
    elif found.operation.sort is Sort.MATMUL:
        role = "attention" if found.weighs else ""
        role = role or (projection_of(shapes, of_heads=found.projects) if found.attends else "")
    elif found.rotated and word in _ROPE_WORDS:
        role = "rope"
    elif word == "add" and found.op_type.endswith("_") and bias_of_channels(shapes):
        role = "convolution"
    elif word in ("add", "mul") and broadcasts(shapes):
        role = "modulation"
    elif word == "add" and same_dims(shapes):
        role = "residual"
    return role


def _last(found: Evidence) -> Decision:
    """Decide what is left: activations are between products; products and arithmetic have no place;
    the rest is `other`."""
    if found.operation.sort is not Sort.ACTIVATION:
        return _without_place(found)
    images = of_images(found.shapes)
    return Decision("convolution" if images else "mlp", "shapes" if images else "op_type")


def _without_place(found: Evidence) -> Decision:
    role = _WITHOUT_PLACE.get(found.operation.sort, "")
    if found.operation.word in _FILLS:
        role = "data_movement"
    return Decision(role, "op_type") if role else Decision("other", "")
