"""Chains of commands that hand intermediate tensors to each other through memory.

A trace does not say which tensor is which, so a tensor that a command reads is taken to be the
last of its type and dims that was made within a few commands before (`_WINDOW`). As many elements
are enough after a view between them, and where a product, convolution or copy makes or reads it:
views are no commands on a GPU, and better no chain than a wrong one. Elementwise operations,
norms, softmax and reductions that read from each other are a chain. A softmax whose input came
from a product of two activations, or whose result goes into one, is unfused attention.

Fused, an intermediate is not read again, nor written unless something outside of the chain reads
it: `saved_bytes` adds these up. Once that has happened it is no link of the chain any more. What
reads it later than the window is not seen, so that is the most that can be saved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct, field

from profiler.analysis.work.registry import Family, Work
from profiler.analysis.work.shapes import Tensor

__all__ = ["Chain", "find_chains"]

_FUSIBLE = (Family.ELEMENTWISE, Family.NORM, Family.SOFTMAX, Family.REDUCTION)
_WINDOW = 8  # commands, views and arithmetic on shapes not counted
_LONGEST = 64  # commands of a chain
_SHAPE_BYTES = 256  # integers that take no more are shapes


class Chain(Struct, eq=False):
    """Commands that could be one. `members` are positions in the sequence that was given,
    `families` those of their operations (of which one may be several commands),
    `saved_bytes` what their intermediates take to write and to read."""

    members: list[int] = field(default_factory=list)
    families: list[Family] = field(default_factory=list)
    saved_bytes: int = 0
    closed: bool = False
    products: list[_Made] = field(default_factory=list)  # read by its members

    @property
    def is_attention(self) -> bool:
        """Whether a softmax and a product of activations follow each other."""
        return Family.SOFTMAX in self.families and Family.MATMUL in self.families


class _Made(Struct, eq=False):
    """A tensor that a command gave; of a reduction whose result is not known, its input.

    `chain` is that of the command, `read` whether the chain has read it, `escapes` whether
    anything else has. `product` is the position of a product of activations, -1 of others.
    """

    tensor: Tensor
    when: int  # commands passed
    views: int  # views passed
    chain: Chain | None = None
    reduced: bool = False
    read: bool = False
    escapes: bool = False
    product: int = -1

    size: int = 0  # elements of the tensor

    def __post_init__(self) -> None:
        self.size = self.tensor.size

    def is_read_as(self, read: Tensor, size: int, views: int, *, loosely: bool) -> bool:
        """Whether it may be what is `read`, of so many elements."""
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


def find_chains(works: Sequence[Work | None]) -> list[Chain]:
    """The chains of two and more commands in the works of a call's commands, in their order."""
    finder = _Finder()
    for position, work in enumerate(works):
        finder.see(position, work)
    found = [chain for chain in finder.chains if len(chain.families) > 1 and chain.saved_bytes > 0]
    return sorted(found, key=lambda chain: chain.members[0])


class _Finder:
    """One pass over a call's commands, and the tensors made last."""

    def __init__(self) -> None:
        self.chains: list[Chain] = []
        self._made: deque[_Made] = deque()  # in order
        self._passed = 0
        self._views = 0
        self._last: Chain | None = None
        self._passed_over: dict[int, bool] = {}  # by id: works come again and again

    def see(self, position: int, work: Work | None) -> None:
        """The next command; `work` None: nothing is known of it."""
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
        chain = self._chain(work, sources)
        for read, made in sources:
            self._read(chain, read, made)
        if chain is not None:
            chain.members.append(position)
            chain.families.append(work.family)
            self._last = chain
            if work.family == Family.SOFTMAX:
                self._with_product(chain, work)
        self._give(position, work, chain)

    def _is_passed_over(self, work: Work) -> bool:
        """Whether the command is a view, or arithmetic on shapes."""
        found = self._passed_over.get(id(work))
        if found is None:
            found = work.family == Family.VIEW or _is_of_shapes(work)
            self._passed_over[id(work)] = found
        return found

    def _sources(self, work: Work) -> list[tuple[Tensor, _Made]]:
        """What was read, and who is taken to have made it: each tensor made once."""
        found: list[tuple[Tensor, _Made]] = []
        loosely = work.family not in _FUSIBLE
        for read in work.reads:
            size = read.size
            for made in reversed(self._made):
                if size != made.size and not made.reduced:
                    continue  # as nearly all
                read_as = made.is_read_as(read, size, self._views, loosely=loosely)
                if read_as and all(made is not other for _, other in found):
                    found.append((read, made))
                    break
        return found

    def _chain(self, work: Work, sources: Sequence[tuple[Tensor, _Made]]) -> Chain | None:
        """The chain that the command joins or begins, None for what cannot be fused."""
        made = [made for _, made in sources if not made.escapes]
        if len(made) > 1:
            made.sort(key=lambda m: -m.when)
        before = [m.chain for m in made if m.chain is not None and not m.chain.closed]
        if work.family == Family.MATMUL:
            after_softmax = [c for c in before if Family.SOFTMAX in c.families]
            if after_softmax:
                after_softmax[0].closed = True
            return after_softmax[0] if after_softmax else None
        if work.family not in _FUSIBLE:
            return None
        if before and len(before[0].members) < _LONGEST:
            return before[0]
        self.chains.append(Chain())
        return self.chains[-1]

    @staticmethod
    def _read(chain: Chain | None, read: Tensor, made: _Made) -> None:
        """Count what need not be read and written; take the writing back once it must be."""
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
    def _with_product(chain: Chain, work: Work) -> None:
        """Put the product in front whose result, perhaps changed, the softmax reads."""
        for made in reversed(chain.products):
            if made.tensor.size == work.reads[0].size:
                chain.members.insert(0, made.product)
                chain.families.insert(0, Family.MATMUL)
                chain.saved_bytes += 2 * (made.tensor.nbytes or 0)
                return

    def _give(self, position: int, work: Work, chain: Chain | None) -> None:
        product = -1
        if work.family == Family.MATMUL and len(work.reads) > 1 and len(work.reads[1].dims) > 2:
            product = position
        if work.writes is None and work.family == Family.REDUCTION and work.reads:
            made = _Made(work.reads[0], self._passed, self._views, chain, reduced=True)
            self._made.append(made)
        for tensor in work.writes or ():
            made = _Made(tensor, self._passed, self._views, chain, product=product)
            self._made.append(made)


def _is_of_shapes(work: Work) -> bool:
    """Whether the command computes shapes: a few integers."""
    tensors = (*work.reads, *(work.writes or ()))
    return all(t.dtype == "int64" and (t.nbytes or 0) <= _SHAPE_BYTES for t in tensors)
