"""What a call is called: its denoising step from the scheduler, its branch from what it was given.

Nothing here counts calls of submodules. Steps come from the scheduler. A denoiser's branch comes,
in this order, from

1. `cache_context("cond")` or `("uncond")`, in which diffusers' newer pipelines call it;
2. its argument `skip_layers`: the extra call of skip-layer guidance;
3. a guider that has prepared its inputs, as in modular pipelines (`guidance`);
4. the embeddings that it was given, where `encode_prompt` made them for one of the prompts;
5. its batch against that of the pipeline's own latents: twice as many is both branches at once.

An encoder's branch is that of the prompt being encoded: `encode_prompt` takes the prompt first.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from profiler.capture.arrays import first_dimension
from profiler.capture.pipelines.guidance import Guidance
from profiler.capture.pipelines.stages import Stages
from profiler.capture.wraps import weakly
from profiler.events import NO_STEP, Branch
from profiler.interruptions import let_pass

__all__ = [
    "CACHE_CONTEXT",
    "GENERATING",
    "PipelineLabels",
    "Steps",
    "argument_names",
    "by_name",
    "denoiser_branch",
    "first_batch",
    "returned_names",
]

CACHE_CONTEXT: ContextVar[str] = ContextVar("profile_sd3_cache_context", default="")
"""The name under which a pipeline calls its denoiser now, "" where it does not say."""

GENERATING: ContextVar[bool] = ContextVar("profile_sd3_generating", default=False)
"""Whether a submodule calls itself now, once for each of the tokens that it generates."""

_OF_CONTEXT: Mapping[str, Branch] = {"cond": "cond", "uncond": "uncond"}
_LATENTS = ("hidden_states", "sample", "latent_model_input", "latents", "x")
_EMBEDDINGS = ("encoder_hidden_states", "prompt_embeds", "context")
_NEGATIVE = "negative"  # in the names of what is the negative prompt's
_IN_ORDER: tuple[Branch, Branch] = ("prompt", "negative_prompt")


def denoiser_branch(
    context: str, arguments: Mapping[str, Any], given: str, latents_batch: int, *, guided: bool
) -> Branch:
    """The branch of a denoiser's call, see the top of this module.

    `context` is the name of its `cache_context`, "" for none; `arguments` are its arguments by
    name; `given` is whose embeddings they hold ("prompt", "negative_prompt" or "");
    `latents_batch` is the batch of the pipeline's own latents, 0 where it is not known: then
    `guided`, whether the pipeline uses classifier-free guidance, stands for it.
    """
    if context in _OF_CONTEXT:
        return _OF_CONTEXT[context]
    if arguments.get("skip_layers") is not None:
        return "skip_layers"
    if given:
        return "uncond" if given == "negative_prompt" else "cond"
    batch = first_batch([arguments.get(name) for name in _LATENTS])
    if not batch or not latents_batch:
        return "batched" if guided else "cond"
    return "batched" if batch > latents_batch and batch % latents_batch == 0 else "cond"


def by_name(names: list[str], args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by parameter name; `arg3` where `names` has no fourth."""
    if not args:
        return dict(kwargs)
    positional = {names[i] if i < len(names) else f"arg{i}": value for i, value in enumerate(args)}
    return {**positional, **kwargs}


def argument_names(function: Any) -> list[str]:
    """The parameters of `function`, none where it does not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        let_pass(error)
        return []
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


@lru_cache(maxsize=256)
def returned_names(function: Any) -> tuple[str, ...]:
    """The variables that `function` returns together, as its source has them; none where it does
    not tell."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        let_pass(error)
        return ()
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    tuples = [value.elts for value in returned if isinstance(value, ast.Tuple)]
    longest: list[ast.expr] = max(tuples, key=len, default=[])
    return tuple(e.id if isinstance(e, ast.Name) else "" for e in longest)


def _one_prompt(names: list[str]) -> bool:
    """Whether an `encode_prompt` with these parameters encodes one prompt a call."""
    return "prompt" in names and "negative_prompt" not in names


def first_batch(values: Any) -> int:
    """The first dimension of the first array or tensor in `values`, 0 where there is none."""
    found = map(first_dimension, values if isinstance(values, (list, tuple)) else (values,))
    return next(filter(None, found), 0)


