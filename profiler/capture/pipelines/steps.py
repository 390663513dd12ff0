"""Step, branch and stage of each submodule call, from scheduler, guider and prompts.

Calls of submodules are never counted: steps come from the scheduler. Calls between two
`scheduler.step` are in the loop, calls before the first step are `encode`, and calls after the
last are `decode`. A denoiser's branch comes from `cache_context`, `skip_layers`, a guider, the
prompt embeddings, or its batch against that of the latents, in this order.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from profiler.capture.backend import backend_of
from profiler.capture.calls import Invocation, Place, first_dimension, scope
from profiler.capture.patching import ByIdentity, weakly
from profiler.capture.pipelines.discovery import held
from profiler.capture.pipelines.submodules import part_of, present_entries
from profiler.capture.recorder import Recorder
from profiler.plugins import let_pass
from profiler.trace.events import NO_ITERATION, NO_STEP, RUN_STAGE, Branch
from profiler.trace.manifest_fields import Setting, SubmoduleSettings, setting

# --- The current settings of a pipeline's submodules, as their backends read them, and the numeric
# arguments of a call.


_NOTHING = SubmoduleSettings()
_DEFAULTS: ByIdentity[dict[str, Setting]] = ByIdentity()
"""Default arguments by the blocks of a modular pipeline, which take milliseconds to compute."""


def submodule_settings(pipeline: Any) -> dict[str, SubmoduleSettings]:
    """The known settings of a pipeline's submodules by name; each is read once."""
    found: dict[str, SubmoduleSettings] = {}
    for entry in present_entries(pipeline):
        if entry.submodule not in found:
            read = part_settings(part_of(pipeline, entry))
            if read is not None:
                found[entry.submodule] = read
    return found


def part_settings(part: Any) -> SubmoduleSettings | None:
    """The settings of a submodule's part; None if unknown. Errors of the user's objects are
    ignored."""
    try:
        found = backend_of(part).settings(part)
    except Exception as error:  # noqa: BLE001 - the user's program goes on
        let_pass(error)
        return None
    return None if found == _NOTHING else found


def call_numbers(function: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Setting]:
    """The numbers and switches among a call's arguments, defaults included; texts of the user are
    left out."""
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        let_pass(error)
        return {}
    bound.apply_defaults()
    given = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:  # a modular pipeline's arguments are such
            given |= given.pop(name)
    return _plain(given)


def block_defaults(pipeline: Any) -> dict[str, Setting]:
    """The default numbers and switches of a modular pipeline, from its blocks; empty for any other
    pipeline."""
    blocks = getattr(pipeline, "_blocks", None)
    try:
        if blocks is None:
            return {}
        known = _DEFAULTS.get(blocks)
        if known is None:
            inputs: Any = getattr(blocks, "inputs", None)
            found = {one.name: one.default for one in inputs if isinstance(one.name, str)}
            known = _DEFAULTS[blocks] = _plain(found)
    except Exception as error:  # noqa: BLE001 - the user's program goes on
        let_pass(error)
        return {}
    return known


def _plain(given: Mapping[str, Any]) -> dict[str, Setting]:
    return {k: setting(v) for k, v in given.items() if isinstance(v, (bool, int, float))}


# --- The branch of a denoiser's call by a guider, as in diffusers' modular pipelines.
#
# A guider prepares the inputs of all branches of a step together, and labels each with what its
# result will be. Each call of the denoiser gets the inputs of one. If the inputs are passed on as
# other tensors, or two branches have the same ones, calls come in the order of preparation.


