"""Fusion candidates: chains of operators that pass intermediates through memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.analysis.commands import CommandArrays, Kinds
from profiler.analysis.device_profiles import DeviceProfile
from profiler.analysis.finding_text import (
    MATERIAL,
    Rule,
    Words,
    calls_of,
    is_no_gain,
    number,
    scaled,
    share,
    texts,
    whole_of,
)
from profiler.analysis.flop_shapes import Family, Tensor, Work
from profiler.analysis.flops import KindWork
from profiler.analysis.operators_section import computing
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Effect, Finding
from profiler.analysis.role_kernel_names import Operation, Sort, operation_of, word_set
from profiler.analysis.roles import kind_roles
from profiler.analysis.roofline import NOTHING, SHORT_NS, as_declared, profiles, works
from profiler.run.columns import BYTES, INT64, LAYER, NS, STRING, Column, col, schema
from profiler.text import Said, Value, filled, joined, said
from profiler.trace.events import CATEGORIES


class FusionKind(StrEnum):
    """What a chain of commands that could be one computes."""

    ATTENTION = "attention"
    NORM = "norm"
    MODULATION = "modulation"
    NORM_AND_MODULATION = "norm_and_modulation"
    ROPE = "rope"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"


# --- Rules about chains of operators that could be one.


_BUSY = 0.05  # of end to end, of chains on a device without profile: what fusing saves is not known
_BUSY_MEDIUM = 0.20
_MAX_CHAIN_SHARE = 0.5  # of the time of chains
_NEXT = " → "  # between the op types of a chain
_SLOW = 0.25  # of the roofline
_FEW_GROUPS = said(
    "Its kernel has a block of threads for each group: with few groups in a small batch, most of a "
    "large GPU does nothing. Compiled, the reduction is divided."
)


def _of_chains(analysis: Analysis, rule: str, chains: pl.DataFrame) -> Iterator[Finding]:
    """A finding for each submodule whose chains matter: by what fusing them saves, or without a
    profile by the time they take."""
    rows = scaled(analysis, chains, "total_ns", "saved_ns", "chains", "saved_bytes")
    for (submodule,), some in rows.group_by("submodule", maintain_order=True):
        busy, total = float(some["total_ns"].sum()), whole_of(analysis, str(submodule))
        saved = None if some["saved_ns"].null_count() else float(some["saved_ns"].sum())
        if share(busy if saved is None else saved, total) < (_BUSY if saved is None else MATERIAL):
            continue
        evidence: dict[str, Value] = {
            "chains": round(some["chains"].sum()),
            "total_ns": round(busy),
            "run_share": share(busy, total),
            "memory_traffic_saved_bytes": round(some["saved_bytes"].sum()),
            "longest_chain": some["op_types"][0],
        }
        found = Finding(
            rule=rule,
            evidence=evidence,
            where=calls_of(analysis, str(submodule), layer=some["layer"][0]),
            severity="medium" if share(busy, total) >= _BUSY_MEDIUM else "low",
        )
        if saved is not None:
            evidence |= {"saved_ns": round(saved), "saved_share": share(saved, total)}
            effect = Effect((str(submodule),), saved, launches_of=_launches(some))
            found = replace(found, cost_ns=round(saved), effect=effect)
        yield found


def _launches(chains: pl.DataFrame) -> dict[str, float]:
    """Return how many launches fusing removes, by op type: all of a chain but the first."""
    found: dict[str, float] = {}
    for names, times in chains.select("op_types", "chains").iter_rows():
        for name in names.split(_NEXT)[1:]:
            found[name] = found.get(name, 0.0) + times
    return found


_UPPER_BOUND = (
    "Chains are found by shapes and order, and their saving is an upper bound; where the device "
    "waits for the host anyway, the run gains less. "
)


def _of_figure(title: Said, caveat: str, recommendation: str) -> Callable[[Finding], Words]:
    """Return a function that words a finding; its title ends with what fusing saves, or what the
    chains take if that is not known."""

    def words(found: Finding) -> Words:
        given = texts(found)
        figure = said("its chains take {run_share} of the run")
        if "saved_share" in given and not is_no_gain(found, "saved_ns"):
            figure = said("at most {saved_share} of the run to save")
        whole = filled(title, {**given, "figure": filled(figure, given)})
        return Words(whole, said(_UPPER_BOUND + caveat), recommendation)

    return words


def unfused_attention(analysis: Analysis) -> Iterator[Finding]:
    """Attention writes its scores to memory: product, softmax and product are commands each."""
    chains = analysis.fusions.filter(pl.col("what") == FusionKind.ATTENTION.value)
    return _of_chains(analysis, "unfused_attention", chains)


_UNFUSED_ATTENTION = _of_figure(
    said("Attention of {submodule} is not fused: {figure}"),
    "Fused kernels support only some masks and head sizes, and round differently.",
    said(
        "Use scaled_dot_product_attention (flash or memory-efficient kernel), an attention "
        "processor that does, or ONNX Runtime's attention fusions; check that no dense bias or "
        "float32 softmax keeps the fused kernel away."
    ),
)


def norm_chains(analysis: Analysis) -> Iterator[Finding]:
    """Norms, and the modulation after them, read and write memory several times. A norm that is one
    operator, between arithmetic, is in `elementwise_chains`."""
    chains = _chains_of(analysis, FusionKind.NORM_AND_MODULATION, whole_norms=False)
    return _of_chains(analysis, "norm_chains", chains)


_NORM_CHAINS = _of_figure(
    said("Norms of {submodule} are chains of operators: {figure}"),
    "A fused norm may accumulate in another type.",
    said(
        "Use the framework's norm (torch.nn.RMSNorm, LayerNormalization) instead of a "
        "handwritten one, compile the block, or use one kernel for norm, shift and scale."
    ),
)


def elementwise_chains(analysis: Analysis) -> Iterator[Finding]:
    """Elementwise operators hand intermediates to each other, or to a norm, through memory. The
    norm is named if most of the time is its own."""
    kinds = (FusionKind.ELEMENTWISE, FusionKind.SOFTMAX, FusionKind.MODULATION, FusionKind.ROPE)
    chains = _chains_of(analysis, *kinds, whole_norms=True)
    for found in _of_chains(analysis, "elementwise_chains", chains):
        yield replace(found, evidence={**found.evidence, **_own_norm(analysis, found)})


def _own_norm(analysis: Analysis, found: Finding) -> dict[str, Value]:
    """The norm that takes at least half of the time of a submodule's chains, its time, and its
    share of the roofline if known; empty if there is none."""
    own = pl.col("submodule") == found.where.submodule
    rows = analysis.fusions.filter(own, pl.col("what") == FusionKind.NORM.value)
    names = {name for types in rows["op_types"] for name in types.split(_NEXT)}
    norms = pl.Series([name for name in sorted(names) if _is_norm(name)], dtype=pl.String)
    taken = (
        computing(analysis)
        .with_columns(name=pl.col("op_type").cast(pl.String))
        .filter(own, pl.col("name").is_in(norms.implode()))
        .group_by("submodule", "name")
        .agg(pl.col("total_ns").sum())
        .sort("total_ns", "name", descending=[True, False])
        .head(1)
    )
    enough = pl.col("total_ns") >= _MAX_CHAIN_SHARE * number(found, "total_ns")
    for row in scaled(analysis, taken, "total_ns").filter(enough).to_dicts():
        known = analysis.roofline.filter(own, pl.col("op_types") == row["name"])
        least, beyond = known.select(pl.col("roofline_ns", "excess_ns").sum()).row(0)
        reached = {"norm_of_roofline_share": least / (least + beyond)} if least else {}
        return {"norm": row["name"], "norm_total_ns": round(row["total_ns"]), **reached}
    return {}


def _chains_of(analysis: Analysis, *kinds: FusionKind, whole_norms: bool) -> pl.DataFrame:
    """The chains of these kinds, and norm chains that contain (`whole_norms`) or do not contain a
    norm that is one operator."""
    chains, what = analysis.fusions, pl.col("what")
    parts = [names.split(_NEXT) for names in chains["op_types"]]
    whole = pl.Series([any(map(_is_norm, names)) for names in parts], dtype=pl.Boolean)
    norms = (what == FusionKind.NORM.value) & (whole if whole_norms else ~whole)
    return chains.filter(norms | what.is_in([kind.value for kind in kinds]))


def _is_norm(op_type: str) -> bool:
    return operation_of(op_type).sort is Sort.NORM


def _elementwise_chains(found: Finding) -> Words:
    title = said("Elementwise operators of {submodule} are not fused: {figure}")
    recommendation = said(
        "torch.compile the submodule; in ONNX export activations as one operator (Gelu instead "
        "of its formula) and let the optimizer fuse them."
    )
    if "norm" in found.evidence:
        title = said(
            "{norm} of {submodule}, and elementwise operators beside it, are not fused: {figure}"
        )
        recommendation = joined(" ", [*_slow_norm(found), recommendation])
    caveat = "Compiling costs time at the first call and at each new shape."
    return _of_figure(title, caveat, recommendation)(found)


def _slow_norm(found: Finding) -> Iterator[str]:
    """How long the norm takes, and why torch's norm of groups may be slow: its kernel has a block
    of threads for each of them."""
    if "norm_of_roofline_share" not in found.evidence:
        yield filled(said("{norm} alone takes {norm_total_ns}."), texts(found))
        return
    taken = said("{norm} alone takes {norm_total_ns}, at {norm_of_roofline_share} of its roofline.")
    yield filled(taken, texts(found))
    slow = number(found, "norm_of_roofline_share") < _SLOW
    if slow and found.evidence["norm"] == "aten::native_group_norm":
        yield _FEW_GROUPS


RULES = (
    Rule(
        unfused_attention,
        _UNFUSED_ATTENTION,
        said("Use scaled_dot_product_attention, or a fused attention of ONNX"),
    ),
    Rule(norm_chains, _NORM_CHAINS, said("Use the framework's norm, or compile the block")),
    Rule(
        elementwise_chains,
        _elementwise_chains,
        said("Compile the submodule, or export activations as one operator"),
    ),
)


# --- The columns of chains of operators, and of what fusing them would save.


FUSIONS: tuple[Column, ...] = (
    col("submodule", STRING, "submodule in whose calls the chain stands", importance=2, key=True),
    col("device", STRING, "device that ran it", importance=15, key=True),
    col("what", STRING, ", ".join(FusionKind), codes=FusionKind),
    col(
        "layer",
        LAYER,
        "layer of the first command of the first such chain",
        label="first layer",
        importance=15,
    ),
    col("op_types", LAYER, "op types of its commands in order"),
    col("chains", INT64, "such chains in all traced calls", importance=1),
    col("total_ns", NS, "sum of their commands' durations"),
    col(
        "saved_bytes",
        BYTES,
        "upper bound of the bytes of intermediates that are written and read; a sum that a norm "
        "reads is written all the same",
        label="saves traffic",
    ),
    col(
        "saved_ns",
        NS,
        "upper bound of the time that fusing saves: total_ns - the roofline of one command in "
        "their place",
        True,
        label="saves time",
    ),
)


# --- Chains of commands that hand intermediate tensors to each other through memory.
#
# A trace does not say which tensor is which, so a tensor that a command reads is taken to be the
# last of its type and dims that was made within a few commands before (`_WINDOW`). As many elements
# are enough after a view between them, and if a product, convolution or copy makes or reads it:
# views are no commands on a GPU, and better no chain than a wrong one. Elementwise operations,
# norms, softmax and reductions that read from each other are a chain. A softmax whose input came
# from a product of two activations and whose result goes into one is unfused attention: that of a
# router or classifier has products with weights beside it.
#
# Fused, an intermediate is not read again, nor written unless something outside of the chain reads
# it: `saved_bytes` adds these up. After that it does not link the chain any more. What reads it
# later than the window is not seen, so that is the most that can be saved; but the sum of two
# tensors that a norm reads is written all the same: the next block adds to it, unless blocks end
# with a norm, whose result it adds to.
#
# A norm or reduction over other axes than the one before needs all of what that gives, so it
# begins a chain.


_NORMS = (Family.NORM, Family.REDUCTION)
_BEGINS_NORM = word_set("pow square to _to_copy copy cast")  # of one written out
_FUSIBLE = (Family.ELEMENTWISE, Family.NORM, Family.SOFTMAX, Family.REDUCTION)
_WINDOW = 8  # commands, views and arithmetic on shapes not counted
_LONGEST = 64  # commands of a chain
_SHAPE_BYTES = 256  # integers that take no more are shapes


class Chain(Struct, eq=False):
    """Commands that could be fused into one. `members` are positions in the sequence that was
    given, `families` those of their operations (of which one may be several commands),
    `saved_bytes` what their intermediates take to write and to read, `scores` the result of the
    product of activations that its softmax reads."""

    members: list[int] = field(default_factory=list)
    families: list[Family] = field(default_factory=list)
    saved_bytes: int = 0
    closed: bool = False
    products: list[_Made] = field(default_factory=list)  # read by its members
    scores: _Made | None = None
    axes: frozenset[int] | None = None  # that its norms and reductions go over, if known
    sums: list[_Made] = field(default_factory=list)  # that its members gave

    @property
    def is_attention(self) -> bool:
        """Whether a softmax is between two products of activations."""
        return Family.MATMUL in self.families


class _Made(Struct, eq=False):
    """A tensor that a command wrote, or the input of a reduction whose result is not known.

    `chain` is that of the command, `read` whether the chain has read it, `escapes` whether
    anything else has. `product` is the position of a product of activations, -1 of others. `sums`
    is whether it is the sum of two tensors of its dims, `kept` whether a norm, or what may begin
    one, has read that.
    """

    tensor: Tensor
    when: int  # commands passed
    views: int  # views passed
    chain: Chain | None = None
    reduced: bool = False
    read: bool = False
    escapes: bool = False
    product: int = -1
    sums: bool = False
    kept: bool = False

    size: int = 0  # elements of the tensor

    def __post_init__(self) -> None:
        self.size = self.tensor.size

    def is_read_as(self, read: Tensor, size: int, views: int, *, loosely: bool) -> bool:
        """Whether this may be the tensor that a command reads as `read`, of `size` elements."""
        mine = self.tensor
        if not read.may_be(mine):
            return False
        if self.reduced:
            pairs = zip(read.dims, mine.dims, strict=False)
            same_rank = len(read.dims) == len(mine.dims)
            return same_rank and size < self.size and all(a in (1, b) for a, b in pairs)
        if size != self.size:
            return False
        return read.dims == mine.dims or loosely or views > self.views or self.chain is None


def find_chains(
    works: Sequence[Work | None], op_types: Sequence[str], *, norms_last: bool = False
) -> list[Chain]:
    """The chains of two or more commands of a call, in order, from the works and op types of its
    commands. If `norms_last`, nothing but a norm reads the sum ahead of it."""
    finder = _Finder()
    for position, (work, op_type) in enumerate(zip(works, op_types, strict=True)):
        finder.see(position, work, operation_of(op_type))
    for chain in finder.chains:
        normalizes = bool({Family.NORM, Family.REDUCTION} & {*chain.families})
        if not norms_last and not chain.closed and normalizes:
            kept = (made for made in chain.sums if made.kept and not made.escapes)
            chain.saved_bytes -= sum(made.tensor.nbytes or 0 for made in kept)
    found = [chain for chain in finder.chains if len(chain.families) > 1 and chain.saved_bytes > 0]
    return sorted(found, key=lambda chain: chain.members[0])


class _Finder:
    """One pass over a call's commands, with the tensors that were made last."""

    def __init__(self) -> None:
        self.chains: list[Chain] = []
        self._made: deque[_Made] = deque()  # in order
        self._passed = 0
        self._views = 0
        self._last: Chain | None = None
        self._passed_over: dict[int, bool] = {}  # by id: works come again and again

    def see(self, position: int, work: Work | None, operation: Operation) -> None:
        """Take the next command; `work` is None if nothing is known of it."""
        if work is not None and self._is_passed_over(work):
            self._views += 1
            return
        if work is not None and work.part > 1:
            if self._last is not None:
                self._last.members.append(position)
            return
        self._passed += 1
        self._last = None
        while self._made and self._made[0].when < self._passed - _WINDOW:
            self._made.popleft()
        if work is None:
            return
        sources = self._sources(work) if self._made else []
        axes = _axes(work, operation)
        chain = self._chain(work, sources, axes)
        normalizes = work.family in _NORMS or operation.word in _BEGINS_NORM
        for read, made in sources:
            made.kept |= made.sums and normalizes
            self._read(chain, read, made)
        if chain is not None:
            chain.members.append(position)
            chain.families.append(work.family)
            chain.axes = chain.axes or axes
            self._last = chain
            if work.family == Family.SOFTMAX:
                scores = (m for m in reversed(chain.products) if m.size == work.reads[0].size)
                chain.scores = next(scores, chain.scores)
        self._give(position, work, chain, sums=_adds_tensors(work, operation))

    def _is_passed_over(self, work: Work) -> bool:
        """Whether the command is a view, or arithmetic on shapes."""
        if id(work) not in self._passed_over:
            self._passed_over[id(work)] = work.family == Family.VIEW or _is_of_shapes(work)
        return self._passed_over[id(work)]

    def _sources(self, work: Work) -> list[tuple[Tensor, _Made]]:
        """Return the tensors read, each with the tensor made before that it is taken to be; each of
        those at most once."""
        found: list[tuple[Tensor, _Made]] = []
        loosely = work.family not in _FUSIBLE
        for read in work.reads:
            size = read.size
            for made in reversed(self._made):
                if size != made.size and not made.reduced:
                    continue  # most are not
                read_as = made.is_read_as(read, size, self._views, loosely=loosely)
                if read_as and all(made is not other for _, other in found):
                    found.append((read, made))
                    break
        return found

    def _chain(
        self, work: Work, sources: Sequence[tuple[Tensor, _Made]], axes: frozenset[int] | None
    ) -> Chain | None:
        """The chain that the command joins or starts, None if it cannot be fused."""
        if work.family == Family.MATMUL:
            return self._attention(work, sources)
        if work.family not in _FUSIBLE:
            return None
        made = sorted((made for _, made in sources if not made.escapes), key=lambda m: -m.when)
        before = [m.chain for m in made if m.chain is not None and not m.chain.closed]
        before = [chain for chain in before if None in (axes, chain.axes) or axes == chain.axes]
        before.sort(key=lambda chain: chain.scores is None)  # probabilities before their mask
        if before and len(before[0].members) < _LONGEST:
            return before[0]
        self.chains.append(Chain())
        return self.chains[-1]

    @staticmethod
    def _read(chain: Chain | None, read: Tensor, made: _Made) -> None:
        """Count the bytes that need not be read and written; take back the write if something else
        reads the tensor."""
        size = read.nbytes or 0
        if chain is not None and made.product >= 0:
            chain.products.append(made)
        if made.escapes:
            return
        if chain is None or made.chain is not chain:
            if made.read and made.chain is not None:
                made.chain.saved_bytes -= made.tensor.nbytes or 0
            made.escapes = True
            return
        chain.saved_bytes += size if made.read else 2 * size
        made.read = True

    @staticmethod
    def _attention(work: Work, sources: Sequence[tuple[Tensor, _Made]]) -> Chain | None:
        """The chain whose softmax this product of activations reads, with the product that made the
        scores in front; None if there is none. A copy may have read the softmax before."""
        for chain in (made.chain for _, made in sources):
            scores = None if chain is None or chain.closed else chain.scores
            if chain is None or scores is None or not _is_of_activations(work):
                continue
            if scores.product < 0:  # of another chain already
                continue
            chain.closed = True
            chain.members.insert(0, scores.product)
            scores.product = -1
            chain.families.insert(0, Family.MATMUL)
            chain.saved_bytes += 2 * (scores.tensor.nbytes or 0)
            return chain
        return None

    def _give(self, position: int, work: Work, chain: Chain | None, *, sums: bool) -> None:
        product = position if _is_of_activations(work) else -1
        if work.writes is None and work.family == Family.REDUCTION and work.reads:
            made = _Made(work.reads[0], self._passed, self._views, chain, reduced=True)
            self._made.append(made)
        for tensor in work.writes or ():
            made = _Made(tensor, self._passed, self._views, chain, product=product, sums=sums)
            self._made.append(made)
            if chain is not None and sums:
                chain.sums.append(made)


