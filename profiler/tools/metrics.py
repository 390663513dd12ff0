"""The summary of a run for a data set: identity, metrics and content key."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl
from msgspec import Meta, Struct

from profiler.analysis.analyze import assembled
from profiler.analysis.commands import is_accelerator
from profiler.analysis.context import Inputs, Selection
from profiler.analysis.health import notes_of, worst_damage
from profiler.analysis.provenance import setting_pairs
from profiler.analysis.result import Analysis, RunSummary
from profiler.analysis.self_check import check_times
from profiler.errors import InputError, OutputError
from profiler.files import converted, decoded, opened, read_file, write_atomically
from profiler.run.columns import BYTES, FLOAT64, INT32, INT64, NS, RATIO, STRING, Column, col
from profiler.run.run import Run
from profiler.tools.sources import Kind, Source, load_source
from profiler.trace.bundle import call_files, host_file
from profiler.trace.manifest import MANIFEST_NAME, read_manifest
from profiler.trace.manifest_fields import Generation

# --- The columns of `runs` and `metrics`; `docs/fleet-data-set.md` explains them.


SCHEMA_VERSION = 1
NONE = "none"
"""The value of a setting that a run is known not to have."""


RUNS: tuple[Column, ...] = (
    col("run", STRING, "key: of the SHA-256 of its calls"),
    col("batch", STRING, "the batch that added it"),
    col("schema_version", INT32, "version of these columns"),
    col("run_id", STRING, "name of the bundle"),
    col("time_ns", NS, "begin of the run since 1970, UTC"),
    col("time_from", STRING, "what tells the time: trace, manifest, file"),
    col("added_ns", NS, "when it was added"),
    col("commit", STRING, "commit of the program that ran", True),
    col("labels", STRING, "JSON object of texts"),
    col("place", STRING, "where the bundle or file is; empty if that is not kept"),
    col("producer", STRING, "what recorded it", True),
    col("pipeline", STRING, "class of the pipeline", True),
    col("model", STRING, "name of the model", True),
    col("weights", STRING, "types of weights by submodule", True),
    col("adapters", STRING, "adapters by submodule; none", True),
    col("steps", INT64, "denoising steps of a pipeline call", True),
    col("resolution", STRING, "width and height in pixels", True),
    col("batch_size", INT64, "images or videos of a pipeline call", True),
    col("frames", INT64, "frames of a video; 0: it makes none", True),
    col("guidance", FLOAT64, "guidance scale; 0: it has none", True),
    col("attention", STRING, "what computes attention", True),
    col("cache", STRING, "step caches by submodule; none", True),
    col("compile", STRING, "torch.compile by submodule; none", True),
    col("offload", STRING, "offload by submodule; none", True),
    col("hardware", STRING, "devices that ran calls, with their number", True),
    col("software", STRING, "versions that decide speed", True),
    col("python", STRING, "version of Python", True),
    col("system", STRING, "operating system", True),
    col("cpu", STRING, "the machine's CPU", True),
    col("cores", INT64, "processors that the run might use", True),
    col("memory_bytes", BYTES, "the machine's memory", True),
    col("versions", STRING, "JSON object: all versions"),
    col("settings", STRING, "JSON object: arguments of the pipeline"),
    col("pipelines", INT64, "pipeline calls"),
    col("calls", INT64, "calls of submodules"),
    col("commands", INT64, "commands"),
    col("drops", INT64, "drops by which time is missing"),
    col("drop_kinds", STRING, "kinds of all drops"),
    col("residual", RATIO, "largest share of a pipeline call without account", True),
    col("tracing_cost", RATIO, "what tracing added, of the time without it", True),
    col("quality", STRING, "empty: good; else what is bad"),
)
"""The columns of `runs`, one row per run. Null is unknown: not recorded."""

METRICS: tuple[Column, ...] = (
    col("run", STRING, "of which run"),
    col("batch", STRING, "the batch that added it"),
    col("stage", STRING, "of which stage", True),
    col("submodule", STRING, "of which submodule", True),
    col("step", INT32, "of which step", True),
    col("role", STRING, "of which role", True),
    col("shape", STRING, "of which operator shape", True),
    col("device", STRING, "of which device", True),
    col("metric", STRING, "name of the metric"),
    col("value", FLOAT64, "a pipeline call's, in `unit`"),
    col("low", FLOAT64, "lower end of the value's 95 % interval", True),
    col("high", FLOAT64, "upper end of the value's 95 % interval", True),
    col("unit", STRING, "ns, bytes, ratio, count"),
)
"""The columns of `metrics`, one row per number. A null `stage`, `submodule`, …: the number is not
split by it."""


IDENTITY: dict[str, tuple[str, ...]] = {
    "workload": ("pipeline", "model"),
    "variant": ("weights", "adapters"),
    "recipe": (
        "steps",
        "resolution",
        "batch_size",
        "frames",
        "guidance",
        "attention",
        "cache",
        "compile",
        "offload",
    ),
    "hardware": ("hardware",),
    "software": ("software",),
}
"""The columns of `runs` that must agree for two runs to be comparable."""


# --- The key that identifies a run by its content, independent of its place.
#
# The key covers the run's calls: submodule, start and duration to the nanosecond. It does not cover
# bytes: importing a file twice makes two manifests of one run, and files that number their texts
# differently. The digest covers bytes: a summary is valid while nothing in the bundle has changed.


KEY_DIGITS = 32


def key_of(source: Source) -> str | None:
    """Compute the key of a run from its manifest, None without one; then `key_of_run` is needed.
    Raises InputError if the manifest cannot be read."""
    if source.kind is not Kind.BUNDLE:
        return None
    calls = (entry.call for entry in read_manifest(source.path / MANIFEST_NAME).calls)
    return _key((c.index, c.submodule, c.start_ns, c.duration_ns) for c in calls)


def key_of_run(run: Run) -> str:
    """The key of a run that is loaded; that of its bundle, if it is of one."""
    return _key(run.calls.select("call", "submodule", "start_ns", "duration_ns").rows())


def bundle_digest(bundle: Path) -> str:
    """Compute SHA-256 of the bundle's manifest, `host.pb` and call files, in this order, in hex.
    Raises InputError if one cannot be read."""
    digest = hashlib.sha256()
    for path in (bundle / MANIFEST_NAME, *host_file(bundle), *call_files(bundle)):
        try:
            with opened(path) as file:
                hashlib.file_digest(file, lambda: digest)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    return digest.hexdigest()


def _key(calls: Iterable[tuple[int, str, int, int | None]]) -> str:
    lines = sorted(
        (index, f"{index} {submodule} {start_ns} {-1 if duration is None else duration}\n")
        for index, submodule, start_ns, duration in calls
    )
    return hashlib.sha256("".join(line for _, line in lines).encode()).hexdigest()[:KEY_DIGITS]


# --- The metrics of one run that a data set keeps, as rows of `metrics`: made from its analysis.


READS = (
    "pipelines",
    "stages",
    "submodules",
    "steps",
    "calls",
    "roles",
    "shapes",
    "devices",
    "memory_devices",
)
"""The tables of an analysis from which the rows are made."""
_SHAPES = 60  # longest operator shapes per submodule
_LONGEST = 200  # characters of a name from a trace
_FEWEST = 6  # samples; fewer have no 95 % interval of the median


class Measure(Struct, frozen=True, array_like=True):
    """One number: a row of `metrics`, including what it is split by."""

    stage: str | None
    submodule: str | None
    step: int | None
    role: str | None
    shape: str | None
    device: str | None
    metric: str
    value: float
    low: float | None
    high: float | None
    unit: str


VALUE_COLUMNS = Measure.__struct_fields__
"""The columns of a row of `metrics` that a measure sets."""
DISTINGUISHING = VALUE_COLUMNS[:6]
"""The columns by which a metric is split."""


def measures_of(analysis: Analysis) -> list[Measure]:
    """Return all rows of `metrics` of a run, without unknown values."""
    calls = max(len(analysis.pipelines), 1)
    made = (
        *_of_run(analysis.pipelines),
        *_of_stages(analysis, calls),
        *_of_steps(analysis.steps),
        *_submodule_measures(analysis, calls),
        *_of_operators(analysis, calls),
        *_of_devices(analysis, calls),
    )
    found: dict[tuple[object, ...], Measure] = {}
    for one in made:
        found.setdefault(tuple(getattr(one, name) for name in VALUE_COLUMNS[:7]), one)
    return list(found.values())


def median_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Median and its 95 % interval by order statistics (Conover, Practical Nonparametric
    Statistics, 3rd ed., 3.2), None for fewer than six values."""
    ordered = sorted(values)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    if count < _FEWEST:
        return middle, None, None
    rank, below = 0, 0.5**count  # P(fewer than rank + 1 values lie below the median)
    while rank + 1 <= count // 2 and below + _binomial(count, rank + 1) <= 0.025:
        rank += 1
        below += _binomial(count, rank)
    return middle, ordered[rank], ordered[count - 1 - rank]


