"""Chains of op types in a representative call: norms, activations and attention written by hand.

    Pow → ReduceMean → Add → Sqrt → Reciprocal → Mul → Mul      RMSNorm
    ReduceMean → Sub → Pow → ReduceMean → Add → Sqrt → Div      LayerNorm
    LinalgVectorNorm → ClampMin → Div → Mul → Mul → Add         RMSNorm, by `normalize`
    MatMul → Softmax → MatMul                                   attention
    Pow → Mul → Add → Mul → Tanh → Add → Mul                    GELU, so mlp

Every command is one letter, so that a chain is a regular expression; what only moves data does not
break one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from profiler.analysis.roles.operations import Operation, Sort

__all__ = ["Chained", "after_negation", "chained_kinds", "concluding_softmaxes"]

_LETTERS = {
    "pow": "p",
    "square": "p",
    "mul": "x",
    "mean": "m",
    "reduce_mean": "m",
    "add": "a",
    "bias_add": "a",
    "sub": "u",
    "sqrt": "s",
    "rsqrt": "r",
    "div": "d",
    "linalg_vector_norm": "n",
    "clamp_min": "k",
    "reciprocal": "c",
    "tanh": "t",
    "erf": "e",
    "where": "w",
    "is_na_n": "w",
    "isnan": "w",
    "softmax": "S",
    "_softmax": "S",
    "_safe_softmax": "S",
    "bias_softmax": "S",
    "soft_max": "S",
    "cuda_soft_max": "S",  # TensorRT's
    "q_linear_softmax": "S",
}
_BY_SORT = {Sort.MATMUL: "M", Sort.LAYOUT: ".", Sort.REORDER: ".", Sort.IDENTITY: "."}


_CHAINS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("norm", "LayerNorm", re.compile(r"m\.*u\.*[px]\.*m\.*a\.*(?:r\.*x|s\.*(?:d|c\.*x))")),
    (
        "norm",
        "RMSNorm",
        re.compile(r"[px]\.*m\.*a\.*(?:r\.*x|s\.*(?:d|c\.*x))(?:\.*x)?"),
    ),
    # torch.nn.functional.normalize, then a scale and a shift: Wan's
    ("norm", "RMSNorm", re.compile(r"n\.*k\.*d(?:\.*x){0,2}(?:\.*a)?")),
    ("attention", "", re.compile(r"M[.xadw]*S[.w]*M")),
    ("mlp", "", re.compile(r"p\.*x\.*a\.*x\.*t\.*a\.*x(?:\.*x)?|d\.*e\.*a\.*x(?:\.*x)?")),
)


class Chained(Struct, frozen=True):
    """What the chain that a kind stands in is; `norm_kind` for norms, else ""."""

    role: str
    norm_kind: str


def chained_kinds(order: Sequence[int], operations: Mapping[int, Operation]) -> dict[int, Chained]:
    """The kinds most of whose commands stand in a chain. `order` is the kind of each command of
    the call in order of start, `operations` the operation of each kind."""
    letters = {kind: _letter(operation) for kind, operation in operations.items()}
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
        if 2 * count > total[kind]:
            found[kind] = chained
    return found


def after_negation(order: Sequence[int], operations: Mapping[int, Operation]) -> frozenset[int]:
    """The kinds that run directly after a negation: in attention, halves of rotated vectors."""
    negations = {kind for kind, operation in operations.items() if operation.word == "neg"}
    if not negations:
        return frozenset()
    return frozenset(kind for before, kind in pairwise(order) if before in negations)


def concluding_softmaxes(
    order: Sequence[int], operations: Mapping[int, Operation]
) -> frozenset[int]:
    """The kinds of softmax that no product follows in the call, nor anything of an attention: they
    are of probabilities of a classifier or sampler, since attention multiplies with its own."""
    softmaxes = {n for n, one in operations.items() if _LETTERS.get(one.word) == "S"}
    if not softmaxes:
        return frozenset()
    last = max(
        (at for at, n in enumerate(order) if n not in softmaxes and _may_weight(operations[n])),
        default=-1,
    )
    before = set(order[: last + 1])
    return frozenset(n for n in order[last + 1 :] if n in softmaxes and n not in before)


def _may_weight(operation: Operation) -> bool:
    """Whether it may be the product of an attention with its values; a kernel that is not known
    may."""
    return operation.sort in (Sort.MATMUL, Sort.ATTENTION, Sort.UNKNOWN)


def _letter(operation: Operation) -> str:
    return _LETTERS.get(operation.word) or _BY_SORT.get(operation.sort, "o")