def _norms_are_last(sequence: Iterable[_Kind]) -> bool:
    """Whether most blocks with products, of which another one follows, end with a norm: then the
    residual stream is what the norms give (BERT), else the sums that they read (GPT-2)."""
    last: dict[str, tuple[bool, str]] = {}
    for one in sequence:
        block = _block_of(one.module or "")
        if block and one.work is not None and one.work.family != Family.VIEW:
            product = one.work.family == Family.MATMUL or last.get(block, (False, ""))[0]
            last[block] = product, one.op_type
    ends = [op_type for product, op_type in last.values() if product][:-1]
    norms = sum(bool(operation_of(one).norm_kind) for one in ends)
    return 2 * norms > len(ends)


def _block_of(module: str) -> str:
    """The outermost numbered part of a module's path, `"layers.3"` or `"layer_3"`; "" if there is
    none. In one pass: names of traces may be long."""
    for piece in module.split("/"):
        parts = piece.split(".")
        for part, after in zip(parts, [*parts[1:], ""], strict=True):
            if part and after.isdecimal():
                return f"{part}.{after}"
            if part.rpartition("_")[0] and part.rpartition("_")[2].isdecimal():
                return part
    return ""


def _adds_tensors(work: Work, operation: Operation) -> bool:
    """Whether the command adds two tensors of equal dims, such as a block's result to its input."""
    left, right, *_ = (*(read.dims for read in work.reads), None, None)
    return operation.word == "add" and left == right and left is not None and len(left) > 1


