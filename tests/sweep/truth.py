"""What a pipeline really calls, by hooks that know nothing of capture.

Every module of every component is hooked; whatever begins while nothing is open is a call: of a
component where it is one, or one of its methods; else of a piece (`way` is its path).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Loop", "Seen", "Truth", "watched"]

METHODS = ("encode", "decode", "get_text_features", "get_image_features")


@dataclass(eq=False)
class Loop:
    """A schedule: how many steps it has run, and the shape of its latents."""

    steps: int = 0
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Seen:
    """A call of `component`, begun when `steps` of `loop` had ended. `shape` is that of its first
    argument, `tokens` are those that it was given."""

    component: str
    way: str
    loop: Loop | None
    steps: int
    shape: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]


@dataclass
class Truth:
    """The calls in their order."""

    calls: list[Seen] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    open: int = 0

    def begins(self, component: str, way: str, args: Any, kwargs: Mapping[str, Any]) -> None:
        if not self.open:
            loop = self.loops[-1] if self.loops else None
            steps = loop.steps if loop else 0
            values = [*args, *kwargs.values()]
            self.calls.append(Seen(component, way, loop, steps, _shape(values), _tokens(values)))
        self.open += 1

    def ends(self, *_: Any) -> None:
        self.open -= 1

    def schedule(self) -> None:
        self.loops.append(Loop())

    def step(self, sample: Any) -> None:
        if not self.loops:
            self.schedule()
        self.loops[-1].steps += 1
        self.loops[-1].shape = _shape([sample])


def _shape(values: list[Any]) -> tuple[int, ...]:
    for value in values:
        if hasattr(value, "shape") and len(value.shape) > 1:
            return tuple(value.shape)
        if isinstance(value, (list, tuple)) and value and hasattr(value[0], "shape"):
            return (len(value), *value[0].shape)
    return ()


def _tokens(values: list[Any]) -> tuple[tuple[int, ...], ...]:
    import torch

    for value in values:
        if isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.ndim == 2:
            return tuple(tuple(row) for row in value.tolist())
    return ()


@contextmanager
def watched(pipeline: Any) -> Iterator[Truth]:
    """Hooks on what `pipeline` holds, for as long as the block lasts."""
    import torch

    truth = Truth()
    with ExitStack() as undo:
        for name, component in pipeline.components.items():
            if isinstance(component, torch.nn.Module):
                _watch_modules(truth, undo, name, component)
                for method in METHODS:
                    if callable(getattr(component, method, None)):
                        _wrap(
                            undo, component, method, functools.partial(_call, truth, name, method)
                        )
            elif callable(getattr(component, "step", None)):
                _wrap(undo, component, "step", functools.partial(_step, truth))
                if hasattr(component, "set_timesteps"):
                    _wrap(undo, component, "set_timesteps", functools.partial(_schedule, truth))
        yield truth


def _watch_modules(truth: Truth, undo: ExitStack, name: str, component: Any) -> None:
    for path, module in component.named_modules():

        def begins(_: Any, args: Any, kwargs: Any, way: str = path or "forward") -> None:
            truth.begins(name, way, args, kwargs)

        begin = module.register_forward_pre_hook(begins, with_kwargs=True)
        end = module.register_forward_hook(truth.ends, always_call=True)
        undo.callback(begin.remove)
        undo.callback(end.remove)


def _wrap(undo: ExitStack, owner: Any, name: str, around: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, args, kwargs)

    owner.__dict__[name] = wrapped
    undo.callback(owner.__dict__.pop, name)


def _call(truth: Truth, name: str, method: str, original: Any, args: Any, kwargs: Any) -> Any:
    truth.begins(name, method, args, kwargs)
    try:
        return original(*args, **kwargs)
    finally:
        truth.ends()


def _step(truth: Truth, original: Any, args: Any, kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    truth.step(kwargs.get("sample", args[2] if len(args) > 2 else None))
    return result


def _schedule(truth: Truth, original: Any, args: Any, kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    truth.schedule()
    return result
