"""Which branch a denoiser is called for where a guider says so, as in diffusers' modular pipelines.

A guider prepares the inputs of all branches of a step at once and says of each what its result
will be; each call of the denoiser is given those of one. Where the inputs are passed on as other
tensors, or two branches have the same ones, calls are in the order in which they were prepared.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler.capture.pipelines.components import held
from profiler.capture.recorder import Recorder, scope
from profiler.events import Branch
from profiler.interruptions import let_pass

__all__ = ["Guidance", "GuiderHook", "guiders"]

_PREPARE = ("prepare_inputs", "prepare_inputs_from_block_state")
_RESULT = "__guidance_identifier__"
_COND, _UNCOND = "pred_cond", "pred_uncond"
_WITHOUT = "pred_cond_"  # how results begin that need a call with something left out
_MOST = 16  # branches of a step


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A branch, and the inputs that are its own."""

    branch: Branch
    inputs: tuple[weakref.ref[Any], ...]

    def has(self, given: list[Any]) -> bool:
        alive = [value for reference in self.inputs if (value := reference()) is not None]
        return any(value is other for value in alive for other in given)


@dataclass(slots=True)
class Guidance:
    """What the guider has prepared last, and the calls that were made with it."""

    _prepared: list[_Prepared] = field(default_factory=list)
    _calls: Counter[tuple[str, tuple[int, ...]]] = field(default_factory=Counter)

    def prepared(self, batches: Any) -> None:
        """`prepare_inputs` has returned `batches`, one for each branch."""
        self._calls.clear()
        self._prepared = []
        for batch in batches[:_MOST] if isinstance(batches, (list, tuple)) else ():
            branch = _branch(str(getattr(batch, _RESULT, "")))
            if branch is not None:
                self._prepared.append(_Prepared(branch, tuple(_references(vars(batch)))))

    def branch(self, submodule: str, arguments: Mapping[str, Any]) -> Branch | None:
        """That of a call of `submodule` with these arguments, None where no guider says."""
        if not self._prepared:
            return None
        given = [value for value in arguments.values() if value is not None]
        matching = [i for i, one in enumerate(self._prepared) if one.has(given)]
        fitting = tuple(matching or range(len(self._prepared)))
        earlier = self._calls[submodule, fitting]
        self._calls[submodule, fitting] += 1
        return self._prepared[fitting[earlier % len(fitting)]].branch


class GuiderHook:
    """Lets labels know what a guider prepares by `path`."""

    def __init__(self, path: str, recorder: Recorder) -> None:
        self._path = path
        self._recorder = recorder

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """For `prepare_inputs`, which is wrapped."""
        result = original(*args, **kwargs)
        self._recorder.attempt(self._path, self._prepared, result)
        return result

    def _prepared(self, batches: Any) -> None:
        labels = scope().labels
        if labels is not None:
            labels.guidance.prepared(batches)


def _branch(result: str) -> Branch | None:
    if result == _UNCOND:
        return "uncond"
    if result == _COND:
        return "cond"
    return "skip_layers" if result.startswith(_WITHOUT) else None


def _references(values: Mapping[str, Any]) -> Iterator[weakref.ref[Any]]:
    for value in values.values():
        if hasattr(value, "shape"):
            try:
                yield weakref.ref(value)
            except TypeError as error:  # numbers of NumPy
                let_pass(error)


def guiders(pipeline: Any) -> Iterator[tuple[str, Any, str]]:
    """Path, guider and method of each way in which a pipeline's guiders prepare inputs."""
    for one in held(pipeline):
        for name in _PREPARE if one.key is None else ():
            if callable(getattr(one.value, name, None)) and callable(one.value):
                yield f"{one.name}.{name}", one.value, name