def _binomial(count: int, number: int) -> float:
    return math.exp(
        math.lgamma(count + 1)
        - math.lgamma(number + 1)
        - math.lgamma(count - number + 1)
        + count * math.log(0.5)
    )


def _row(
    metric: str,
    value: float | None,
    unit: str = "ns",
    interval: tuple[float | None, float | None] = (None, None),
    **of: str | int | None,
) -> Iterator[Measure]:
    """Yield the row of a number; `of` says what it is split by (names of `DISTINGUISHING`). Yields
    nothing if the value is not known."""
    if value is not None and math.isfinite(value):
        given = (of.get(name) for name in DISTINGUISHING)
        whose = (v[:_LONGEST] or None if isinstance(v, str) else v for v in given)
        row: tuple[Any, ...] = (*whose, metric, float(value), *interval, unit)
        yield Measure(*row)


def _median_row(metric: str, values: Sequence[float], **of: str | int | None) -> Iterator[Measure]:
    if values:
        value, low, high = median_interval(values)
        yield from _row(metric, value, "ns", (low, high), **of)


def _of_run(pipelines: pl.DataFrame) -> Iterator[Measure]:
    times = pipelines.sort("start_ns")["elapsed_ns"].to_list()
    if len(times) > 1:
        yield from _row("first_elapsed", times[0])
    yield from _median_row("elapsed", times[1:] or times)


