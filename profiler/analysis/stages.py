"""The report section on stages and submodules, with findings about encoders and prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from profiler.analysis.activity import activity_of_devices, adds_up
from profiler.analysis.commands import times_recorded
from profiler.analysis.document import Figure, Part, SectionGroup, SectionKind, TableView
from profiler.analysis.end_to_end import PIPELINES, STAGES, work_in_no_call
from profiler.analysis.finding_text import Rule, Words, calls_of, end_to_end_ns, share
from profiler.analysis.flops import call_costs
from profiler.analysis.guidance import GuidanceKind, times_batch
from profiler.analysis.host_activity import stalls_of
from profiler.analysis.result import Analysis, Effect, Finding, ReportInput
from profiler.analysis.roofline import Bound
from profiler.analysis.steps import step_section_parts
from profiler.analysis.submodules import BRANCHES, SUBMODULES, are_hidden, hidden_notes
from profiler.analysis.table_text import (
    renamed,
    stage_names,
    table,
    with_known_idle,
    with_known_work,
)
from profiler.analysis.timeline import begun
from profiler.run.columns import Column
from profiler.run.intervals import Stretches
from profiler.text import Value, duration, said
from profiler.trace.events import RUN_STAGE

# --- Rules about submodules as wholes: encoders, prompts, branches.


_ENCODER = 0.20  # of end to end: an encoder runs once if the denoiser runs every step
_NEGATIVE = 0.02
_SEPARATE = 0.05
_BATCHABLE = 0.3  # of the denoiser's time bound by something else than computation
_WORTH_BATCHING = 0.02  # of end to end


def encoder_dominates(analysis: Analysis) -> Finding | None:
    """A text encoder (T5 in a short run) takes a large part of the run, not counting stalls of the
    host in its calls."""
    total = end_to_end_ns(analysis)
    encoders = analysis.submodules.filter(pl.col("stage") == "encode")["submodule"].to_list()
    times = {p.submodule: p.wall_ns for p in analysis.accounting.submodules}
    known = {name: times[name] - _stalled(analysis, name) for name in encoders if name in times}
    if not known or not analysis.accounting.steps:
        return None
    longest = max(known, key=lambda name: known[name])
    wall = known[longest]
    if share(wall, total) < _ENCODER:
        return None
    step_ns = analysis.step_summary.median_ns
    evidence: dict[str, Value] = {
        "encoder_ns": wall,
        "encoder_share": share(wall, total),
        "all_encoders_share": share(_together(analysis, known), total),
        "steps": analysis.accounting.steps,
    }
    if step_ns:
        evidence["median_step_ns"] = step_ns
        evidence["worth_steps"] = round(wall / step_ns, 1)
    return Finding(
        "encoder_dominates", evidence, where=calls_of(analysis, longest), severity="medium"
    )


def _together(analysis: Analysis, submodules: Iterable[str]) -> int:
    """Return how long any of some submodules ran, on any device, without stalls of the host, in
    ns."""
    of, names = analysis.inputs, [*submodules]
    rows = np.flatnonzero(of.run.calls["submodule"].cast(pl.String).is_in(names).to_numpy())
    taken = of.axis.taken(rows, separate=of.pipelines.apart)
    return taken - sum(_stalled(analysis, name) for name in names)


def _stalled(analysis: Analysis, submodule: str) -> int:
    stalls = stalls_of(analysis, submodule=submodule)
    return stalls.length_ns if stalls else 0


def negative_prompt(analysis: Analysis) -> Finding | None:
    """Encoding the negative prompt takes its own calls."""
    rows = analysis.guidance.filter(pl.col("what") == GuidanceKind.NEGATIVE_PROMPT.value)
    total, wall = end_to_end_ns(analysis), int(rows["elapsed_ns"].sum())
    if rows.is_empty() or share(wall, total) < _NEGATIVE:
        return None
    longest = rows.sort("elapsed_ns")["submodule"][-1]
    return Finding(
        "negative_prompt",
        {
            "wall_ns": wall,
            "run_share": share(wall, total),
            "calls": int(rows["calls"].sum()),
            "encoders": ", ".join(rows["submodule"]),
        },
        where=calls_of(analysis, longest),
        cost_ns=wall + _led_to(analysis, rows["submodule"], "negative_prompt"),
        effect=Effect(tuple(rows["submodule"]), without_branch="negative_prompt"),
    )


def _led_to(analysis: Analysis, submodules: Iterable[str], branch: str) -> int:
    """The host's time between the calls of a branch and the calls before them, in ns, which is
    saved with the branch."""
    of, axis = analysis.inputs, analysis.inputs.axis
    submodule, of_branch = of.run.calls.select(pl.col("submodule", "branch").cast(pl.String))
    own = (submodule.is_in([*submodules]) & of_branch.eq_missing(branch)).to_numpy()
    ahead = Stretches.union(begun(of.run, axis.begin, axis.end)[own], axis.begin[own])
    return ahead.minus(axis.waited).minus(axis.lost).length


def separate_guidance(analysis: Analysis) -> Iterator[Finding]:
    """Guidance calls the denoiser twice per step, although one batch would load weights and launch
    once."""
    rows = analysis.guidance.filter(pl.col("branch") == "uncond")
    total = end_to_end_ns(analysis)
    for row in rows.to_dicts():
        bound = _not_compute_bound(analysis, row["submodule"])
        if bound is None or bound < _BATCHABLE or share(row["elapsed_ns"], total) < _SEPARATE:
            continue
        grown = _of_two(analysis, row["submodule"])
        saved = _saved_by_batching(analysis, row["submodule"], grown)
        if share(saved, total) < _WORTH_BATCHING:
            continue
        yield Finding(
            "separate_guidance",
            {
                "uncond_calls": row["calls"],
                "uncond_ns": row["elapsed_ns"],
                "uncond_share": share(row["elapsed_ns"], total),
                "not_compute_bound_share": bound,
            },
            where=calls_of(analysis, row["submodule"]),
            cost_ns=saved,
            effect=Effect((row["submodule"],), without_branch="uncond", grown=grown),
        )


def _of_two(analysis: Analysis, submodule: str) -> float:
    """Return the device time of a call with both branches over that of one branch, 1 to 2: by
    shapes, with twice the batch (`predict --batch 2`), or 2 if no operators were traced."""
    kinds, profiles = analysis.kinds.table, analysis.device_profiles
    costs = call_costs(analysis.calls, kinds, profiles, submodule)
    twice = 2.0 if costs is None else times_batch(costs, 2.0, 1.0)[1].value
    return min(max(twice, 1.0), 2.0)


def _saved_by_batching(analysis: Analysis, submodule: str, grown: float) -> int:
    """Return how long the calls of one branch waited, plus what their work takes less in one batch,
    in ns."""
    calls = analysis.calls.filter(
        (pl.col("submodule") == submodule) & (pl.col("branch") == "uncond")
    )
    elapsed, busy = (int(calls[name].fill_null(0).sum()) for name in ("elapsed_ns", "busy_ns"))
    waited = max(elapsed - busy, 0) + _led_to(analysis, [submodule], "uncond")
    return round(waited + min(busy, elapsed) * (2.0 - grown))


def _not_compute_bound(analysis: Analysis, submodule: str) -> float | None:
    """Return the share of a submodule's device time that is not compute-bound; None if less than
    half of it has a bound."""
    rows = analysis.roofline_roles.filter(pl.col("submodule") == submodule)
    known = rows.drop_nulls("bound")
    busy = int(known["total_ns"].sum())
    if share(busy, int(rows["total_ns"].sum())) < 0.5:
        return None
    other = known.filter(pl.col("bound") != Bound.COMPUTE.value)
    return share(int(other["total_ns"].sum()), busy)


RULES = (
    Rule(
        encoder_dominates,
        Words(
            title="{submodule} takes {encoder_share} of a run of {steps} steps",
            caveat="What a cache saves depends on how often prompts repeat, which one run does not "
            "show. The time includes a cold first call, and its share falls with more steps. "
            "Dropping T5 (SD3 allows it) gives up long prompts and text in images.",
            recommendation="Cache the embeddings of repeated prompts; run it in 16 or 8 bits, on "
            "an accelerator, or beside the other encoders on a device of its own.",
        ),
        "Cache the embeddings of repeated prompts",
        section="time",
    ),
    Rule(
        negative_prompt,
        Words(
            title="Encoding the negative prompt takes {run_share} of the run",
            caveat="Cached embeddings are valid only for the same negative prompt, sequence "
            "length, encoders and LoRAs.",
            recommendation="The negative prompt seldom changes: cache its embeddings "
            "(negative_prompt_embeds), or encode both prompts as one batch.",
        ),
        "Cache the embeddings of the negative prompt",
        section="guidance",
    ),
    Rule(
        separate_guidance,
        Words(
            title="{submodule} is called twice a step for guidance, and {not_compute_bound_share} "
            "of its device time is not compute-bound",
            caveat="A batch of two needs twice the activation memory, and prompts of different "
            "lengths need padding and a mask, which change results slightly.",
            recommendation="Batch both branches in one call, or run them on two devices at once.",
        ),
        "Batch both branches in one call",
        section="guidance",
    ),
)


# --- Stages and steps: stages, pipeline calls, submodules, and steps.


_AT_ONCE = 1.01  # times the share of the end-to-end time: more than rounding

_STAGES = ("stage", "elapsed_ns", "share", "calls", "calls_ns", "host_ns", "idle_ns", "duration_ns")
_PIPELINES = (
    "pipeline name start_ns elapsed_ns concurrent steps calls calls_ns host_ns idle_ns",
    "unrecorded_ns duration_ns residual_share",
)
_CALL_TIMES = (
    "calls",
    "elapsed_ns",
    "span_ns",
    "share",
    "first_ns",
    "min_ns",
    "median_ns",
    "max_ns",
    "busy_ns",
    "duration_ns",
)
_ON_DEVICE = ("idle_inside_ns", "launch_bound_ns", "hidden_ns", "unrecorded_ns", "queue_lead_ns")
_SUBMODULES = (
    "submodule",
    "stage",
    "device",
    *_CALL_TIMES,
    *_ON_DEVICE,
    "commands",
    "operators",
    "overhead_ratio",
)
_BRANCHES = ("submodule", "branch", *_CALL_TIMES)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """Stages and their sum, pipeline calls if there are several, submodules, steps."""
    analysis = of.analysis
    branches = analysis.branches.filter(pl.len().over("submodule") > 1)
    return (
        *_stages(analysis),
        *_pipelines(of),
        submodules_part(analysis),
        Part(
            said("Submodules by branch"),
            table=table(
                "branches",
                "branches",
                _shown(_BRANCHES, branches),
                BRANCHES,
                with_known_work(branches, analysis.calls, "submodule", "branch"),
                shown=20,
            ),
            folded=True,
        ),
        *step_section_parts(of),
    )


def _shown(columns: tuple[str, ...], rows: pl.DataFrame) -> list[str | Column]:
    """The columns; with `span_ns` if some rows worked only beneath other calls, and then narrow
    terminals keep `hidden_ns`; without stages if the run has none."""
    if "stage" in rows.columns and (rows["stage"] == RUN_STAGE).all():
        columns = tuple(name for name in columns if name != "stage")
    if not are_hidden(rows):
        return [name for name in columns if name != "span_ns"]
    stays = {"hidden_ns": renamed(SUBMODULES, "hidden_ns", importance=0)}
    return [stays.get(name, name) for name in columns]


def submodules_part(analysis: Analysis) -> Part:
    """The submodules, in order of first calls."""
    rows = with_known_work(analysis.submodules, analysis.calls, "submodule")
    submodules = table(
        "submodules",
        "submodules",
        _shown(_SUBMODULES, analysis.submodules),
        SUBMODULES,
        with_known_idle(rows, analysis.inputs.run.info),
        shown=20,
    )
    note = said(
        "Calls ran at the same time on several devices: elapsed adds them up, share is of the time "
        "in which any of them ran."
    )
    notes = (note,) if calls_overlap(analysis) else ()
    hidden = hidden_notes(analysis.submodules)
    return Part(said("Submodules"), table=submodules, notes=(*notes, *hidden))


def calls_overlap(analysis: Analysis) -> bool:
    """Whether calls of a submodule ran at the same time, on several devices (on one they share its
    tiles): their elapsed times add up to more than their part of the end-to-end time."""
    total = analysis.accounting.end_to_end_ns
    more = pl.col("elapsed_ns") > _AT_ONCE * total * pl.col("share")
    return bool(total) and not analysis.submodules.filter(more).is_empty()


def stages_figure(analysis: Analysis) -> Figure:
    """Return the figure of what devices did in each stage, the mean over devices if calls ran on
    several at once; or of its calls, host work and idle time if that is not known."""
    data = (analysis.stages, analysis.calls, analysis.accounting, _divided(analysis))
    return Figure("stages", "stages", data)


def _divided(analysis: Analysis) -> tuple[pl.DataFrame, int] | None:
    """Return what devices did in each stage, and the number of devices to take the mean of; None if
    it does not add up to the stages."""
    stages, activity = analysis.stages, analysis.activity
    if adds_up(activity, stages, ["stage"]):
        return activity, 1
    if stages["elapsed_ns"].sum() == activity["elapsed_ns"].sum():
        return None
    found, devices = activity_of_devices(analysis.inputs)
    times = stages.with_columns(pl.col("elapsed_ns") * devices)
    return (found, devices) if devices > 1 and adds_up(found, times, ["stage"]) else None


def _stages(analysis: Analysis) -> Iterator[Part]:
    if len(analysis.stages):
        worked = work_in_no_call(analysis.inputs) if analysis.accounting.possible else 0
        note = said("While no call ran, devices worked for {time}.", time=duration(worked))
        figure: Figure | None = stages_figure(analysis)
        if _divided(analysis) is not None:  # of other parts than those of the table
            yield Part(said("Stages: what devices did"), figure=figure)
            figure = None
        yield Part(
            said("Stages: calls, host work between them, no call running")
            if times_recorded(analysis.inputs.run.info)
            else said("Stages: calls and host work between them"),
            figure=figure,
            table=_stage_table(analysis),
            notes=(note,) if worked else (),
        )


def _stage_table(analysis: Analysis) -> TableView | None:
    """The stages, and below them what is left of the end-to-end time."""
    account, found = analysis.accounting, analysis.stages
    found = found.with_columns(pl.col("stage").replace(stage_names(found["stage"])))
    totals = None
    if account.possible and account.end_to_end_ns:
        sums = {name: [None, _sum(found[name])] for name in ("calls", *_SUMMED)}
        totals = pl.DataFrame(
            {
                "stage": [said("unaccounted"), said("end to end")],
                "elapsed_ns": [account.unaccounted_ns, account.end_to_end_ns],
                "share": [account.residual_share, 1.0],
                **sums,
            },
            schema_overrides={name: found.schema[name] for name in sums},
        )
    return table("stages", "stages", _STAGES, STAGES, found, shown=20, totals=totals)


_SUMMED = ("calls_ns", "host_ns", "idle_ns", "duration_ns")


def _sum(times: pl.Series) -> int | None:
    """Return the sum of times; None if none is known."""
    return None if times.null_count() == len(times) else int(times.sum())


def _pipelines(of: ReportInput) -> Iterator[Part]:
    pipelines = of.analysis.pipelines
    if len(pipelines) > 1:
        relative = pipelines.with_columns(pl.col("start_ns") - of.begin_ns)
        made = table("pipelines", "pipeline calls", _PIPELINES, PIPELINES, relative, shown=12)
        yield Part(said("Pipeline calls"), table=made)


SECTION = SectionKind(
    "time",
    30,
    said("Stages and steps"),
    _parts,
    tables=(
        "stages",
        "pipelines",
        "submodules",
        "branches",
        "steps",
        "step_times",
        "step_operators",
        "step_outliers",
        "activity",
    ),
    group=SectionGroup.MODEL,
)