_PREPARE = ("prepare_inputs", "prepare_inputs_from_block_state")
_RESULT = "__guidance_identifier__"
_COND, _UNCOND = "pred_cond", "pred_uncond"
_WITHOUT = "pred_cond_"  # prefixes of results that need a call with something left out
_MAX_BRANCHES = 16  # branches of a step


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A branch, and its own inputs."""

    branch: Branch
    inputs: tuple[weakref.ref[Any], ...]

    def has(self, given: list[Any]) -> bool:
        alive = [value for reference in self.inputs if (value := reference()) is not None]
        return any(value is other for value in alive for other in given)


@dataclass(slots=True)
class Guidance:
    """The branches that a guider has prepared last, and the calls since."""

    _prepared: list[_Prepared] = field(default_factory=list)
    _calls: Counter[tuple[str, tuple[int, ...]]] = field(default_factory=Counter)

    @property
    def active(self) -> bool:
        """Whether a guider has prepared branches."""
        return bool(self._prepared)

    def prepared(self, batches: Any) -> None:
        """Store the `batches` that `prepare_inputs` has returned, one per branch."""
        self._calls.clear()
        self._prepared = []
        for batch in batches[:_MAX_BRANCHES] if isinstance(batches, (list, tuple)) else ():
            branch = _branch(str(getattr(batch, _RESULT, "")))
            if branch is not None:
                self._prepared.append(_Prepared(branch, tuple(_references(vars(batch)))))

    def branch(self, submodule: str, arguments: Mapping[str, Any]) -> Branch | None:
        """The branch of a call of `submodule` with these arguments, None if no guider determines
        it."""
        if not self._prepared:
            return None
        given = [value for value in arguments.values() if value is not None]
        matching = [i for i, one in enumerate(self._prepared) if one.has(given)]
        fitting = tuple(matching or range(len(self._prepared)))
        earlier = self._calls[submodule, fitting]
        self._calls[submodule, fitting] += 1
        return self._prepared[fitting[earlier % len(fitting)]].branch


class GuiderHook:
    """Records what a guider prepares; `path` is its method."""

    def __init__(self, path: str, recorder: Recorder) -> None:
        self._path = path
        self._recorder = recorder

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """Run a call of the wrapped `prepare_inputs`."""
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


# --- The stage of calls of components without a known stage, from the scheduler's calls around
# them.
#
# Calls between two calls of `scheduler.step` are in the loop. Calls before the first one are
# `encode`, except those of the first step itself: these are determined by the second step, or, in a
# loop of one step, by the last component called before it. Calls after the last step are `decode`.
# Until a stage is known, a call has the most likely one.


_FEWEST_PASSES = 3  # of a loop that is not denoising
_MAX_WAITING_CALLS = 10_000  # calls waiting for a final stage; further ones keep theirs


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A call whose stage or step may change: the `order`-th of all components, started after
    `steps` steps; -1 if it keeps its `place`. `passes`: it may be a pass of a loop."""

    invocation: Invocation
    order: int
    steps: int
    place: Place
    passes: bool


