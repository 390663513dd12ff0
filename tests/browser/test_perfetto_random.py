"""Random traces of ours, and long ones, are read by trace_processor as we read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profiler.trace import (
    Call,
    CommandBuilder,
    CommandColumns,
    Counter,
    Track,
    encode_call,
    text_table,
)
from tests.browser.perfetto_ui import PerfettoUi
from tests.browser.same_reading import assert_same, bag
from tests.trace.writer_samples import EPOCH_NS, large_commands

pytestmark = pytest.mark.browser

_FIELDS = ("layer", "op_type", "command_index", "shapes", "bytes_read")
_SQL = "select ts, " + ", ".join(
    f"extract_arg(arg_set_id, 'command.{name}') as {name}" for name in _FIELDS
)
_TRACKS = (
    Track("cpu:0", "queue 1", "compute"),
    Track("cpu:0", "queue 2", "copy"),
    Track("cpu:1", "queue 1", "compute"),
)


def _call(index: int, start_ns: int, duration_ns: int) -> Call:
    return Call(
        index, "transformer", "denoise", "cond", index, "cpu:0", start_ns, duration_ns, True, {}
    )


def _commands(random: np.random.Generator, start_ns: int, count: int) -> CommandColumns:
    """Commands that overlap, nest, touch, take no time or never end, and wait for each other."""
    builder = CommandBuilder()
    starts = start_ns + np.sort(random.integers(0, 3 * count, count))
    durations = random.choice([0, 1, 5, 40, 300, -1], count, p=[0.2, 0.2, 0.2, 0.2, 0.19, 0.01])
    for start, duration in zip(starts.tolist(), durations.tolist(), strict=True):
        builder.add(
            _TRACKS[random.integers(0, len(_TRACKS))],
            f"layer {random.integers(0, 20)}",
            str(random.choice(["MatMul", "Add", ""])),
            start,
            duration,
            shapes=str(random.choice(["", "float32[1,2]"])),
            bytes_read=int(random.integers(-1, 1 << 40)),
        )
    ends = starts + durations  # a flow to what had ended, or never ends, is drawn by nobody
    for source, target in random.integers(0, count, (count // 3, 2)).tolist():
        if source != target and starts[source] < ends[target]:
            builder.link(source, target)
    return builder.build()


def _memory(random: np.random.Generator, start_ns: int) -> Counter:
    times = start_ns + np.sort(random.integers(0, 500, 30))
    return Counter("cpu:0", "memory", "bytes", times, random.integers(0, 1 << 40, 30))


@pytest.mark.parametrize("seed", range(4))
def test_random_files(perfetto: PerfettoUi, tmp_path: Path, seed: int) -> None:
    """Three calls at overlapping times, whose files stand in random order in one trace."""
    random = np.random.default_rng(seed)
    texts = text_table(run=True)
    files, given = [], []
    for index in range(3):
        start_ns = EPOCH_NS + int(random.integers(0, 400))
        commands = _commands(random, start_ns, 200)
        given.append(commands)
        counter = _memory(random, start_ns)
        call = _call(index, start_ns, 900)
        files.append(encode_call(call, commands, [counter], texts=texts))
    path = tmp_path / "merged.pb"
    path.write_bytes(b"".join(files[at] for at in random.permutation(3)))
    assert_same(perfetto, path)
    rows = perfetto.query(path, f"{_SQL} from slice where category in ('compute', 'copy')")
    assert bag(rows) == bag([row for commands in given for row in _written(commands)])


def _written(commands: CommandColumns) -> list[dict[str, object]]:
    """As SQL answers: null for texts that are empty and bytes that are unknown."""
    strings = commands.strings
    return [
        {
            "ts": int(commands.start_ns[row]),
            "layer": strings[commands.layer[row]],
            "op_type": strings[commands.op_type[row]] or None,
            "command_index": int(commands.command_index[row]),
            "shapes": strings[commands.shapes[row]] or None,
            "bytes_read": int(commands.bytes_read[row]) if commands.bytes_read[row] >= 0 else None,
        }
        for row in range(len(commands))
    ]


@pytest.mark.parametrize("compress", ["none", "deflate"])
def test_many_blocks(perfetto: PerfettoUi, tmp_path: Path, compress: str) -> None:
    """Commands of several blocks and lanes, plain and packed, in microseconds or not."""
    commands = large_commands(10_000, tracks=3, unit_ns=1 if compress == "none" else 1000)
    start_ns = int(commands.start_ns.min())
    duration_ns = int(commands.end_ns.max()) - start_ns
    path = tmp_path / "large.pb"
    path.write_bytes(encode_call(_call(0, start_ns, duration_ns), commands, compress=compress))
    assert_same(perfetto, path)
