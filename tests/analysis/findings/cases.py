"""Two and more runs for each rule: one that triggers it, and near misses that must not.

A case is a function without arguments in a module `*_cases.py`, which `test_rules.py` imports;
`CASES` has all of them. It gives the `Analysis` and, if it triggers the rule, a part of the
evidence that the rule must give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis import Analysis, DeviceProfile
from profiler.run import COUNTERS, FLOWS, schema
from profiler.trace import Call
from tests.analysis.asked import asked
from tests.runs import EPOCH, Command, make_call, make_info, make_run, make_span

__all__ = ["CASES", "Case", "analyzed", "command", "gpu_call", "misses", "triggers"]

Evidence = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A run for one rule, and what the rule must find: None for nothing."""

    rule: str
    name: str
    build: Callable[[], Analysis]
    evidence: Evidence | None


CASES: list[Case] = []


def triggers(rule: str, **evidence: Any) -> Callable[[Callable[[], Analysis]], Any]:
    """Marks a function whose run must trigger `rule`, with this evidence among other."""

    def mark(build: Callable[[], Analysis]) -> Callable[[], Analysis]:
        CASES.append(Case(rule, build.__name__, build, evidence))
        return build

    return mark


def misses(rule: str) -> Callable[[Callable[[], Analysis]], Any]:
    """Marks a function whose run must not trigger `rule`."""

    def mark(build: Callable[[], Analysis]) -> Callable[[], Analysis]:
        CASES.append(Case(rule, build.__name__, build, None))
        return build

    return mark


def gpu_call(index: int, start: int, end: int, **more: Any) -> Call:
    """A call of the transformer on cuda:0 in its own step, in ns from `EPOCH`."""
    return make_call(
        index,
        **{"submodule": "transformer", "device": "cuda:0", "step": index, **more},
        start=start,
        end=end,
    )


def command(call: int, start: int, end: int, **more: Any) -> Command:
    """A compute command on cuda:0."""
    given = {"device": "cuda:0", "track": "stream 7", "category": "compute", "layer": "kernel"}
    return Command(call, start=start, duration=end - start, **{**given, **more})


def analyzed(
    calls: Sequence[Call] = (),
    commands: Sequence[Command] = (),
    *,
    end: int | None = 1000,
    spans: Sequence[Any] = (),
    shapes: Sequence[str | None] | None = None,
    written: Sequence[int | None] | None = None,
    samples: Sequence[tuple[int, str, str, int, int]] = (),
    profile: DeviceProfile | None = None,
    drops: tuple[Any, ...] = (),
    flows: Sequence[tuple[int, int]] = (),
    **info: Any,
) -> Analysis:
    """A run that lasts `end` ns, analyzed; `shapes` and `written` are by command, `samples` are
    call, device, counter, time in ns and bytes, `flows` are launches and what they launched, `info`
    is the manifest's."""
    whole = [make_span("pipeline", "P", 0, end)] if end else []
    known = make_info(**{"producer": "test", **info})
    run = make_run(calls, commands, [*whole, *spans], info=known, drops=drops)
    frame = run.commands
    if shapes is not None:
        frame = frame.with_columns(pl.Series("shapes", shapes, dtype=pl.Categorical()))
    if written is not None:
        frame = frame.with_columns(pl.Series("bytes_written", written, dtype=pl.Int64))
    rows = [(c, d, name, "bytes", EPOCH + at, float(v)) for c, d, name, at, v in samples]
    counters = pl.DataFrame(rows, schema=schema(COUNTERS), orient="row")
    linked = pl.DataFrame(list(flows), schema=schema(FLOWS), orient="row")
    run = dataclasses.replace(run, commands=frame, counters=counters, flows=linked)
    return asked(run, measured=(profile,) if profile else ())