def _of_stages(analysis: Analysis, calls: int) -> Iterator[Measure]:
    if analysis.pipelines.is_empty() and analysis.accounting.end_to_end_ns:
        yield from _row("elapsed", analysis.accounting.end_to_end_ns)
    for row in analysis.stages.iter_rows(named=True):
        for metric in ("elapsed", "host", "idle"):
            yield from _row(metric, _each(row[f"{metric}_ns"], calls), stage=row["stage"])


def _of_steps(steps: pl.DataFrame) -> Iterator[Measure]:
    if steps.is_empty():
        return
    rows = steps.sort("start_ns")
    firsts, steady = _first_and_steady(rows, rows["pipeline"].is_first_distinct())
    yield from _median_row("first_step", firsts, stage="denoise")
    yield from _median_row("step", steady or firsts, stage="denoise")
    for step, times in steps.group_by("step").agg("elapsed_ns").sort("step").rows():
        yield from _median_row("step", times, stage="denoise", step=step)


def _first_and_steady(rows: pl.DataFrame, first: pl.Series) -> tuple[list[int], list[int]]:
    parts = (rows["elapsed_ns"].filter(mask).drop_nulls() for mask in (first, ~first))
    firsts, steady = (part.to_list() for part in parts)
    return firsts, steady


def _submodule_measures(analysis: Analysis, calls: int) -> Iterator[Measure]:
    for row in analysis.submodules.iter_rows(named=True):
        of = {"stage": row["stage"], "submodule": row["submodule"]}
        yield from _row("elapsed", _each(row["elapsed_ns"], calls), **of)
        yield from _row("calls", row["calls"], "count", **of)
        if row["traced_calls"]:
            yield from _row("commands", row["commands"] / row["traced_calls"], "count", **of)
    calls_of = analysis.calls.sort("start_ns").group_by("stage", "submodule", maintain_order=True)
    for (stage, submodule), rows in calls_of:
        of = {"stage": stage, "submodule": submodule}
        first, steady = _first_and_steady(rows, rows["first"])
        yield from _row("first_call", first[0] if first else None, **of)
        yield from _median_row("call", steady or first, **of)


