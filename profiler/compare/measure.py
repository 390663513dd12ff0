"""Measure one run for a comparison: spans, calls, and work by role and module.

The result is small for any size of run, so many runs can be read one after the other. A sample
is a denoising step, a pipeline call for work outside steps, or a call outside pipeline calls.
Calls of a submodule in one sample are added up, so one batched call compares with two single
ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import polars as pl

from profiler.analysis.commands import CommandArrays, Kinds, kinds_of, unsteady_calls
from profiler.analysis.end_to_end import stage_times
from profiler.analysis.flop_shapes import parse_shapes, whole_text
from profiler.analysis.flops import work_of
from profiler.analysis.role_kernel_names import Sort, module_path, operation_of
from profiler.analysis.role_rules import role_of_name
from profiler.analysis.roles import has_denoiser, roles_of
from profiler.analysis.shapes import dtype_of, untyped_label
from profiler.analysis.steps import step_table
from profiler.analysis.submodules import MEASURING_CALLS, overhead_ratios
from profiler.analysis.timeline import Axis, PipelineCalls
from profiler.compare.tree import Timeline, timeline_of
from profiler.run.intervals import Codes, Times, batches, physical_codes, positions
from profiler.run.run import Run
from profiler.trace.events import NO_PIPELINE, NO_STEP
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import Submodule

# --- Sums of the layers and operations of one run: used to compare runs whose producers name no
# modules, and to explain why times differ (shapes, kernels, rates).


LAYERS: Mapping[str, pl.DataType] = {
    "submodule": pl.String(),
    "layer": pl.String(),
    "at": pl.Int64(),  # its first command: layers are in order of execution
    "total_ns": pl.Int64(),
}
OPERATIONS: Mapping[str, pl.DataType] = {
    "submodule": pl.String(),
    "label": pl.String(),  # operation and dims, without the type; "" if shapes are unknown
    "dtype": pl.String(),
    "kernel": pl.String(),  # "" if the trace has none
    "executions": pl.Int64(),
    "total_ns": pl.Int64(),
    "flops": pl.Int64(),
    "rated_ns": pl.Int64(),  # of commands whose FLOPs are known
}
_LABELS = {"label": pl.String, "dtype": pl.String, "flops": pl.Int64, "first": pl.Boolean}
_OF_KIND = ("submodule", "layer", "place", "op_type", "shapes", "host")
_WAITS = ("host", "sync")
_MOVING_CATEGORIES = ("dma", "copy", "collective")
_PARAMETERS = re.compile(r"(?<=[>\w])\((?:[^()]|\([^()]*\))*\)(?= \[|$)")
_END = re.compile(r"(?: \[clone.*|\.kd)$")


@dataclass(frozen=True, slots=True, eq=False)
class Details:
    """Sums over the steady samples of a run (without a first call); over all samples of a submodule
    that has no steady ones.

    `samples` is the number of steps, pipeline calls or single calls of each submodule.
    """

    layers: pl.DataFrame
    operations: pl.DataFrame
    samples: Mapping[str, int]


def _cells(kinds: Kinds, commands: pl.DataFrame, rows: Codes) -> pl.DataFrame:
    """Sum up the commands in calls by `row` of their call, and `pair` of their kind and their
    kernel's code, in its low 32 bits: how many, their time, and the first of them. A cell may be in
    several rows, one per batch: there may be as many cells as commands, so they have only numbers,
    and names are joined to sums."""
    kernel = commands["kernel"]
    highest = kernel.to_physical().max()
    null = highest + 1 if isinstance(highest, int) else 0
    duration = commands["duration_ns"].to_numpy()
    number, parts = pl.len().cast(pl.Int64).alias("commands"), []
    for batch in [*batches(len(commands))] or [slice(0)]:
        pair = kinds.of_command[batch].astype(np.int64) << 32
        part = pl.DataFrame(
            {
                "row": rows[batch],
                "pair": pair | physical_codes(kernel, batch, null),
                "at": np.arange(batch.start or 0, (batch.start or 0) + len(pair)),
                "total_ns": np.maximum(duration[batch], 0),
            }
        ).filter(pl.col("row") >= 0)
        sums = (number, pl.col("total_ns").sum(), pl.col("at").min())
        parts.append(part.group_by("row", "pair").agg(sums))
    return pl.concat(parts)


def _names(kinds: Kinds, kernel: pl.Series, cells: pl.DataFrame) -> pl.DataFrame:
    """What is known of each pair of kind and kernel in `cells`: one operator may run several
    kernels."""
    present = kernel.unique().drop_nulls()
    names = pl.DataFrame(
        {"code": present.to_physical().cast(pl.Int64), "kernel": present.cast(pl.String)}
    )
    table = kinds.table.select("kind", *_OF_KIND, category=pl.col("category").cast(pl.String))
    table = table.with_columns(pl.col("kind").cast(pl.Int64))
    pair = pl.col("pair")
    found = cells.select(pair.unique()).with_columns(kind=pair // (1 << 32), code=pair % (1 << 32))
    named = found.join(names, on="code", how="left").join(table, on="kind", how="left")
    return named.drop_nulls("submodule")


def details_of(calls: pl.DataFrame, cells: pl.DataFrame, names: pl.DataFrame) -> Details:
    """Sum up device work by layer and operation; `cells` are those of `calls` (`CALL`), `names`
    those of their kernels."""
    traced = pl.col("traced")
    steady = traced & ~pl.col("first").any().over(*_OF)  # a sample counts only in full
    alone = ~steady.any().over("submodule")
    counted = calls.select(steady | (traced & alone)).to_series()
    samples = (
        calls.filter(counted).select(_OF).unique().group_by("submodule").len().sort("submodule")
    )
    worked = ~pl.col("host") & ~pl.col("category").is_in(_WAITS)
    found = cells.filter(counted.gather(cells["row"])).group_by("pair")
    summed = found.agg(pl.col("commands", "total_ns").sum(), pl.col("at").min())
    named = summed.join(names.filter(worked), on="pair")
    ordered = named.sort("at", "pair")
    return Details(_layers(ordered), _operations(ordered), dict(samples.iter_rows()))


def _layers(cells: pl.DataFrame) -> pl.DataFrame:
    grouped = cells.group_by("submodule", "layer", maintain_order=True)
    return _of_schema(grouped.agg(pl.col("at").min(), pl.col("total_ns").sum()), LAYERS)


def _operations(cells: pl.DataFrame) -> pl.DataFrame:
    pairs = cells.select("op_type", "shapes").iter_rows()
    labels = pl.DataFrame(
        [_labels(kind or "", dims) for kind, dims in pairs], _LABELS, orient="row"
    )
    kernels = [_short_kernel(name) if name else "" for name in cells["kernel"]]
    found = pl.concat([cells, labels], how="horizontal").with_columns(
        kernel=pl.Series(kernels, dtype=pl.String)
    )
    found = found.filter(~pl.col("category").is_in(_MOVING_CATEGORIES))
    rated = pl.col("flops") > 0
    summed = found.group_by("submodule", "label", "dtype", "kernel", maintain_order=True).agg(
        executions=pl.col("commands").filter("first").sum(),
        total_ns=pl.col("total_ns").sum(),
        flops=(pl.col("flops") * pl.col("commands")).filter("first").sum(),
        rated_ns=pl.col("total_ns").filter(rated).sum(),
    )
    return _of_schema(summed, OPERATIONS)


@lru_cache(maxsize=1 << 16)
def _labels(op_type: str, shapes: str | None) -> tuple[str, str, int, bool]:
    """Return the label, type and FLOPs of an execution, and whether this command represents its
    operator: only the first of those that share one does."""
    parsed = parse_shapes(shapes)
    if parsed is None:
        return "", "", 0, True
    first = parsed.part <= 1
    whole = parse_shapes(whole_text(shapes)) if shapes else parsed
    work = work_of(op_type, whole)
    label = untyped_label(op_type, whole, work)
    named, rest = op_type.removeprefix("aten::"), label.removeprefix("aten::")
    if rest.startswith(named):  # the same name for every producer
        operation = operation_of(op_type)
        word = "matmul" if operation.sort is Sort.MATMUL else operation.word
        label = word + rest[len(named) :]
    flops = work.flops or 0 if work else 0
    return label, dtype_of(whole, work) or "", flops, first


@lru_cache(maxsize=1 << 16)
def _short_kernel(name: str) -> str:
    """A kernel's name without return type, parameters and clone suffix, as all recorders have
    it."""
    bare = _END.sub("", name.removeprefix("void "))
    return _PARAMETERS.sub("", bare)


# --- Runs that are inferences of one model, one after the other: each is a sample of its own.
#
#     trtexec: 747 inferences, and the averages of their layers in a call of their own
#     ONNX Runtime: 20 times `model_run`
#
# Their number was the recorder's choice, so they are compared one by one, not by total time. The
# layers of TensorRT are the work of the inferences beside them, which have none of their own; the
# time of the layers' call is not an inference's time.


AVERAGED = "tensorrt"
"""The producer that records average layer times apart from its inferences."""
_PRODUCERS = (AVERAGED, "onnxruntime")
_SUFFIX = ".layers"


def are_inferences(producer: str, calls: pl.DataFrame) -> bool:
    """Whether each call of a run is a whole inference: all are of one model, and the producer
    records nothing around it."""
    if producer not in _PRODUCERS or (calls["step"] != NO_STEP).any():
        return False
    names = calls["submodule"].cast(pl.String)
    return names.n_unique() - len(layers_apart(names)) == 1


def names_of_parts(base: pl.DataFrame, new: pl.DataFrame) -> dict[str, str]:
    """Map the names in `new` to those that `base` has for a part of the same model in the same
    stage: `vae_decoder` to the `vae` that decodes. `text_encoder_2` is another model than
    `text_encoder`."""
    left, right = ({*calls.select("stage", "submodule").iter_rows()} for calls in (base, new))
    shared = {name for _, name in left} & {name for _, name in right}
    pairs = {
        (mine, other)
        for stage, mine in left
        for there, other in right
        if stage == there and not {mine, other} & shared
        if _is_part(mine, other) or _is_part(other, mine)
    }
    often = Counter(name for pair in pairs for name in pair)
    return {other: mine for mine, other in sorted(pairs) if often[mine] == often[other] == 1}


def _is_part(name: str, model: str) -> bool:
    part = name.removeprefix(f"{model}_")
    return part != name and not part.partition("_")[0].isdecimal()


def layers_apart(submodules: pl.Series) -> tuple[str, ...]:
    """The submodules that are the layers of another submodule."""
    names = {*submodules}
    return tuple(sorted(one for one in names if _engine_of(one) in names - {one}))


def with_layers(
    calls: pl.DataFrame, work: pl.DataFrame, details: Details
) -> tuple[pl.DataFrame, pl.DataFrame, Details]:
    """Return the frames of a `Measurement` with TensorRT's layers as the work of their engine."""
    steady = calls.with_columns(first=pl.col("first") & ~_averages(calls))
    apart = layers_apart(calls["submodule"])
    if not apart:
        return steady, work, details
    engines = [_engine_of(one) for one in apart]
    engine = pl.col("submodule").is_in(engines)
    shown = pl.col("submodule").str.strip_suffix(_SUFFIX)
    joined = steady.with_columns(
        submodule=shown,
        value_ns=pl.when(~pl.col("submodule").is_in(apart)).then("value_ns"),
        traced=pl.col("traced") & ~engine,
        total_ns=pl.when(engine).then(0.0).otherwise("total_ns"),
    )
    own = {_engine_of(name): details.samples.get(name, 0) for name in apart}
    found = replace(
        details,
        layers=details.layers.filter(~engine).with_columns(shown),
        operations=details.operations.filter(~engine).with_columns(shown),
        samples={**details.samples, **own},
    )
    return joined, work.filter(~engine).with_columns(shown), found


