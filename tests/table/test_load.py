"""Bundles, single files and foreign traces as frames."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import profiler
from profiler.errors import InputError, MissingPackageError
from profiler.run import Run, load_bundle
from profiler.run.columns import TABLES
from profiler.tools.sources import load
from profiler.trace import (
    HOST_NAME,
    MANIFEST_NAME,
    MERGED_NAME,
    BundleWriter,
    RunInfo,
    call_files,
    compression,
    encode_call,
    merge_bundle,
    schema,
)
from tests.corpus import PERFETTO_TESTS, needs_corpus
from tests.trace.samples import EPOCH_NS, awkward_trace, small_bundle, small_calls, small_host
from tests.trace.strategies import hostile_traces

_WHOLE = encode_call(*small_calls()[0])


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return small_bundle(tmp_path)


def _same(left: Run, right: Run) -> bool:
    return all(getattr(left, name).equals(getattr(right, name)) for name in TABLES)


def test_calls(bundle: Path) -> None:
    """Each call is a row with what its producer said of it, by number."""
    calls = load(bundle).calls
    expected = [call for call, *_ in small_calls()]
    assert calls["call"].to_list() == [call.index for call in expected]
    for name in ("submodule", "stage", "step", "device", "start_ns", "duration_ns", "ops_traced"):
        assert calls[name].to_list() == [getattr(call, name) for call in expected]
    assert calls["branch"].to_list() == [call.branch or None for call in expected]
    assert calls["input_shapes"][2] == "hidden_states: float32[2,16,64,64]; timestep: int64[2]"


def test_commands(bundle: Path) -> None:
    """Commands carry their call's stage and step, their device and track, and what is unknown is
    null."""
    commands = load(bundle).commands
    of_step = commands.filter(pl.col("call") == 3)
    assert of_step["stage"].unique().to_list() == ["denoise"]
    assert of_step["step"].unique().to_list() == [1]
    assert of_step["device"].unique().to_list() == ["cpu:1"]
    attention = of_step.filter(pl.col("layer") == "attn.sdpa")
    assert attention["track"].to_list() == ["stream 10", "stream 7"]
    assert attention["command_index"].to_list() == [0, 1]
    assert attention["bytes_read"].to_list() == [None, None]
    assert attention["role"].to_list() == ["attention", "attention"]
    total = sum(len(parts[1]) for parts in small_calls()) + len(small_host()[1])
    assert len(commands) == total


def test_lanes_are_one_track(bundle: Path) -> None:
    """Commands that overlap on one queue stand on one track, under the queue's name."""
    commands = load(bundle).commands.filter(pl.col("device") == "cpu:0", pl.col("call") >= 0)
    assert commands["track"].unique().to_list() == ["intra-op"]


def test_host_work(bundle: Path) -> None:
    """Work of no call has call -1 and its own stage and step; spans come outer first."""
    run = load(bundle)
    host = run.commands.filter(pl.col("call") == -1)
    assert host["layer"].to_list() == ["tokenize", "scheduler.step", "postprocess"]
    assert host["stage"].to_list() == ["encode", "denoise", "decode"]
    assert host["step"].to_list() == [-1, 0, -1]
    assert run.spans["kind"].to_list() == [span.kind for span in small_host()[0]]
    assert run.spans["start_ns"].to_list() == [span.start_ns for span in small_host()[0]]


def test_flows_point_at_commands(bundle: Path) -> None:
    """Both ends of a flow are rows of `commands`, the right ones in every call."""
    run = load(bundle)
    layer = run.commands["layer"].to_list()
    call = run.commands["call"].to_list()
    ends = [(layer[source], layer[target]) for source, target in run.flows.iter_rows()]
    encoder = [("mlp.fc1", "norm")]
    step = [("to device", "attn.sdpa"), ("attn.sdpa", "wait")] * 2
    assert sorted(ends) == sorted(encoder * 2 + step * 2)
    assert all(call[source] == call[target] for source, target in run.flows.iter_rows())