class Stages:
    """Finds the stages of calls in one pipeline call. `place(invocation, where)` is called with
    each new place; `denoisers` are the submodules that earlier pipeline calls called in the
    loop. `repeated`: its loops may be those of requests one after another, as in a script."""

    def __init__(
        self,
        place: Callable[[Invocation, Place], None],
        denoisers: set[str] | None = None,
        *,
        repeated: bool = False,
    ) -> None:
        self._place = place
        self._repeated = repeated
        self._denoisers = denoisers if denoisers is not None else set()
        self._waiting: list[_Waiting] = []
        self._candidates: list[_Waiting] = []  # of the first step, until the second step
        self._calls: deque[str] = deque(
            maxlen=_MAX_WAITING_CALLS
        )  # submodules called since the last step
        self._order = 0
        self._steps = 0  # ended steps, in all loops
        self._in_loop = 0  # of them in this loop
        self._first: Place | None = None  # the step with which this loop started
        self._in_first: Counter[str] = Counter()  # calls that are known to be in it
        self._scheduled = False  # a schedule is set and has not run out
        self._over = False
        self._said: object = None  # the step that the script last announced
        self._known_stages = False  # some component has a known stage
        self._denoised_at = 0  # the first call of a known denoiser in this step, 0 if there is none
        self._found_at = 0  # the number of calls when the loop's scheduler was found
        self._unsure = False  # the first step since then may be missed, and nothing counts it

    @property
    def looping(self) -> bool:
        """Whether a loop is running, as far as known."""
        return self._scheduled or (self._in_loop > 0 and not self._over)

    def begin(self, submodule: str, stage: str) -> tuple[str, bool]:
        """Handle the start of a call of `submodule`, which belongs to `stage` ("" if unknown).
        Returns its stage, and whether that may change."""
        self._order += 1
        self._calls.append(submodule)
        if stage:
            self._known_stages = True
            if stage == "denoise":
                self._denoised_at = self._denoised_at or self._order
            return stage, self._unsure and stage == "denoise"
        if len(self._waiting) >= _MAX_WAITING_CALLS and not (self._steps or self._scheduled):
            return RUN_STAGE, False  # a script that runs for long without denoising
        if submodule in self._denoisers and self.looping:
            return "denoise", False
        return ("decode" if self._in_loop else "encode"), True

    def component_named_stage(self) -> None:
        """Record that a stage of the pipeline is known in another way."""
        self._known_stages = True

    def opened(self, invocation: Invocation, *, moves: bool, passes: bool) -> None:
        """Add a started call whose stage may change (`moves`), or which may be a pass of a loop."""
        if not (moves or passes) or len(self._waiting) >= _MAX_WAITING_CALLS:
            return
        invocation.provisional = moves
        place = Place(invocation.stage, invocation.step, invocation.last_step)
        steps = self._steps if moves else -1
        self._waiting.append(_Waiting(invocation, self._order, steps, place, passes))

    def schedule_set(self) -> None:
        """Start a loop, since a scheduler has a new schedule."""
        self._in_loop, self._over, self._scheduled = 0, False, True
        self._candidates = []
        self._unsure, self._denoised_at = False, 0

    def scheduler_found(self, *, counts: bool) -> None:
        """Start a loop with the next step, since a scheduler was found that has a schedule and is
        not used yet. `counts`: it counts its steps itself."""
        self._in_loop, self._over = 0, False
        self._candidates = []
        self._found_at, self._unsure = self._order, not counts

    def step_begins(self, step: int, last_step: int, *, missed: bool = False) -> None:
        """Place the calls since the last `scheduler.step` in the loop, since it is called again.
        `missed`: its first step was not seen."""
        place = Place("denoise", step, last_step)
        recent = [one for one in self._waiting if one.steps == self._steps and one.steps >= 0]
        self._unsure = False
        if missed and self._in_loop == 0:
            self._two_steps(recent, place)
        elif self._in_loop == 0:
            self._first = place
            latest = self._calls[-1] if self._calls else ""
            trailing = self._trailing(recent, latest)
            if self._denoised_at:
                trailing = [one for one in recent if one.order > self._denoised_at]
            self._move(trailing, place)
            self._in_first = Counter(one.invocation.submodule for one in trailing)
            self._candidates = [one for one in recent if one not in trailing]
        else:
            self._move(recent, place)
            self._denoisers.update(one.invocation.submodule for one in recent)
            if self._in_loop == 1:
                self._first_step(Counter(self._calls))
        self._calls.clear()
        self._denoised_at = 0

    def may_have_missed_one(self) -> bool:
        """Whether the component called last was called as often as two equal steps would since the
        scheduler was found."""
        since = list(self._calls)[-(self._order - self._found_at) :]
        times = since.count(since[-1]) if since and self._order > self._found_at else 0
        return self._in_loop == 0 and times > 0 and times % 2 == 0

    def _two_steps(self, recent: list[_Waiting], place: Place) -> None:
        """Place the calls since the scheduler was found: of each component half are of the missed
        step, half of the one at `place`."""
        by_name: dict[str, list[_Waiting]] = {}
        for one in recent:
            if one.order > self._found_at:
                by_name.setdefault(one.invocation.submodule, []).append(one)
        self._denoisers.update(by_name)
        for calls in by_name.values():
            half = (len(calls) + 1) // 2
            self._move(calls[:half], replace(place, step=place.step - 1))
            self._move(calls[half:], place)
        self._steps += 1
        self._in_loop += 1

    def _trailing(self, recent: list[_Waiting], latest: str) -> list[_Waiting]:
        """The last calls of the component `latest`, after which no other component was called."""
        count = 0
        for name in reversed(self._calls):
            if name != latest:
                break
            count += 1
        found = [one for one in recent if one.order > self._order - count]
        self._denoisers.update(one.invocation.submodule for one in found)
        return found

    def _first_step(self, called: Counter[str]) -> None:
        """Place the calls of the first step, after the second: both `called` each component equally
        often."""
        assert self._first is not None
        for name, times in called.items():
            of_name = [c for c in self._candidates if c.invocation.submodule == name]
            first = max(len(of_name) - max(times - self._in_first[name], 0), 0)
            self._move(of_name[first:], self._first)
        self._candidates = []

    def said(self, step: object) -> None:
        """Start the `step` that the script announces, a new object each time."""
        if step is not self._said:
            self._said = step
            self._steps += 1
            self._in_loop += 1
            self._calls.clear()

    def step_ended(self, *, last: bool) -> None:
        """Handle the end of a step; `last`: the schedule has no further step."""
        self._steps += 1
        self._in_loop += 1
        self._over = last
        self._scheduled = self._scheduled and not last

    def finish(self) -> None:
        """Place all waiting calls at the end of the pipeline call."""
        waiting, self._waiting = self._waiting, []
        decoders = self._decoders(waiting)
        final = []
        for one in waiting:
            place = one.place
            if one.steps >= 0 and place.stage != "denoise":
                decodes = one.steps == self._steps or one.invocation.submodule in decoders
                stage = "decode" if decodes else "encode"
                if not self._steps:
                    stage = place.stage if self._known_stages else RUN_STAGE
                place = Place(stage)
            final.append(replace(one, place=place))
        for one, iteration in _with_passes(final):
            self._place(one.invocation, replace(one.place, iteration=iteration))

    def _decoders(self, waiting: list[_Waiting]) -> set[str]:
        """What is called after the last loop and never before the first one: if loops repeat, it
        decodes between them, too."""
        if not self._repeated:
            return set()
        first = {one.invocation.submodule for one in waiting if one.steps == 0}
        return {one.invocation.submodule for one in waiting if one.steps == self._steps} - first

    def _move(self, found: list[_Waiting], place: Place) -> None:
        moved = {id(one) for one in found}
        self._waiting = [one for one in self._waiting if id(one) not in moved]
        for one in found:
            self._place(one.invocation, place)


