"""Which calls have their operators traced: `--ops` and `ops=`, one text for all submodules.

    every:7                           every seventh step of the loop, counted from 0
    first,last steps:0-3 vae=none     several entries, separated by spaces

`docs/capture-ops.md` has the grammar. A call is chosen before it begins, by its `Position`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from profiler.errors import InputError
from profiler.events import NO_STEP
from profiler.filters import step_range

__all__ = ["ALL", "NONE", "CallSelection", "OpsSelection", "Position", "parse_ops"]

_MEASURE_OVERHEAD = "measure-overhead"
_LEFT_OUT = 4  # `measure-overhead` leaves out one call in so many, the last of them
_WORDS = "all, none, first, last, every:N, steps:A-B and measure-overhead"
_NUMBER = re.compile(r"[0-9]{1,9}")
_SUBMODULE = re.compile(r"[\w.\-]+")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a call stands: its `step` (-1 outside the loop) and the schedule's `last_step` (-1:
    not known), the first step that its pipeline call runs, and its `ordinal` among the
    submodule's calls of the pipeline call, or of the run where there is no pipeline."""

    ordinal: int
    step: int = NO_STEP
    first_step: int = 0
    last_step: int = NO_STEP


@dataclass(frozen=True, slots=True)
class CallSelection:
    """The calls of one submodule whose operators are traced: those that any part names."""

    everything: bool = False
    first: bool = False
    last: bool = False
    every: tuple[int, ...] = ()
    steps: tuple[tuple[int, int], ...] = ()  # first and last, both included
    measure_overhead: bool = False

    @property
    def nothing(self) -> bool:
        """Whether no call is traced."""
        return not (self.everything or self.first or self.last or self.every or self.steps)

    @property
    def steps_only(self) -> bool:
        """Whether no call outside the denoising loop is ever traced."""
        return not (self.everything or self.first or self.every)

    @property
    def mixed(self) -> bool:
        """Whether there may be calls of both kinds."""
        return not self.nothing and (self.measure_overhead or not self.everything)

    def selects(self, position: Position) -> bool:
        """Whether the call there is traced."""
        in_loop = position.step != NO_STEP
        place = position.step if in_loop else position.ordinal
        if self.measure_overhead and place % _LEFT_OUT == _LEFT_OUT - 1:
            return False
        return (
            self.everything
            or (self.first and place == (position.first_step if in_loop else 0))
            or (self.last and in_loop and place == position.last_step)
            or any(place % number == 0 for number in self.every)
            or (in_loop and any(begin <= place <= end for begin, end in self.steps))
        )


ALL = CallSelection(everything=True)
NONE = CallSelection()
_SIMPLE = {
    "all": ALL,
    "none": NONE,
    "first": CallSelection(first=True),
    "last": CallSelection(last=True),
}


@dataclass(frozen=True, slots=True)
class OpsSelection:
    """What a whole text says: `default` for every submodule that is not in `by_submodule`."""

    default: CallSelection = ALL
    by_submodule: Mapping[str, CallSelection] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, submodule: str) -> CallSelection:
        """The selection for one submodule."""
        return self.by_submodule.get(submodule, self.default)


@functools.lru_cache(maxsize=64)
def parse_ops(text: str) -> OpsSelection:
    """Read a text such as `"every:7 vae=none"`. Raises InputError in one sentence."""
    if not isinstance(text, str):
        raise InputError(f"ops is {text!r}: give a text such as 'all' or 'every:7'")
    terms: dict[str, list[str]] = {}
    for entry in text.split():
        submodule, equals, words = entry.rpartition("=")
        if equals and not _SUBMODULE.fullmatch(submodule):
            raise InputError(f"ops has {entry!r}: write SUBMODULE=SELECTION, such as vae=none")
        terms.setdefault(submodule, []).extend(words.split(","))
    if not terms:
        raise InputError(f"ops is empty: use {_WORDS}")
    found = {name: _selection(words, name) for name, words in terms.items()}
    default = found.pop("", ALL)
    if default.measure_overhead:
        found = {name: replace(part, measure_overhead=True) for name, part in found.items()}
    return OpsSelection(default, MappingProxyType(found))


def _selection(words: list[str], submodule: str) -> CallSelection:
    """The calls of a submodule, "" for all others, that any of the words names; `measure-overhead`
    alone thins out all."""
    terms = [_term(word) for word in words if word != _MEASURE_OVERHEAD] or [ALL]
    if len(terms) > 1 and NONE in terms:
        where = f" for {submodule}" if submodule else ""
        text = ",".join(words)
        raise InputError(f"ops has none beside other words in {text!r}{where}: use one of them")
    return CallSelection(
        everything=any(term.everything for term in terms),
        first=any(term.first for term in terms),
        last=any(term.last for term in terms),
        every=tuple(number for term in terms for number in term.every),
        steps=tuple(steps for term in terms for steps in term.steps),
        measure_overhead=_MEASURE_OVERHEAD in words,
    )


def _term(text: str) -> CallSelection:
    word, colon, value = text.partition(":")
    if text in _SIMPLE:
        return _SIMPLE[text]
    if word == "every" and colon:
        if _NUMBER.fullmatch(value) and int(value) > 0:
            return CallSelection(every=(int(value),))
        raise InputError(f"ops has {text!r}: write every:N with a whole number from 1 on")
    if word == "steps" and colon:
        between = step_range(value)
        if between is not None:
            return CallSelection(steps=(between,))
        raise InputError(f"ops has {text!r}: write steps:A-B with A not above B, or steps:A")
    raise InputError(f"ops={text!r} is not known: use {_WORDS}")