def _averages(calls: pl.DataFrame) -> pl.Series:
    """Whether each call is the averages of layers, which is neither first nor steady. If a run has
    only such calls, each submodule has one."""
    names = calls["submodule"]
    apart = [*names] if names.n_unique() == len(names) else layers_apart(names)
    return names.is_in(apart)


def _engine_of(submodule: str) -> str:
    """The submodule (engine) that a submodule of layers belongs to."""
    return submodule.removesuffix(_SUFFIX)


# --- Kinds of work by kernel or op type alone: used to compare runs whose producers know different
# things about the model.


_OTHER = "other"
_COPYING_CATEGORIES = ("dma", "copy")
_BY_SORT = {  # other sorts keep their names
    **dict.fromkeys((Sort.ACTIVATION, Sort.ARITHMETIC), "elementwise"),
    **dict.fromkeys((Sort.LAYOUT, Sort.REORDER, Sort.IDENTITY), "data_movement"),
    Sort.UNKNOWN: "",
}
_OF_PLACES = {  # roles by place in the model, of kernels fused by torch.compile
    **dict.fromkeys(("mlp", "modulation", "residual"), "elementwise"),
    **dict.fromkeys(("qkv_projection", "adapter", "router"), "matmul"),
}


@lru_cache(maxsize=1 << 16)
def sort_by_kernel(kernel: str, category: str) -> str:
    """The kind of work of a kernel: `matmul`, `elementwise`, …; "" if neither kernel nor category
    says."""
    if category == "collective":
        return "collective"
    if category in _COPYING_CATEGORIES:
        return "data_movement"
    role = role_of_name(kernel) if kernel else ""
    return _OF_PLACES.get(role, role)


