"""What stays of one phase of a pipeline call when some of its calls are not made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from profiler.analysis.prediction.pieces import TOKENIZER

__all__ = ["OWN_CALLS", "staying"]

OWN_CALLS = ("uncond", "negative_prompt", "skip_layers")  # branches of guidance alone


class _Part(Protocol):
    """A call, or the host's time before one (`submodule` None)."""

    @property
    def name(self) -> str: ...

    @property
    def submodule(self) -> str | None: ...


_Some = TypeVar("_Some", bound=_Part)


def staying(
    phase: Iterable[_Some],
    leaves: Callable[[_Some], bool],
    leads_to: Callable[[_Some, _Some], bool],
) -> tuple[_Some, ...]:
    """A phase without the calls that leave, and without the host's time that led to them.

    Where a phase begins the host prepares more than its first call: then only what is known to be
    that call's own (its tokenizer) leaves with it.
    """
    kept: list[_Some] = []
    waiting: list[_Some] = []  # the host's, since the last call
    begun = False
    for part in phase:
        if part.submodule is None:
            waiting.append(part)
            continue
        if leaves(part):
            waiting = [
                host
                for host in waiting
                if not leads_to(host, part) or not (begun or host.name.startswith(TOKENIZER))
            ]
        else:
            kept += [*waiting, part]
            waiting = []
        begun = True
    return (*kept, *waiting)
