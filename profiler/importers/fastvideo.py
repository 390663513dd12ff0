"""Stage times of FastVideo → a bundle without commands.

Source of the forms: hao-ai-lab/FastVideo, fastvideo/tests/performance/test_inference_performance.py
(`perf_*.json`: means of a benchmark's runs), apps/dreamverse/dreamverse/benchmarks
(`--output-json`: a scenario an entry) and fastvideo/pipelines/pipeline_batch_info.py
(`logging_info.stages`, recorded with FASTVIDEO_STAGE_LOGGING=1).
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
from profiler.importers.sglang import decoded, placed_stages
from profiler.trace.events import DropKind, DropReason
from profiler.trace.manifest_fields import Device

_COMPONENTS = (
    ("text_encoder_time_s", "text_encoder", "encode"),
    ("dit_time_s", "transformer", "denoise"),
    ("vae_decode_time_s", "vae", "decode"),
)
_LARGEST_FILE = 64 << 20
_LONGEST = 200


def read_run(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read results; each record, scenario or request is a pipeline call. Raises InputError if none
    has a time of a stage."""
    requests: list[RequestTimes] = []
    hardware: set[str] = set()
    models: set[str] = set()
    unread = 0
    for path in sorted(paths):
        document = decoded(content_of(path, _LARGEST_FILE))
        found = [*_requests(document)] if isinstance(document, dict) else []
        kept = [one for one in found if one.stages]
        unread += len(found) - len(kept) + (not found)
        requests += kept
        if isinstance(document, dict):
            hardware.add(_text(document.get("device")))
            models.add(_text(document.get("model_short_name")))
    path = min(paths)
    if not requests:
        raise InputError(f"{path} holds no time of a stage: record with FASTVIDEO_STAGE_LOGGING=1")
    name = path.name.removesuffix(".gz").removesuffix(".json")
    run = stage_run("fastvideo", name, paths, requests)
    run.drop(DropKind.DROPPED_EVENTS, unread, "requests", DropReason.NO_TIME)
    run.model = models.pop() if len(models) == 1 else ""
    device = hardware.pop() if len(hardware) == 1 else ""
    run.devices = {one: Device(hardware=device) for one in run.devices}
    return run


def _requests(document: Mapping[str, Any]) -> Iterator[RequestTimes]:
    if "avg_generation_time_s" in document:
        yield _record(document)
    results = document.get("results")
    yield from (_scenario(one) for one in (results if isinstance(results, list) else ()))
    logged = document.get("logging_info", document)
    stages = logged.get("stages") if isinstance(logged, dict) else None
    if isinstance(stages, dict):
        yield _request(stages, _seconds(document.get("generation_time")) or 0)


def _record(document: Mapping[str, Any]) -> RequestTimes:
    """The means of the runs of a benchmark."""
    stages = []
    for key, name, stage in _COMPONENTS:
        time = _seconds(document.get(key))
        if time is not None:
            stages.append(StageTime(name, time, stage))
    total = _seconds(document["avg_generation_time_s"]) or 0
    return RequestTimes(_text(document.get("benchmark_id")) or "request", tuple(stages), total)


def _scenario(given: Any) -> RequestTimes:
    one = given if isinstance(given, dict) else {}
    means = one.get("stage_means_ms")
    named = means if isinstance(means, dict) else {}
    times = [(name, nanoseconds(time)) for name, time in named.items()]
    total = nanoseconds(one.get("wall_ms_median")) or 0
    return RequestTimes(_text(one.get("name")) or "request", _placed(times), total)


def _request(stages: Mapping[str, Any], total: int) -> RequestTimes:
    """What stage logging has of one request."""
    times = [
        (_text(one.get("stage_class")) or name, _seconds(one.get("execution_time")))
        for name, one in stages.items()
        if isinstance(one, dict)
    ]
    return RequestTimes("request", _placed(times), total)


def _placed(times: Sequence[tuple[str, int | None]]) -> tuple[StageTime, ...]:
    named = [(_class_name(name), time) for name, time in times if time is not None]
    return tuple(placed_stages(named))


def _class_name(name: str) -> str:
    """`ltx2_refine_denoising_stage` → `Ltx2RefineDenoisingStage`, as other files call it."""
    name = name[:_LONGEST]
    return "".join(part.capitalize() for part in name.split("_")) if "_" in name else name


def _seconds(given: Any) -> int | None:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    return nanoseconds(given * 1e3) if number and abs(given) < 1e9 else None


def _text(given: Any) -> str:
    return given[:_LONGEST] if isinstance(given, str) and "\n" not in given else ""