@lru_cache(maxsize=1 << 16)
def sort_by_operator(op_type: str, category: str) -> str:
    """The kind of work of an op type, which is the kernel's name if unknown: `matmul`, …"""
    sort = operation_of(op_type).sort if op_type else Sort.UNKNOWN
    return _BY_SORT.get(sort, sort.value) or sort_by_kernel(op_type, category) or _OTHER


# --- Measure one run: its spans and calls, and the work of each call by role and module.


_PLACE = {"pipeline": pl.Int64(), "step": pl.Int32()}
SPAN: Mapping[str, pl.DataType] = {
    "level": pl.String(),  # end_to_end, stage or step
    "part": pl.String(),  # "" for all of it; of steps also host, idle and between
    "stage": pl.String(),
    **_PLACE,
    "value_ns": pl.Int64(),
}
_OF_STEPS = (
    ("", "elapsed_ns"),
    ("host", "host_ns"),
    ("idle", "idle_ns"),
    ("between", "between_ns"),
)
CALL: Mapping[str, pl.DataType] = {
    "call": pl.Int32(),
    "stage": pl.String(),
    "submodule": pl.String(),
    "branch": pl.String(),
    **_PLACE,
    "value_ns": pl.Int64(),
    "first": pl.Boolean(),
    "traced": pl.Boolean(),
    "total_ns": pl.Float64(),  # sum over its device commands
}
WORK: Mapping[str, pl.DataType] = {
    "submodule": pl.String(),
    "role": pl.String(),
    "module": pl.String(),
    "by_kernel": pl.String(),  # kind of work (`sorts`), "" if no kernel says
    "by_operator": pl.String(),
    **_PLACE,
    "total_ns": pl.Float64(),
}
_KEYS = ("role", "module", "by_kernel", "by_operator")


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """One run, reduced to what a comparison needs.

    `pipeline` and `step` in the frames say which sample a row is of: `step` a denoising step, -1
    elsewhere; `pipeline` a pipeline call, below 0 a call that lies in none and is a sample by
    itself. `devices` are those that its calls are placed on; `overhead_ratio` is untraced over
    traced time by submodule, 1 if noise hides it, `modules` the class by module path of each
    submodule, if they are known. `details` sums its layers and operations, `timeline` is its drawn
    timeline.
    """

    run_id: str
    info: RunInfo
    devices: tuple[str, ...]
    spans: pl.DataFrame
    calls: pl.DataFrame
    work: pl.DataFrame
    overhead_ratio: Mapping[str, float]
    modules: Mapping[str, Mapping[str, str]]
    details: Details
    timeline: Timeline | None = None


