"""Import stage times that programs report themselves, as bundles without commands: SGLang's
diffusion runtime, FastVideo, diffusers' benchmarks."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec

from profiler.errors import InputError
from profiler.importers.foreign_run import (
    ForeignRunBuilder,
    RequestTimes,
    StageTime,
    nanoseconds,
    stage_run,
)
from profiler.importers.importer import content_of, only_path, real
from profiler.trace.events import DropKind, DropReason
from profiler.trace.manifest_fields import Device

_LONGEST = 200  # characters of a name

# --- SGLang's diffusion runtime.
#
# Source of the format: sgl-project/sglang, python/sglang/multimodal_gen/runtime/utils/
# perf_logger.py: a JSON object a request (`--perf-dump-path`), or a line a request
# (`performance.log`).


_DENOISE = re.compile(r"(?:Denoising|Refinement)Stage$")
_BEFORE = "BeforeDenoisingStage"  # prepares the loop, and is not one
_LARGEST_FILE = 256 << 20
_MIB = 1 << 20
_HASH = re.compile(r"[0-9a-f]{7,40}")


def read_sglang(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read dumps or logs; each request is a pipeline call. Raises InputError if there is no stage
    time."""
    requests: list[RequestTimes] = []
    settings: dict[str, str] = {}
    models: set[str] = set()
    unread = 0
    for path in sorted(paths):
        for document in _documents(content_of(path, _LARGEST_FILE)):
            request = _request(document) if isinstance(document, dict) else None
            if request is None:
                unread += 1
                continue
            requests.append(request)
            commit = document.get("commit_hash")
            if isinstance(commit, str) and _HASH.fullmatch(commit):
                settings["sglang_commit"] = commit  # no version: commits can be compared
            models.add(_model(document.get("meta")))
    path = sorted(paths)[0]
    if not requests:
        raise InputError(
            f"{path} holds no time of a stage: record with `sglang generate --perf-dump-path "
            "FILE`, or give the server's performance.log"
        )
    name = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".log")
    run = stage_run("sglang", name, paths, requests)
    run.drop(DropKind.DROPPED_EVENTS, unread, "requests", DropReason.DAMAGED)
    run.settings, run.model = settings, models.pop() if len(models) == 1 else ""
    return run


def _model(meta: Any) -> str:
    """The model's name; for a local path its last part."""
    model = meta.get("model") if isinstance(meta, dict) else None
    if not isinstance(model, str) or "\n" in model:
        return ""
    local = model.startswith(("/", "~", ".")) or "\\" in model
    return (re.split(r"[/\\]", model.rstrip("/\\"))[-1] if local else model)[:_LONGEST]


def _documents(data: bytes) -> Iterator[Any]:
    """Yield the JSON object of a file, or of each line; None for a damaged one."""
    whole = decoded(data)
    if whole is not None:
        yield whole
        return
    yield from (decoded(line) for line in data.splitlines() if line.strip())


def decoded(data: bytes) -> Any | None:
    """The parsed JSON, None if it is invalid."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _request(document: Mapping[str, Any]) -> RequestTimes | None:
    dump = "denoise_steps_ms" in document
    stages = list(_stages(document.get("steps" if dump else "stages"), dump=dump))
    steps = [_step(one) for one in _list(document.get("denoise_steps_ms" if dump else "steps"))]
    if not stages:
        return None
    known = tuple(step for step in steps if step is not None)
    peaks = document.get("memory_checkpoints" if dump else "memory_snapshots")
    placed = placed_stages(stages, known if len(known) == len(steps) else (), peaks)
    total = nanoseconds(document.get("total_duration_ms")) or 0
    return RequestTimes("request", tuple(placed), total, _moment(document.get("timestamp")))


def _stages(given: Any, *, dump: bool) -> Iterator[tuple[str, int]]:
    key = "duration_ms" if dump else "execution_time_ms"
    for one in _list(given):
        name = one.get("name") if isinstance(one, dict) else None
        time = nanoseconds(one.get(key)) if isinstance(one, dict) else None
        if isinstance(name, str) and name and time is not None:
            yield (name[:_LONGEST], time)


def _step(one: Any) -> int | None:
    return nanoseconds(one.get("duration_ms") if isinstance(one, dict) else one)


def placed_stages(
    stages: Sequence[tuple[str, int]], steps: tuple[int, ...] = (), peaks: Any = None
) -> Iterator[StageTime]:
    """Yield stages with their place: those before the first loop encode, those after the last
    decode. If there are several loops, it is not known to which the steps belong."""
    loops = [at for at, (name, _) in enumerate(stages) if _is_loop(name)]
    for at, (name, time) in enumerate(stages):
        stage = "run"
        if loops:
            stage = "encode" if at < loops[0] else "decode" if at > loops[-1] else "denoise"
        own = steps if loops == [at] else ()
        yield StageTime(name, time, stage, own, _peak(peaks, name))


def _is_loop(name: str) -> bool:
    return _DENOISE.search(name) is not None and not name.endswith(_BEFORE)


def _peak(peaks: Any, name: str) -> int:
    peak = peaks.get(f"after_{name}") if isinstance(peaks, dict) else None
    size = peak.get("peak_reserved_mb") if isinstance(peak, dict) else None
    if not isinstance(size, int | float) or isinstance(size, bool) or not 0 <= size < 1 << 30:
        return -1
    return round(size * _MIB)


def _moment(text: Any) -> int:
    """An ISO date in ns, 0 if it is none."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return 0
    if moment is None or moment.year < 1971:
        return 0
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e9)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# --- FastVideo.
#
# Source of the forms: hao-ai-lab/FastVideo,
# fastvideo/tests/performance/test_inference_performance.py (`perf_*.json`: means of a benchmark's
# runs), apps/dreamverse/dreamverse/benchmarks (`--output-json`: a scenario an entry) and
# fastvideo/pipelines/pipeline_batch_info.py (`logging_info.stages`, recorded with
# FASTVIDEO_STAGE_LOGGING=1).


