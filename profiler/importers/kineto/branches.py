"""Which branch of guidance a call computes: prompts of encoders, conditions of the denoiser."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable

from profiler.importers.kineto.calls import CallRange, Ran, Section
from profiler.importers.kineto.names import is_decoder

__all__ = ["BatchOf", "branches_of"]

BatchOf = Callable[[CallRange], int]  # leading dimension of a call's inputs, 0 where unknown


def branches_of(
    section: Section,
    stages: list[str],
    steps: list[int],
    submodules: list[str],
    batch_of: BatchOf,
) -> list[str]:
    """The branch of each call of a section, "" where the notion does not apply.

    `stages`, `steps` and `submodules` are those of the section's calls, in their order. Encoders:
    the first pass is the prompt, a later one the negative prompt. Denoiser and ControlNet: one
    call a step is `batched` where it holds both branches, else `cond`; of several calls a step the
    first is `cond` and the others `uncond`, the order in which pipelines make them.
    """
    calls = section.calls
    passes = _encoder_passes(section, stages, submodules)
    guided = any(number > 0 for number in passes.values())
    decoded = [call for call, name in zip(calls, submodules, strict=True) if name == "vae"]
    images = max(map(batch_of, decoded), default=0)
    per_step = Counter(
        (step, call.instance)
        for call, step in zip(calls, steps, strict=True)
        if step >= 0 and call.ran is Ran.EXECUTED
    )
    seen: Counter[tuple[int, str]] = Counter()
    branches = []
    for index, (call, stage, step) in enumerate(zip(calls, stages, steps, strict=True)):
        branch = ""
        if index in passes:
            branch = "negative_prompt" if passes[index] else "prompt"
        elif stage == "denoise" and not is_decoder(call) and call.ran is Ran.EXECUTED:
            key = (step, call.instance)
            branch = "cond" if seen[key] == 0 else "uncond"
            batch = batch_of(call) if per_step[key] == 1 and images else 0
            if per_step[key] == 1 and _is_doubled(batch, images, guided=guided):
                branch = "batched"
            seen[key] += 1
        branches.append(branch)
    return branches


def _is_doubled(batch: int, images: int, *, guided: bool) -> bool:
    """Whether one denoiser call holds both branches: twice as many inputs as images decoded, or
    more of them where the VAE takes its images one by one and the encoders saw two prompts.

    Where shapes were not recorded: whether the encoders saw two prompts.
    """
    if not batch or not images:
        return guided
    return batch == 2 * images or (guided and batch > images and batch % 2 == 0)


def _encoder_passes(section: Section, stages: list[str], submodules: list[str]) -> dict[int, int]:
    """For each text encoder call, by its index: is it the first or a later pass over the encoder.

    Passes are counted within one `encode_prompt` where that goes through the encoders twice (the
    prompt, then the negative prompt), else over the whole section.
    """
    encoders = [
        index
        for index, (stage, name) in enumerate(zip(stages, submodules, strict=True))
        if stage == "encode"
        and name.startswith("text_encoder")
        and section.calls[index].ran is Ran.EXECUTED
    ]
    starts = [start for start, _ in section.prompts]
    frame = {i: bisect_right(starts, section.calls[i].start_ns) for i in encoders}
    counts = Counter((frame[i], submodules[i]) for i in encoders)
    if max(counts.values(), default=0) < 2:
        frame = dict.fromkeys(encoders, 0)
    seen: Counter[tuple[int, str]] = Counter()
    passes = {}
    for index in encoders:
        key = (frame[index], submodules[index])
        passes[index] = min(seen[key], 1)
        seen[key] += 1
    return passes