def measure(run: Run, *, timeline: bool = False) -> Measurement:
    """Measure `run` for a comparison; with `timeline` also the timeline that is drawn."""
    if not run.calls["call"].is_sorted():
        run = replace(run, calls=run.calls.sort("call"))
    calls = run.calls
    pipelines = PipelineCalls.of(run)
    modules = {name: known.modules for name, known in run.info.submodules.items()}
    apart = are_inferences(run.info.producer, calls)
    places = -1 - np.arange(len(calls)) if apart else _places(calls, pipelines)
    rows = positions(run.commands["call"].to_numpy(), calls["call"].to_numpy())
    kinds = kinds_of(calls, run.commands, rows)
    roles = roles_of(
        run.info.submodules, kinds, rows, run.commands["role"], denoises=has_denoiser(run)
    )["role"]
    cells = _cells(kinds, run.commands, rows)
    names = _names(kinds, run.commands["kernel"], cells)
    work, groups = _work(cells, names, roles, modules)
    busy = np.zeros(len(calls))
    np.add.at(busy, work["row"].to_numpy(), work["total_ns"].to_numpy())
    placed = calls.select(
        "call",
        "step",
        pl.col("stage", "submodule", "branch").cast(pl.String),
        value_ns=run.tiles.calls["elapsed_ns"],
        traced="ops_traced",
        pipeline=pl.Series(places),
        total_ns=pl.Series(busy),
        first=pl.col("call").is_in(unsteady_calls(run).to_list()),
    )
    found = _of_schema(placed, CALL)
    summed = _of_schema(
        work.with_columns(found[name].gather(work["row"]) for name in ("submodule", *_PLACE))
        .group_by("submodule", "group", *_PLACE)
        .agg(pl.col("total_ns").sum())
        .join(groups, on="group"),
        WORK,
    )
    details = details_of(found, cells, names)
    timed, spans = found, _spans(run, calls, pipelines)
    if run.info.producer == AVERAGED:
        timed, summed, details = with_layers(found, summed, details)
    if apart:  # each call is a whole, of one stage
        whole = timed.drop_nulls("value_ns")
        spans = pl.concat(_of_levels(whole, whole))
    return Measurement(
        run_id=run.run_id,
        info=run.info,
        devices=tuple(calls["device"].cast(pl.String).unique().sort()),
        spans=spans,
        calls=timed,
        work=summed,
        overhead_ratio=_overhead_ratio(run.info.submodules, found),
        modules=modules,
        details=details,
        timeline=timeline_of(run, found, kinds, roles, rows) if timeline else None,
    )


