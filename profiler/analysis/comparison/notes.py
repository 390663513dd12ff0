"""What else differs between two sides, and what their intervals do not know: one note each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.comparison.codes import ComparisonNote, RunTrait, Side
from profiler.analysis.comparison.measure import Measurement
from profiler.analysis.recorded_settings import (
    ARGUMENTS,
    generation_pairs,
    setting_pairs,
)
from profiler.text import Note
from profiler.trace.manifest_fields import stated

__all__ = ["notes_on"]

_LONGEST = 60  # characters of a value
_FEWEST = 3  # runs that tell noise from difference
_UNTOLD = ("profile-sd3", "python", "source")  # decide about no time: versions, names of files
_LATE = 1.5  # busy time over time in calls: the calls return before their device is done

_Side = Sequence[Measurement]
_Of = Callable[[Measurement], Any]


def notes_on(
    base: _Side, new: _Side, corrected: Sequence[str], within_noise: Sequence[str]
) -> Iterator[Note]:
    """`corrected` are the submodules whose traced calls are scaled
    to untraced ones, `within_noise` those where some run cannot tell the cost of tracing."""
    yield from _same(base, new)
    yield from _repetition(base, new)
    yield from _tracing(base, new, corrected, within_noise)
    yield from _asynchronous(base, new)
    identity: tuple[tuple[RunTrait, _Of], ...] = (
        (RunTrait.PIPELINE, lambda run: run.info.pipeline),
        (RunTrait.MODEL, lambda run: run.info.model),
        (RunTrait.DEVICES, lambda run: ", ".join(run.devices)),
        (RunTrait.CPU, lambda run: run.info.hardware.cpu),
    )
    for noun, of in identity:
        left, right = _told(base, of), _told(new, of)
        if left and right and left != right:
            yield Note.of(ComparisonNote.OTHER_TRAIT, what=noun, left=left, right=right)
    yield from _mappings(ComparisonNote.SETTINGS_DIFFER, base, new, _settings)
    yield from _mappings(ComparisonNote.VERSIONS_DIFFER, base, new, lambda run: run.info.versions)


def _same(base: _Side, new: _Side) -> Iterator[Note]:
    """Runs that are on both sides: others may have the same name."""
    both = [
        run.run_id
        for run in base
        if run.run_id
        and any(run.run_id == other.run_id and run.calls.equals(other.calls) for other in new)
    ]
    if both:
        yield Note.of(ComparisonNote.SAME_RUN, runs=tuple(dict.fromkeys(both)))


def _repetition(base: _Side, new: _Side) -> Iterator[Note]:
    fewest, most = sorted((len(base), len(new)))
    if most == 1:
        yield Note.of(ComparisonNote.ONE_RUN_EACH, fewest=_FEWEST)
    elif fewest == 1:
        side = Side.BASE if len(base) == 1 else Side.NEW
        yield Note.of(ComparisonNote.ONE_RUN, side=side)
    if 1 < most < _FEWEST:
        yield Note.of(ComparisonNote.FEW_RUNS, runs=most, fewest=_FEWEST)


def _tracing(
    base: _Side, new: _Side, corrected: Sequence[str], within_noise: Sequence[str]
) -> Iterator[Note]:
    if corrected:
        yield Note.of(ComparisonNote.CORRECTED, submodules=tuple(corrected))
    if within_noise:
        yield Note.of(ComparisonNote.COST_WITHIN_NOISE, submodules=tuple(within_noise))
    traced = [_traced(side) for side in (base, new)]
    names = [*dict.fromkeys([*traced[0], *traced[1]])]
    raw = [name for name in names if name not in (*corrected, *within_noise)]
    for at, side in enumerate(Side):
        alone = [name for name in raw if traced[at].get(name, 0) and traced[1 - at].get(name) == 0]
        if alone:
            yield Note.of(ComparisonNote.TRACED_ON_ONE_SIDE, side=side, submodules=tuple(alone))
    both = [name for name in raw if all(side.get(name, 0) for side in traced)]
    if both:
        yield Note.of(ComparisonNote.AS_TRACED, submodules=tuple(both))


def _traced(side: _Side) -> dict[str, int]:
    """Traced calls by submodule."""
    found: dict[str, int] = {}
    for run in side:
        counted = run.calls.group_by("submodule", maintain_order=True).agg(pl.col("traced").sum())
        for name, count in counted.iter_rows():
            found[name] = found.get(name, 0) + count
    return found


def _asynchronous(base: _Side, new: _Side) -> Iterator[Note]:
    """Submodules whose calls return before their device is done."""
    for name, side in ((Side.BASE, base), (Side.NEW, new)):
        late: dict[str, None] = {}
        for run in side:
            timed = run.calls.drop_nulls("value_ns")
            traced = timed.filter("traced").group_by("submodule", maintain_order=True)
            sums = traced.agg(pl.col("total_ns", "value_ns").sum())
            rows = sums.filter(pl.col("total_ns") > _LATE * pl.col("value_ns"))
            late |= dict.fromkeys(rows["submodule"])
        if late:
            yield Note.of(ComparisonNote.ASYNCHRONOUS, submodules=tuple(late), side=name)


def _settings(run: Measurement) -> Mapping[str, Any]:
    """What its pipeline calls were asked for and how it was set up and recorded: what decides how
    much work a run has comes first."""
    made = generation_pairs(run.info.generations)
    given = {
        key: value
        for key, value in run.info.settings.items()
        if ARGUMENTS.get(key) not in made  # what the objects say stands for it
    }
    set_up = setting_pairs(run.info.submodule_settings, without="none")
    return {**made, **set_up, **given, **stated(run.info.recording)}


def _told(side: _Side, of: _Of) -> str:
    """What the runs of a side say, joined where they differ."""
    values = dict.fromkeys(_text(of(run)) for run in side)
    return " or ".join(value for value in values if value)


def _mappings(code: ComparisonNote, base: _Side, new: _Side, of: _Of) -> Iterator[Note]:
    """The keys that both sides have with different values."""
    left, right = _merged(base, of), _merged(new, of)
    differing = [
        Note.of(ComparisonNote.CHANGED_VALUE, name=key, left=left[key], right=right[key])
        for key in left
        if key in right and left[key] != right[key] and key not in _UNTOLD
    ]
    if differing:
        yield Note.of(code, pairs=tuple(differing))


def _merged(side: _Side, of: _Of) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for run in side:
        known = of(run)
        for key, value in known.items():
            found.setdefault(key, {})[_text(value)] = None
    return {key: " or ".join(values) for key, values in found.items()}


def _text(value: Any) -> str:
    text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