def _with_passes(waiting: list[_Waiting]) -> list[tuple[_Waiting, int]]:
    """Each call, and its pass number if its component was called three times or more with the same
    input shapes."""

    def key(one: _Waiting) -> tuple[str, tuple[tuple[str, str], ...]]:
        return one.invocation.submodule, tuple(one.invocation.input_shapes.items())

    counts = Counter(key(one) for one in waiting if one.passes)
    seen: Counter[object] = Counter()
    found = []
    for one in waiting:
        loops = one.passes and counts[key(one)] >= _FEWEST_PASSES
        found.append((one, seen[key(one)] if loops else NO_ITERATION))
        seen[key(one)] += 1
    return found


# --- The step and branch of a call; the module docstring has the order of what determines a branch.
#
# `cache_context("cond")` and `("uncond")` are contexts in which diffusers' newer pipelines call the
# denoiser; `skip_layers` is an argument of the extra call of skip-layer guidance; a batch of twice
# the latents is both branches at once. An encoder's branch is that of the prompt being encoded:
# `encode_prompt` takes the prompt first.


CACHE_CONTEXT: ContextVar[str] = ContextVar("profile_sd3_cache_context", default="")
"""The name under which a pipeline is calling its denoiser, "" if unknown."""

GENERATING: ContextVar[bool] = ContextVar("profile_sd3_generating", default=False)
"""Whether a submodule is calling itself, once for each token that it generates."""

_OF_CONTEXT: Mapping[str, Branch] = {"cond": "cond", "uncond": "uncond"}
_LATENTS = ("hidden_states", "sample", "latent_model_input", "latents", "x")
_EMBEDDINGS = ("encoder_hidden_states", "prompt_embeds", "context")
_NEGATIVE = "negative"  # in names of the negative prompt's variables
_IN_ORDER: tuple[Branch, Branch] = ("prompt", "negative_prompt")


