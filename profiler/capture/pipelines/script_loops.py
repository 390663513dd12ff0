"""What denoising loops of a script's own made, outside every pipeline call: from their scheduler,
from what it steps, and from what is decoded behind them.

A loop begins with the first step of a scheduler after a new schedule, where the scheduler counts
from an earlier step again, or where the schedule has run out. Its steps are those that returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from profiler.capture.arrays import first_dimension
from profiler.capture.invocations import Invocation
from profiler.capture.pipelines.generation import scheduled_by
from profiler.capture.wraps import weakly
from profiler.interruptions import let_pass
from profiler.trace.manifest_settings import Generation

__all__ = ["ScriptLoops"]

_SAMPLE = ("sample", "latents", "x")
_AT = 2  # of a scheduler's `step(model_output, timestep, sample)`
_COLOURS = (1, 3)  # channels of what a VAE decodes, ahead of its pixels
_MOST = 1_000  # loops
_LATENTS = ("hidden_states", "sample", "latent_model_input", "latents", "x", "input")


@dataclass(slots=True, eq=False)
class _Loop:
    """One loop of `scheduler()`, None once that is gone: `made` but for its steps and sizes,
    `last_step` its latest step, `ends_ns` the ends of its steps, ahead of which `unseen` others
    were made. `decoded` are the latest outputs of submodules since, with their sizes."""

    scheduler: Callable[[], Any]
    made: Generation
    begin_ns: int
    unseen: int = 0
    last_step: int = -1
    ends_ns: list[int] = field(default_factory=list)
    decoded: dict[str, tuple[Invocation, Mapping[str, int]]] = field(default_factory=dict)


class ScriptLoops:
    """The loops of one run, in the order in which they began."""

    def __init__(self) -> None:
        self._loops: list[_Loop] = []
        self._open: dict[int, _Loop] = {}  # by a scheduler's id, which a later one may have again

    def new_schedule(self, scheduler: Any) -> None:
        """The scheduler has got a new schedule."""
        self._open.pop(id(scheduler), None)

    def stepped(
        self,
        scheduler: Any,
        step: int,
        arguments: tuple[Any, Any],
        end_ns: int,
        *,
        unseen: int = 0,
    ) -> None:
        """`scheduler.step` of `step` has returned; `arguments` are its own, by place and name. It
        had made `unseen` steps of this loop before anybody looked."""
        loop = self._open.get(id(scheduler))
        another = loop is None or loop.scheduler() is not scheduler
        if loop is None or another or _begins_again(scheduler, step, loop):
            if len(self._loops) >= _MOST:
                return
            begin_ns = max((one.ends_ns[-1] for one in self._loops), default=-1)
            made = scheduled_by(scheduler, batch=_batch(*arguments))
            loop = self._open[id(scheduler)] = _Loop(weakly(scheduler), made, begin_ns, unseen)
            self._loops.append(loop)
        loop.last_step = step
        loop.ends_ns.append(end_ns)

    def returned(self, invocation: Invocation, output: Any) -> None:
        """A submodule has returned: perhaps it has decoded what the latest loop made."""
        if self._loops and (size := _decoded_size(output)):
            self._loops[-1].decoded[invocation.submodule] = (invocation, size)

    def generations(self, invocations: Iterable[Invocation]) -> list[Generation]:
        """What the loops made, each once; the stages of all `invocations` are known now."""
        denoised = [one for one in invocations if one.pipeline is None and one.stage == "denoise"]
        return list({repr(made): made for made in self._made(denoised)}.values())

    def _made(self, denoised: list[Invocation]) -> Iterable[Generation]:
        for loop in self._loops:
            sizes = [size for call, size in loop.decoded.values() if call.stage == "decode"]
            size = sizes[-1] if sizes else {}
            within = [c for c in denoised if loop.begin_ns < c.start_ns < loop.ends_ns[-1]]
            if self._meets_another(loop):
                within = []
            steps = loop.unseen + len(loop.ends_ns)
            yield structs.replace(
                loop.made,
                steps=steps,
                denoiser_passes=_passes(within, steps * (loop.made.batch or 0)),
                **size,
            )

    def _meets_another(self, loop: _Loop) -> bool:
        """Whether another loop steps while this one does: whose a denoiser's call is, is unknown
        then."""
        others = (end for one in self._loops if one is not loop for end in one.ends_ns)
        return any(loop.begin_ns < end < loop.ends_ns[-1] for end in others)


def _begins_again(scheduler: Any, step: int, loop: _Loop) -> bool:
    """Whether a step is of another loop than this one: by what the scheduler counts, else by the
    length of its schedule."""
    if hasattr(scheduler, "step_index"):
        return step <= loop.last_step
    try:
        return len(loop.ends_ns) >= len(scheduler.timesteps)
    except (AttributeError, TypeError) as error:  # it tells of none
        let_pass(error)
        return False


def _batch(args: Any, kwargs: Mapping[str, Any]) -> int | None:
    """How many latents a step has: the first dimension of its sample."""
    named = next((kwargs[name] for name in _SAMPLE if name in kwargs), None)
    sample = named if named is not None or len(args) <= _AT else args[_AT]
    return first_dimension(sample) or None


def _passes(denoised: Iterable[Invocation], latents: int) -> int | None:
    """How often each latent of a step went through the denoiser, in one batch or several calls: of
    several submodules the one that did most. None where that is no whole number."""
    by_name: dict[str, int] = {}
    for call in denoised:
        by_name[call.submodule] = by_name.get(call.submodule, 0) + _rows(call.input_shapes)
    most = max(by_name.values(), default=0)
    return most // latents if most and latents and most % latents == 0 else None


def _rows(shapes: Mapping[str, str]) -> int:
    """The batch of a denoiser's latents; 0 where nobody can tell which of its inputs they are."""
    name = next((name for name in _LATENTS if name in shapes), None)
    if name is None:
        name = next(iter(shapes)) if len(shapes) == 1 else ""
    first = shapes.get(name, "").partition("[")[2].removesuffix("]").split(",")[0]
    return int(first) if first.isdigit() else 0


def _decoded_size(output: Any) -> dict[str, int]:
    """Pixels of an output [batch, colours, (frames,) height, width], of its attribute `sample` or
    its first entry; nothing for anything else."""
    found = getattr(output, "sample", output)
    if isinstance(found, (tuple, list)) and found:
        found = found[0]
    try:
        shape = tuple(int(size) for size in found.shape)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        let_pass(error)
        return {}
    if len(shape) not in (4, 5) or shape[1] not in _COLOURS:
        return {}
    frames = {"frames": shape[2]} if len(shape) == 5 else {}
    return {"width": shape[-1], "height": shape[-2], **frames}
