"""The cost of classifier-free guidance: denoiser calls that run only because of it.

Guidance runs the denoiser twice per step: as a call of its own (`uncond`) or as half of a batch
(`batched`). The cost of half a batch is measured if the same submodule also ran without
guidance. Otherwise it is an estimate, and the column `estimated` says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import cast

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.context import Inputs
from profiler.analysis.device_profiles import DeviceProfile
from profiler.analysis.document import Part, SectionGroup, SectionKind
from profiler.analysis.end_to_end import accounting
from profiler.analysis.finding_text import end_to_end_ns, is_nothing
from profiler.analysis.flop_shapes import Tensor
from profiler.analysis.flops import CallCosts, KindCost, Ratio, Scaled, call_costs
from profiler.analysis.gains import Gains, replay_gains
from profiler.analysis.question import Table
from profiler.analysis.redundant_work import REDUNDANT_WORK
from profiler.analysis.result import Analysis, ReportInput
from profiler.analysis.roofline import profiles
from profiler.analysis.table_text import Sentences, table
from profiler.run.columns import BOOL, INT64, NS, SHARE, STRING, Column, col, schema
from profiler.run.launches import Flags
from profiler.text import Note, NoteCode, duration, joined, notes_text, percent, said, sentence

# --- Words of the tables about denoising steps: closed sets.


class GuidanceKind(StrEnum):
    """What calls are for: kinds of guidance."""

    CLASSIFIER_FREE = "classifier_free_guidance"
    NEGATIVE_PROMPT = "negative_prompt"
    SKIP_LAYERS = "skip_layer_guidance"


class GuidanceEvidence(NoteCode):
    """How the cost of guidance was determined."""

    OWN_CALLS = "own_calls"
    MEASURED_CALLS = "measured_calls"
    HALVED_OPERATORS = "halved_operators"
    GUESSED_HALF = "guessed_half"
    REPLAYED_LAUNCHES = "replayed_launches"


# --- The columns of what guidance costs.


GUIDANCE: tuple[Column, ...] = (
    col("what", STRING, ", ".join(GuidanceKind), codes=GuidanceKind),
    col("submodule", STRING, "submodule whose calls it costs"),
    col("branch", STRING, "branch of these calls", importance=1),
    col("calls", INT64, "calls that it adds, or takes part in", importance=2),
    col(
        "elapsed_ns",
        NS,
        "sum of elapsed_ns that it costs: all of its own calls; for batched calls, what half the "
        "batch would save",
        label="saves",
    ),
    col(
        "busy_ns",
        NS,
        "its device time (union); for batched calls, the part of half the batch",
        label="device time",
        importance=3,
    ),
    col(
        "corrected_ns",
        NS,
        "elapsed_ns, with traced calls multiplied by overhead_ratio",
        True,
        label="untraced",
        importance=4,
    ),
    col("share", SHARE, "elapsed_ns / end-to-end time", True),
    col("estimated", BOOL, "whether the time of half a batch is an estimate"),
    col(
        "evidence",
        STRING,
        "how it was found, as a JSON list of notes",
        importance=15,
        codes=GuidanceEvidence,
    ),
)


# --- The cost of classifier-free guidance: calls that are there only because of it.
#
# Classifier-free guidance runs the denoiser a second time a step, for the negative prompt: as a
# call of its own (`uncond`), or as half of a batch (`batched`). The cost of half a batch is the
# time of the whole, less what half of it would take (`half_batch`): that is measured if the same
# submodule also ran without (guidance in some of the steps only), else an estimate, and `estimated`
# says so. Predictions without guidance use the same.


_WHOLE = {
    "uncond": GuidanceKind.CLASSIFIER_FREE,
    "negative_prompt": GuidanceKind.NEGATIVE_PROMPT,
    "skip_layers": GuidanceKind.SKIP_LAYERS,
}
_TIMES = ("elapsed_ns", "busy_ns", "corrected_ns")


def _guidance(of: Inputs) -> pl.DataFrame:
    """One row per submodule and branch that guidance adds, longest first of each kind."""
    overhead_ratio = of.table("submodules").select("submodule", "overhead_ratio")
    factor = pl.when(pl.col("ops_traced")).then(pl.col("overhead_ratio")).otherwise(1.0)
    calls = of.table("calls").join(overhead_ratio, on="submodule", how="left")
    known = calls.with_columns(corrected_ns=pl.col("elapsed_ns") * factor)
    gains = replay_gains(of) if BATCHED in calls["branch"] else None
    rows = [
        row
        for (submodule,), some in known.group_by("submodule", maintain_order=True)
        for row in _rows(of, str(submodule), some, gains)
    ]
    end_to_end_ns = accounting(of).end_to_end_ns
    order = {kind.value: number for number, kind in enumerate(GuidanceKind)}
    declared = schema(GUIDANCE)
    measured = {name: pl.Float64() if name in _TIMES else declared[name] for name in _ROW}
    table = pl.DataFrame(rows, schema=measured, orient="row").with_columns(
        share=pl.col("elapsed_ns") / end_to_end_ns if end_to_end_ns else pl.lit(None),
        order=pl.col("what").replace_strict(order, return_dtype=pl.Int64),
    )
    table = table.sort("order", "elapsed_ns", descending=[False, True], maintain_order=True)
    rounded = table.with_columns(pl.col(*_TIMES).round()).with_columns(
        pl.col("corrected_ns").cast(pl.Int64, strict=False)  # a foreign factor may be anything
    )
    return rounded.select(pl.col(n).cast(t) for n, t in declared.items())


_ROW = ("what", "submodule", "branch", "calls", *_TIMES, "estimated", "evidence")


def _rows(
    of: Inputs, submodule: str, calls: pl.DataFrame, gains: Gains | None
) -> Iterator[tuple[object, ...]]:
    """Yield the cost of each branch of a submodule's calls."""
    branches = set(calls["branch"])
    for branch, what in _WHOLE.items():
        if branch in branches:
            some = calls.filter(pl.col("branch") == branch)
            evidence = notes_text([Note.of(GuidanceEvidence.OWN_CALLS, branch=branch)])
            yield what.value, submodule, branch, len(some), *_times(of, some), False, evidence
    if BATCHED not in branches:
        return
    batched = calls.filter(pl.col("branch") == BATCHED)
    factor = calls["overhead_ratio"].first()
    recorded = half_of(of, submodule)
    row = (GuidanceKind.CLASSIFIER_FREE.value, submodule, BATCHED, len(batched))
    if gains is not None and gains.covers(submodule):
        own = gains.calls(submodule) & np.isin(gains.numbers, batched["call"].to_numpy())
        busy = _times(of, batched)[1]
        yield *row, *_replayed(recorded.busy, busy, gains, own, factor)
        return
    corrected = half_of(of, submodule, factor) if isinstance(factor, float) else recorded
    leaves = (recorded.wall, recorded.busy, corrected.wall)
    costs = (
        None if time is None else time * (1 - ratio.value)
        for time, ratio in zip(_times(of, batched), leaves, strict=True)
    )
    estimated = not recorded.measured
    yield *row, *costs, estimated, notes_text([_evidence(corrected)])