def _axes(work: Work, operation: Operation) -> frozenset[int] | None:
    """The axes that a norm or reduction goes over, the last one is -1; None if they are not known,
    or for other work. Groups of channels are no axis of the tensor: 0 stands for them."""
    if not work.reads or work.family not in _NORMS:
        return None
    dims = work.reads[0].dims
    inner = range(2 - len(dims), 0)  # all but batch and channels
    if work.family == Family.REDUCTION:
        given = work.writes[0].dims if work.writes else ()
        if len(given) != len(dims):
            return None
        return frozenset(at - len(dims) for at, n in enumerate(dims) if given[at] != n)
    if operation.norm_kind in ("LayerNorm", "RMSNorm"):
        parts = (read.dims for read in work.reads[1:] if 0 < len(read.dims) < len(dims))  # no skip
        weights = (part for part in parts if part == dims[-len(part) :])
        return frozenset(range(-len(next(weights, dims[-1:])), 0))
    axes = {"BatchNorm": [-len(dims), *inner], "InstanceNorm": inner, "GroupNorm": [0, *inner]}
    return frozenset(axes[operation.norm_kind]) if operation.norm_kind in axes else None


def _is_of_activations(work: Work) -> bool:
    """Whether the command is a product of two activations: a weight has two dims."""
    return work.family == Family.MATMUL and len(work.reads) > 1 and len(work.reads[1].dims) > 2