def test_counters(bundle: Path) -> None:
    """Samples keep unit, device, time and value, and say in whose file they stand."""
    counters = load(bundle).counters
    assert counters["unit"].unique().to_list() == ["bytes"]
    assert counters["device"].unique().to_list() == ["cpu:0"]
    assert counters["call"].to_list() == [index for index in range(5) for _ in range(2)]
    assert counters["value"][-1] == float((1 << 33) + 4)


def test_merged_equals_the_bundle(bundle: Path) -> None:
    """merged.pb alone gives every frame of the bundle, and the bundle counts nothing twice."""
    assert _same(load(bundle), load(bundle / MERGED_NAME))


def test_folder_of_bundles(bundle: Path) -> None:
    """A folder of bundles loads its newest."""
    assert _same(load(bundle.parent), load(bundle))
    assert load(bundle.parent).run_id == bundle.name


def test_one_call_file(bundle: Path) -> None:
    """A single call file is a run of that call."""
    run = load(bundle / "003_transformer.step001.pb")
    assert run.calls["call"].to_list() == [3]
    whole = load(bundle).commands.filter(pl.col("call") == 3)
    assert run.commands.equals(whole)
    assert run.info.producer == "profile-sd3"


def test_public_names_load(bundle: Path) -> None:
    """`profiler.load` takes a string as well as a path."""
    assert isinstance(profiler.load(str(bundle)), profiler.Run)


def test_missing_call_file(bundle: Path) -> None:
    """A call whose file is gone stays in `calls`, and the drop is said."""
    lost = call_files(bundle)[2]
    lost.unlink()
    run = load(bundle)
    assert len(run.calls) == len(small_calls())
    assert 2 not in run.commands["call"].to_list()
    (drop,) = run.drops
    assert (drop.kind, drop.where, drop.count) == ("missing_file", lost.name, 1)


def test_missing_host_file(bundle: Path) -> None:
    """A missing host.pb is one drop, not two, also when the manifest knows of it already."""
    (bundle / HOST_NAME).unlink()
    assert [drop.where for drop in load(bundle).drops] == [HOST_NAME]
    (bundle / MANIFEST_NAME).unlink()
    merge_bundle(bundle)
    assert [drop.where for drop in load(bundle).drops] == [HOST_NAME]


@pytest.mark.parametrize("keep", [0, 1, 1500, -1])
def test_cut_call_file(bundle: Path, keep: int) -> None:
    """A call file that is cut anywhere loses commands, never the run, and the bytes are counted."""
    cut = call_files(bundle)[2]
    data = cut.read_bytes()
    cut.write_bytes(data[:keep])
    run = load(bundle)
    assert len(run.calls) == len(small_calls())
    drops = [drop for drop in run.drops if drop.kind == "truncated_file"]
    assert [drop.where for drop in drops] == [cut.name]
    assert drops[0].unit == "bytes"


def test_file_cut_between_packets(bundle: Path) -> None:
    """A cut that leaves whole packets only is found by the size that the manifest knows."""
    cut = call_files(bundle)[4]
    trace = schema.Trace.FromString(cut.read_bytes())
    size = cut.stat().st_size
    del trace.packet[-1]
    cut.write_bytes(trace.SerializeToString())
    drops = {drop.kind: drop for drop in load(bundle).drops}
    assert drops["truncated_file"].count == size - cut.stat().st_size


def test_drops_in_the_order_of_the_manifest(bundle: Path) -> None:
    """Files are read side by side, the largest first; drops and rows stay in order of calls."""
    first, second, third, *_ = files = call_files(bundle)
    first.write_bytes(first.read_bytes()[:-1])
    second.unlink()
    third.write_bytes(third.read_bytes()[:-1])
    run = load(bundle)
    where = dict.fromkeys(drop.where for drop in run.drops)
    assert [*where] == [path.name for path in files[:3]]
    calls = run.commands["call"].to_list()
    assert calls == sorted(calls, key=lambda call: (call < 0, call))


