"""Operators of the embedded SD3 through ONNX Runtime's own profiler, on the real thing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl
import pytest

import profiler
from profiler.capture import EventCost, Gaps
from profiler.capture.onnxruntime import operators
from profiler.errors import InputError
from profiler.ort_profiles import read_profile
from profiler.pipelines import StableDiffusion3Pipeline, default_model_folder

SETTINGS = {"num_inference_steps": 3, "seed": 1, "height": 64, "width": 64}


@pytest.fixture(scope="module")
def pipeline():
    return StableDiffusion3Pipeline.from_folder(default_model_folder())


@pytest.fixture(autouse=True)
def quick_overhead(monkeypatch):
    """The cost of an event is measured once per run; its own test measures it for real."""
    monkeypatch.setattr(operators, "onnx_event_cost", lambda _: EventCost(5_000.0))


def profiled(pipeline, out, **options):
    with profiler.profile(pipeline, out=out, **options) as run:
        pipeline("a cat", **SETTINGS)
    return profiler.load(run.path)


@pytest.fixture(scope="module")
def run(pipeline, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "onnx_event_cost", lambda _: EventCost(5_000.0))
        return profiled(pipeline, tmp_path_factory.mktemp("run"))


def test_every_call_has_its_operators_inside_its_window(run):
    """Each command of a call lies within the call's span, up to ONNX Runtime's whole µs."""
    joined = run.commands.filter(pl.col("call") >= 0).join(
        run.calls.select("call", begin="start_ns", length="duration_ns"), on="call"
    )
    slack = 2_000
    early = joined["start_ns"] < joined["begin"] - slack
    late = joined["start_ns"] + joined["duration_ns"] > joined["begin"] + joined["length"] + slack
    assert not (early | late).any()
    assert set(run.calls["call"]) == set(joined["call"])


def test_every_step_runs_the_same_operators(run):
    """All transformer calls of a run hold the same layers, op types and command indices."""
    steps = [
        run.commands.filter(pl.col("step") == step, pl.col("call") >= 0)
        .select("layer", "command_index", "op_type")
        .sort("layer", "command_index")
        for step in range(3)
    ]
    assert len(steps[0]) > 300
    assert steps[0].equals(steps[1])
    assert steps[1].equals(steps[2])


def test_every_node_is_a_layer_in_its_module(run):
    """Layers are paths of nodes, the exporter's module paths stand beside them; none of a model
    that nobody split has two commands."""
    transformer = run.commands.filter(pl.col("step") == 0, pl.col("call") >= 0)
    modules = set(transformer["module"])
    assert "transformer_blocks.0.attn.to_q" in modules
    assert "transformer_blocks.3.ff.net.2" in modules
    known = transformer.filter(pl.col("module").is_not_null())
    assert len(known) >= 0.98 * len(transformer)
    paths = known.select(pl.col("layer", "module").cast(pl.String))
    assert paths.select(pl.col("layer").str.starts_with(pl.col("module") + "/").all()).item()
    assert transformer["kernel"].null_count() == len(transformer)  # a CPU's profile names none
    assert transformer["layer"].n_unique() == len(transformer)
    assert set(transformer["command_index"]) == {0}


def test_layers_are_called_after_operations_of_the_model(run):
    """What ONNX Runtime fuses, lays out anew and inserts has names that its sessions do not agree
    on: layers have those of the model's own nodes, alone or with what was inserted beside them."""
    import onnx

    path = default_model_folder() / "transformer" / "model.onnx"
    nodes = {node.name for node in onnx.load(str(path), load_external_data=False).graph.node}
    transformer = run.commands.filter(pl.col("step") == 0, pl.col("call") >= 0)
    rows = transformer.select(pl.col("layer", "module", "op_type").cast(pl.String)).rows()
    own = [(layer.removeprefix(f"{module}/"), op_type) for layer, module, op_type in rows]
    inserted = [(name, op_type) for name, op_type in own if name not in nodes]
    assert len(inserted) < 0.1 * len(own)
    for name, op_type in inserted:
        node, _, made = name.rpartition("/")
        assert made == op_type
        assert node in nodes | {""}


def test_at_least_98_percent_of_operator_time_has_a_module_path(run):
    """The share is measured over operator time, after ONNX Runtime's fusions, and reported."""
    for submodule, share in run.info.attribution.items():
        assert share.share >= 0.98, submodule
        assert share.attributed_ns <= share.total_ns


def test_modules_are_those_of_the_model(run):
    """What counts as attributed is a path of the exported model's modules, nothing invented."""
    import onnx

    path = default_model_folder() / "transformer" / "model.onnx"
    scopes = set()
    for node in onnx.load(str(path)).graph.node:
        for entry in node.metadata_props:
            if entry.key == "pkg.torch.onnx.name_scopes":
                scopes.update(part.strip("[]' ") for part in entry.value.split(","))
    prefixes = {".".join(s.split(".")[: i + 1]) for s in scopes for i in range(s.count(".") + 1)}
    modules = set(run.commands.filter(pl.col("step") == 0, pl.col("call") >= 0)["module"])
    assert modules - prefixes <= {"SD3Transformer2DModel"}