_COMPONENTS = (
    ("text_encoder_time_s", "text_encoder", "encode"),
    ("dit_time_s", "transformer", "denoise"),
    ("vae_decode_time_s", "vae", "decode"),
)
_LARGEST_RESULT = 64 << 20


def read_fastvideo(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read results; each record, scenario or request is a pipeline call. Raises InputError if none
    has a time of a stage."""
    requests: list[RequestTimes] = []
    hardware: set[str] = set()
    models: set[str] = set()
    unread = 0
    for path in sorted(paths):
        document = decoded(content_of(path, _LARGEST_RESULT))
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
    run.devices |= {call.call.device: Device(hardware=device) for call in run.calls}
    return run


def _requests(document: Mapping[str, Any]) -> Iterator[RequestTimes]:
    if "avg_generation_time_s" in document:
        yield _record(document)
    results = document.get("results")
    yield from (_scenario(one) for one in (results if isinstance(results, list) else ()))
    logged = document.get("logging_info", document)
    stages = logged.get("stages") if isinstance(logged, dict) else None
    if isinstance(stages, dict):
        yield _request_of_stages(stages, _seconds(document.get("generation_time")) or 0)


def _record(document: Mapping[str, Any]) -> RequestTimes:
    """The means of the runs of a benchmark."""
    stages = tuple(
        StageTime(name, time, stage)
        for key, name, stage in _COMPONENTS
        if (time := _seconds(document.get(key))) is not None
    )
    total = _seconds(document["avg_generation_time_s"]) or 0
    return RequestTimes(_text(document.get("benchmark_id")) or "request", stages, total)


def _scenario(given: Any) -> RequestTimes:
    one = given if isinstance(given, dict) else {}
    means = one.get("stage_means_ms")
    named = means if isinstance(means, dict) else {}
    times = [(name, nanoseconds(time)) for name, time in named.items()]
    total = nanoseconds(one.get("wall_ms_median")) or 0
    return RequestTimes(_text(one.get("name")) or "request", _placed(times), total)


def _request_of_stages(stages: Mapping[str, Any], total: int) -> RequestTimes:
    """The times in the stage log of one request."""
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
    """The class name of a stage, as in other files: `ltx2_refine_denoising_stage` →
    `Ltx2RefineDenoisingStage`."""
    name = name[:_LONGEST]
    return "".join(part.capitalize() for part in name.split("_")) if "_" in name else name


def _seconds(given: Any) -> int | None:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    return nanoseconds(given * 1e3) if number and abs(given) < 1e9 else None


def _text(given: Any) -> str:
    return given[:_LONGEST] if isinstance(given, str) and "\n" not in given else ""


# --- The CSV of diffusers' benchmarks.
#
# A row is a scenario (`black-forest-labs/FLUX.1-dev-bf16`): a pipeline call and a submodule with
# the model's mean time, and one for the compiled model, so that histories keep scenarios apart.
# Source of the format: huggingface/diffusers, benchmarks/benchmarking_utils.py. Collated tables
# have the earlier time behind the new one, `0.074 (0.079)`.


_TIMES = {"time_plain_s": "", "time_compile_s": ".compiled"}
_MEMORY = {"time_plain_s": "mem_plain_GB", "time_compile_s": "mem_compile_GB"}
_LARGEST_TABLE = 64 << 20


def read_diffusers_csv(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read one file. Raises InputError if no row has a time."""
    path = only_path(paths, "one CSV")
    text = content_of(path, _LARGEST_TABLE).decode("utf-8", "replace")
    try:
        rows = [*csv.DictReader(StringIO(text))]
    except csv.Error as error:
        raise InputError(f"{path} is no CSV ({error}): run the benchmarks anew") from error
    names = [(row.get("scenario") or "scenario")[:_LONGEST] for row in rows]
    named_rows = zip(names, rows, strict=True)
    found = (RequestTimes(name, tuple(_stages_of_row(name, row))) for name, row in named_rows)
    requests = [one for one in found if one.stages]
    if not requests:
        raise InputError(
            f"{path} holds no time of a model (time_plain_s): run the benchmarks of diffusers anew"
        )
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    run = stage_run("diffusers_csv", name, paths, requests)
    unread = len(rows) - len(requests)
    run.drop(DropKind.DROPPED_EVENTS, unread, "rows", DropReason.NO_TIME)
    models = {row.get("model_cls") or "" for row in rows}
    run.model = models.pop()[:_LONGEST] if len(models) == 1 else ""
    return run


def _stages_of_row(name: str, row: dict[str, str]) -> Iterator[StageTime]:
    for column, suffix in _TIMES.items():
        seconds, memory = (
            real((row.get(one) or "").partition("(")[0]) for one in (column, _MEMORY[column])
        )
        time = nanoseconds(seconds * 1e3)
        if time is not None:
            peak = round(memory * (1 << 30)) if 0 <= memory < 1e6 else -1
            yield StageTime(f"{name}{suffix}", time, peak_bytes=peak)
