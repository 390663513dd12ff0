"""What the Perfetto UI and its trace_processor make of our traces: the same as we do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import profiler
from profiler.trace import HOST_NAME, MERGED_NAME, call_files, encode_call, encode_host
from tests.browser.perfetto_ui import PerfettoUi
from tests.browser.same_reading import COUNTERS, FLOWS, SLICES, assert_same, bag
from tests.trace.samples import awkward_trace, small_calls, small_host

pytestmark = pytest.mark.browser

_REPOSITORY = Path(__file__).parents[2]
_SAMPLES = sorted((_REPOSITORY / "sample_traces").rglob("*.pb"))
_FILES = [
    *(call.file_name for call, _, _ in small_calls()),
    HOST_NAME,
    MERGED_NAME,
]

_EVENTS = (SLICES, COUNTERS, FLOWS)


def _arguments(prefix: str, names: tuple[str, ...]) -> str:
    columns = (f"extract_arg(arg_set_id, '{prefix}.{name}') as {name}" for name in names)
    first = f"extract_arg(arg_set_id, '{prefix}.{names[0]}')"
    return f"select ts, dur, {', '.join(columns)} from slice where {first} is not null"


@pytest.mark.parametrize("name", _FILES)
def test_every_file_of_a_bundle_reads_as_we_read_it(
    perfetto: PerfettoUi, bundle: Path, name: str
) -> None:
    """Slices, nesting, tracks, counters and flows equal ours, and nothing counts as an error."""
    assert_same(perfetto, bundle / name)


def test_merged_file_holds_the_whole_run(perfetto: PerfettoUi, bundle: Path) -> None:
    """Its slices are as many as the run's calls, commands and spans together."""
    run = profiler.load(bundle)
    ((found,),) = (
        row.values()
        for row in perfetto.query(bundle / MERGED_NAME, "select count() as n from slice")
    )
    assert found == len(run.calls) + len(run.commands) + len(run.spans)


def test_fields_of_commands_are_readable_by_sql(perfetto: PerfettoUi, bundle: Path) -> None:
    """Every field of our commands is an argument that SQL reads under its own name."""
    names = ("layer", "command_index", "op_type", "role", "bytes_read", "bytes_written", "flops")
    names += ("shapes",)
    columns = profiler.load(bundle).commands.rename({"start_ns": "ts", "duration_ns": "dur"})
    ours = columns.select("ts", "dur", *names).to_dicts()
    assert bag(perfetto.query(bundle / MERGED_NAME, _arguments("command", names))) == bag(ours)


def test_fields_of_calls_are_readable_by_sql(perfetto: PerfettoUi, bundle: Path) -> None:
    """Submodule, stage, branch, step and device of every call are arguments of its slice."""
    names = ("submodule", "stage", "branch", "step", "device")
    columns = profiler.load(bundle).calls.rename({"start_ns": "ts", "duration_ns": "dur"})
    ours = columns.select("ts", "dur", *names).fill_null("").to_dicts()
    assert bag(perfetto.query(bundle / MERGED_NAME, _arguments("call", names))) == bag(ours)


def test_host_work_carries_its_stage_and_step(perfetto: PerfettoUi, bundle: Path) -> None:
    """Work of no call has its own stage and step as arguments, and inputs of calls are lists."""
    sql = """
        select name, extract_arg(arg_set_id, 'command.stage') as stage,
               extract_arg(arg_set_id, 'command.step') as step
        from slice where category = 'host' order by ts"""
    assert perfetto.query(bundle / HOST_NAME, sql) == [
        {"name": "tokenize", "stage": "encode", "step": None},
        {"name": "scheduler.step", "stage": "denoise", "step": 0},
        {"name": "postprocess", "stage": "decode", "step": None},
    ]
    inputs = "select string_value from args where key = 'call.inputs[1].name'"
    (first, _) = perfetto.query(bundle / MERGED_NAME, inputs)
    assert first == {"string_value": "timestep"}


@pytest.mark.parametrize("seed", ["reversed", 1, 2])
def test_files_in_any_order_are_the_same_trace(
    perfetto: PerfettoUi, bundle: Path, tmp_path: Path, seed: str | int
) -> None:
    """Concatenated in another order, the files give the slices and counters of merged.pb."""
    files = [*call_files(bundle), bundle / HOST_NAME]
    files.reverse() if seed == "reversed" else random.Random(seed).shuffle(files)
    mixed = tmp_path / "mixed.pb"
    mixed.write_bytes(b"".join(path.read_bytes() for path in files))
    merged = [bag(perfetto.query(bundle / MERGED_NAME, sql)) for sql in _EVENTS]
    assert_same(perfetto, mixed)
    assert [bag(perfetto.query(mixed, sql)) for sql in _EVENTS] == merged


