"""Branches of calls in a loop of a script's own, which no pipeline and no guider tells.

`scheduler.step` shows the batch of the latents: a call of the denoiser with a multiple of it was
both branches at once. Then a text encoder that was called twice ahead of the loop had the negative
prompt second. What nothing shows is guessed, and says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from profiler.capture.calls import Invocation
from profiler.trace.events import Branch

_MOST = 64  # calls that wait for the next step, of a denoiser that no scheduler follows
_OPEN = 4  # the latest of these, whose files wait for it: of more their branch stays
_TWO_PROMPTS = 2  # calls of an encoder ahead of a loop with guidance


@dataclass(slots=True)
class ScriptBranches:
    """The calls since the last step, and those of encoders since the last loop. `relabel` is told
    of a call whose branch is another than it was given."""

    relabel: Callable[[Invocation, Branch], None]
    latents_batch: int = 0  # of the latest step, 0 if this loop has made none
    _denoised: deque[tuple[Invocation, int]] = field(default_factory=lambda: deque(maxlen=_MOST))
    _encoded: dict[str, deque[Invocation]] = field(default_factory=dict)

    def encoded(self, invocation: Invocation) -> None:
        """A text encoder is called outside every `encode_prompt`."""
        calls = self._encoded.setdefault(invocation.submodule, deque(maxlen=_TWO_PROMPTS + 1))
        invocation.branch_open = True
        if len(calls) > _TWO_PROMPTS:
            calls[0].branch_open = False
        calls.append(invocation)

    def denoised(self, invocation: Invocation, rows: int) -> None:
        """A denoiser is called with so many `rows` of latents, 0 if nobody knows, and with nothing
        that tells its branch."""
        invocation.branch_guessed = invocation.branch_open = True
        self._denoised.append((invocation, rows))
        if len(self._denoised) > _OPEN:
            self._denoised[-1 - _OPEN][0].branch_open = False

    def begin_loop(self) -> None:
        """The scheduler has got a new schedule: the next loop may have another batch."""
        self.latents_batch = 0

    def stepped(self, latents_batch: int) -> None:
        """`scheduler.step` has returned latents of that batch."""
        calls = list(self._denoised)
        self._denoised.clear()
        self.latents_batch = latents_batch
        guided = False
        for invocation, rows in calls:
            passes = sum(other.submodule == invocation.submodule for other, _ in calls)
            if not (rows and latents_batch):
                continue
            together = rows > latents_batch and rows % latents_batch == 0
            guided |= together or passes > 1
            if together or passes == 1:
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
