"""The cost of classifier-free guidance: calls that are there only because of it.

Classifier-free guidance runs the denoiser a second time a step, for the negative prompt: as a call
of its own (`uncond`), or as half of a batch (`batched`). What half of a batch costs is what the
whole took, less what half of it would take (`batch.py`): that is measured where the same
submodule also ran without (guidance in some of the steps only), else an estimate, and `estimated`
says so. Predictions without guidance go by the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import polars as pl

from profiler.analysis.denoise.batch import BATCHED, HalfBatch, half_batch
from profiler.analysis.denoise.codes import GuidanceEvidence, GuidanceKind
from profiler.analysis.denoise.columns import GUIDANCE
from profiler.analysis.replay.gains import Gains
from profiler.analysis.roofline.call_costs import Ratio
from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.run.columns import schema
from profiler.run.device_timeline import Flags
from profiler.text import Note, notes_text

__all__ = ["guidance_table"]

_WHOLE = {
    "uncond": GuidanceKind.CLASSIFIER_FREE,
    "negative_prompt": GuidanceKind.NEGATIVE_PROMPT,
    "skip_layers": GuidanceKind.SKIP_LAYERS,
}
_TIMES = ("elapsed_ns", "busy_ns", "corrected_ns")


def guidance_table(
    inputs: pl.DataFrame,
    calls: pl.DataFrame,
    branches: pl.DataFrame,
    kinds: pl.DataFrame,
    profiles: Mapping[str, DeviceProfile],
    overhead_ratio: pl.DataFrame,
    end_to_end_ns: int,
    gains: Callable[[], Gains | None] = lambda: None,
) -> pl.DataFrame:
    """One row a submodule and branch that guidance adds (`columns.GUIDANCE`), longest first of
    each.

    `inputs` are calls with the shapes of their inputs, `calls` and `branches` the tables of that
    name, `kinds` the table of the kinds of its commands, `profiles` are those of devices by name,
    `overhead_ratio` has the columns `submodule` and `overhead_ratio`; `gains` makes the replays of
    the run.
    """

    def half(submodule: str, factor: float) -> HalfBatch:
        return half_batch(inputs, calls, kinds, profiles, submodule, factor)

    guided = BATCHED in calls["branch"]
    known_gains = gains() if guided else None

    factor = pl.when(pl.col("ops_traced")).then(pl.col("overhead_ratio")).otherwise(1.0)
    known = calls.join(overhead_ratio, on="submodule", how="left").with_columns(
        corrected_ns=pl.col("elapsed_ns") * factor,
    )
    rows = [
        row
        for (submodule,), some in known.group_by("submodule", maintain_order=True)
        for row in _rows(str(submodule), some, branches, half, known_gains)
    ]
    table = pl.DataFrame(rows, schema=_ROW, orient="row").with_columns(
        share=pl.col("elapsed_ns") / end_to_end_ns if end_to_end_ns else pl.lit(None),
        order=pl.col("what").replace_strict(
            {kind.value: number for number, kind in enumerate(GuidanceKind)}, return_dtype=pl.Int64
        ),
    )
    table = table.sort("order", "elapsed_ns", descending=[False, True], maintain_order=True)
    rounded = table.with_columns(pl.col(*_TIMES).round()).with_columns(
        pl.col("corrected_ns").cast(pl.Int64, strict=False)  # a foreign factor may be anything
    )
    return rounded.select(pl.col(n).cast(t) for n, t in schema(GUIDANCE).items())


_ROW = pl.Schema(
    {
        "what": pl.String(),
        "submodule": pl.String(),
        "branch": pl.String(),
        "calls": pl.Int64(),
        "elapsed_ns": pl.Float64(),
        "busy_ns": pl.Float64(),
        "corrected_ns": pl.Float64(),
        "estimated": pl.Boolean(),
        "evidence": pl.String(),
    }
)


def _rows(
    submodule: str,
    calls: pl.DataFrame,
    branches: pl.DataFrame,
    half: Callable[[str, float], HalfBatch],
    gains: Gains | None,
) -> Iterator[tuple[object, ...]]:
    """What each branch of a submodule's calls costs."""
    for branch, what in _WHOLE.items():
        some = calls.filter(pl.col("branch") == branch)
        if len(some):
            sums = _times(some, branches)
            evidence = Note.of(GuidanceEvidence.OWN_CALLS, branch=branch)
            yield what.value, submodule, branch, len(some), *sums, False, notes_text([evidence])
    batched = calls.filter(pl.col("branch") == BATCHED)
    if not len(batched):
        return
    factor = calls["overhead_ratio"].first()
    recorded = half(submodule, 1.0)
    row = (GuidanceKind.CLASSIFIER_FREE.value, submodule, BATCHED, len(batched))
    if gains is not None and gains.covers(submodule):
        own = gains.calls(submodule) & np.isin(gains.numbers, batched["call"].to_numpy())
        busy = _times(batched, branches)[1]
        yield *row, *_replayed(recorded.busy, busy, gains, own, factor)
        return
    corrected = half(submodule, factor) if isinstance(factor, float) else recorded
    leaves = (recorded.wall, recorded.busy, corrected.wall)
    costs = (
        None if time is None else time * (1 - ratio.value)
        for time, ratio in zip(_times(batched, branches), leaves, strict=True)
    )
    estimated = not recorded.measured
    yield *row, *costs, estimated, notes_text([_evidence(corrected)])


def _replayed(
    ratio: Ratio, busy: float | None, gains: Gains, own: Flags, factor: object
) -> tuple[object, ...]:
    """`_TIMES`, whether that is estimated, and the evidence, of batched calls whose work becomes
    `ratio` of what it was and whose launches stay."""
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


def _times(calls: pl.DataFrame, branches: pl.DataFrame) -> tuple[float | None, ...]:
    """`_TIMES` of the calls of a branch; None where a value is not known."""
    row = calls.row(0, named=True)
    same = (pl.col(name) == row[name] for name in ("submodule", "branch"))
    busy = branches.filter(*same)["busy_ns"].sum()
    return _sum(calls["elapsed_ns"]), float(busy), _sum(calls["corrected_ns"])


def _sum(values: pl.Series) -> float | None:
    """The sum, None where a value is not known."""
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
