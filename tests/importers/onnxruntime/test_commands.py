"""Commands of runs that share a table, against those of a table of their own."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.ort_profiles import CommandTable, NodeColumns, NodeKind, Placed
from profiler.trace import Track
from tests.examples import examples

KINDS = [
    NodeKind(name, op_type, provider, 8, 4, shapes)
    for name, op_type, provider, shapes in (
        ("a", "MatMul", "CPU", "float[2] -> float[2]"),
        ("b", "Add", "CPU", " -> "),
        ("b", "Add", "NPU", ""),
        ("", "Mul", "NPU", "float[2] -> "),
    )
]
RUN = st.lists(
    st.tuples(st.integers(0, len(KINDS) - 1), st.integers(1, 2), st.integers(0, 9)), max_size=5
)


def placed(kind):
    return Placed(Track("cpu:0", kind.provider, "compute"), kind.name, module=kind.op_type.lower())


def nodes_of(run):
    kind, thread, start = np.array(run, dtype=np.int64).reshape(-1, 3).T.copy()
    return NodeColumns(KINDS, kind.astype(np.int32), thread, start, start + 1, start)


def plain(commands):
    """Columns as lists, texts instead of their numbers."""
    found = {}
    for one in dataclasses.fields(commands):
        value = getattr(commands, one.name)
        if (
            one.name in ("layer", "op_type", "shapes", "module", "kernel", "name")
            and value is not None
        ):
            value = [commands.strings[code] for code in value.tolist()]
        found[one.name] = value.tolist() if isinstance(value, np.ndarray) else value
    found["track"] = [commands.tracks[code] for code in commands.track.tolist()]
    return {name: found[name] for name in found if name not in ("tracks", "strings")}


@settings(max_examples=examples(100), deadline=None)
@given(runs=st.lists(RUN, max_size=3), again=st.integers(1, 2))
def test_runs_alike_share_columns_and_nothing_else(runs, again):
    """Whatever ran before, and however often the same nodes ran: the commands of a run are those
    that it has in a table of its own, with times, threads and flows of its own."""
    shared = CommandTable(KINDS, placed)
    for number, run in enumerate(run for run in runs for _ in range(again)):
        nodes = nodes_of(run)
        flows = np.array([[0, len(run) - 1]]) if len(run) > 1 else None
        alone = CommandTable(KINDS, placed).commands(nodes, number, flows)
        assert plain(shared.commands(nodes, number, flows)) == plain(alone)
