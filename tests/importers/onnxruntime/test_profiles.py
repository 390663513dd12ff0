"""Profiles of ONNX Runtime that others recorded: real ones, and lines written by hand."""

from __future__ import annotations

import gzip
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.importers import import_trace, onnxruntime, recognised
from profiler.tools.sources import load
from profiler.trace import DropKind
from profiler.trace.manifest_fields import HealthRule
from tests.command_line import run_command
from tests.corpus import CORPUS, needs_corpus
from tests.examples import examples

GEMMINI = CORPUS / "ort" / "ucb_resnet_inference_gemmini.json.gz"
BEGIN = 1_777_630_332_000_000_000  # 2026-05-01 10:12:12 UTC
CPU = "CPUExecutionProvider"


def event(name, start, length, cat="Node", tid=1, **args):
    """An event as ONNX Runtime writes it, in µs."""
    return {
        "cat": cat,
        "pid": 7,
        "tid": tid,
        "dur": length,
        "ts": start,
        "ph": "X",
        "name": name,
        "args": args,
    }


def node(name, start, length, provider=CPU, op="MatMul", **more):
    return event(f"{name}_kernel_time", start, length, provider=provider, op_name=op, **more)


def run(start, length):
    return event("model_run", start, length, cat="Session")


def written(path, *events):
    """A profile with these events, one a line."""
    lines = ",\n".join(json.dumps(one) for one in events)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return path


def imported(tmp_path, *paths):
    return load(import_trace(list(paths), tmp_path / "traces"))


def commands(run, *columns):
    return run.commands.select(pl.col(*columns).cast(pl.String)).rows()


@needs_corpus
def test_a_riscv_accelerators_profile(tmp_path):
    """The totals that an independent script found: nodes, time by provider, top operators, window.
    Fences of the old version are no commands."""
    truth = json.loads((CORPUS / "truth.json").read_text())[f"ort/{GEMMINI.name}"]
    loaded = imported(tmp_path, GEMMINI)
    assert len(loaded.commands) == truth["count"]
    assert (loaded.calls["duration_ns"] / 1e6).to_list() == truth["run_ms"]
    provider = loaded.commands.group_by(pl.col("track").cast(pl.String))
    time = dict(provider.agg(pl.col("duration_ns").sum()).rows())
    assert {name: length / 1e6 for name, length in time.items()} == truth["busy_ms"]
    assert dict(provider.len().rows()) == truth["providers"]
    for column, top in (("layer", truth["top3"]), ("op_type", truth["top3_op"])):
        time = loaded.commands.group_by(pl.col(column).cast(pl.String)).agg(
            pl.col("duration_ns").sum() / 1e6
        )
        found = {name: round(length, 3) for name, length in time.rows()}
        assert {name: found[name] for name, *_ in top} == {name: length for name, length, *_ in top}
    first, last = (value * 1000 for value in truth["span_us"])
    start = loaded.commands["start_ns"]
    assert start.min() == first
    assert (start + loaded.commands["duration_ns"]).max() == last
    busy = dict(analyze(loaded).devices.select(pl.col("device").cast(pl.String), "busy_ns").rows())
    assert busy == {"npu:0": 16_484_000, "cpu:0": 16_156_000}


def test_sessions_in_a_folder_are_submodules(tmp_path):
    """Three sessions of one pipeline, which run in turn: named, ordered and staged by the files'
    names, which tell to the second, in newer versions to the millisecond, when they began."""
    folder = tmp_path / "profiles"
    for name, when, runs in (
        ("text_encoder", "10-12-12", [10]),
        ("unet", "10-12-12_300", [100, 300]),
        ("vae_decoder", "10-12-13", [0]),
    ):
        events = []
        for start in runs:
            events += [node("MatMul_0", start + 1, 5), run(start, 10)]
        written(folder / f"{name}_2026-05-01_{when}.json", *events)
    (folder / "other.json").write_text('{"not": "a profile"}')
    assert recognised([folder]).name == "onnxruntime"
    loaded = imported(tmp_path, folder)
    texts = [pl.col(name).cast(pl.String) for name in ("submodule", "stage")]
    assert loaded.calls.select(*texts, "step", pl.col("start_ns") - BEGIN).rows() == [
        ("text_encoder", "encode", -1, 10_000),
        ("unet", "denoise", 0, 300_100_000),
        ("unet", "denoise", 1, 300_300_000),
        ("vae_decoder", "decode", -1, 1_000_000_000),
    ]
    assert [(drop.kind, drop.count) for drop in loaded.drops] == [(DropKind.UNALIGNED_CLOCK, 3)]
    assert loaded.drops[0].detail.values["within_ns"] == 10**9
    assert loaded.run_id == "profiles"


