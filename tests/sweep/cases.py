"""What the sweep runs: a pipeline class, the parts that it is made of, what it is called with.

A family declares `CASES`. Its parts and arguments may be more than a class takes: a class gets
those that its signatures name, so that variants of one pipeline (image-to-image, inpainting,
ControlNet) are a line each.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.sweep import families

__all__ = ["Case", "all_cases", "modular", "variants"]

STEPS = 3
PROMPT, NEGATIVE = "a cat", "wolf"  # no letter in common: embeddings of both are told apart
COMMON = {
    "prompt": PROMPT,
    "negative_prompt": NEGATIVE,
    "num_inference_steps": STEPS,
    "height": 32,
    "width": 32,
    "output_type": "pt",
    "output": "images",  # of a modular pipeline
}


@dataclass(frozen=True)
class Case:
    """One pipeline class. `make` overrides how it is made of its parts, `args` are given as they
    are, `offered` where the class takes them."""

    name: str
    family: str
    parts: Callable[[], Mapping[str, Any]]
    offered: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    make: Callable[[Any, Mapping[str, Any]], Any] | None = None

    def pipeline(self) -> Any:
        """The pipeline, of random weights that are always the same."""
        import diffusers
        import torch

        torch.manual_seed(0)
        kind = getattr(diffusers, self.name)
        made = (self.make or _made)(kind, self.parts())
        made.set_progress_bar_config(disable=True)
        for component in made.components.values():
            if isinstance(component, torch.nn.Module):
                component.eval()
        return made

    def call(self, pipeline: Any) -> Any:
        """One call of it, with random numbers that are always the same."""
        import diffusers
        import torch

        _leave_text_as_it_is()
        torch.manual_seed(0)
        generator = torch.Generator("cpu").manual_seed(0)
        offered = {**COMMON, "generator": generator, **self.offered}
        taken = inspect.signature(type(pipeline).__call__).parameters
        if isinstance(pipeline, diffusers.ModularPipeline):
            taken = ("output", *pipeline.blocks.input_names)
        args = {k: v for k, v in offered.items() if k in taken} | dict(self.args)

        return pipeline(**args)


def _leave_text_as_it_is() -> None:
    """Some pipelines call ftfy, which mends text, also where it is not installed."""
    for name, module in list(sys.modules.items()):
        if name.startswith("diffusers.") and "is_ftfy_available" in vars(module):
            vars(module).setdefault("ftfy", SimpleNamespace(fix_text=str))


def _made(kind: Any, parts: Mapping[str, Any]) -> Any:
    taken = inspect.signature(kind.__init__).parameters
    given = {name: part for name, part in parts.items() if name in taken}
    missing = {
        name: None
        for name, parameter in taken.items()
        if name not in ("self", *given)
        and parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    return kind(**given, **missing)


def variants(
    family: str,
    parts: Callable[..., Mapping[str, Any]],
    offered: Mapping[str, Any],
    classes: Mapping[str, Mapping[str, Any]],
) -> list[Case]:
    """The `classes` of a family, with what `parts` is given for each; `args`, if there, is what
    the class is called with beside `offered`."""

    def case(name: str, given: Mapping[str, Any]) -> Case:
        args = given.get("args", {})
        rest = {key: value for key, value in given.items() if key != "args"}
        make = modular if "Modular" in name else None
        return Case(name, family, lambda: parts(**rest), offered, args, make)

    return [case(name, given) for name, given in classes.items()]


def modular(kind: Any, parts: Mapping[str, Any]) -> Any:
    """A modular pipeline of its default blocks, with those of the `parts` that they expect."""
    import diffusers

    blocks = getattr(diffusers, kind.default_blocks_name)()
    pipeline = blocks.init_pipeline()
    expected = {component.name for component in blocks.expected_components}
    pipeline.update_components(**{n: part for n, part in parts.items() if n in expected})
    waiting = [pipeline.blocks]
    while waiting:
        block = waiting.pop()
        if hasattr(block, "set_progress_bar_config"):
            block.set_progress_bar_config(disable=True)
        waiting += (getattr(block, "sub_blocks", None) or {}).values()
    return pipeline


def all_cases() -> list[Case]:
    """Every case, by family."""
    found: list[Case] = []
    for module in pkgutil.iter_modules(families.__path__, f"{families.__name__}."):
        found += importlib.import_module(module.name).CASES
    return found
