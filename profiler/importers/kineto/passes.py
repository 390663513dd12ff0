"""The calls of a pipeline told apart where only its submodules are known: prompts that are encoded
after something was denoised, and latents that are denoised after some were decoded, belong to the
next call of the pipeline. What was not guessed tells nothing."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.importers.kineto.calls import CallRange
from profiler.importers.kineto.names import is_decoder, is_encoder

__all__ = ["parted"]


def parted(calls: Sequence[CallRange]) -> list[list[CallRange]]:
    """The calls, in order of time, by the call of the pipeline that they are of."""
    found: list[list[CallRange]] = [[]]
    denoised = decoded = False
    for call in calls:
        if not call.guessed:
            found[-1].append(call)
            continue
        encodes, decodes = is_encoder(call), is_decoder(call)
        if (decoded and not decodes) or (denoised and encodes):
            found.append([])
            denoised = decoded = False
        denoised |= not encodes and not decodes
        decoded |= decodes
        found[-1].append(call)
    return found