def _is_of_shapes(work: Work) -> bool:
    """Whether the command computes shapes: a few integers."""
    tensors = (*work.reads, *(work.writes or ()))
    return all(t.dtype == "int64" and (t.nbytes or 0) <= _SHAPE_BYTES for t in tensors)


# --- What fusing would save: the chains of `find_chains`, in bytes and time.
#
# `saved_ns` is what the chain takes beyond the roofline of one command in its place, which computes
# as much and does not move `saved_bytes`: fusing saves no more than that.


_MAX_COMMANDS = 20_000  # commands of a call that are looked at
_ROOTS = ("sqrt", "rsqrt", "Sqrt", "Rsqrt", "Reciprocal", "reciprocal")


class _Kind(NamedTuple):
    """What is known of a kind of commands; `took` is the mean of their times in ns."""

    layer: str
    op_type: str
    took: float
    role: str | None
    module: str | None
    work: Work | None


def fusion_table(
    calls: pl.DataFrame,
    kinds: Kinds,
    work: KindWork,
    commands: CommandArrays,
    profiles: Mapping[str, DeviceProfile],
    roles: pl.Series | None = None,
) -> pl.DataFrame:
    """Return the chains of each submodule (`FUSIONS`), equal ones added up, most bytes first.

    `roles`, one per kind, say what chains are for; without them, their operations do.
    """
    facts = kinds.table.select(
        "layer",
        pl.col("op_type").fill_null(""),
        total_ns=pl.col("total_ns") / pl.col("commands"),
        role=pl.lit(None, pl.String) if roles is None else roles.cast(pl.String),
        module=pl.col("module").cast(pl.String),
    ).rows()
    known_kinds = [_Kind._make((*fact, own)) for fact, own in zip(facts, work.works, strict=True)]
    found = []
    for submodule, call, number in _representatives(calls):
        for device, codes in _sequences(kinds, commands, call):
            sequence = [known_kinds[kind] for kind in codes]
            profile = profiles.get(device)
            least = _least_ns((known_kinds[kind] for kind in {*codes}), profile)
            for chain in find_chains(
                [one.work for one in sequence],
                [one.op_type for one in sequence],
                norms_last=_norms_are_last(sequence),
            ):
                row = _row(chain, [sequence[at] for at in chain.members], profile, least)
                found.append({"submodule": submodule, "device": device, "chains": number, **row})
    keys = ["submodule", "device", "what", "op_types"]
    times = ["total_ns", "saved_bytes", "saved_ns"]
    types = schema(FUSIONS)
    frame = pl.DataFrame(found, schema={**types, **dict.fromkeys(times, pl.Float64())})
    known = pl.col("saved_ns").is_not_null().all()
    return (
        frame.with_columns(pl.col(times) * pl.col("chains"))
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col("layer").first(),
            pl.col("total_ns", "saved_bytes", "chains").sum(),
            saved_ns=pl.when(known).then(pl.col("saved_ns").sum()),
        )
        .with_columns(pl.col("total_ns").round())
        .sort(["saved_bytes", *keys], descending=[True, *(False for _ in keys)])
        .select(as_declared(name, dtype) for name, dtype in types.items())
    )


