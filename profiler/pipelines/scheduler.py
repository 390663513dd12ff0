"""The flow-matching Euler scheduler of diffusers, in NumPy.

Same schedule and same step as `diffusers.FlowMatchEulerDiscreteScheduler`, in the same precision:
the schedule is worked out in float64 and kept in float32.
"""

import logging
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from profiler.errors import InputError
from profiler.pipelines.model_folder import Settings
from profiler.pipelines.onnx_submodule import Array

__all__ = ["FlowMatchEulerDiscreteScheduler"]

_log = logging.getLogger(__name__)

_KNOWN_KEYS = frozenset(
    {
        "num_train_timesteps",
        "shift",
        "use_dynamic_shifting",
        "base_shift",
        "max_shift",
        "base_image_seq_len",
        "max_image_seq_len",
        "invert_sigmas",
        "shift_terminal",
        "use_karras_sigmas",
        "use_exponential_sigmas",
        "use_beta_sigmas",
        "time_shift_type",
        "stochastic_sampling",
    }
)

_REFUSED = {
    "use_beta_sigmas": "beta sigmas",
    "stochastic_sampling": "stochastic sampling",
}


class FlowMatchEulerDiscreteScheduler:
    """Noise schedule and Euler step of flow matching.

    After `set_timesteps`: `timesteps` float32 [steps] and `sigmas` float32 [steps + 1];
    `step_index` is the number of steps done, None before the first. Raises `InputError` for
    settings of the wrong type and for those that this scheduler does not do (beta sigmas,
    stochastic sampling).
    """

    def __init__(
        self, config: Mapping[str, object] | None = None, source: Path | None = None
    ) -> None:
        """Take the content of scheduler_config.json; `source` is named in errors."""
        self.config = Settings(source or Path("scheduler_config.json"), dict(config or {}))
        self._check()
        settings = self.config
        self.num_train_timesteps = settings.integer("num_train_timesteps", 1000)
        self.shift = settings.number("shift", 1.0)
        self.use_dynamic_shifting = settings.flag("use_dynamic_shifting")
        sigmas = np.arange(self.num_train_timesteps, 0, -1, dtype=np.float32)
        sigmas = sigmas / np.float32(self.num_train_timesteps)
        if not self.use_dynamic_shifting:
            shift = np.float32(self.shift)
            sigmas = shift * sigmas / (1 + np.float32(self.shift - 1) * sigmas)
        self.sigma_max, self.sigma_min = float(sigmas[0]), float(sigmas[-1])
        self.sigmas: NDArray[np.float32] = sigmas
        self.timesteps: NDArray[np.float32] = sigmas * np.float32(self.num_train_timesteps)
        self.step_index: int | None = None

    def _check(self) -> None:
        """Refuse what this scheduler does not do, and say which settings it does not know."""
        settings = self.config
        for key, words in _REFUSED.items():
            if settings.flag(key):
                raise InputError(
                    f"{settings.source} asks for {words} ({key}), which this scheduler does not "
                    "do; set it to false"
                )
        if settings.flag("use_karras_sigmas") and settings.flag("use_exponential_sigmas"):
            raise InputError(
                f"{settings.source} asks for Karras and exponential sigmas at once; keep one"
            )
        kind = settings.values.get("time_shift_type", "exponential")
        if kind not in ("exponential", "linear"):
            raise InputError(
                f"time_shift_type in {settings.source} must be exponential or linear, not {kind!r}"
            )
        unknown = sorted(
            key for key in settings.values if not key.startswith("_") and key not in _KNOWN_KEYS
        )
        if unknown:
            _log.warning("%s: settings not known and ignored: %s", settings.source, unknown)

    def mu(self, image_tokens: int) -> float:
        """Return the shift that `use_dynamic_shifting` needs for that many image tokens."""
        low = self.config.integer("base_image_seq_len", 256)
        high = self.config.integer("max_image_seq_len", 4096)
        base = self.config.number("base_shift", 0.5)
        slope = (self.config.number("max_shift", 1.15) - base) / (high - low)
        return image_tokens * slope + (base - slope * low)

    def set_timesteps(
        self,
        num_inference_steps: int,
        mu: float | None = None,
        sigmas: Array | None = None,
    ) -> None:
        """Lay out the schedule and start again at its first step.

        `mu` is needed with dynamic shifting, see `mu`. `sigmas` [steps] takes the place of even
        steps from the first sigma to the last; it is shifted in float32, as diffusers does. Raises
        `InputError` if `mu` is missing or there are no steps.
        """
        if num_inference_steps < 1:
            raise InputError(
                f"a run needs at least one denoising step, not {num_inference_steps}; "
                "give num_inference_steps of 1 or more"
            )
        scale = self.num_train_timesteps
        if sigmas is None:
            first, last = self.sigma_max * scale, self.sigma_min * scale
            given = np.linspace(first, last, num_inference_steps) / scale
        else:
            given = np.asarray(sigmas, np.float32)
        kept = self._respaced(self._shifted(given, mu)).astype(np.float32)
        end = np.zeros(1, dtype=np.float32)
        if self.config.flag("invert_sigmas"):
            kept, end = 1 - kept, end + 1
        self.timesteps = kept * np.float32(scale)
        self.sigmas = np.concatenate([kept, end])
        self.step_index = None

    def _shifted(self, sigmas: Array, mu: float | None) -> Array:
        """Move the sigmas as shift, dynamic shifting and shift_terminal ask."""
        if self.use_dynamic_shifting:
            if mu is None:
                raise InputError(
                    f"{self.config.source} asks for dynamic shifting, which needs mu; "
                    "pass scheduler.mu(image_tokens) to set_timesteps"
                )
            linear = self.config.values.get("time_shift_type") == "linear"
            weight = mu if linear else math.exp(mu)
            sigmas = weight / (weight + (1 / sigmas - 1))
        else:
            sigmas = self.shift * sigmas / (1 + (self.shift - 1) * sigmas)
        terminal = self.config.number("shift_terminal", 0.0)
        if terminal:
            rest = 1 - sigmas
            if rest[-1] <= 0:
                raise InputError(
                    f"shift_terminal in {self.config.source} cannot stretch a schedule of one "
                    "step; use two steps or more"
                )
            sigmas = 1 - rest / (rest[-1] / (1 - terminal))
        return sigmas

    def _respaced(self, sigmas: Array) -> Array:
        """Lay the sigmas out between their ends as Karras or exponential sigmas, if asked."""
        last, first, steps = float(sigmas[-1]), float(sigmas[0]), len(sigmas)
        if self.config.flag("use_karras_sigmas"):
            rho = 7.0
            ramp = np.linspace(0, 1, steps)
            start = first ** (1 / rho)
            karras: NDArray[np.float64] = (start + ramp * (last ** (1 / rho) - start)) ** rho
            return karras
        if self.config.flag("use_exponential_sigmas"):
            return np.exp(np.linspace(math.log(first), math.log(last), steps))
        return sigmas

    def step(self, noise_pred: Array, t: float | np.float32, latents: Array) -> Array:
        """Move `latents` one step along `noise_pred`, both [batch, channels, height, width].

        `t` is one of `timesteps`; it places the first step, later ones follow. Returns float32
        latents. Raises `InputError` if `t` is not in the schedule or the schedule is used up.
        """
        if self.step_index is None:
            self.step_index = self._index_of(t)
        if self.step_index + 1 >= len(self.sigmas):
            raise InputError("the schedule is used up; call set_timesteps before the next run")
        delta = self.sigmas[self.step_index + 1] - self.sigmas[self.step_index]
        moved: Array = latents.astype(np.float32) + delta * noise_pred.astype(np.float32)
        self.step_index += 1
        return moved

    def _index_of(self, t: float | np.float32) -> int:
        """Return where `t` stands in the schedule; of several places the second, as diffusers."""
        places = np.nonzero(self.timesteps == np.float32(t))[0]
        if len(places) == 0:
            raise InputError(f"{t} is not a timestep of this schedule; pass one of timesteps")
        return int(places[1] if len(places) > 1 else places[0])