def test_several_files_must_tell_when_they_began(tmp_path):
    """Sessions that nothing places among each other are refused; alone each is fine."""
    named = written(tmp_path / "a_2026-05-01_10-12-12.json", run(0, 5), node("n", 1, 2))
    plain = written(tmp_path / "b.json", node("n", 1, 2), run(0, 5))
    with pytest.raises(InputError, match="does not tell when its session began"):
        imported(tmp_path, named, plain)
    assert imported(tmp_path, plain).calls["submodule"].cast(pl.String).to_list() == ["b"]


def test_providers_that_launch(tmp_path):
    """A node of CUDA is what launching took: host work, no time of the device, which is said;
    one of an unknown provider is on `npu:0`, one without a provider on the host."""
    path = written(
        tmp_path / "x.json",
        node("a", 1, 5, provider="CUDAExecutionProvider"),
        node("b", 10, 5, provider="SystolicExecutionProvider"),
        node("", 20, 5, provider="", op="Add"),
        run(0, 50),
    )
    loaded = imported(tmp_path, path)
    assert commands(loaded, "layer", "device", "category", "track") == [
        ("a", "cpu:0", "host", "CUDAExecutionProvider launches"),
        ("b", "npu:0", "compute", "SystolicExecutionProvider"),
        ("Add_2", "cpu:0", "compute", "provider unknown"),
    ]
    assert [(drop.where, drop.count, drop.detail.code.value) for drop in loaded.drops] == [
        ("cuda:0", -1, "launch_times"),
    ]


@pytest.mark.parametrize("provider", ["MKLDNN", "Dnnl", "DNNL", "Nuphar", "ACL"])
def test_providers_of_the_host(tmp_path, provider):
    """Libraries of the CPU are no device of their own: nothing waits for another device."""
    name = f"{provider}ExecutionProvider"
    path = written(tmp_path / "x.json", node("a", 1, 5, provider=name), run(0, 50))
    loaded = imported(tmp_path, path)
    assert commands(loaded, "device", "category", "track") == [("cpu:0", "compute", name)]
    assert not loaded.info.health


@pytest.mark.parametrize("provider", ["CUDA", "Tensorrt", "ROCM", "Dml"])
def test_nodes_that_launch_are_shown_where_no_device_is_recorded(tmp_path, provider):
    """With fall-backs to the CPU beside them: all nodes are work of the host, one note says what
    their times are, and no device was busy."""
    name = f"{provider}ExecutionProvider"
    events = [
        node("a", 1, 5, provider=name, op="MatMul"),
        node("b", 10, 7, provider="CPUExecutionProvider", op="Gather"),
        node("c", 20, 3, provider=name, op="MatMul"),
        run(0, 50),
    ]
    loaded = imported(tmp_path, written(tmp_path / "x.json", *events))
    assert commands(loaded, "layer", "device", "category") == [
        (layer, "cpu:0", "compute") for layer in "abc"
    ]
    (note,) = loaded.info.health
    assert (note.rule, note.count, note.total) == (HealthRule.HOST_TIMES, 2, 3)
    assert note.worst == name
    analysis = analyze(loaded)
    assert analysis.devices["device"].to_list() == ["cpu:0"]
    assert analysis.devices["utilization"].to_list() == [None]
    operators = dict(analysis.operators.group_by("layer").agg(pl.col("total_ns").sum()).rows())
    told = {event["name"].removesuffix("_kernel_time"): event["dur"] * 1000 for event in events[:3]}
    assert {str(layer): total for layer, total in operators.items()} == told


def test_shapes_and_bytes_of_newer_versions(tmp_path):
    """Bytes are those of parameters and activations; shapes as every other run has them."""
    shaped = {
        "input_type_shape": [{"float": [2, 3]}, {"float": [3, 4]}],
        "output_type_shape": [{"float": [2, 4]}],
        "parameter_size": "48",
        "activation_size": "24",
        "output_size": "32",
    }
    loaded = imported(tmp_path, written(tmp_path / "x.json", node("m", 1, 5, **shaped), run(0, 9)))
    row = loaded.commands.row(0, named=True)
    assert row["shapes"] == "float[2,3] float[3,4] -> float[2,4]"
    assert (row["bytes_read"], row["bytes_written"]) == (72, 32)
    assert set(loaded.info.capabilities) == {"timeline", "shapes", "bytes"}