def test_some_of_the_files_are_a_trace(perfetto: PerfettoUi, bundle: Path, tmp_path: Path) -> None:
    """Two call files without the others are a whole trace of those two calls."""
    files = call_files(bundle)
    part = tmp_path / "part.pb"
    part.write_bytes(files[3].read_bytes() + files[1].read_bytes())
    assert_same(perfetto, part)
    calls = perfetto.query(part, "select name from slice where depth = 0 and dur in (200, 500)")
    assert bag(calls) >= bag([{"name": "transformer"}, {"name": "text_encoder_2"}])


def test_awkward_events(perfetto: PerfettoUi, tmp_path: Path) -> None:
    """Odd names, ties, slices that take no time or never close, and empty counters hold too."""
    path = tmp_path / "awkward.pb"
    path.write_bytes(encode_call(*awkward_trace()))
    assert_same(perfetto, path)
    never = perfetto.query(path, "select dur from slice where name = 'never closed'")
    assert never == [{"dur": -1}]


def test_empty_host_file_changes_nothing(
    perfetto: PerfettoUi, bundle: Path, tmp_path: Path
) -> None:
    """A run without host work still merges: a file without events is a trace, and disturbs none."""
    _, commands, _ = small_calls()[-1]
    empty = tmp_path / "empty.pb"
    empty.write_bytes(encode_host([], commands, "cpu:0"))
    merged = tmp_path / "merged.pb"
    first = call_files(bundle)[0]
    merged.write_bytes(first.read_bytes() + empty.read_bytes())
    assert perfetto.query(empty, "select * from slice") == []
    assert_same(perfetto, merged)


def test_tracks_stand_in_reading_order(perfetto: PerfettoUi, bundle: Path) -> None:
    """Devices in order; in each, pipeline, calls and host first, then queues by category and
    number, lanes of one queue folded into one, counters last."""
    tree = [entry for entry in perfetto.track_tree(bundle / MERGED_NAME) if entry[0] != "System"]
    assert tree == [
        [
            "cpu:0",
            [[name, []] for name in ("Pipeline", "Calls", "Host", "intra-op", "Resident memory")],
        ],
        [
            "cpu:1",
            [[name, []] for name in ("Calls", "stream 7", "stream 10", "Task DMA", "Sync")],
        ],
    ]


def test_a_picture_for_people(perfetto: PerfettoUi, bundle: Path) -> None:
    """The timeline of merged.pb can be drawn; the picture lies in tests/browser/actual."""
    target = Path(__file__).parent / "actual" / "perfetto_merged.png"
    perfetto.screenshot(bundle / MERGED_NAME, target)
    assert target.stat().st_size > 10_000


def test_what_is_no_trace_is_refused(perfetto: PerfettoUi, tmp_path: Path) -> None:
    """The harness tells a file that does not open from one that is still loading."""
    path = tmp_path / "noise.pb"
    path.write_bytes(random.Random(0).randbytes(1000))
    with pytest.raises(ValueError, match="refuses"):
        perfetto.query(path, "select 1")


@pytest.mark.skipif(not _SAMPLES, reason="sample_traces holds no .pb")
@pytest.mark.parametrize("path", _SAMPLES, ids=lambda path: str(path.relative_to(_REPOSITORY)))
def test_sample_traces(perfetto: PerfettoUi, path: Path) -> None:
    """Every trace that is shipped opens without an error and reads as we read it."""
    assert_same(perfetto, path)


def test_host_spans_are_those_that_were_written(perfetto: PerfettoUi, bundle: Path) -> None:
    """Pipeline, stages and steps of host.pb nest in the UI as they were given."""
    spans, _ = small_host()
    sql = "select name, depth, ts, dur from slice where category = 'other' order by ts, depth"
    depths = {"pipeline": 0, "stage": 1, "step": 2}
    assert perfetto.query(bundle / HOST_NAME, sql) == [
        {
            "name": span.name,
            "depth": depths[span.kind],
            "ts": span.start_ns,
            "dur": span.duration_ns,
        }
        for span in spans
    ]