def _of_operators(analysis: Analysis, calls: int) -> Iterator[Measure]:
    for row in analysis.roles.select("submodule", "role", "total_ns").iter_rows(named=True):
        time = _each(row["total_ns"], calls)
        yield from _row("time", time, submodule=row["submodule"], role=row["role"])
    shapes = (
        analysis.shapes.group_by("submodule", "label", maintain_order=True)
        .agg(pl.col("total_ns").sum())
        .sort("total_ns", "submodule", "label", descending=(True, False, False))
    )
    for submodule, label, total in shapes.head(_SHAPES).rows():
        yield from _row("time", _each(total, calls), submodule=submodule, shape=label)


def _of_devices(analysis: Analysis, calls: int) -> Iterable[Measure]:
    for row in analysis.devices.iter_rows(named=True):
        if not row["commands"]:
            continue  # its work was not recorded
        yield from _row("busy", _each(row["busy_ns"], calls), device=row["device"])
        yield from _row("utilization", row["utilization"], "ratio", device=row["device"])
    for row in analysis.memory_devices.iter_rows(named=True):
        yield from _row("peak_memory", row["peak_bytes"], "bytes", device=row["device"])
        yield from _row("weight_memory", row["weight_bytes"], "bytes", device=row["device"])


def _each(total: float | None, calls: int) -> float | None:
    return None if total is None else total / calls


# --- The fields of a run's manifest that decide whether two runs are comparable, as columns of
# `runs`.
#
# A field that was not recorded is None. `NONE` and 0 mean that a run is known to have none.


_OPTIONAL = ("adapters", "cache", "compile", "offload")
_BESIDE_SPEED = frozenset(("python", "profile-sd3", "numpy"))
_ARGUMENTS = {
    "num_inference_steps": "steps",
    "num_images_per_prompt": "batch_size",
    "num_videos_per_prompt": "batch_size",
    "num_frames": "frames",
    "guidance_scale": "guidance",
    "width": "width",
    "height": "height",
}


def recorded_identity(analysis: Analysis) -> dict[str, str | int | float | None]:
    """The identity columns of a run by name."""
    run = analysis.run
    return {
        "pipeline": run.pipeline or None,
        "model": run.model or None,
        **_submodule_identity(run),
        **_recipe(run),
        "hardware": _hardware(analysis),
        "software": _software(run.versions),
    }


def _submodule_identity(run: RunSummary) -> dict[str, str | None]:
    pairs = setting_pairs(run.submodule_settings, without=NONE)
    names = sorted(run.submodule_settings)
    found: dict[str, str | None] = {}
    for column in _OPTIONAL:
        values = [f"{name} {pairs[f'{name} {column}']}" for name in names]
        used = [text for text in values if not text.endswith(f" {NONE}")]
        found[column] = "; ".join(used) or (NONE if values else None)
    found["weights"] = _by_setting(pairs, names, "dtype") or _weight_bytes(run)
    attention = _by_setting(pairs, names, "attention"), pairs.get("sdpa kernels")
    providers = _by_setting(pairs, names, "providers")  # ONNX Runtime's providers decide it
    found["attention"] = "; ".join(text for text in (*attention, providers) if text) or None
    return found


def _by_setting(pairs: Mapping[str, str], names: Iterable[str], setting: str) -> str | None:
    values = ((name, pairs.get(f"{name} {setting}")) for name in names)
    return "; ".join(f"{name} {value}" for name, value in values if value) or None