def test_runs_of_several_threads(tmp_path):
    """Nodes belong to the run of their thread, though `model_run` is written after them."""
    path = written(
        tmp_path / "x.json",
        node("a", 1, 5) | {"tid": 1},
        node("b", 2, 5) | {"tid": 2},
        run(0, 10) | {"tid": 2},
        run(0, 12) | {"tid": 1},
    )
    loaded = imported(tmp_path, path)
    pairs = loaded.commands.join(loaded.calls.select("call", length="duration_ns"), on="call")
    assert sorted(pairs.select(pl.col("layer").cast(pl.String), "length").rows()) == [
        ("a", 12_000),
        ("b", 10_000),
    ]


def test_damaged_profiles(tmp_path):
    """Unescaped names cost their line, a cut file what was cut, and both are told; a full profile
    says how many events it lacks."""
    path = written(tmp_path / "x.json", node("a", 1, 5), run(0, 10), node("b", 21, 5), run(20, 10))
    text = path.read_text()
    path.write_text(text.replace('"a_kernel_time"', '"a"_kernel_time"'))
    loaded = imported(tmp_path, path)
    assert (len(loaded.calls), len(loaded.commands)) == (2, 1)
    assert [(drop.kind, drop.count) for drop in loaded.drops] == [(DropKind.DROPPED_EVENTS, 1)]
    packed = tmp_path / "y.json.gz"
    packed.write_bytes(gzip.compress(text.encode())[:-30])
    assert imported(tmp_path, packed).drops[0].kind is DropKind.DROPPED_EVENTS
    full = event("profile_truncated", 40, 0, cat="Session", dropped_event_count="12")
    loaded = imported(tmp_path, written(tmp_path / "z.json", node("a", 1, 5), run(0, 10), full))
    assert [drop.count for drop in loaded.drops] == [12]


@pytest.mark.parametrize("behind", [True, False])
def test_events_that_a_file_has_twice(tmp_path, behind):
    """All of them behind the first ones, or each behind itself: they count once, and it is said;
    runs and nodes that took no µs may be many at one time."""
    events = [node("a", 1, 5), node("b", 7, 0), node("b", 7, 0), run(0, 10), node("a", 21, 5)]
    events.append(run(20, 10))
    doubled = [*events, *events] if behind else [each for one in events for each in (one, one)]
    once = imported(tmp_path, written(tmp_path / "once" / "x.json", *events))
    twice = imported(tmp_path, written(tmp_path / "twice" / "x.json", *doubled))
    assert twice.calls.equals(once.calls)
    assert (once.info.health, len(once.commands)) == ((), 4)
    (note,) = twice.info.health
    assert (note.rule, note.device) == ("twice", "cpu:0")
    took = pl.col("duration_ns") > 0
    assert twice.commands.filter(took).equals(once.commands.filter(took))


def test_a_full_profile_of_versions_that_do_not_tell(tmp_path, monkeypatch):
    """A file with as many events as ONNX Runtime records lacks an unknown number; the kernels that
    are added when recording has ended are not among them."""
    monkeypatch.setattr(onnxruntime, "EVENT_CAP", 4)
    events = [node("a", 1, 5), run(0, 10), node("b", 21, 5)]
    kernel = event("k", 2, 1, cat="Kernel", stream="7")
    loaded = imported(tmp_path, written(tmp_path / "x.json", *events, kernel))
    assert [drop.detail.code.value for drop in loaded.drops] == ["kernels_of_no_run"]
    loaded = imported(tmp_path, written(tmp_path / "y.json", *events, run(20, 10)))
    assert [(drop.count, drop.detail.code.value) for drop in loaded.drops] == [(-1, "profile_full")]


def test_what_has_no_run(tmp_path):
    """A session that never ran is refused with what to do, and leaves nothing."""
    path = written(tmp_path / "x.json", event("session_initialization", 0, 5, cat="Session"))
    with pytest.raises(InputError, match=r"x\.json holds no session\.run"):
        imported(tmp_path, path)
    assert not list((tmp_path / "traces").glob("*"))