def _replayed(
    ratio: Ratio, busy: float | None, gains: Gains, own: Flags, factor: object
) -> tuple[object, ...]:
    """`_TIMES`, whether they are estimated, and the evidence, for batched calls whose work shrinks
    to `ratio` and whose launches stay."""
    value = gains.of_share(own, ratio.value)
    most, least = (gains.of_share(own, share) for share in (ratio.low, ratio.high))
    corrected = None
    if isinstance(factor, float):
        corrected = gains.of_share(own, ratio.value, factor).recorded
    note = Note.of(
        GuidanceEvidence.REPLAYED_LAUNCHES,
        left_share=ratio.value,
        low_share=ratio.low,
        high_share=ratio.high,
        gain_low_ns=min(value.low, least.low),
        gain_high_ns=max(value.high, most.high),
    )
    less = None if busy is None else busy * (1 - ratio.value)
    return value.recorded, less, corrected, True, notes_text([note])


def _times(of: Inputs, calls: pl.DataFrame) -> tuple[float | None, ...]:
    """`_TIMES` of the calls of a branch; None if a value is not known."""
    row = calls.row(0, named=True)
    same = (pl.col(name) == row[name] for name in ("submodule", "branch"))
    busy = of.table("branches").filter(*same)["busy_ns"].sum()
    return _sum(calls["elapsed_ns"]), float(busy), _sum(calls["corrected_ns"])


def _sum(values: pl.Series) -> float | None:
    """The sum, None if a value is not known."""
    return None if values.null_count() else float(values.sum())


