"""Metrics of OpenVINO GenAI's image and video generation → a bundle without commands.

The library writes no file: docs/openvino.md has the lines that put what its object says
(`ImageGenerationPerfMetrics`) into JSON, under the names of its getters. Source:
openvinotoolkit/openvino.genai, image_generation_perf_metrics.hpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from profiler.errors import InputError
from profiler.importers.foreign_run import (
    ForeignRunBuilder,
    RequestTimes,
    StageTime,
    nanoseconds,
    stage_run,
)
from profiler.importers.importer import content_of
from profiler.importers.sglang.read import decoded

_LARGEST_FILE = 64 << 20
_LONGEST = 200
_DENOISERS = {"transformer_inference_durations": "transformer", "unet_inference_durations": "unet"}


def read_metrics(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read metrics; each file is a pipeline call. Raises InputError if none has a time."""
    found = []
    for path in sorted(paths):
        document = decoded(content_of(path, _LARGEST_FILE))
        if isinstance(document, dict):
            found.append(_request(document))
    requests = [one for one in found if one.stages]
    path = min(paths)
    if not requests:
        raise InputError(
            f"{path} holds no time of a model: write it after `generate`, as docs/openvino.md says"
        )
    name = path.name.removesuffix(".gz").removesuffix(".json")
    return stage_run("openvino_genai", name, paths, requests)


def _request(document: Mapping[str, Any]) -> RequestTimes:
    total = nanoseconds(document.get("generate_duration")) or 0
    return RequestTimes("request", tuple(_stages(document, total)), total)


def _stages(document: Mapping[str, Any], total: int) -> Iterator[StageTime]:
    encoders = document.get("text_encoder_infer_duration")
    named = dict(encoders) if isinstance(encoders, dict) else {}
    named["vae_encoder"] = document.get("vae_encoder_infer_duration")
    for name, given in named.items():
        time = nanoseconds(given)
        if time:
            yield StageTime(str(name)[:_LONGEST], time, "encode")
    steps = _durations(document.get("iteration_durations"), total)
    for key, name in _DENOISERS.items():
        inferences = _durations(document.get(key), total)
        if inferences:
            loop = steps if len(steps) == len(inferences) else inferences
            yield StageTime(name, sum(loop), "denoise", loop)
            break
    decoder = nanoseconds(document.get("vae_decoder_infer_duration"))
    if decoder:
        yield StageTime("vae_decoder", decoder, "decode")


def _durations(given: Any, total: int) -> tuple[int, ...]:
    """Times of steps in ns, of what the object has in µs; in ms if these fit into the whole, as
    somebody may have written them so."""
    times = [nanoseconds(one) for one in given] if isinstance(given, list) else []
    known = [one for one in times if one is not None]
    if len(known) < len(times):
        return ()
    in_ms = total > 0 and sum(known) <= total
    return tuple(known) if in_ms else tuple(round(one / 1000) for one in known)
