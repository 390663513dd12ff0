"""Roles by names alone, against a table of the 200 costliest kernel names of real traces.

The expected roles of `kernel_names.csv` were read from the names, not from what is found here
(README.md); traces are in the shared corpus.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from profiler.analysis.role_rules import role_of_name
from profiler.kineto.operators import kernel_name
from profiler.trace.events import ROLES
from tests.corpus import CORPUS, needs_corpus

TABLE = Path(__file__).parent / "kernel_names.csv"
TRACES = sorted([*CORPUS.glob("torch*/**/*.json.gz"), *CORPUS.glob("hta/*.json.gz")])
TRAINING = ("worker0.", "nccl_data", "sampled_rank", "benchmark_result")
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")  # old traces: Kernel, …


class Row(NamedTuple):
    """A line of the table."""

    kernel: str
    role: str
    device_us: float
    traces: int
    note: str


class _Event(msgspec.Struct):
    name: str = ""
    ph: str = ""
    cat: str = ""
    dur: float = 0.0


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815  the key's own name


def _rows():
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [
            Row(
                row["kernel"], row["role"], float(row["device_us"]), int(row["traces"]), row["note"]
            )
            for row in csv.DictReader(file)
        ]


@pytest.fixture(scope="module")
def times():
    """Device time in µs by kernel name, for each shared trace."""
    found = {}
    for path in TRACES:
        content = gzip.decompress(path.read_bytes())
        found[path.relative_to(CORPUS).as_posix()] = by_name = Counter()
        for event in msgspec.json.decode(content, type=_Trace, strict=False).traceEvents:
            if event.ph == "X" and event.cat.lower() in DEVICE_WORK:
                by_name[event.name] += event.dur
    return found


def _share(rows, right):
    return sum(row.device_us for row in rows if right(row)) / sum(row.device_us for row in rows)


def test_the_table_is_whole():
    """200 names, each once, the costliest first, with roles of the closed list."""
    rows = _rows()
    assert len({row.kernel for row in rows}) == len(rows) == 200
    assert [row.device_us for row in rows] == sorted((r.device_us for r in rows), reverse=True)
    assert {row.role for row in rows} <= set(ROLES)


def test_roles_by_name_alone():
    """At least 95 % of the device time has the role that a reader gave the name."""
    rows = _rows()
    wrong = [row for row in rows if role_of_name(row.kernel) != row.role]
    assert _share(rows, lambda row: row not in wrong) >= 0.95, wrong


def test_roles_by_cut_names():
    """Names without template arguments, as importers cut them, tell no more than what runs: what
    they say otherwise is that arithmetic is elementwise, though it copies."""
    rows = _rows()
    found = {row: role_of_name(kernel_name(row.kernel)) for row in rows}
    differing = {(row.role, role) for row, role in found.items() if row.role != role}
    assert differing <= {("data_movement", "elementwise"), ("convolution", "matmul")}
    assert _share(rows, lambda row: found[row] == row.role) >= 0.95


@needs_corpus
def test_the_table_has_the_costliest_names(times):
    """The 200 names with the most time over all shared traces, with their time and number."""
    total, traces = Counter(), Counter()
    for by_name in times.values():
        total.update(by_name)
        traces.update(by_name.keys())
    rows = _rows()
    costliest = sorted(total, key=lambda name: (-total[name], name))[: len(rows)]
    assert [row.kernel for row in rows] == costliest
    for row in rows:
        assert row.device_us == pytest.approx(total[row.kernel], abs=1e-2)
        assert row.traces == traces[row.kernel]
    assert sum(row.device_us for row in rows) > 0.97 * total.total()


@needs_corpus
def test_hardly_any_time_is_other(times):
    """By names alone less than 5 % of a trace's device time is other, 10 % where it trained."""
    shares = {}
    for trace, by_name in times.items():
        roles = {name: role_of_name(name) for name in by_name}
        assert set(roles.values()) <= set(ROLES)
        other = sum(us for name, us in by_name.items() if roles[name] == "other")
        shares[trace] = other / by_name.total()
    limits = {t: 0.10 if any(word in t for word in TRAINING) else 0.05 for t in shares}
    assert len(shares) == 16
    assert not {t: share for t, share in shares.items() if share >= limits[t]}