def _evidence(half: HalfBatch) -> Note:
    if half.measured:
        return Note.of(GuidanceEvidence.MEASURED_CALLS, calls=half.measured)
    if not half.from_operators:
        return Note.of(GuidanceEvidence.GUESSED_HALF)
    return Note.of(
        GuidanceEvidence.HALVED_OPERATORS,
        left_share=half.wall.value,
        low_share=half.wall.low,
        high_share=half.wall.high,
    )


# --- The table of what guidance costs.


TABLES = (
    Table(
        name="guidance",
        row="one measure of the cost of guidance",
        section="guidance",
        columns=GUIDANCE,
        make=_guidance,
        title="What dropping guidance saves",
        about="[steps.md](steps.md#guidance) has details.",
        reads=("branches", "calls", "submodules"),
    ),
)


# --- The cost of classifier-free guidance, and redundant work.


_HELD = 100  # rows of a table
_LAUNCH_BOUND = 0.05  # of the elapsed time: below it, half a batch saves what was estimated
_HALF_OF_BATCH = said(
    "estimated: what batched calls would save with half the batch, by their operators where these "
    "were traced, else half of them"
)
_BY_RULES = said("inferred from names and shapes, not from values, which a trace does not have")
_UPPER = said("at most: all but one execution, if what is known ahead were computed as one batch")
_GUIDANCE = "what submodule branch calls elapsed_ns corrected_ns busy_ns share estimated evidence"
_REDUNDANT_WORK = (
    "layer submodule rule constant_over calls minimum_executions total_ns saved_ns estimated "
    "evidence"
)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    guidance, again = of.analysis.guidance, of.analysis.redundant_work
    return (
        Part(
            said("What dropping guidance saves"),
            table=table("guidance", "guidance", _GUIDANCE, GUIDANCE, guidance, shown=of.rows(10)),
            notes=_estimated(of.analysis),
        ),
        Part(
            said("Redundant work, by what hoisting would save"),
            sentence(_savings(of.analysis)),
            table=table(
                "again",
                "redundant work",
                _REDUNDANT_WORK,
                REDUNDANT_WORK,
                again,
                shown=of.rows(10),
                held=_HELD,
            ),
            notes=(sentence(_UPPER),) * bool(again["estimated"].any()),
        ),
    )


def _estimated(analysis: Analysis) -> tuple[str, ...]:
    """Return notes on how half a batch was estimated, and what the estimate leaves out."""
    estimated = analysis.guidance.filter("estimated")
    if estimated.is_empty():
        return ()
    by_replay = pl.col("evidence").str.contains(GuidanceEvidence.REPLAYED_LAUNCHES.value)
    replayed, rows = estimated.filter(by_replay), estimated.filter(~by_replay)
    of_submodules = analysis.submodules.filter(
        pl.col("submodule").is_in(rows["submodule"].implode())
    )
    late = of_submodules.filter(pl.col("launch_bound_ns") > _LAUNCH_BOUND * pl.col("elapsed_ns"))
    gained = said(
        "half the batch has as many launches: of {less} less work on the device of {submodule} "
        "{gained} are gained, by a replay of its launches; a graph (`profile-sd3 predict "
        "--cuda-graph`) removes the waiting for launches"
    )
    nothing = said(
        "half the batch has as many launches: of {less} less work on the device of {submodule} "
        "nothing is gained, by a replay of its launches; a graph (`profile-sd3 predict "
        "--cuda-graph`) removes the waiting for launches"
    )
    bound = said(
        "{share} of {submodule} is launch-bound: half the batch takes as many launches, so it "
        "saves less than the estimate, or nothing"
    )
    gains = replayed.select("submodule", "busy_ns", "elapsed_ns").iter_rows()
    shares = late.select("submodule", pl.col("launch_bound_ns") / pl.col("elapsed_ns")).iter_rows()
    notes = [_HALF_OF_BATCH]
    total_ns = end_to_end_ns(analysis)
    for name, less, more in gains:
        values = {"less": duration(less), "submodule": name}
        if is_nothing(more, total_ns):
            notes.append(said(nothing, **values))
        else:
            notes.append(said(gained, **values, gained=duration(more)))
    notes += [said(bound, share=percent(share), submodule=name) for name, share in shares]
    return tuple(map(sentence, notes))