def test_one_line_for_all(tmp_path):
    """A profile that another tool wrote anew, as one line, is the same."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps([node("a", 1, 5), run(0, 10)]))
    assert commands(imported(tmp_path, path), "layer", "op_type") == [("a", "MatMul")]


@pytest.mark.parametrize("indent", [None, 2])
def test_events_over_several_lines(tmp_path, indent):
    """A profile that another tool wrote anew is read event by event where one of them is odd, and
    an odd one is told; one that is cut has no run that is whole, which is said."""
    events = [node("a", 1, 5), node("odd", 2, 3) | {"ts": "x"}, run(0, 10)]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(events, indent=indent))
    loaded = imported(tmp_path, path)
    assert commands(loaded, "layer") == [("a",)]
    assert [(drop.kind, drop.count) for drop in loaded.drops] == [(DropKind.DROPPED_EVENTS, 1)]
    path.write_text(json.dumps(events, indent=indent)[:-20])
    with pytest.raises(InputError, match=r"x\.json holds no whole session\.run"):
        imported(tmp_path, path)


def test_a_profile_recorded_here(tmp_path, monkeypatch):
    """ONNX Runtime itself, profiling two runs of a model without us: two calls whose nodes are
    those of the file's own lines."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the run extra")
    np = pytest.importorskip("numpy")
    from profiler.pipelines import default_model_folder

    monkeypatch.chdir(tmp_path)
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = "text_encoder"
    model = default_model_folder() / "text_encoder" / "model.onnx"
    session = onnxruntime.InferenceSession(model, options, providers=[CPU])
    feed = {session.get_inputs()[0].name: np.ones((1, 77), np.int64)}
    for _ in range(2):
        session.run(None, feed)
    path = tmp_path / session.end_profiling()
    lines = json.loads(path.read_text())
    ran = [one for one in lines if one["name"] == "model_run"]
    nodes = [one for one in lines if one["name"].endswith("_kernel_time")]
    loaded = imported(tmp_path, path)
    assert loaded.calls["submodule"].cast(pl.String).to_list() == ["text_encoder"] * 2
    assert loaded.calls["duration_ns"].to_list() == [1000 * one["dur"] for one in ran]
    assert len(loaded.commands) == len(nodes)
    assert loaded.commands["duration_ns"].sum() == sum(1000 * one["dur"] for one in nodes)
    assert loaded.drops == ()