def denoiser_branch(
    context: str, arguments: Mapping[str, Any], given: str, latents_batch: int, *, guided: bool
) -> Branch:
    """The branch of a denoiser's call, see the top of this module.

    `context` is the name of its `cache_context`, "" for none; `arguments` are its arguments by
    name; `given` is the prompt of the embeddings in them ("prompt", "negative_prompt" or "");
    `latents_batch` is the batch of the pipeline's own latents. If that is 0 (unknown), `guided`
    decides: whether the pipeline uses classifier-free guidance.
    """
    if context in _OF_CONTEXT:
        return _OF_CONTEXT[context]
    if arguments.get("skip_layers") is not None:
        return "skip_layers"
    if given:
        return "uncond" if given == "negative_prompt" else "cond"
    batch = latents_rows(arguments)
    if not batch or not latents_batch:
        return "batched" if guided else "cond"
    return "batched" if batch > latents_batch and batch % latents_batch == 0 else "cond"


def latents_rows(arguments: Mapping[str, Any]) -> int:
    """The batch of the latents among a denoiser's arguments, 0 if there are none."""
    return first_batch([arguments.get(name) for name in _LATENTS])


def by_name(names: list[str], args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by parameter name; "arg3" if `names` has no fourth."""
    if not args:
        return dict(kwargs)
    positional = {names[i] if i < len(names) else f"arg{i}": value for i, value in enumerate(args)}
    return {**positional, **kwargs}


def returned_names(function: Any) -> tuple[str, ...]:
    """The variables that a function or method returns as a tuple, from its source; empty if
    unknown, as for an object that can be called."""
    try:
        written = inspect.unwrap(function)
    except ValueError as error:  # it wraps itself
        let_pass(error)
        return ()
    written = getattr(written, "__func__", written)
    return _returned_names(written) if inspect.isfunction(written) else ()


@lru_cache(maxsize=256)
def _returned_names(function: Any) -> tuple[str, ...]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        let_pass(error)
        return ()
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    tuples = [value.elts for value in returned if isinstance(value, ast.Tuple)]
    longest: list[ast.expr] = max(tuples, key=len, default=[])
    return tuple(e.id if isinstance(e, ast.Name) else "" for e in longest)


def _one_prompt(names: list[str]) -> bool:
    """Whether an `encode_prompt` with these parameters encodes one prompt per call."""
    return "prompt" in names and "negative_prompt" not in names


def first_batch(values: Any) -> int:
    """The first dimension of the first array or tensor in `values`, 0 if there is none."""
    found = map(first_dimension, values if isinstance(values, (list, tuple)) else (values,))
    return next(filter(None, found), 0)


def _on_host(value: Any) -> bool:
    return str(getattr(value, "device", "cpu")) == "cpu"


class Steps:
    """The denoising step, 0-based, from the scheduler's counter.

    A run that starts late in the schedule (image-to-image) starts with a later step. For schedulers
    without a `step_index`, the place of the timestep in the schedule counts; if that is unknown,
    or the index is one per sample, calls of `scheduler.step` are counted. Of several schedulers,
    the one used last counts.
    """

    def __init__(self, scheduler: Callable[[], Any]) -> None:
        """`scheduler` returns the one that counts until one is used; it searches each time."""
        self._scheduler = scheduler
        self._found = False
        self._ended = 0
        self._latest = NO_STEP  # the step that ended last

    def use(self, scheduler: Any) -> bool:
        """Use the steps of this scheduler; returns whether it is another one than before."""
        same = self._scheduler() is scheduler
        if not (same and self._found):
            self._scheduler, self._found = weakly(scheduler), True
        if not same:
            self.restart()
        return not same

    def uses(self, scheduler: Any) -> bool:
        """Whether this scheduler counts."""
        return self._scheduler() is scheduler

    def now(self, timestep: Any = None) -> int:
        """The step that ends with the scheduler's next `step`; `NO_STEP` if there is none.
        `timestep` is that of a call in it."""
        scheduler = self._scheduler()
        if scheduler is None and not self._found:
            return NO_STEP
        if not hasattr(scheduler, "step_index"):
            place = NO_STEP if timestep is None else self.place(timestep)
            return self._ended if place == NO_STEP else place
        index = scheduler.step_index
        if index is None:
            index = getattr(scheduler, "begin_index", None)
        try:
            return 0 if index is None else int(index)
        except (TypeError, ValueError, RuntimeError) as error:  # a tensor of several elements
            let_pass(error)
            return self._ended

    def last(self) -> int:
        """The last step of the schedule, `NO_STEP` if unknown."""
        timesteps = getattr(self._scheduler(), "timesteps", None)
        try:
            return len(timesteps) - 1 if timesteps is not None else NO_STEP
        except TypeError as error:  # a tensor without dimensions
            let_pass(error)
            return NO_STEP

    def place(self, timestep: Any) -> int:
        """The place of `timestep` in the schedule, `NO_STEP` if unknown. It reads no values from a
        device, which would have to end its work first."""
        timesteps: Any = getattr(self._scheduler(), "timesteps", None)
        try:
            tensors = hasattr(timesteps, "data_ptr")
            if tensors and hasattr(timestep, "data_ptr"):
                begin, size = timesteps.data_ptr(), timesteps.element_size() * timesteps.stride(0)
                found, rest = divmod(timestep.data_ptr() - begin, size)
                if not rest and 0 <= found < len(timesteps):  # as a loop over it has them
                    return int(found)
            if not (_on_host(timesteps) and _on_host(timestep)):
                return NO_STEP
            values: list[float] = timesteps.tolist() if tensors else list(timesteps)
            return values.index(float(timestep)) if len({*values}) == len(values) else NO_STEP
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            return NO_STEP

    def end(self, step: int) -> bool:
        """Handle the end of `scheduler.step` of `step`. Returns whether it is a further part of the
        step before, such as for another view of a panorama."""
        again = step == self._latest and not hasattr(self._scheduler(), "step_index")
        self._ended, self._latest = step + 1, step
        return again

    def restart(self) -> None:
        """Restart at step 0, since the scheduler has a new schedule."""
        self._ended, self._latest = 0, NO_STEP


@dataclass(slots=True)
class PipelineLabels:
    """The stages, prompts and latents known so far in one pipeline call."""

    steps: Steps
    stages: Stages
    latents_batch: int = 0
    script: ScriptBranches | None = None  # set outside every pipeline call
    unknown: ScriptBranches | None = None  # calls in a pipeline that does not show its guidance
    guidance: Guidance = field(default_factory=Guidance)
    _encodings: int = 0  # started calls of encode_prompt
    _order: tuple[Branch, ...] = _IN_ORDER  # the next prompts in this one
    _encoded: dict[str, int] = field(default_factory=dict)  # prompts by encoder
    _embeddings: list[tuple[Branch, weakref.ref[Any]]] = field(default_factory=list)

    def scheduler_found(self, scheduler: Any) -> None:
        """Start a loop with a scheduler that was found in the script, if it has a schedule and has
        made no step."""
        if getattr(scheduler, "num_inference_steps", None) is None:
            return
        if getattr(scheduler, "step_index", None) is None:
            self.steps.use(scheduler)
            self.stages.scheduler_found(counts=hasattr(scheduler, "step_index"))

    def begin_encoding(self, arguments: Mapping[str, Any], names: list[str]) -> None:
        """Handle the start of `encode_prompt`. One with only a prompt parameter is called once per
        prompt; others encode both, the prompt first. Prompts given as embeddings are not
        encoded."""
        if _one_prompt(names):
            self._order = (_IN_ORDER[min(self._encodings, 1)],)
        else:
            known = arguments.get("prompt_embeds") is not None
            self._order = _IN_ORDER[1:] if known else _IN_ORDER
        self._encodings += 1
        self._encoded.clear()

    def end_encoding(self, result: Any, names: list[str], returned: Sequence[str] = ()) -> None:
        """Store which prompt the tensors that `encode_prompt` returned embed. `returned` are the
        names of its variables; without names, the first two belong to the prompt."""
        values = result if isinstance(result, (list, tuple)) else (result,)
        named = len(returned) == len(values) and any(_NEGATIVE in name for name in returned)
        for index, value in enumerate(values):
            if _one_prompt(names):
                branch = self._order[-1]
            elif named:
                branch = _IN_ORDER[_NEGATIVE in returned[index]]
            elif index < 2:
                branch = _IN_ORDER[index]
            else:
                continue
            try:
                self._embeddings.append((branch, weakref.ref(value)))
            except TypeError as error:  # None, numbers and the like cannot be referenced weakly
                let_pass(error)
                continue

    def encoder_branch(self, submodule: str) -> Branch:
        """The branch of an encoder's call: the prompt it encodes."""
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
            self.script.latents_batch if self.script else self.latents_batch,
            guided=guided,
        )

    def shows_branch(self, arguments: Mapping[str, Any]) -> bool:
        """Whether anything but the batch determines the branch of a call with these arguments."""
        named = CACHE_CONTEXT.get() in _OF_CONTEXT or arguments.get("skip_layers") is not None
        return named or self.guidance.active or bool(self._given(arguments))

    def _given(self, arguments: Mapping[str, Any]) -> str:
        given = [arguments[name] for name in _EMBEDDINGS if arguments.get(name) is not None]
        for branch, reference in self._embeddings:
            value = reference()
            if value is not None and any(value is other for other in given):
                return branch
        return ""