def _savings(analysis: Analysis) -> str:
    """Return the sentence about what hoisting all redundant work would save."""
    again = analysis.redundant_work
    measured = int(again.filter(~again["estimated"])["saved_ns"].sum())
    ahead = int(again.filter("estimated")["saved_ns"].sum())
    busy = int(analysis.submodules["busy_ns"].sum())
    share = f" ({percent(measured / busy)})" if busy else ""
    sums = []
    if measured:
        sums.append(said("{time} of device time{share}", time=duration(measured), share=share))
    if ahead:
        sums.append(said("at most {time} of what is known ahead", time=duration(ahead)))
    if len(sums) > 1:
        sums = [said("{one}, and {other}", one=sums[0], other=sums[1])]
    return joined("; ", [*sums, _BY_RULES])


SECTION = SectionKind(
    "guidance",
    40,
    said("Guidance and redundancy"),
    _parts,
    tables=("guidance", "redundant_work"),
    group=SectionGroup.MODEL,
)


# --- Sentences about guidance.


SENTENCES: Sentences = {
    GuidanceKind: {
        GuidanceKind.CLASSIFIER_FREE: "classifier-free guidance",
        GuidanceKind.SKIP_LAYERS: "skip-layer guidance",
    },
    GuidanceEvidence: {
        GuidanceEvidence.OWN_CALLS: "calls of branch {branch}",
        GuidanceEvidence.MEASURED_CALLS: "batched against {calls} cond calls",
        GuidanceEvidence.HALVED_OPERATORS: "half the batch of each operator: {left_share} "
        "({low_share} to {high_share}) of batched calls stays",
        GuidanceEvidence.REPLAYED_LAUNCHES: "half the batch takes {left_share} ({low_share} to "
        "{high_share}) of the device's time and as many launches, by a replay of which "
        "{gain_low_ns} to {gain_high_ns} are gained",
        GuidanceEvidence.GUESSED_HALF: "half of batched calls, none of which was traced with "
        "operators",
    },
}


# --- What calls take with another batch: half of it, as a batched denoiser call has for the prompt
# alone, or several times as much.
#
# Where the submodule also ran for the prompt alone (guidance in some of the steps), that was
# measured. Else each operator's work is halved if its tensors are of the batch: what is read of
# weights stays. A tensor is of the batch if its first dim is the batch, or the batch times a dim
# that others have behind it (tokens, heads: `[2·4096, 1536]` beside `[2, 4096, 1536]`). If no
# operators were traced half is taken, and all of it as the upper bound.
#
# What guidance cost (`guidance.py`) and what a request would take without it (`prediction`) both
# go by this.


BATCHED = "batched"
_DIMS = re.compile(r"\[(\d+)")
_ENOUGH_CALLS = 3  # steady calls of either kind that tell what half a batch takes
_SAME = Scaled(1.0, 1.0)
_GUESS = Ratio(0.5, 0.5, 1.0, known=0.0)


class HalfBatch(Struct, frozen=True):
    """What half of a batch takes over the whole: `wall` of a call's time, `busy` of its device
    time. `measured` is the number of calls for the prompt alone that tell, 0 if none do; then it
    is estimated from operators (`from_operators`), else a guess."""

    wall: Ratio
    busy: Ratio
    measured: int = 0
    from_operators: bool = False


def half_batch(
    inputs: pl.DataFrame,
    calls: pl.DataFrame,
    kinds: pl.DataFrame,
    profiles: Mapping[str, DeviceProfile],
    submodule: str,
    overhead_ratio: float,
) -> HalfBatch:
    """Half of the batched calls of `submodule`.

    `inputs` are calls with the shapes of their inputs, `calls` is the call table, `kinds` the table
    of the kinds of its commands, `profiles` are those of devices by name; `overhead_ratio` is the
    submodule's untraced over traced time, 1 to take times as recorded.
    """
    steady = calls.filter((pl.col("submodule") == submodule) & ~pl.col("first"))
    batched, single = (steady.filter(pl.col("branch") == name) for name in (BATCHED, "cond"))
    if min(len(batched), len(single)) >= _ENOUGH_CALLS:
        factor = pl.when("ops_traced").then(overhead_ratio).otherwise(1.0)
        wall = _measured(batched, single, pl.col("elapsed_ns") * factor)
        busy = _measured(batched, single, pl.col("busy_ns")) or wall
        if wall is not None and busy is not None:
            return HalfBatch(wall, busy, measured=len(single))
    costs = call_costs(calls, kinds, profiles, submodule)
    if costs is None:
        return HalfBatch(_GUESS, _GUESS)
    rows = inputs.filter(
        (pl.col("submodule").cast(pl.String) == submodule)
        & (pl.col("branch").cast(pl.String) == BATCHED)
    )
    batch = _batch_size(rows)
    scale = _scaling(costs, batch, 0.5)
    wall = _half_batch_ratio(costs, scale, overhead_ratio)
    busy = _half_batch_ratio(costs.on_device, scale, 1.0)
    return HalfBatch(wall, busy, from_operators=True)