def test_bytes_and_shapes_come_with_the_operators(run):
    """ONNX Runtime's sizes and shapes are kept on each command."""
    commands = run.commands.filter(pl.col("call") >= 0)
    assert commands["bytes_read"].null_count() == 0
    assert commands["shapes"].null_count() == 0
    query = commands.filter(
        pl.col("module") == "transformer_blocks.0.attn.to_q", pl.col("op_type") == "MatMul"
    )
    assert query["shapes"].cast(str).str.contains(r"^float\[2,16,").all()


def test_arena_memory_is_a_counter_per_submodule(run, tmp_path):
    """Each traced session's arena shows as bytes over time on its device, if ONNX Runtime writes
    them, which 1.20 does not."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "alone")
    model = default_model_folder() / "vae_decoder" / "model.onnx"
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session.run(None, {session.get_inputs()[0].name: np.zeros((1, 16, 8, 8), np.float32)})
    if "mem_bytes_in_use" not in Path(session.end_profiling()).read_text(encoding="utf-8"):
        assert run.counters.is_empty()
        pytest.skip("this ONNX Runtime writes no memory of its arena")
    names = set(run.counters["name"])
    assert "transformer arena in use" in names
    assert (run.counters["value"] > 0).all()
    assert set(run.counters["unit"]) == {"bytes"}


def test_nothing_is_lost_and_the_cost_is_stated(run):
    """A plain run has no drops and says what tracing cost it."""
    assert run.drops == ()
    events = run.info.overhead.operator_events
    assert events == len(run.commands.filter(pl.col("call") >= 0)) + 2 * len(run.calls)
    assert run.info.overhead.operators_ns == events * 5_000
    assert 0 < run.info.overhead.hooks_ns < run.info.overhead.traced_ns


def test_profiled_and_plain_runs_make_the_same_image(pipeline, tmp_path):
    """Profiling changes no pixel, and afterwards the pipeline runs on its own sessions again."""
    before = np.asarray(pipeline("a cat", **SETTINGS).images[0])
    session = pipeline.transformer.session
    with profiler.profile(pipeline, out=tmp_path):
        during = np.asarray(pipeline("a cat", **SETTINGS).images[0])
        assert pipeline.transformer.session is not session
    assert pipeline.transformer.session is session
    assert np.array_equal(before, during)


def test_sessions_are_renewed_before_the_cap_and_nothing_is_dropped(pipeline, run, tmp_path):
    """With a cap of two calls' events, each session is renewed in time: the commands are those
    of a run that never came near the cap, and no event is dropped."""
    small = profiled(pipeline, tmp_path, event_cap=1_200)
    assert small.info.submodules["transformer"].profiled_sessions >= 2
    assert small.drops == ()
    keys = ["call", "layer", "command_index", "op_type"]
    in_calls = pl.col("call") >= 0
    assert (
        small.commands.filter(in_calls)
        .select(keys)
        .sort(keys)
        .equals(run.commands.filter(in_calls).select(keys).sort(keys))
    )
    own = small.spans.filter(pl.col("kind").cast(str) == "profiler")["name"].cast(str)
    assert set(own) == {"convert", "renew_session"}


def test_a_full_disk_costs_the_optimized_graph_only(pipeline, run, tmp_path, monkeypatch):
    """Without room for a copy of the weights the run is traced all the same: every command is
    there, and most still find their layer by name."""
    nothing = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr("shutil.disk_usage", lambda _: nothing)
    for module in ("operators", "sessions"):  # as where no file can be one that keeps nothing
        monkeypatch.setattr(f"profiler.capture.onnxruntime.{module}.goes_nowhere", lambda _: False)
    small = profiled(pipeline, tmp_path)
    assert small.drops == ()
    assert len(small.commands.filter(pl.col("call") >= 0)) == len(
        run.commands.filter(pl.col("call") >= 0)
    )
    assert small.info.attribution["transformer"].share > 0.5


def test_activate_profiler_false_keeps_the_call_span(pipeline, tmp_path):
    """A submodule that is switched off has its calls but no operators."""
    config = {"text_encoder_3": {"device": 0, "activate_profiler": False}}
    run = profiled(pipeline, tmp_path, config=config)
    calls = run.calls.filter(pl.col("submodule").cast(str) == "text_encoder_3")
    assert calls["ops_traced"].to_list() == [False, False]
    assert run.commands.filter(pl.col("call").is_in(calls["call"].to_list())).is_empty()
    assert run.info.submodules["text_encoder_3"].activate_profiler is False


def test_operators_none_records_calls_only(pipeline, tmp_path):
    """ops="none" runs on the pipeline's own sessions and writes no operator."""
    run = profiled(pipeline, tmp_path, ops="none")
    assert len(run.calls) == 10
    assert run.commands.filter(pl.col("call") >= 0).is_empty()
    assert not run.calls["ops_traced"].any()