def _weight_bytes(run: RunSummary) -> str | None:
    """Return the bytes of weights as text, for runs whose weight types were not recorded: half as
    many bytes mean another type."""
    sizes = sorted((n, s.weight_bytes) for n, s in run.submodules.items() if s.weight_bytes)
    return "; ".join(f"{name} {size} bytes" for name, size in sizes) or None


def _recipe(run: RunSummary) -> dict[str, str | int | float | None]:
    """Return steps, resolution and the like: as pipeline calls made them, else as given. A value
    that differs between calls is unknown."""
    of = run.generations
    given = _given(run)
    sizes = {(one.width, one.height) for one in of} or {(given.get("width"), given.get("height"))}
    width, height = next(iter(sizes)) if len(sizes) == 1 else (None, None)
    found: dict[str, str | int | float | None] = {
        "steps": _common({one.steps for one in of}, given.get("steps")),
        "resolution": f"{width}×{height}" if width and height else None,
        "batch_size": _common({one.batch for one in of}, given.get("batch_size")),
        "frames": _common({one.frames for one in of}, given.get("frames")),
        "guidance": _guidance(of, given),
    }
    if of and found["frames"] is None and {one.frames for one in of} == {None} and width:
        found["frames"] = 0
    return found


def _common(made: set[int | None], given: int | None) -> int | None:
    if not made:
        return given
    return made.pop() if len(made) == 1 else None


def _guidance(of: Iterable[Generation], given: Mapping[str, float]) -> float | None:
    """Return the guidance scale; 0 if pipeline calls were recorded without one."""
    scales = {one.guidance_scale for one in of}
    true_scales = {one.true_cfg_scale for one in of} - {None}
    if not scales:
        return given.get("guidance")
    if len(scales) > 1 or len(true_scales) > 1:
        return None
    scale = scales.pop()
    return float(scale if scale is not None else next(iter(true_scales), None) or 0.0)


def _given(run: RunSummary) -> dict[str, int]:
    """Numbers that the pipeline was given, by column."""
    found: dict[str, int] = {}
    for argument, column in _ARGUMENTS.items():
        value = run.settings.get(argument)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[column] = int(value) if column != "guidance" else value  # type: ignore[assignment]
    return found


def _hardware(analysis: Analysis) -> str | None:
    """Return the hardware as `2 × AMD Instinct MI300X`; None if a device's is not recorded, except
    for the host beside accelerators."""
    devices = analysis.devices.select("device", "hardware", "calls", "commands").rows()
    used = [row for row in devices if row[2]] or [row for row in devices if row[3]]
    named = [(row[0], _named(analysis.run, *row[:2])) for row in used]
    accelerated = any(is_accelerator(device) for device, _ in named)
    names = Counter(
        name for device, name in named if name or is_accelerator(device) or not accelerated
    )
    if not names or None in names:
        return None
    return " + ".join(f"{number} × {name}" for name, number in sorted(names.items(), key=str))


def _named(run: RunSummary, device: str, hardware: str | None) -> str | None:
    known = run.devices.get(device)
    name = hardware or (known.hardware if known is not None else "")
    cores = len(known.cores) if known is not None else 0
    if name and cores:
        return f"{name} ({cores} core{'s' if cores > 1 else ''})"
    return name or None


def _software(versions: Mapping[str, str]) -> str | None:
    known = sorted(versions.items())
    return ", ".join(f"{name} {of}" for name, of in known if name not in _BESIDE_SPEED) or None


# --- `summary.json`: what a data set keeps of a run, in its bundle.
#
# Made from an analysis that exists already, so that adding the run to a data set needs none. It is
# valid while its digest is that of the bundle's files. It is untrusted: checked against its types,
# bounded, and remade if anything is wrong.


SUMMARY_NAME = "summary.json"
RESIDUAL_LIMIT = 0.01
TRACING_LIMIT = 0.25
"""The profiling overhead from which quality is bad, as a share of a pipeline call and of the
untraced time."""

