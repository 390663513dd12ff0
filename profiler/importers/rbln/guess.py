"""Which pipeline ran, guessed from its files where nobody said it.

A compiled model executes the same layers in every call. So the files fall into groups of equal
layers, and a built-in description fits where each of its submodules is one of them, in its order
and number. Nothing less is guessed; what was guessed is said in the bundle's drops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profiler.grammars.rbln import CommandName, parse_name
from profiler.importers.rbln.pipeline import BUILT_IN, Description
from profiler.importers.rbln.trace import RblnTrace

__all__ = ["Guess", "guess"]

_CONVOLUTION = "conv"


@dataclass(frozen=True, slots=True)
class Guess:
    """A description with its steps, and the names of the others that fit as well."""

    description: Description
    steps: int
    others: tuple[str, ...]


def guess(traces: Sequence[RblnTrace | None], steps: int | None) -> Guess | None:
    """The description that fits the files in their order, None where none does. `steps` is their
    number where it is known; a file that holds nothing (None) is of any submodule."""
    models = [None if trace is None else frozenset(_layers(trace)) for trace in traces]
    fitting = [
        (description, count)
        for description in BUILT_IN.values()
        for count in _step_counts(description, len(models))
        if steps in (None, count) and _fits(description, count, models)
    ]
    alike = [found for found in fitting if _is_of_kind(*found, models)] or fitting
    if not alike:
        return None
    others = tuple(description.name for description, _ in fitting if description != alike[0][0])
    return Guess(*alike[0], others)


def _layers(trace: RblnTrace) -> Iterator[CommandName]:
    """The layers that ran, each with no more than its name."""
    for code in np.unique(trace.name).tolist():
        command = parse_name(trace.strings[code])
        if command is not None:
            yield CommandName(command.layer, 0, 0)


_Models = Sequence[frozenset[CommandName] | None]


def _step_counts(description: Description, files: int) -> Iterator[int]:
    """With how many steps the description makes as many calls: one number or none."""
    around = sum(pattern.repeat for pattern in (*description.encode, *description.decode))
    each_step = sum(pattern.repeat for pattern in description.denoise)
    count, rest = divmod(files - around, each_step)
    if count > 0 and rest == 0:
        yield count


def _fits(description: Description, steps: int, models: _Models) -> bool:
    """Whether all calls of a submodule have the same layers, and two submodules never."""
    known: dict[str, frozenset[CommandName]] = {}
    expected = description.calls(steps)
    for call, model in zip(expected, models, strict=True):
        if model is not None and known.setdefault(call.submodule, model) != model:
            return False
    distinct = all(known.values()) and len({*known.values()}) == len(known)
    return distinct and len(known) == len({call.submodule for call in expected})


def _is_of_kind(description: Description, steps: int, models: _Models) -> bool:
    """Whether the denoiser convolves, as a UNet does, or does not, as FLUX's transformer (SD3's
    does, but in SD3 alone are there three text encoders)."""
    expected = description.calls(steps)
    denoiser = description.denoise[0].submodule
    layers = {
        layer
        for call, model in zip(expected, models, strict=True)
        if call.submodule == denoiser
        for layer in model or ()
    }
    convolves = any(_CONVOLUTION in layer.op_type for layer in layers)
    return convolves == (denoiser == "unet")