def test_commands_are_one_piece(bundle: Path) -> None:
    """The commands of all files are one piece in every column, so that arrays of times are views
    and nothing copies them into one later."""
    run = load(bundle)
    assert len(call_files(bundle)) > 1
    assert set(run.commands.n_chunks("all")) == {1}


def test_file_that_grew(bundle: Path) -> None:
    """A file that is larger than the manifest says is not the one that was recorded."""
    changed, other = call_files(bundle)[:2]
    changed.write_bytes(changed.read_bytes() + other.read_bytes())
    (drop,) = load(bundle).drops
    assert (drop.kind, drop.count) == ("changed_file", other.stat().st_size)


def test_drops_of_the_manifest_are_kept(bundle: Path) -> None:
    """What the producer said to be lost is in the run's drops."""
    path = bundle / MANIFEST_NAME
    document = json.loads(path.read_text())
    detail = {"code": "profile_full"}
    entry = {"kind": "dropped_events", "where": "vae", "count": 7, "unit": "events"}
    document["drops"] = [{**entry, "detail": detail}]
    path.write_text(json.dumps(document))
    assert [drop.count for drop in load_bundle(bundle).drops] == [7]


def test_call_that_stands_twice(bundle: Path, tmp_path: Path) -> None:
    """A file concatenated with itself does not multiply commands by joining; it is said."""
    once = call_files(bundle)[0]
    twice = tmp_path / "twice.pb"
    twice.write_bytes(once.read_bytes() * 2)
    run = load(twice)
    assert len(run.calls) == 1
    assert len(run.commands) == 2 * len(load(once).commands)
    assert ("dropped_events", 1, "calls") in {
        (drop.kind, drop.count, drop.unit) for drop in run.drops
    }


def test_never_closed(tmp_path: Path) -> None:
    """A command that never closed has duration -1, and the run says so."""
    path = tmp_path / "awkward.pb"
    path.write_bytes(encode_call(*awkward_trace()))
    run = load(path)
    never = run.commands.filter(pl.col("layer") == "never closed")
    assert never["duration_ns"].to_list() == [-1]
    assert never["start_ns"].to_list() == [EPOCH_NS + 5]
    assert [(drop.kind, drop.count) for drop in run.drops] == [("unclosed_slice", 1)]


def test_roles_outside_the_list_are_unknown(tmp_path: Path) -> None:
    """A role or category that is not in its closed list is null or `other`, never an error."""
    trace = schema.Trace()
    event = trace.packet.add(timestamp=1, trusted_packet_sequence_id=1).track_event
    event.type, event.name, event.track_uuid = schema.SLICE_BEGIN, "slice", 1
    event.categories.append("mine")
    event.Extensions[schema.COMMAND].role = "mine"
    path = tmp_path / "trace.pb"
    path.write_bytes(trace.SerializeToString())
    commands = load(path).commands
    assert commands["role"].to_list() == [None]
    assert commands["category"].to_list() == ["other"]


def test_foreign_trace(tmp_path: Path) -> None:
    """Of a trace by another producer every slice is a command, numbered within its name."""
    trace = schema.Trace()
    for uuid, parent, name in ((1, 0, "server"), (2, 1, "worker")):
        track = trace.packet.add().track_descriptor
        track.uuid, track.parent_uuid, track.name = uuid, parent, name
    events = [(10, "a"), (20, "b"), (25, ""), (30, ""), (40, "a"), (60, ""), (70, "open")]
    for timestamp, name in events:
        packet = trace.packet.add(timestamp=timestamp, trusted_packet_sequence_id=5)
        packet.track_event.type = schema.SLICE_BEGIN if name else schema.SLICE_END
        packet.track_event.track_uuid = 2
        if name:
            packet.track_event.name = name
    path = tmp_path / "foreign.pb"
    path.write_bytes(trace.SerializeToString())
    run = load(path)
    assert run.info.producer == "foreign"
    assert run.calls.is_empty()
    columns = ("device", "track", "layer", "command_index", "start_ns", "duration_ns", "call")
    assert run.commands.select(columns).rows() == [
        ("server", "worker", "a", 0, 10, 20, -1),
        ("server", "worker", "b", 0, 20, 5, -1),
        ("server", "worker", "a", 1, 40, 20, -1),
        ("server", "worker", "open", 0, 70, -1, -1),
    ]