LARGEST = 100_000  # bytes of a written summary, small enough for repositories
_FRAME = 200  # of these, for what surrounds run and metrics
_LIMIT = 16 << 20  # bytes of a summary to read
_TIME_OF_DAY = 946_684_800_000_000_000  # 2000-01-01
_ADDED = ("batch", "schema_version", "added_ns", "labels", "place")  # set when the run is added

_Text = Annotated[str, Meta(max_length=20_000)]
_TYPES: dict[str, type] = {"Float64": float, "Int64": int, "String": _Text}
_FIELDS = [(c.name, _TYPES[str(c.dtype)], c.nullable) for c in RUNS if c.name not in _ADDED]
_Row = msgspec.defstruct(
    "_Row",
    [(name, of | None if nullable else of) for name, of, nullable in _FIELDS],
    forbid_unknown_fields=True,
)


class Summary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run for a data set: `run` has its columns of `runs` except those set by adding it,
    `metrics` its rows. `content` is the digest of the bundle it was made from, "" for other
    sources."""

    schema_version: int
    content: str
    run: dict[str, Any]
    metrics: tuple[Measure, ...] = ()


_BEGIN = re.compile(rb'\s*\{\s*"(schema_version|content|metrics|run)"\s*:')
_HEAD = 200  # bytes that contain the start


def summary_of(
    analysis: Analysis, source: Source, *, content: str = "", commit: str | None = None
) -> Summary:
    """Make the summary of a run from its analysis, which is of the whole run. `source` is the run's
    place, `content` the digest of its bundle, `commit` the program's commit."""
    run, info = analysis.run, analysis.inputs.run.info
    time_ns, time_from = _times(analysis.inputs.run, source)
    row = {
        "run": key_of_run(analysis.inputs.run),
        "run_id": run.run_id,
        "time_ns": time_ns,
        "time_from": time_from,
        "commit": commit,
        "producer": run.producer or None,
        **recorded_identity(analysis),
        "python": run.versions.get("python"),
        "system": run.hardware.system or None,
        "cpu": run.hardware.cpu or None,
        "cores": run.hardware.cores,
        "memory_bytes": run.hardware.memory_bytes,
        "versions": json.dumps(dict(run.versions), sort_keys=True),
        "settings": json.dumps(info.settings, sort_keys=True),
        "pipelines": len(analysis.pipelines),
        "calls": run.calls,
        "commands": run.commands,
        **_quality(analysis),
    }
    bounded = _cut(row, 20_000)
    if len(msgspec.json.encode(bounded)) > LARGEST // 2:
        bounded = _cut(row, 500)
    room = LARGEST - len(msgspec.json.encode(bounded)) - _FRAME
    kept = tuple(fitting(measures_of(analysis), room))
    return Summary(schema_version=SCHEMA_VERSION, content=content, run=bounded, metrics=kept)


