"""Chains of commands that hand intermediate tensors to each other through memory.

A trace does not say which tensor is which, so a tensor that a command reads is taken to be the
last of its type and dims that was made within a few commands before (`_WINDOW`). As many elements
are enough after a view between them, and if a product, convolution or copy makes or reads it:
views are no commands on a GPU, and better no chain than a wrong one. Elementwise operations,
norms, softmax and reductions that read from each other are a chain. A softmax whose input came
from a product of two activations and whose result goes into one is unfused attention: that of a
router or classifier has products with weights beside it.

Fused, an intermediate is not read again, nor written unless something outside of the chain reads
it: `saved_bytes` adds these up. After that it does not link the chain any more. What reads it
later than the window is not seen, so that is the most that can be saved; but the sum of two
tensors that a norm reads is written all the same: the next block adds to it, unless blocks end
with a norm, whose result it adds to.

A norm or reduction over other axes than the one before needs all of what that gives, so it
begins a chain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct, field

from profiler.analysis.flop_shapes import Family, Tensor, Work
from profiler.analysis.role_kernel_names import Operation, operation_of, word_set

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
