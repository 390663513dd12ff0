"""What else differs between two sides, and what their intervals do not know: one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.comparison.measure import Measurement
from profiler.messages import Said, said
from profiler.trace.manifest_fields import stated

__all__ = ["notes_on"]

_LONGEST = 60  # characters of a value
_FEWEST = 3  # runs that tell noise from difference
_UNTOLD = ("profile-sd3", "python")  # versions that decide about no time
_LATE = 1.5  # busy time over time in calls: the calls return before their device is done

_Side = Sequence[Measurement]
_Of = Callable[[Measurement], Any]


def notes_on(
    base: _Side, new: _Side, calibrated: Sequence[str], within_noise: Sequence[str]
) -> Iterator[str]:
    """Sentences without a full stop. `calibrated` are the submodules whose traced calls are scaled
    to untraced ones, `within_noise` those where some run cannot tell the cost of tracing."""
    yield from _same(base, new)
    yield from _repetition(base, new)
    yield from _tracing(base, new, calibrated, within_noise)
    yield from _asynchronous(base, new)
    identity: tuple[tuple[str, _Of], ...] = (
        (said("pipeline"), lambda run: run.info.pipeline),
        (said("model"), lambda run: run.info.model),
        (said("devices"), lambda run: ", ".join(run.devices)),
        ("CPU", lambda run: run.info.hardware.cpu),
    )
    for noun, of in identity:
        left, right = _told(base, of), _told(new, of)
        if left and right and left != right:
            yield said("not the same {what}: {left} → {right}", what=noun, left=left, right=right)
    yield from _mappings(said("settings differ"), base, new, _settings)
    yield from _mappings(said("versions differ"), base, new, lambda run: run.info.versions)


def _same(base: _Side, new: _Side) -> Iterator[str]:
    """Runs that are on both sides."""
    ids = {run.run_id for run in new} - {""}
    both = [run_id for run_id in dict.fromkeys(run.run_id for run in base) if run_id in ids]
    if both:
        yield said(
            "{runs} is on both sides: a run that is compared with itself differs in nothing; give "
            "another",
            runs=", ".join(both),
        )


def _repetition(base: _Side, new: _Side) -> Iterator[str]:
    fewest, most = sorted((len(base), len(new)))
    if most == 1:
        yield said(
            "one run a side: intervals know how its steps or pipeline calls scatter, not how runs "
            "do; record {fewest} or more of each side",
            fewest=_FEWEST,
        )
    elif fewest == 1:
        side = said("base") if len(base) == 1 else said("new")
        yield said(
            "one {side} run: it is taken to scatter as the runs of the other side do", side=side
        )
    if 1 < most < _FEWEST:
        yield said(
            "{runs} runs hardly tell noise from difference: record {fewest} or more a side",
            runs=most,
            fewest=_FEWEST,
        )


def _tracing(
    base: _Side, new: _Side, calibrated: Sequence[str], within_noise: Sequence[str]
) -> Iterator[str]:
    if calibrated:
        yield said("calibrated to untraced calls: {submodules}", submodules=", ".join(calibrated))
    if within_noise:
        yield said(
            "as traced, for what tracing costs is within noise in some of the runs: {submodules}",
            submodules=", ".join(within_noise),
        )
    traced = [_traced(side) for side in (base, new)]
    names = [*dict.fromkeys([*traced[0], *traced[1]])]
    raw = [name for name in names if name not in (*calibrated, *within_noise)]
    for at, side in enumerate((said("base"), said("new"))):
        alone = [name for name in raw if traced[at].get(name, 0) and traced[1 - at].get(name) == 0]
        if alone:
            yield said(
                "operators were traced in {side} only, which makes its calls longer: {submodules}",
                side=side,
                submodules=", ".join(alone),
            )
    both = [name for name in raw if all(side.get(name, 0) for side in traced)]
    if both:
        yield said(
            "as traced, with what tracing operators cost on both sides: {submodules}",
            submodules=", ".join(both),
        )


def _traced(side: _Side) -> dict[str, int]:
    """Traced calls by submodule."""
    found: dict[str, int] = {}
    for run in side:
        counted = run.calls.group_by("submodule", maintain_order=True).agg(pl.col("traced").sum())
        for name, count in counted.iter_rows():
            found[name] = found.get(name, 0) + count
    return found


def _asynchronous(base: _Side, new: _Side) -> Iterator[str]:
    """Submodules whose calls return before their device is done."""
    for name, side in ((said("base"), base), (said("new"), new)):
        late: dict[str, None] = {}
        for run in side:
            traced = run.calls.filter("traced").group_by("submodule", maintain_order=True)
            sums = traced.agg(pl.col("busy_ns", "value_ns").sum())
            rows = sums.filter(pl.col("busy_ns") > _LATE * pl.col("value_ns"))
            late |= dict.fromkeys(rows["submodule"])
        if late:
            yield said(
                "calls of {submodules} return before their device is done in {side}: compare busy "
                "times and roles",
                submodules=", ".join(late),
                side=name,
            )


def _settings(run: Measurement) -> Mapping[str, Any]:
    """How the run was recorded, and what its pipeline calls were given."""
    return {**stated(run.info.recording), **run.info.settings}


def _told(side: _Side, of: _Of) -> str:
    """What the runs of a side say, joined where they differ."""
    values = dict.fromkeys(_text(of(run)) for run in side)
    return " or ".join(value for value in values if value)


def _mappings(that: Said, base: _Side, new: _Side, of: _Of) -> Iterator[str]:
    """The keys that both sides have with different values."""
    left, right = _merged(base, of), _merged(new, of)
    differing = [
        f"{key} {left[key]} → {right[key]}"
        for key in left
        if key in right and left[key] != right[key] and key not in _UNTOLD
    ]
    if differing:
        yield said("{that}: {pairs}", that=that, pairs="; ".join(differing))


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