def test_parents_in_a_circle(tmp_path: Path) -> None:
    """What stands on tracks that claim each other as parents, or on very deep ones, is loaded or
    is a drop, in short time."""
    trace = schema.Trace()
    parents = {1: 2, 2: 3, 3: 1, 4: 4, **{uuid: uuid - 1 for uuid in range(6, 20_000)}}
    for uuid, parent in parents.items():
        track = trace.packet.add().track_descriptor
        track.uuid, track.parent_uuid, track.name = uuid, parent, f"t{uuid}"
    for uuid in (1, 3, 4, 19_999):
        event = trace.packet.add(timestamp=uuid, trusted_packet_sequence_id=1).track_event
        event.type, event.track_uuid, event.name = schema.SLICE_BEGIN, uuid, "slice"
    path = tmp_path / "circle.pb"
    path.write_bytes(trace.SerializeToString())
    run = load(path)
    lost = sum(drop.count for drop in run.drops if drop.unit == "events")
    assert len(run.commands) + lost == 4


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hostile_traces())
def test_any_field_with_any_value(tmp_path: Path, trace: Any) -> None:
    """Well-formed packets that no tracer writes load or are refused, never a crash."""
    path = tmp_path / "hostile.pb"
    path.write_bytes(trace.SerializeToString())
    try:
        run = load(path)
    except InputError:
        return
    assert len(run.to_pandas()) == len(run.commands)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(_WHOLE) - 1), st.binary(min_size=1, max_size=8))
def test_damage_anywhere(tmp_path: Path, at: int, damage: bytes) -> None:
    """A trace with some bytes overwritten loads or is refused, never a crash."""
    path = tmp_path / "damaged.pb"
    path.write_bytes(_WHOLE[:at] + damage + _WHOLE[at + len(damage) :])
    try:
        load(path)
    except InputError:
        return


@needs_corpus
@pytest.mark.parametrize("path", PERFETTO_TESTS, ids=lambda path: path.stem)
def test_corpus(path: Path) -> None:
    """Each of Perfetto's parser tests loads or is refused, never a crash."""
    try:
        run = load(path)
    except InputError:
        return
    assert run.calls.is_empty()


def test_places_that_hold_no_run(tmp_path: Path, bundle: Path) -> None:
    """A missing place, an empty folder and an unfinished run are refused with the
    recommendation."""
    unfinished = tmp_path / "more" / "unfinished"
    shutil.copytree(bundle, unfinished)
    (unfinished / MANIFEST_NAME).unlink()
    empty = tmp_path / "empty"
    empty.mkdir()
    for place, reason in (
        (tmp_path / "none", "does not exist"),
        (empty, "no bundle in"),
        (unfinished, f"profile-sd3 merge {unfinished}"),
        (unfinished.parent, f"profile-sd3 merge {unfinished}"),
    ):
        with pytest.raises(InputError, match=reason):
            load(place)


def test_bundle_that_needs_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle packed with Zstandard is refused where nothing unpacks it, not loaded empty."""
    pytest.importorskip("zstandard", reason="the package zstandard is missing")
    call, commands, counters = small_calls()[0]
    with BundleWriter.create(tmp_path, "packed", compress="zstd") as bundle:
        bundle.write_call(call, commands, counters)
        bundle.finish(RunInfo(producer="capture"))

    def no_module(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(compression, "import_module", no_module)
    with pytest.raises(MissingPackageError, match="pip install zstandard"):
        load(tmp_path / "packed")