def _cut(row: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Cut the texts of a row to `most` characters."""
    return {name: value[:most] if isinstance(value, str) else value for name, value in row.items()}


def fitting(rows: Sequence[Measure], room: int) -> list[Measure]:
    """Return the rows that fit into `room` bytes as JSON: single steps are dropped first, then
    shapes, then roles, the last of each first."""
    sizes = [len(msgspec.json.encode(row)) + 1 for row in rows]
    left = sum(sizes)
    ranks = [(row.step is not None, row.shape is not None, row.role is not None) for row in rows]
    gone: set[int] = set()
    for at in sorted(range(len(rows)), key=lambda at: (ranks[at], at), reverse=True):
        if left <= room:
            break
        gone.add(at)
        left -= sizes[at]
    return [row for at, row in enumerate(rows) if at not in gone]


def summarized(source: Source) -> Summary:
    """Summarize the run of a source that is not foreign, computing only the tables it needs. Raises
    InputError if the run cannot be read or has no call."""
    content = bundle_digest(source.path) if source.kind is Kind.BUNDLE else ""
    run = load_source(source)
    if run.calls.is_empty():
        raise InputError(f"{source.place} holds no call of a submodule: record the run again")
    analysis = assembled(Inputs(run, Selection(), (), {}), READS)
    return summary_of(analysis, source, content=content)


def write_summary(bundle: Path, summary: Summary) -> bool:
    """Write `summary.json` into a bundle; return False if that is not possible, which is no error:
    it is made again when needed."""
    try:
        write_atomically(bundle / SUMMARY_NAME, msgspec.json.encode(summary) + b"\n")
    except OutputError:
        return False
    return True


def read_summary(bundle: Path) -> Summary | None:
    """Read the summary in `bundle`; None if there is none or it is outdated. Raises InputError if a
    file of the bundle cannot be read."""
    found = _read(bundle / SUMMARY_NAME)
    if found is None or found.schema_version != SCHEMA_VERSION:
        return None
    return found if found.content == bundle_digest(bundle) else None


def is_summary(path: Path) -> bool:
    """Whether a user's path is a summary: it starts like a written one, or is one with keys in
    another order."""
    try:
        with opened(path) as file:
            begin = _BEGIN.match(file.read(_HEAD))
    except OSError:
        return False
    return begin is not None and (begin[1] == b"schema_version" or _read(path) is not None)


def read_summary_file(path: Path) -> Summary:
    """Read a summary from a file. Raises InputError if it is none, or of another version."""
    found = _read(path)
    if found is None or found.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"{path} is damaged, or no summary of version {SCHEMA_VERSION}: take summary.json of a "
            "bundle that this profile-sd3 analyzed"
        )
    return found


def summarize_analysis(analysis: Analysis, source: Source) -> bool:
    """Write the summary of an analysis of a whole run into its bundle, keeping the commit of an
    older one; return whether the bundle has a summary now."""
    if source.kind is not Kind.BUNDLE or source.origin is not None or analysis.run.selection:
        return False
    try:
        before, content = _read(source.path / SUMMARY_NAME), bundle_digest(source.path)
        commit = None if before is None else before.run["commit"]
        summary = summary_of(analysis, source, content=content, commit=commit)
        return summary == before or write_summary(source.path, summary)
    except InputError:  # a file was removed meanwhile: report without it
        return False


def _read(path: Path) -> Summary | None:
    try:
        found = decoded(read_file(path, _LIMIT), Summary)
        converted(found.run, _Row)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found


def _times(run: Run, source: Source) -> tuple[int, str]:
    """Return when the run started, and whether trace, manifest or file time says so."""
    firsts = [frame["start_ns"].min() for frame in (run.spans, run.calls, run.commands)]
    first = min((one for one in firsts if isinstance(one, int)), default=0)
    if first >= _TIME_OF_DAY:
        return first, "trace"
    manifest = source.path / MANIFEST_NAME
    if source.kind is Kind.BUNDLE and manifest.is_file() and source.origin is None:
        try:
            created = datetime.fromisoformat(read_manifest(manifest).created)
            return int(created.timestamp()) * 1_000_000_000, "manifest"
        except ValueError:
            pass
    try:
        return source.place.stat().st_mtime_ns, "file"
    except OSError:
        return time.time_ns(), "file"


def _quality(analysis: Analysis) -> Mapping[str, Any]:
    missing = [drop for drop in analysis.drops if drop.kind.has_missing_time]
    shares = analysis.pipelines["residual_share"].abs().drop_nulls()
    residual = max(shares.to_list(), default=None)
    cost = analysis.run.overhead.share
    bad = {
        "drops": bool(missing),
        "residual": residual is not None and residual > RESIDUAL_LIMIT,
        "tracing_cost": cost is not None and cost > TRACING_LIMIT,
        "damaged": worst_damage(notes_of(analysis.inputs.run.info)) is not None,
        "contradiction": any(check_times(analysis.inputs)),
    }
    return {
        "drops": len(missing),
        "drop_kinds": ",".join(sorted({drop.kind.value for drop in analysis.drops})),
        "residual": residual,
        "tracing_cost": cost,
        "quality": ",".join(name for name, is_bad in bad.items() if is_bad),
    }