HOSTILE = {
    "dims": {"input_type_shape": 1},
    "nested_dims": {"input_type_shape": [{"float": [["x"]]}]},
    "dims_of_a_list": {"output_type_shape": [["float"]]},
    "no_ascii_digit": {"output_size": "²"},
    "many_digits": {"parameter_size": "9" * 5000},
    "texts_for_numbers": {"mem_bytes_in_use": "-5"},
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_values_that_are_none(tmp_path, kind):
    """What a file gives instead of dims and sizes is unknown, and every node stays."""
    path = written(tmp_path / "made.json", node("a", 10, 20, **HOSTILE[kind]), run(5, 70))
    found = imported(tmp_path, path)
    assert found.commands["duration_ns"].to_list() == [20_000]
    assert found.commands["shapes"].to_list() == [None]
    assert found.commands["bytes_written"].to_list() == [None]


@pytest.mark.parametrize("time", [{"ts": 1 << 62}, {"ts": 10**30}, {"dur": -1}, {"dur": 1 << 51}])
def test_times_that_are_none(tmp_path, time):
    """An event that ends before it begins, or in a thousand years, is counted and left out."""
    events = (node("a", 10, 20) | time, node("b", 40, 20), run(5, 70))
    found = imported(tmp_path, written(tmp_path / "made.json", *events))
    assert found.commands["layer"].cast(pl.String).to_list() == ["b"]
    assert sum(drop.count for drop in found.drops) == 1


def test_a_file_that_unpacks_to_too_much(tmp_path):
    """A packed file of a few kilobytes that is one line of many megabytes is refused: no more of it
    is ever in memory than a profile of that size may hold."""
    path = tmp_path / "made.json.gz"
    begin = json.dumps([node("a", 10, 20), run(5, 70)])[:-1].encode()
    path.write_bytes(gzip.compress(begin + b" " * 16_000_000 + b"]"))
    with pytest.raises(InputError, match="unpacks to more than 256 times its size"):
        import_trace([path], tmp_path / "traces")


def health(loaded):
    return [(str(note.rule), note.device, note.count, note.total) for note in loaded.info.health]


@pytest.mark.parametrize(
    ("length", "noted"),
    [(8, 0), (15, 1), (8_000, 1), (1 << 49, 1)],  # as it was; into the next node; beyond the run
)
def test_a_node_that_does_not_fit_into_its_run_is_counted(length, noted, tmp_path, capsys):
    """The third of nine nodes of 10 µs each, in each of two runs; one is too long."""
    events = []
    for begin in (1_000, 2_000):
        events += [node(f"n{at}", begin + 10 * at, 8) for at in range(9)]
        events += [run(begin - 1, 100)]
    events[2]["dur"] = length
    loaded = imported(tmp_path, written(tmp_path / "x.json", *events))
    assert health(loaded) == [("not_nested", "cpu:0", 1, 18)] * noted
    assert len(loaded.commands) == 18 - noted
    run_command("analyze", tmp_path / "x.json", "--no-html")
    lines = capsys.readouterr().out.split("\n")
    assert any(line.startswith("Recording   lost no events") for line in lines) == (not noted)
    assert any(line.startswith("Set aside   1 node on cpu:0") for line in lines) == bool(noted)


@pytest.mark.parametrize("keys", [("dur",), ("ts",), ("ts", "dur")])
def test_nodes_without_a_time_are_counted(keys, tmp_path):
    """Two of nine nodes: they are in no figure, and how long the device was busy is not known."""
    events = [node(f"n{at}", 1_000 + 10 * at, 8) for at in range(9)]
    for one in events[3:5]:
        for key in keys:
            del one[key]
    loaded = imported(tmp_path, written(tmp_path / "x.json", *events, run(999, 100)))
    assert health(loaded) == [("unfinished", "cpu:0", 2, 9)]
    assert loaded.drops == ()
    assert len(loaded.commands) == 7


@pytest.mark.parametrize(("length", "noted"), [(100, 0), (100_000, 1)])
def test_a_run_that_goes_on_during_the_next_one_ends_with_its_last_node(length, noted, tmp_path):
    """The second of three runs of one thread, each of nine nodes; of another thread one runs all
    the time."""
    events = []
    for at, begin in enumerate((1_000, 2_000, 3_000)):
        events += [node(f"n{part}", begin + 10 * part, 8) for part in range(9)]
        events += [run(begin - 1, length if at == 1 else 100)]
    loaded = imported(tmp_path, written(tmp_path / "x.json", *events))
    found = [(str(note.rule), str(note.action), note.count) for note in loaded.info.health]
    assert found == [("not_nested", "shortened", 1)] * noted
    lengths = loaded.calls["duration_ns"].to_list()
    assert lengths == [100_000, 89_000 if noted else 100_000, 100_000]
    events += [event("model_run", 500, 5_000, cat="Session", tid=2)]
    beside = imported(tmp_path / "beside", written(tmp_path / "y.json", *events))
    assert [note.count for note in beside.info.health] == [1] * noted


def test_nodes_of_no_run_are_counted(tmp_path):
    """Two ahead of the only run, whose own runs are not in the file."""
    events = [node("a", 10, 5), node("b", 20, 5), node("c", 101, 5), run(100, 10)]
    loaded = imported(tmp_path, written(tmp_path / "x.json", *events))
    assert [(one.kind, one.count, one.detail.code.value) for one in loaded.drops] == [
        (DropKind.DROPPED_EVENTS, 2, "nodes_of_no_run")
    ]
    assert health(loaded) == []


def _nested(random, begin, end, found, deep=0):
    """Nodes one behind the other, some with nodes inside, in order of their ends."""
    at = begin
    while at + 20 < end:
        until = int(random.integers(at + 10, min(end, at + 400)))
        if deep < 3 and until - at > 60 and random.random() < 0.3:
            _nested(random, at + 1, until - 1, found, deep + 1)
        found.append(node(f"n{len(found)}", at, until - at))
        at = until + int(random.integers(0, 5))


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 1 << 32), by=st.sampled_from([0, 3, 30, 1_000]))
def test_nodes_that_cross_are_those_of_a_search(seed, by, tmp_path_factory):
    """One of the nodes is longer than recorded. It is found if a search pair by pair finds two that
    cross, or one that ends after the run; where all are as they were nothing is."""
    random = np.random.default_rng(seed)
    events: list[dict] = []
    _nested(random, 1_000, 5_000, events)
    events[int(random.integers(len(events)))]["dur"] += by
    times = [(one["ts"], one["ts"] + one["dur"]) for one in events]
    crossed = any(
        begin <= later and later + 2 < end < until - 2
        for begin, end in times
        for later, until in times
    )
    path = tmp_path_factory.mktemp("profile")
    loaded = imported(path, written(path / "x.json", *events, run(990, 4_020)))
    found = sum(note.count for note in loaded.info.health)
    assert bool(found) == (crossed or max(end for _, end in times) > 990 + 4_020 + 2)
    assert len(loaded.commands) == len(events) - found
    assert found <= (4 if by else 0)  # with what it lies in, three deep
