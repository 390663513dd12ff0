"""An analysis of which only what a test reads is made.

    asked(run).idle

Tests of a table need no other: all of them take fifty times as long. That every table can be made
of any run is for `analyze`: tests/analysis/test_identities.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import polars as pl

from profiler.analysis import Analysis, DeviceProfile, Selection
from profiler.analysis.analyze import assembled, found
from profiler.analysis.context import Inputs
from profiler.analysis.question import tables
from profiler.run import Run

__all__ = ["asked"]

_ALL = Selection()


class _Tables(Mapping[str, pl.DataFrame]):
    """Every table by name, made when it is read."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._names = [table.name for table in tables()]

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._names:
            raise KeyError(name)
        return self._inputs.table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _Findings(Sequence[Any]):
    """What the rules find, once somebody looks."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def __getitem__(self, at: Any) -> Any:
        return found(self._inputs)[at]

    def __len__(self) -> int:
        return len(found(self._inputs))


def asked(
    run: Run,
    selection: Selection = _ALL,
    measured: Sequence[DeviceProfile] = (),
    device_memory: Mapping[str, int] = MappingProxyType({}),
) -> Analysis:
    """The analysis that `analyze` makes, with tables and findings made when they are read."""
    inputs = Inputs(run, selection, measured, device_memory)
    return replace(assembled(inputs, ()), frames=_Tables(inputs), findings=_Findings(inputs))