class Steps:
    """The denoising step, 0-based, as the scheduler counts it.

    A run that begins late in the schedule (image-to-image) begins with a later step. Schedulers
    without a `step_index`, or with one for each sample, are followed: a step ends with
    `scheduler.step`. Of several schedulers that counts which was used last.
    """

    def __init__(self, scheduler: Callable[[], Any]) -> None:
        """`scheduler` finds the one that counts until one is used, each time by a search."""
        self._scheduler = scheduler
        self._found = False
        self._ended = 0

    def use(self, scheduler: Any) -> bool:
        """A scheduler is being used; whether it is another one than before."""
        same = self._scheduler() is scheduler
        if not (same and self._found):
            self._scheduler, self._found = weakly(scheduler), True
        if not same:
            self._ended = 0
        return not same

    def now(self) -> int:
        """The step that the scheduler's next `step` closes."""
        scheduler = self._scheduler()
        if not hasattr(scheduler, "step_index"):
            return self._ended
        index = scheduler.step_index
        if index is None:
            index = getattr(scheduler, "begin_index", None)
        try:
            return 0 if index is None else int(index)
        except (TypeError, ValueError, RuntimeError) as error:  # a tensor of several elements
            let_pass(error)
            return self._ended

    def last(self) -> int:
        """The last step of the schedule, `NO_STEP` where the scheduler does not tell."""
        timesteps = getattr(self._scheduler(), "timesteps", None)
        try:
            return len(timesteps) - 1 if timesteps is not None else NO_STEP
        except TypeError as error:  # a tensor without dimensions
            let_pass(error)
            return NO_STEP

    def end(self) -> None:
        """`scheduler.step` has returned."""
        self._ended += 1

    def restart(self) -> None:
        """The scheduler has got a new schedule."""
        self._ended = 0


@dataclass(slots=True)
class PipelineLabels:
    """What one pipeline call has shown so far of its stages, prompts and latents."""

    steps: Steps
    stages: Stages
    latents_batch: int = 0
    guidance: Guidance = field(default_factory=Guidance)
    _encodings: int = 0  # calls of encode_prompt that have begun
    _order: tuple[Branch, ...] = _IN_ORDER  # the prompts still to come in this one
    _encoded: dict[str, int] = field(default_factory=dict)  # prompts by encoder
    _embeddings: list[tuple[Branch, weakref.ref[Any]]] = field(default_factory=list)

    def begin_encoding(self, arguments: Mapping[str, Any], names: list[str]) -> None:
        """`encode_prompt` begins. One that takes a prompt only is called once for each; others
        encode both, the prompt first. Prompts that come as embeddings are not encoded."""
        if _one_prompt(names):
            self._order = (_IN_ORDER[min(self._encodings, 1)],)
        else:
            known = arguments.get("prompt_embeds") is not None
            self._order = _IN_ORDER[1:] if known else _IN_ORDER
        self._encodings += 1
        self._encoded.clear()

    def end_encoding(self, result: Any, names: list[str], returned: Sequence[str] = ()) -> None:
        """`encode_prompt` has returned: remember whose embeddings its tensors are. `returned` are
        the variables that they were in; without those the first two are the prompts'."""
        values = result if isinstance(result, (list, tuple)) else (result,)
        told = len(returned) == len(values) and any(_NEGATIVE in name for name in returned)
        for index, value in enumerate(values):
            if _one_prompt(names):
                branch = self._order[-1]
            elif told:
                branch = _IN_ORDER[_NEGATIVE in returned[index]]
            elif index < 2:
                branch = _IN_ORDER[index]
            else:
                continue
            try:
                self._embeddings.append((branch, weakref.ref(value)))
            except TypeError as error:  # None, numbers and the like have no references
                let_pass(error)
                continue

    def encoder_branch(self, submodule: str) -> Branch:
        """The prompt that an encoder is called for."""
        count = self._encoded.get(submodule, 0)
        self._encoded[submodule] = count + 1
        return self._order[min(count, len(self._order) - 1)]

    def denoiser_branch(
        self, submodule: str, arguments: Mapping[str, Any], *, guided: bool
    ) -> Branch:
        """The branch of a call of the denoiser `submodule` with these arguments, by name."""
        prepared = self.guidance.branch(submodule, arguments)
        if prepared is not None and CACHE_CONTEXT.get() not in _OF_CONTEXT:
            return prepared
        return denoiser_branch(
            CACHE_CONTEXT.get(),
            arguments,
            self._given(arguments),
            self.latents_batch,
            guided=guided,
        )

    def _given(self, arguments: Mapping[str, Any]) -> str:
        given = [arguments[name] for name in _EMBEDDINGS if arguments.get(name) is not None]
        for branch, reference in self._embeddings:
            value = reference()
            if value is not None and any(value is other for other in given):
                return branch
        return ""
