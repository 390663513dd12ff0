"""Names of a pipeline's components, as diffusers gives them, and what they say of calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from profiler.events import NO_ITERATION, NO_STEP, RUN_STAGE, Call

__all__ = ["component", "device_by_submodule", "stages"]

_COMPONENT = re.compile(
    r"(?:text_encoder|image_encoder|transformer|unet|vae|controlnet|prior|decoder|safety_checker"
    r"|denoiser|dit|text_model|vision_model|language_model)(?:_\d)?(?:_encoder|_decoder)?",
    re.IGNORECASE,
)
_METHOD = re.compile(r"[. ](forward|encode|decode|__call__)$")
_DENOISERS = re.compile(r"transformer|unet|denoiser|dit(?![a-z])|controlnet")


def component(text: str) -> str:
    """The component that a name is of: `VAE.decode` → `vae`; "" for other names."""
    plain = _METHOD.sub("", text)
    return plain.lower() if _COMPONENT.fullmatch(plain) else ""


def device_by_submodule(calls: Iterable[Call]) -> dict[str, str]:
    """The device that most calls of each submodule ran on, by submodule in order of first calls."""
    found: dict[str, Counter[str]] = {}
    for call in calls:
        found.setdefault(call.submodule, Counter())[call.device] += 1
    return {name: devices.most_common(1)[0][0] for name, devices in found.items()}


def stages(submodules: Sequence[str], iterations: Sequence[int]) -> list[tuple[str, int, int]]:
    """Stage, step and iteration of calls in their order, by the names of their submodules.

    What is no denoiser is of stage `encode` before the first call of one, `decode` behind the last,
    `denoise` between. A denoiser's iterations, or else its calls, are its steps. Without a
    denoiser all is of stage `run`, and keeps its iterations.
    """
    denoising = [at for at, name in enumerate(submodules) if _DENOISERS.match(name)]
    if not denoising:
        return [(RUN_STAGE, NO_STEP, iteration) for iteration in iterations]
    first, last = denoising[0], denoising[-1]
    made: Counter[str] = Counter()
    found = []
    for at, (name, iteration) in enumerate(zip(submodules, iterations, strict=True)):
        if not _DENOISERS.match(name):
            stage = "encode" if at < first else "decode" if at > last else "denoise"
            found.append((stage, NO_STEP, NO_ITERATION))
            continue
        step = made[name] if iteration == NO_ITERATION else iteration
        made[name] += 1
        found.append(("denoise", step, NO_ITERATION))
    return found
