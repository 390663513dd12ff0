"""What is known of a kind of commands, and what is concluded from it."""

from __future__ import annotations

from msgspec import Struct

from profiler.analysis.roles.chains import Chained
from profiler.analysis.roles.operations import Operation
from profiler.analysis.roles.places import Place
from profiler.analysis.work.shapes import Shapes

__all__ = ["ROLE_BY", "Decision", "Evidence"]

ROLE_BY = ("producer", "category", "op_type", "class", "path", "chain", "shapes", "kernel")
"""What can decide a role: the trace's producer gave it, or the evidence of that name."""


class Evidence(Struct, frozen=True):
    """What is known of one kind.

    `kernel` is the function that its first command ran, "" where nobody tells. `rotates` is whether
    its attention module turns queries and keys by position, `rotated` whether it works on tensors
    of the dims that products with positions have, `projected` whether the command runs
    after that module's output projection, `negated` directly after a negation. `attends` is whether
    its submodule has a fused attention, or a softmax of the size of a product's scores: of what is
    no transformer sizes of products say nothing. `weighs` is whether it may be one of these
    products. `concludes` is whether it is a softmax that no product follows, as those of a
    classifier. `updates` is whether it runs in an optimizer's pass.
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
    updates: bool = False
    kernel: str = ""


class Decision(Struct, frozen=True):
    """A role and what decided (`ROLE_BY`, "" for `other` without evidence); `norm_kind` of
    norms, "" where it is not known."""

    role: str
    by: str
    norm_kind: str = ""