# --- Branches of calls in a script's own loop, without a pipeline or guider.
#
# `scheduler.step` shows the batch of the latents: a denoiser's call with a multiple of it was both
# branches at once. If so, a text encoder that was called twice before the loop had the negative
# prompt second. Other branches are guessed, and marked as such.


_MOST = 64  # calls waiting for the next step, of a denoiser without a scheduler
_OPEN = 4  # the latest of these, whose files wait; earlier ones keep their branch
_TWO_PROMPTS = 2  # calls of an encoder before a loop with guidance


@dataclass(slots=True)
class ScriptBranches:
    """The denoiser calls since the last step, and encoder calls since the last loop. `relabel` is
    called for each call whose branch changes."""

    relabel: Callable[[Invocation, Branch], None]
    doubts: bool = True  # whether a guess that nothing settles is a drop
    latents_batch: int = 0  # of the latest step, 0 if there is none in this loop
    _denoised: deque[tuple[Invocation, int]] = field(default_factory=lambda: deque(maxlen=_MOST))
    _encoded: dict[str, deque[Invocation]] = field(default_factory=dict)

    def encoded(self, invocation: Invocation) -> None:
        """Add a text encoder's call outside every `encode_prompt`."""
        calls = self._encoded.setdefault(invocation.submodule, deque(maxlen=_TWO_PROMPTS + 1))
        invocation.branch_open = True
        if len(calls) > _TWO_PROMPTS:
            calls[0].branch_open = False
        calls.append(invocation)

    def denoised(self, invocation: Invocation, rows: int) -> None:
        """Add a denoiser's call of unknown branch with `rows` latents, 0 if unknown."""
        invocation.branch_open, invocation.branch_guessed = True, self.doubts
        self._denoised.append((invocation, rows))
        if len(self._denoised) > _OPEN:
            self._denoised[-1 - _OPEN][0].branch_open = False

    def finish(self) -> None:
        """Leave the waiting calls their branches."""
        for invocation, _ in self._denoised:
            invocation.branch_open = False
        self._denoised.clear()

    def begin_loop(self) -> None:
        """Forget the latents' batch, since the scheduler has a new schedule."""
        self.latents_batch = 0

    def stepped(self, latents_batch: int, steps: int = 1) -> None:
        """Set the branches of waiting calls, which are of so many steps, now that `scheduler.step`
        has shown the latents' batch."""
        calls = list(self._denoised)
        self._denoised.clear()
        self.latents_batch = latents_batch
        guided = False
        for invocation, rows in calls:
            passes = sum(other.submodule == invocation.submodule for other, _ in calls) / steps
            if not (rows and latents_batch):
                continue
            together = rows > latents_batch and rows % latents_batch == 0
            guided |= together or passes > 1
            if together or passes <= 1:
                self.relabel(invocation, "batched" if together else "cond")
                invocation.branch_guessed = False
        for invocation, _ in calls:
            invocation.branch_open = False
        if not calls:
            return
        for encoded in self._encoded.values() if guided else ():
            alike = len({tuple(one.input_shapes.items()) for one in encoded}) == 1
            if len(encoded) == _TWO_PROMPTS and alike:
                self.relabel(encoded[-1], "negative_prompt")
                encoded[0].branch_guessed = encoded[-1].branch_guessed = True
        for encoded in self._encoded.values():
            for invocation in encoded:
                invocation.branch_open = False
        self._encoded.clear()