def test_warm_up_runs_are_in_no_call(pipeline, run, tmp_path):
    """Runs of a profiled session during warm-up are not taken for calls of the run."""
    with profiler.profile(pipeline, out=tmp_path) as profiled_run:
        with profiled_run.warmup():
            pipeline("a cat", **(SETTINGS | {"num_inference_steps": 2}))
        pipeline("a cat", **SETTINGS)
    warm = profiler.load(profiled_run.path)
    per_call = [len(f) for f in (warm.commands, run.commands)]
    assert per_call[0] == per_call[1]
    assert len(warm.calls) == len(run.calls)


def test_two_cpu_devices_have_their_own_cores(tmp_path):
    """A submodule placed on cpu:1 is recorded there, and the manifest says which cores it has."""
    devices = {"text_encoder_3": "cpu:1"}
    pipeline = StableDiffusion3Pipeline.from_folder(default_model_folder(), devices=devices)
    run = profiled(pipeline, tmp_path)
    placed = run.calls.filter(pl.col("submodule").cast(str) == "text_encoder_3")
    assert set(placed["device"]) == {"cpu:1"}
    commands = run.commands.filter(pl.col("call").is_in(placed["call"].to_list()))
    assert set(commands["device"]) == {"cpu:1"}
    assert set(run.info.devices) == {"cpu:0", "cpu:1"}
    assert all(device.cores for device in run.info.devices.values())


def test_the_cost_of_an_event_is_measured(monkeypatch):
    """The cost per recorded node is a real measurement: some microseconds, between its quartiles,
    and none where noise exceeds it."""
    monkeypatch.undo()
    found = operators.onnx_event_cost(Gaps(3, 12_000))
    assert found is None or 0 < found.ns < 1_000_000
    assert found is None or found.low_ns <= found.ns <= found.high_ns


def test_a_node_longer_than_its_run_is_lost_and_counted(pipeline, run, tmp_path, monkeypatch):
    """One node of the transformer's profile is said to take 10 s: all others are there."""
    real = operators.read_profile

    def damaged(path):
        text = path.read_text()
        if len(text.splitlines()) > 1_000:  # the transformer's
            node = re.search(r'"dur" ?: ?\d+(?=[^\n]*_kernel_time)', text)
            path.write_text(f'{text[: node.start()]}"dur":10000000{text[node.end() :]}')
        return real(path)

    monkeypatch.setattr(operators, "read_profile", damaged)
    found = profiled(pipeline, tmp_path)
    (drop,) = found.drops
    assert (drop.kind, drop.where, drop.count) == ("dropped_events", "transformer", 1)
    assert len(found.commands) == len(run.commands) - 1


def event(name, cat, ts, dur, **args):
    return json.dumps({"cat": cat, "tid": 1, "dur": dur, "ts": ts, "name": name, "args": args})


def test_profile_is_cut_by_model_run(tmp_path):
    """Nodes belong to the model_run that closes them; times are µs turned into ns."""
    lines = [
        event("model_loading_uri", "Session", 0, 5),
        event("a_kernel_time", "Node", 10, 2, op_name="Add", provider="CPUExecutionProvider"),
        event("model_run", "Session", 9, 4),
        event("b_kernel_time", "Node", 20, 3, op_name="Mul", provider="CPUExecutionProvider"),
        event("model_run", "Session", 19, 5),
    ]
    path = tmp_path / "profile.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    runs = list(read_profile(path))
    assert [(r.start_ns, r.duration_ns, [n.name for n in r.nodes.each()]) for r in runs] == [
        (9_000, 4_000, ["a"]),
        (19_000, 5_000, ["b"]),
    ]
    assert next(runs[1].nodes.each()).op_type == "Mul"
    assert runs[1].nodes.duration_ns[0] == 3_000


def test_profile_truncated_marker_is_counted(tmp_path):
    """ONNX Runtime's own marker of dropped events becomes a number, not silence."""
    lines = [
        event("a_kernel_time", "Node", 10, 2, op_name="Add"),
        event("profile_truncated", "Session", 30, 0, max_num_events=1, dropped_event_count=41),
    ]
    path = tmp_path / "profile.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    (last,) = read_profile(path)
    assert (last.duration_ns, last.dropped, len(last.nodes)) == (-1, 41, 1)


def test_a_cut_profile_is_one_sentence(tmp_path):
    """A profile that ends in the middle of a line names file and line."""
    path = tmp_path / "profile.json"
    path.write_text("[\n" + event("a_kernel_time", "Node", 10, 2)[:30])
    with pytest.raises(InputError, match="line 2 is no profile event"):
        list(read_profile(path))