def _row(
    chain: Chain, members: Sequence[_Kind], profile: DeviceProfile | None, least: float
) -> dict[str, object]:
    """What one chain is, its op types, first layer, busy time, saved bytes and time.

    What fusing saves is not known without a profile that has the bandwidth, or if the chain was
    faster. A command takes what a launch does: if the profile does not know, `least`.
    """
    whole = [one for one in members if one.work is not None and one.work.part == 1]
    busy, saved = sum(one.took for one in members), None
    if profile is not None and profile.memory_bandwidth is not None:
        launch = profile.launch_ns
        if launch is None:
            launch = min(least, *(one.took for one in members))
        fused = _roofline_ns(whole, profile, chain.saved_bytes)
        saved = busy - max(fused, launch)
    return {
        "what": _what(chain, members, whole).value,
        "op_types": _NEXT.join(one.op_type for one in whole),
        "layer": members[0].layer,
        "total_ns": busy,
        "saved_bytes": chain.saved_bytes,
        "saved_ns": None if saved is None or saved < 0 else saved,
    }


def _representatives(calls: pl.DataFrame) -> list[tuple[str, int, int]]:
    """Return for each submodule its second traced call, or its only one, as a row of `calls`, and
    its number of traced calls."""
    traced = calls.with_row_index("row").filter("ops_traced")
    grouped = traced.group_by("submodule", maintain_order=True).agg("row")
    return [
        (str(name), rows[min(1, len(rows) - 1)], len(rows)) for name, rows in grouped.iter_rows()
    ]