def half_of(of: Inputs, submodule: str, overhead_ratio: float = 1.0) -> HalfBatch:
    """`half_batch` of a submodule of an analysis, made once: each rung of the ladder asks for it,
    too."""
    key = half_of, submodule, overhead_ratio
    if key not in of.made:
        tables = of.table("calls"), of.kinds.table, profiles(of)
        of.made[key] = half_batch(of.calls, *tables, submodule, overhead_ratio)
    return cast("HalfBatch", of.made[key])


def times_batch(costs: CallCosts, factor: float, overhead_ratio: float) -> tuple[Ratio, Ratio]:
    """What calls take of their time, and of their device time, with `factor` times the batch.

    The batch is the first dim that most of their tensors of three dims or more have. Data that fits
    in a cache may no longer: the upper bound has that where caches are not known.
    """
    counts: Counter[int] = Counter()
    for kind in costs.kinds:
        sizes = {t.dims[0] for t in kind.tensors if t.floating and len(t.dims) > 2}
        counts.update(dict.fromkeys(sizes, kind.commands))
    batch = max(counts, key=lambda size: (counts[size], -size), default=1)
    scale = _scaling(costs, batch, factor)
    wall, busy = costs.ratio(scale, overhead_ratio), costs.on_device.ratio(scale)
    if factor <= 1.0:
        return wall, busy
    return costs.beyond_caches(wall, grows=True), costs.beyond_caches(busy, grows=True)


def _measured(batched: pl.DataFrame, single: pl.DataFrame, time: pl.Expr) -> Ratio | None:
    """The median time of single calls over that of batched ones, None if these took none."""
    alone, both = (float(calls.select(time.median()).item() or 0) for calls in (single, batched))
    if both <= 0:
        return None
    value = min(alone / both, 1.0)
    return Ratio(value, value, value)


def _batch_size(calls: pl.DataFrame) -> int:
    """The first dim that most inputs of the batched calls have, 2 if none is even."""
    counts: Counter[int] = Counter()
    for text in calls["input_shapes"].unique():
        counts.update(int(size) for size in _DIMS.findall(text) if len(size) < 9)
    even = {size: count for size, count in counts.items() if size and size % 2 == 0}
    return max(even, key=lambda size: (even[size], -size), default=2)


def _scaling(costs: CallCosts, batch: int, factor: float) -> Callable[[KindCost], Scaled]:
    """How the work of each of the kinds changes with `factor` times the batch; each is looked at
    once."""
    changed = Scaled(factor, factor, least=min(factor, 1.0), most=max(factor, 1.0))
    unknown = replace(changed, known=False)
    dims = {
        tensor.dims[1]
        for kind in costs.kinds
        for tensor in kind.tensors
        if len(tensor.dims) > 2 and tensor.dims[0] == batch
    }

    def scale(kind: KindCost) -> Scaled:
        if kind.work is None:
            tensors = kind.tensors
            of_batch = any(_of_batch(t, batch, dims) for t in tensors)
            return unknown if of_batch or not tensors else _SAME
        parts = [(t.nbytes or 0, _of_batch(t, batch, dims)) for t in kind.tensors]
        if not any(of_batch for _, of_batch in parts):
            return _SAME
        whole = sum(nbytes for nbytes, _ in parts)
        then = sum(nbytes * (factor if of_batch else 1) for nbytes, of_batch in parts)
        return replace(changed, nbytes=then / whole) if whole else changed

    known = {id(kind): scale(kind) for kind in costs.kinds}
    return lambda kind: known[id(kind)]


def _half_batch_ratio(
    costs: CallCosts, scale: Callable[[KindCost], Scaled], overhead_ratio: float
) -> Ratio:
    ratio = costs.ratio(scale, overhead_ratio, outside=0.5)
    return costs.beyond_caches(ratio, grows=False)


def _of_batch(tensor: Tensor, batch: int, dims: set[int]) -> bool:
    if not tensor.dims or not tensor.floating:
        return False
    first = tensor.dims[0]
    return first == batch or (first % batch == 0 and first // batch in dims)
