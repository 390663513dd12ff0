"""What guidance costs: calls that are there only because of it.

Classifier-free guidance runs the denoiser a second time a step, for the negative prompt: as a call
of its own (`uncond`), or as half of a batch (`batched`). What half of a batch costs is what the
whole took, less what half of it would take (`half_batch.py`): that is measured where the same
submodule also ran without (guidance in some of the steps only), else an estimate, and `estimated`
says so. Predictions without guidance go by the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import polars as pl

from profiler.analysis.denoise.codes import GuidanceEvidence, GuidanceKind
from profiler.analysis.denoise.columns import GUIDANCE
from profiler.analysis.denoise.half_batch import BATCHED, HalfBatch, half_batch
from profiler.analysis.notes import Note, notes_text
from profiler.analysis.roofline.device_profiles import DeviceProfile
from profiler.table.columns import schema

__all__ = ["guidance_table"]

_WHOLE = {
    "uncond": GuidanceKind.CLASSIFIER_FREE,
    "negative_prompt": GuidanceKind.NEGATIVE_PROMPT,
    "skip_layers": GuidanceKind.SKIP_LAYERS,
}
_TIMES = ("wall_ns", "busy_ns", "calibrated_ns")


def guidance_table(
    inputs: pl.DataFrame,
    calls: pl.DataFrame,
    kinds: pl.DataFrame,
    profiles: Mapping[str, DeviceProfile],
    calibration: pl.DataFrame,
    end_to_end_ns: int,
) -> pl.DataFrame:
    """One row a submodule and branch that guidance adds (`columns.GUIDANCE`), longest first of
    each.

    `inputs` are calls with the shapes of their inputs, `calls` is the call table, `kinds` the table
    of the kinds of its commands, `profiles` are those of devices by name, `calibration` has the
    columns `submodule` and `calibration`.
    """

    def half(submodule: str, factor: float) -> HalfBatch:
        return half_batch(inputs, calls, kinds, profiles, submodule, factor)

    factor = pl.when(pl.col("ops_traced")).then(pl.col("calibration")).otherwise(1.0)
    known = calls.join(calibration, on="submodule", how="left").with_columns(
        wall_ns=pl.col("duration_ns").cast(pl.Float64),
        busy_ns=pl.col("busy_ns").cast(pl.Float64),
        calibrated_ns=pl.col("duration_ns") * factor,
    )
    rows = [
        row
        for (submodule,), some in known.group_by("submodule", maintain_order=True)
        for row in _rows(str(submodule), some, half)
    ]
    table = pl.DataFrame(rows, schema=_ROW, orient="row").with_columns(
        share=pl.col("wall_ns") / end_to_end_ns if end_to_end_ns else pl.lit(None),
        order=pl.col("what").replace_strict(
            {kind.value: number for number, kind in enumerate(GuidanceKind)}, return_dtype=pl.Int64
        ),
    )
    table = table.sort("order", "wall_ns", descending=[False, True], maintain_order=True)
    rounded = table.with_columns(pl.col(*_TIMES).round()).with_columns(
        pl.col("calibrated_ns").cast(pl.Int64, strict=False)  # a foreign factor may be anything
    )
    return rounded.select(pl.col(n).cast(t) for n, t in schema(GUIDANCE).items())


_ROW = pl.Schema(
    {
        "what": pl.String(),
        "submodule": pl.String(),
        "branch": pl.String(),
        "calls": pl.Int64(),
        "wall_ns": pl.Float64(),
        "busy_ns": pl.Float64(),
        "calibrated_ns": pl.Float64(),
        "estimated": pl.Boolean(),
        "evidence": pl.String(),
    }
)


def _rows(
    submodule: str, calls: pl.DataFrame, half: Callable[[str, float], HalfBatch]
) -> Iterator[tuple[object, ...]]:
    """What each branch of a submodule's calls costs."""
    for branch, what in _WHOLE.items():
        some = calls.filter(pl.col("branch") == branch)
        if len(some):
            sums = (_sum(some[name]) for name in _TIMES)
            evidence = Note.of(GuidanceEvidence.OWN_CALLS, branch=branch)
            yield what.value, submodule, branch, len(some), *sums, False, notes_text([evidence])
    batched = calls.filter(pl.col("branch") == BATCHED)
    if not len(batched):
        return
    factor = calls["calibration"].first()
    recorded = half(submodule, 1.0)
    calibrated = half(submodule, factor) if isinstance(factor, float) else recorded
    leaves = (recorded.wall, recorded.busy, calibrated.wall)
    costs = (
        _sum(batched[name], 1 - ratio.value) for name, ratio in zip(_TIMES, leaves, strict=True)
    )
    estimated = not recorded.measured
    row = (GuidanceKind.CLASSIFIER_FREE.value, submodule, BATCHED, len(batched), *costs)
    yield *row, estimated, notes_text([_evidence(calibrated)])


def _sum(values: pl.Series, factor: float = 1.0) -> float | None:
    """`factor` of the sum, None where a value is not known."""
    return None if values.null_count() else float(values.sum()) * factor


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