def _sequences(kinds: Kinds, commands: CommandArrays, call: int) -> list[tuple[str, list[int]]]:
    """The kinds of a call's device work by start, for each device."""
    rows = np.flatnonzero(commands.call == call)
    compute = commands.category[rows] == CATEGORIES.index("compute")
    rows = rows[compute][:_MAX_COMMANDS]
    rows = rows[np.argsort(commands.start[rows], kind="stable")]
    device = commands.device[rows]
    return [
        (commands.devices[place], kinds.of_command[rows[device == place]].tolist())
        for place in np.unique(device).tolist()
        if place < len(commands.devices)
    ]


def _what(chain: Chain, members: Sequence[_Kind], whole: Sequence[_Kind]) -> FusionKind:
    """What a chain is: by the roles of its commands, else by its operations."""
    if chain.is_attention:
        return FusionKind.ATTENTION
    told = {one.role for one in members} & {"norm", "modulation", "rope"}
    if not told:
        roots = (one.op_type.removeprefix("aten::") in _ROOTS for one in whole)
        if Family.NORM in chain.families or (Family.REDUCTION in chain.families and any(roots)):
            told.add("norm")
        if any(_modulates(one.work) for one in members if one.work is not None):
            told.add("modulation")
    if {"norm", "modulation"} <= told:
        return FusionKind.NORM_AND_MODULATION
    if Family.SOFTMAX in chain.families:
        told.add("softmax")
    order = (FusionKind.NORM, FusionKind.MODULATION, FusionKind.ROPE, FusionKind.SOFTMAX)
    return next((kind for kind in order if kind.value in told), FusionKind.ELEMENTWISE)


