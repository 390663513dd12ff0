"""Stage times of SGLang's diffusion runtime → a bundle without commands.

Source of the format: sgl-project/sglang, python/sglang/multimodal_gen/runtime/utils/perf_logger.py:
a JSON object a request (`--perf-dump-path`), or a line a request (`performance.log`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
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
from profiler.importers.importer import content_of
from profiler.trace.events import DropKind, DropReason

_DENOISE = re.compile(r"(?:Denoising|Refinement)Stage$")
_BEFORE = "BeforeDenoisingStage"  # prepares the loop, and is none
_LARGEST_FILE = 256 << 20
_LONGEST = 200
_MIB = 1 << 20
_HASH = re.compile(r"[0-9a-f]{7,40}")


def read_run(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read dumps or logs; each request is a pipeline call. Raises InputError if none has a time
    of a stage."""
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
                settings["sglang_commit"] = commit  # no version: runs of several are compared
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
    """The model's name; of a path of somebody's machine the last part."""
    model = meta.get("model") if isinstance(meta, dict) else None
    if not isinstance(model, str) or "\n" in model:
        return ""
    local = model.startswith(("/", "~", ".")) or "\\" in model
    return (re.split(r"[/\\]", model.rstrip("/\\"))[-1] if local else model)[:_LONGEST]


def _documents(data: bytes) -> Iterator[Any]:
    """The object, or that of each line; None for one that is damaged."""
    whole = decoded(data)
    if whole is not None:
        yield whole
        return
    yield from (decoded(line) for line in data.splitlines() if line.strip())


def decoded(data: bytes) -> Any | None:
    """The JSON of a text, None if it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _request(document: Mapping[str, Any]) -> RequestTimes | None:
    dump = "denoise_steps_ms" in document
    stages = _stages(document.get("steps" if dump else "stages"), dump=dump)
    steps = [_step(one) for one in _list(document.get("denoise_steps_ms" if dump else "steps"))]
    if not stages:
        return None
    known = tuple(step for step in steps if step is not None)
    peaks = document.get("memory_checkpoints" if dump else "memory_snapshots")
    placed = placed_stages(stages, known if len(known) == len(steps) else (), peaks)
    total = nanoseconds(document.get("total_duration_ms")) or 0
    return RequestTimes("request", tuple(placed), total, _moment(document.get("timestamp")))


def _stages(given: Any, *, dump: bool) -> list[tuple[str, int]]:
    key = "duration_ms" if dump else "execution_time_ms"
    found = []
    for one in _list(given):
        name = one.get("name") if isinstance(one, dict) else None
        time = nanoseconds(one.get(key)) if isinstance(one, dict) else None
        if isinstance(name, str) and name and time is not None:
            found.append((name[:_LONGEST], time))
    return found


def _step(one: Any) -> int | None:
    return nanoseconds(one.get("duration_ms") if isinstance(one, dict) else one)


def placed_stages(
    stages: Sequence[tuple[str, int]], steps: tuple[int, ...] = (), peaks: Any = None
) -> Iterator[StageTime]:
    """Stages before the first loop encode, those behind the last decode; of several loops nobody
    tells whose the steps are."""
    loops = [at for at, (name, _) in enumerate(stages) if _is_loop(name)]
    for at, (name, time) in enumerate(stages):
        stage = "run"
        if loops:
            stage = "denoise"
            if not _is_loop(name):
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