def _of_schema(frame: pl.DataFrame, wanted: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return frame.select(pl.col(name).cast(dtype) for name, dtype in wanted.items())


def _places(calls: pl.DataFrame, pipelines: PipelineCalls) -> Times:
    """The pipeline call of each call by number; calls in none get a number of their own below 0."""
    numbers = pipelines.number_of(calls).astype(np.int64)
    if not pipelines.known and pipelines.spans.is_empty():
        in_steps = bool((calls["step"] > NO_STEP).any())
        numbers[:] = 0 if in_steps else NO_PIPELINE
    return np.where(numbers < 0, -1 - np.arange(len(numbers)), numbers)


def _spans(run: Run, calls: pl.DataFrame, pipelines: PipelineCalls) -> pl.DataFrame:
    """The spans of pipeline calls, their stages and steps (`SPAN`)."""
    none = CommandArrays.of(run.commands.clear(), calls)
    axis = Axis.of(run, pipelines)
    steps = step_table(run, none, pipelines, axis)
    at = steps.with_columns(level=pl.lit("step"), stage=pl.lit("denoise"))
    of_steps = [
        _of_schema(at.with_columns(part=pl.lit(part), value_ns=pl.col(column)), SPAN)
        for part, column in _OF_STEPS
    ]
    stages = stage_times(run, pipelines, axis).with_columns(
        step=pl.lit(NO_STEP), value_ns="elapsed_ns"
    )
    grouped = stages.group_by("pipeline", "step", maintain_order=True)
    whole = grouped.agg(pl.col("value_ns").sum())
    found = pl.concat([*_of_levels(whole, stages), *of_steps]).drop_nulls("value_ns")
    keys = [name for name in SPAN if name != "value_ns"]
    return found.group_by(keys, maintain_order=True).agg(pl.col("value_ns").sum())


def _of_levels(whole: pl.DataFrame, stages: pl.DataFrame) -> list[pl.DataFrame]:
    """The spans of pipeline calls, and of their stages."""
    none = pl.lit(None, pl.String)
    levels = (
        whole.with_columns(level=pl.lit("end_to_end"), part=pl.lit(""), stage=none),
        stages.with_columns(level=pl.lit("stage"), part=pl.lit("")),
    )
    return [_of_schema(frame, SPAN) for frame in levels]


def _work(
    cells: pl.DataFrame,
    names: pl.DataFrame,
    roles: pl.Series,
    modules: Mapping[str, Mapping[str, str]],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the time of each call by `group`, and the groups: role, module and kind of work
    (`_KEYS`). Cells without a role are left out."""
    known = names.with_columns(role=roles.cast(pl.String).gather(names["kind"])).drop_nulls("role")
    columns = ("role", "submodule", "place", "kernel", "op_type", "layer", "category")
    keys = [
        (
            role,
            module_path(place, modules.get(submodule, {}).get("", "")),
            sort_by_kernel(kernel or "", category),
            sort_by_operator(op_type or layer, category),
        )
        for role, submodule, place, kernel, op_type, layer, category in known.select(
            columns
        ).iter_rows()
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    of = pl.Series("group", [numbers[key] for key in keys], pl.Int32)
    work = cells.join(known.select("pair", of), on="pair")
    groups = pl.DataFrame([*numbers], dict.fromkeys(_KEYS, pl.String), orient="row")
    summed = work.group_by("row", "group").agg(pl.col("total_ns").sum())
    return summed, groups.with_columns(group=pl.Series([*numbers.values()], dtype=pl.Int32))


def _overhead_ratio(submodules: Mapping[str, Submodule], calls: pl.DataFrame) -> dict[str, float]:
    """Untraced over traced time by submodule: as capture measured it, else from the steady calls of
    both kinds, if there are enough."""
    steady = calls.filter(~pl.col("first"))
    median = pl.col("value_ns")
    of_each = pl.min_horizontal(pl.col("traced").sum(), (~pl.col("traced")).sum())
    found = {
        name: untraced / traced
        for name, untraced, traced in steady.group_by("submodule")
        .agg(
            untraced=median.filter(~pl.col("traced")).median(),
            traced=median.filter("traced").median(),
            calls=of_each,
        )
        .filter(pl.col("calls") >= MEASURING_CALLS)
        .drop("calls")
        .iter_rows()
        if untraced and traced
    }
    return {**found, **overhead_ratios(submodules)}


# --- Samples: one value per measurement.


KEYS = ("metric", "level", "stage", "submodule", "branch", "of_step", "role", "module")
"""The keys of a metric; `of_step` is the step of a single step's metric."""
SAMPLE: Mapping[str, pl.DataType] = {
    **dict.fromkeys(KEYS, pl.String()),
    "of_step": pl.Int32(),
    "pipeline": pl.Int64(),
    "step": pl.Int32(),
    "first": pl.Boolean(),
    "value_ns": pl.Float64(),
}

PARTS = tuple(f"denoise.step.{part}" for part in ("host", "idle", "between"))  # of steps

_OF = ("submodule", "pipeline", "step")
_STAGE = pl.col("stage").first()


def samples_of(
    measured: Measurement, corrected: Collection[str], modules: pl.DataFrame
) -> pl.DataFrame:
    """Return the samples of one run (`SAMPLE`).

    Times of traced calls of the `corrected` submodules are scaled to untraced ones. `modules` says
    under which name a module of this run is compared: columns `submodule`, `role`, `module`, `as`
    and `level`, any number of rows per module.
    """
    factors = {name: measured.overhead_ratio.get(name, 1.0) for name in corrected}
    factor = pl.col("submodule").replace_strict(factors, default=1.0, return_dtype=pl.Float64)
    traced = pl.when("traced").then(factor).otherwise(1.0)
    calls = measured.calls.with_columns(excess_ns=pl.col("value_ns") * (1 - traced))
    frames = [
        *_span_samples(measured.spans, calls),
        *_call_samples(calls),
        *_work_samples(measured, calls, factor, modules),
    ]
    none = pl.DataFrame(schema=SAMPLE)  # columns that a frame lacks are null
    return _of_schema(pl.concat([none, *frames], how="diagonal_relaxed"), SAMPLE)


def _span_samples(spans: pl.DataFrame, calls: pl.DataFrame) -> list[pl.DataFrame]:
    """The samples of pipeline calls, stages and steps, less their profiling overhead."""
    found, part = [], pl.col("part")
    of_step = pl.when(part == "").then(pl.lit("denoise.step")).otherwise("denoise.step." + part)
    for level, keys, metric in (
        ("end_to_end", ["pipeline"], pl.lit("end_to_end")),
        ("stage", ["pipeline", "stage"], pl.format("stage.{}", "stage")),
        ("step", ["pipeline", "step"], of_step),
    ):
        inside = calls.group_by(keys).agg(pl.col("first").any(), pl.col("excess_ns").sum())
        own = spans.filter(pl.col("level") == level).join(inside, on=keys, how="left")
        whole = pl.when(part == "").then(pl.col("excess_ns").fill_null(0)).otherwise(0.0)
        found.append(
            own.with_columns(
                metric=metric,
                first=pl.col("first").fill_null(value=False),
                value_ns=(pl.col("value_ns") - whole).clip(0),
            )
        )
    single = found[-1].filter(pl.col("part") == "")
    found.append(
        single.with_columns(metric=pl.format("denoise.step.{}", "step"), of_step=pl.col("step"))
    )
    return found


def _call_samples(calls: pl.DataFrame) -> list[pl.DataFrame]:
    """The samples of submodules and their branches."""
    calls = calls.drop_nulls("value_ns")  # averages of layers are not times of calls
    value = (pl.col("value_ns") - pl.col("excess_ns")).sum()
    together = {"first": pl.col("first").any(), "stage": _STAGE, "value_ns": value}
    submodules = calls.group_by(*_OF).agg(**together)
    branches = calls.drop_nulls("branch").group_by("branch", *_OF).agg(**together)
    return [
        submodules.with_columns(
            level=pl.lit("submodule"), metric=pl.format("submodule.{}", "submodule")
        ),
        branches.with_columns(
            level=pl.lit("branch"),
            metric=pl.format("submodule.{}.branch.{}", "submodule", "branch"),
        ),
    ]


def _work_samples(
    measured: Measurement, calls: pl.DataFrame, factor: pl.Expr, modules: pl.DataFrame
) -> list[pl.DataFrame]:
    """The samples of busy time, roles and modules, from samples with traced calls.

    Untraced calls of a sample are assumed to be like its traced ones.
    """
    traced = (
        calls.group_by(*_OF)
        .agg(
            pl.col("first").any(),
            _STAGE,
            total_ns=pl.col("total_ns").sum(),
            scale=pl.len() / pl.col("traced").sum(),
            traced=pl.col("traced").sum(),
        )
        .filter(pl.col("traced") > 0)
        .with_columns(scale=pl.col("scale") * factor)
    )
    busy = traced.filter(pl.col("total_ns").sum().over("submodule") > 0).with_columns(
        level=pl.lit("busy"),
        metric=pl.format("submodule.{}.busy", "submodule"),
        value_ns=pl.col("total_ns") * pl.col("scale"),
    )
    roles = measured.work.group_by("role", *_OF).agg(pl.col("total_ns").sum())
    by_module = (
        measured.work.join(modules, on=["submodule", "role", "module"])
        .group_by("role", "as", "level", *_OF)
        .agg(pl.col("total_ns").sum())
        .rename({"as": "module"})
    )
    return [
        busy,
        _filled(roles, ["role"], traced).with_columns(
            level=pl.lit("role"), metric=pl.format("submodule.{}.role.{}", "submodule", "role")
        ),
        _filled(by_module, ["role", "module", "level"], traced).with_columns(
            metric=pl.format("submodule.{}.role.{}.module.{}", "submodule", "role", "module")
        ),
    ]


def _filled(work: pl.DataFrame, of: list[str], traced: pl.DataFrame) -> pl.DataFrame:
    """One row per key and traced sample of its submodule, 0 if it has no work there."""
    samples = traced.select(*_OF, "first", "stage", "scale")
    every = work.select("submodule", *of).unique().join(samples, on="submodule")
    joined = every.join(work, on=[*_OF, *of], how="left", nulls_equal=True)
    return joined.with_columns(value_ns=pl.col("total_ns").fill_null(0) * pl.col("scale"))
