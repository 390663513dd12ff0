"""How a metric is named: `denoise.step`, `transformer.time[role=attention]`.

[SCOPE.]METRIC[[KEY=VALUE,…]]        SCOPE: a stage, a submodule, or STAGE.SUBMODULE
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import polars as pl

from profiler.errors import InputError
from profiler.fleet.columns import DISTINGUISHING

__all__ = ["METRIC_NAMES", "STAGES", "MetricName", "full_name", "metric_name"]

STAGES = ("encode", "denoise", "decode", "run")
METRIC_NAMES: Mapping[str, str] = {
    "elapsed": "time of a pipeline call, of a stage or a submodule in it",
    "first_elapsed": "time of the first pipeline call",
    "host": "host work of a stage",
    "idle": "idle time of a stage",
    "step": "median of steady steps; [step=N]: of that step",
    "first_step": "median of the first steps of pipeline calls",
    "call": "median of a submodule's steady calls",
    "first_call": "a submodule's first call",
    "calls": "calls of a submodule in the run",
    "time": "device time of [role=ROLE] or [shape=SHAPE]",
    "busy": "busy time of [device=DEVICE]",
    "utilization": "busy share of [device=DEVICE]",
    "peak_memory": "peak memory of [device=DEVICE]",
    "weight_memory": "bytes of weights on [device=DEVICE]",
}
"""Names of metrics and what each is."""
_KEYS = ("step", "role", "device", "shape")
_BRACKETS = re.compile(r"(?P<path>[^\[]+?)(?:\[(?P<keys>.*)\])?", re.DOTALL)
_ADVICE = (
    "write [STAGE.][SUBMODULE.]METRIC, such as denoise.step or transformer.time[role=attention]"
)


class MetricName(msgspec.Struct, frozen=True, kw_only=True):
    """What a name names. `any_stage`: the submodule's one stage, whichever that is."""

    text: str
    metric: str
    stage: str | None = None
    submodule: str | None = None
    step: int | None = None
    role: str | None = None
    shape: str | None = None
    device: str | None = None
    any_stage: bool = False

    def matches(self) -> pl.Expr:
        """Whether a row of `metrics` is of this name."""
        fields = [name for name in DISTINGUISHING if not (name == "stage" and self.any_stage)]
        parts = [pl.col("metric") == self.metric]
        for name in fields:
            value = getattr(self, name)
            parts.append(pl.col(name).is_null() if value is None else pl.col(name) == value)
        return pl.all_horizontal(parts)


def metric_name(text: str) -> MetricName:
    """What `text` names. Raises InputError where it is no name of a metric."""
    found = _BRACKETS.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{text!r:.120} is no metric: {_ADVICE}")
    scope, _, metric = found["path"].rpartition(".")
    if metric not in METRIC_NAMES:
        raise InputError(
            f"{text!r:.120} is no metric: there is {', '.join(METRIC_NAMES)}; {_ADVICE}"
        )
    stage, submodule = _scope(scope)
    keys = _keys(text, found["keys"])
    known: dict[str, Any] = {"stage": stage, "submodule": submodule, **keys}
    any_stage = submodule is not None and stage is None
    return MetricName(text=text.strip(), metric=metric, any_stage=any_stage, **known)


def full_name(row: Mapping[str, Any]) -> str:
    """The name of a row of `metrics`, with its stage."""
    keys = ",".join(f"{key}={row[key]}" for key in _KEYS if row[key] is not None)
    path = ".".join(part for part in (row["stage"], row["submodule"], row["metric"]) if part)
    return f"{path}[{keys}]" if keys else path


def _scope(scope: str) -> tuple[str | None, str | None]:
    if not scope:
        return None, None
    first, _, rest = scope.partition(".")
    if first in STAGES:
        return first, rest or None
    return None, scope


def _keys(text: str, keys: str | None) -> dict[str, Any]:
    """The keys in brackets; a shape, the last one, may hold commas."""
    found: dict[str, Any] = {}
    rest = keys or ""
    while rest:
        key, has_value, value = rest.partition("=")
        key = key.strip()
        if key not in _KEYS or not has_value or key in found:
            raise InputError(f"{text!r:.120}: {key!r:.40} is no key: use {', '.join(_KEYS)}")
        rest = ""
        if key != "shape":
            value, _, rest = value.partition(",")
        found[key] = value.strip()
    if "step" in found:
        if not re.fullmatch(r"\d{1,9}", found["step"]):
            raise InputError(f"{text!r:.120}: step={found['step']} is no step: give a number")
        found["step"] = int(found["step"])
    return found