def _modulates(work: Work) -> bool:
    """Whether a [batch, 1, width] is applied to [batch, tokens, width]."""
    if work.family != Family.ELEMENTWISE or not work.writes or len(work.writes[0].dims) != 3:
        return False
    _, tokens, width = work.writes[0].dims
    read = (read.dims for read in work.reads if len(read.dims) == 3)
    return tokens > 1 < width and any(dims[1:] == (1, width) for dims in read)


def _least_ns(kinds: Iterable[_Kind], profile: DeviceProfile | None) -> float:
    """What the shortest command took that does next to nothing, 0 if there is none."""
    short = (
        one.took
        for one in kinds
        if profile is not None
        and one.work is not None
        and 0 < one.took <= SHORT_NS
        and _roofline_ns([one], profile, 0) < NOTHING * one.took
    )
    return min(short, default=0.0)


def _roofline_ns(kinds: Sequence[_Kind], profile: DeviceProfile, saved_bytes: int) -> float:
    """The least time for the arithmetic of commands of these kinds, and for what they move but for
    what is saved of that."""
    own = [one.work for one in kinds if one.work is not None]
    moved = sum((w.bytes_read or 0) + (w.bytes_written or 0) for w in own)
    computed = sum((w.flops or 0) / (profile.peak(w.dtype) or float("inf")) for w in own)
    bandwidth = profile.memory_bandwidth or float("inf")
    return max(max(moved - saved_bytes, 0) / bandwidth, computed) * 1e9


# --- The table of chains that could be fused.


TABLES = (
    Table(
        name="fusions",
        row="one chain of operators that could be fused",
        section="roofline",
        columns=FUSIONS,
        make=lambda of: fusion_table(
            of.calls, of.kinds, works(of), of.commands, profiles(of), kind_roles(of)["role"]
        ),
        title="What fusing would save at most",
        about="The commands of a chain pass tensors to each other through memory. Chains with "
        "equal op types are added up; rows are in order of `saved_bytes`, largest first. "
        "[roofline.md](roofline.md) has details.",
        rank=("-saved_bytes",),
    ),
)
