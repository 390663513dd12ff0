"""Two sides, part by part: hand-computed runs in, rows out."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import profiler.compare.text  # noqa: F401 (what notes say)
from profiler.analysis import worded_note
from profiler.analysis.analyze import analyze
from profiler.compare import compare_runs
from profiler.compare.compare import compare_each, other_shapes, other_speed
from profiler.compare.measure import measure
from profiler.compare.tables import LEVELS, Verdict
from profiler.errors import InputError
from profiler.run import intervals
from profiler.tools.sources import load
from profiler.trace import HOST_TRACK, ActivityKind, HostActivity
from profiler.trace.bootstrap import Resampled
from profiler.trace.manifest_fields import Device
from tests.analysis.comparison.small import BASE, SLOWER, compared, row, steps_run, verdicts
from tests.corpus import CORPUS, needs_corpus
from tests.examples import examples
from tests.runs import Command, make_call, make_info, make_run, make_span, tiny_run


def test_steps_of_one_run_are_compared_by_their_medians():
    """Steady steps take 90 and 110 ns, and 10 more on the host; the first one stands apart."""
    found = row(compared(steps_run(BASE), steps_run(SLOWER)), "denoise.step")
    assert (found["base_ns"], found["new_ns"], found["difference_ns"]) == (90, 110, 20)
    assert found["change"] == pytest.approx(20 / 90)
    assert 0.1 < found["low"] < 0.2 < found["high"] < 0.3
    assert (found["resampled"], found["base_count"], found["new_count"]) == ("steps", 6, 6)
    assert (found["calls"], found["verdict"]) == ("steady", "slower")


def test_the_median_step_is_that_of_the_report():
    """The first step, with the first call of its submodule, is in neither; where it is the only one
    it is the median."""
    for times, median in ((BASE, 90), ((500, 100, 120), 100), ((500,), 490)):
        run = steps_run(times)
        found = row(compared(run, run), "denoise.step")
        assert (found["base_ns"], analyze(run).step_summary.median_ns) == (median, median)


def test_first_calls_are_compared_apart():
    """The first step is measured once a run."""
    found = row(compared(steps_run(BASE), steps_run((900, *BASE[1:]))), "denoise.step.first")
    assert (found["base_ns"], found["new_ns"], found["calls"]) == (490, 890, "first")
    assert found["verdict"] == "measured_once"
    assert (found["low"], found["resampled"]) == (None, None)


def test_every_level():
    """From the pipeline call to a module of a role, with what each took."""
    found = compared(steps_run(BASE), steps_run(SLOWER))
    times = {
        name: (base, new)
        for name, base, new in found.metrics.select("metric", "base_ns", "new_ns").iter_rows()
    }
    assert times["end_to_end"] == times["stage.denoise"] == (1100, 1220)
    assert times["denoise.step.between"] == (10, 10)
    assert times["denoise.step.host"] == times["denoise.step.idle"] == (0, 0)
    assert times["denoise.step.3"] == (88, 108)
    assert times["submodule.transformer"] == (90, 110)
    assert times["submodule.transformer.first"] == (490, 490)
    assert times["submodule.transformer.busy"] == (90, 110)
    assert times["submodule.transformer.role.norm"] == (20, 20)
    assert times["submodule.transformer.role.mlp"] == (70, 90)
    assert times["submodule.transformer.role.mlp.module.blocks.0.ff"] == (70, 90)
    assert "submodule.transformer.branch.batched" not in times  # the only one
    levels = found.metrics["level"].to_list()
    assert levels == sorted(levels, key=LEVELS.index)


def test_the_same_run_differs_by_nothing():
    """Every metric of a run against itself changes by 0 and is not called."""
    found = compared(steps_run(BASE), steps_run(BASE))
    assert set(found.metrics["difference_ns"]) == {0}
    assert set(found.metrics["verdict"]) == {"within_noise", "measured_once"}


def test_several_runs_are_resampled_as_runs():
    """Three runs a side: a run's value is the median of its steady steps."""
    base = [steps_run(BASE), steps_run((500, 102, 102, 102)), steps_run((500, 101, 101, 101))]
    new = [steps_run((500, 200, 200, 300)), steps_run((500, 201, 201)), steps_run((500, 202, 202))]
    found = compared(base, new)
    step = row(found, "denoise.step")
    assert (step["base_ns"], step["new_ns"]) == (91, 191)
    assert (step["resampled"], step["base_count"], step["new_count"]) == ("runs", 3, 3)
    assert step["verdict"] == "slower"
    assert row(found, "end_to_end")["resampled"] == "runs"
    assert found.runs["side"].to_list() == ["base"] * 3 + ["new"] * 3


def test_several_baselines_against_one_run():
    """The new run is taken to scatter as the baselines do."""
    base = [steps_run((500, value, value)) for value in (100, 101, 102, 99, 98)]
    slower, same = (compared(base, steps_run((500, v, v))) for v in (150, 101))
    assert row(slower, "denoise.step")["verdict"] == "slower"
    assert row(same, "denoise.step")["verdict"] == "within_noise"
    assert any("one new run" in note for note in map(worded_note, slower.notes))


def test_equal_values_do_not_tell_their_noise():
    """Two runs of equal steps and one that is 1 % slower: unclear, and 40 % slower is called."""
    base = [steps_run((5000, 1000, 1000)), steps_run((5010, 1000, 1000))]
    little, much, same = (
        row(compared(base, steps_run((500, value, value))), "denoise.step")
        for value in (1010, 1400, 1000)
    )
    assert (little["verdict"], little["base_count"], little["new_count"]) == ("unclear", 2, 1)
    assert little["low"] < -0.05 < 0.05 < little["high"]
    assert (much["verdict"], same["verdict"]) == ("slower", "within_noise")


def test_pipeline_calls_of_one_run():
    """Several pipeline calls: these are drawn, and the first of them stands apart."""
    base, new = (steps_run(*[steps] * 5) for steps in ((100, 100), (150, 150)))
    found = compared(base, new)
    whole = row(found, "end_to_end")
    assert (whole["base_ns"], whole["new_ns"], whole["calls"]) == (200, 300, "steady")
    assert (whole["resampled"], whole["base_count"]) == ("pipeline_calls", 4)
    assert row(found, "end_to_end.first")["base_count"] == 1
    assert row(found, "denoise.step")["base_count"] == 5  # steady steps of the first call too


def test_other_numbers_of_steps():
    """4 steps against 2: steps compare, those that one side lacks are only in the other."""
    found = verdicts(compared(steps_run((5, 100, 100, 101)), steps_run((5, 100))))
    assert found["denoise.step"] == "within_noise"
    assert found["denoise.step.1"] == "measured_once"
    assert found["denoise.step.3"] == "only_in_base"


def test_a_module_is_compared_as_the_nearest_that_both_have():
    """A fused norm: what runs in `norm1.norm` on one side runs in `norm1` on the other."""
    base = (("blocks.0.norm1.norm", "norm"), ("blocks.0.ff", "mlp"))
    found = verdicts(compared(steps_run(BASE, parts=base), steps_run(SLOWER)))
    of_norm = [name for name in found if ".role.norm.module." in name]
    assert of_norm == ["submodule.transformer.role.norm.module.blocks.0.norm1"]


def test_a_module_of_one_side():
    """Block 1 is only in the new run; block 0 compares."""
    base = steps_run(BASE, parts=(("blocks.0.ff.a", "mlp"), ("blocks.0.ff.b", "mlp")))
    new = steps_run(BASE, parts=(("blocks.0.ff.a", "mlp"), ("blocks.1.ff.a", "mlp")))
    found = verdicts(compared(base, new))
    stem = "submodule.transformer.role.mlp.module."
    assert found[f"{stem}blocks.0.ff.a"] == "within_noise"
    assert found[f"{stem}blocks.0.ff.b"] == "only_in_base"
    assert found[f"{stem}blocks.1.ff.a"] == "only_in_new"


def test_modules_of_equal_blocks_are_compared_together_too():
    """Two blocks: each alone, and both as `blocks.*.ff`."""
    parts = (("blocks.0.ff", "mlp"), ("blocks.1.ff", "mlp"))
    found = compared(steps_run(BASE, parts=parts), steps_run(SLOWER, parts=parts))
    stem = "submodule.transformer.role.mlp.module."
    assert row(found, f"{stem}blocks.0.ff")["base_ns"] == 20
    assert row(found, f"{stem}blocks.1.ff")["new_ns"] == 90
    together = row(found, f"{stem}blocks.*.ff")
    assert (together["base_ns"], together["new_ns"], together["level"]) == (90, 110, "modules")


def test_paths_of_classes_are_those_of_an_imported_trace():
    """Captured modules have names and classes, an imported trace has classes alone."""
    classes = {"": "Model", "blocks.0": "Block", "blocks.0.norm1": "RMSNorm"}
    classes |= {"blocks.0.ff": "FeedForward", "blocks": "ModuleList"}
    info = make_info("capture", submodules={"transformer": {"modules": classes}})
    imported = (("Block.RMSNorm/aten::mul", "norm"), ("Block.FeedForward/aten::mm", "mlp"))
    found = verdicts(compared(steps_run(BASE, info=info), steps_run(SLOWER, parts=imported)))
    modules = {name.partition(".module.")[2] for name in found if ".module." in name}
    assert modules == {"Block.RMSNorm", "Block.FeedForward"}


def test_where_the_other_side_has_no_paths_roles_are_the_finest():
    """A compiled model: kernels without modules."""
    parts = (("aten::native_layer_norm", "norm"), ("aten::mm", "mlp"))
    found = verdicts(compared(steps_run(BASE), steps_run(SLOWER, parts=parts)))
    assert not [name for name in found if ".module." in name]
    assert found["submodule.transformer.role.norm"] == "within_noise"


def test_branches():
    """One batched call a step against two single ones: their sum compares with the whole."""

    def run(*branches):
        calls = [
            make_call(
                i, "transformer", at := 100 * i, at + 50, step=i // len(branches), branch=name
            )
            for i, name in enumerate(branches * 3)
        ]
        return make_run(calls)

    found = compared(run("batched"), run("cond", "uncond"))
    whole = row(found, "submodule.transformer")
    assert (whole["base_ns"], whole["new_ns"]) == (50, 100)
    by_branch = verdicts(found)
    assert by_branch["submodule.transformer.branch.batched"] == "only_in_base"
    assert by_branch["submodule.transformer.branch.uncond"] == "only_in_new"


def test_calls_of_no_pipeline_are_samples_by_themselves():
    """A script's bare session, called again and again."""

    def run(*durations):
        calls = [
            make_call(i, "model", 1000 * i, 1000 * i + duration, stage="")
            for i, duration in enumerate(durations)
        ]
        return make_run(calls)

    found = row(compared(run(*BASE), run(*SLOWER)), "submodule.model")
    assert (found["base_ns"], found["new_ns"], found["verdict"]) == (100, 120, "slower")
    assert (found["resampled"], found["base_count"]) == ("calls", 6)


def _corrected(factor):
    return make_info("capture", submodules={"transformer": {"overhead_ratio": {"factor": factor}}})


def test_corrected_times_are_used_where_both_sides_have_them():
    """Traced calls cost 1/0.5: of 90 ns 45 are left, in the step too, and 72 of a cost of 1/0.8;
    without a factor on one side both stay as traced."""
    runs = [steps_run(BASE, info=_corrected(0.5)), steps_run(BASE, info=_corrected(0.8))]
    found = compared(*runs)
    assert found.corrected == ("transformer",)
    for name, base, new in (
        ("submodule.transformer", 45, 72),
        ("denoise.step", 45, 72),
        ("submodule.transformer.role.mlp", 35, 56),
    ):
        assert (row(found, name)["base_ns"], row(found, name)["new_ns"]) == (base, new)
        assert row(found, name)["corrected"]
    assert any("corrected" in note for note in map(worded_note, found.notes))
    raw = compared(runs[0], steps_run(BASE))
    assert raw.corrected == ()
    assert row(raw, "submodule.transformer")["base_ns"] == 90
    assert not row(raw, "submodule.transformer")["corrected"]
    assert any("as traced" in note for note in map(worded_note, raw.notes))


def test_columns_are_scaled_together():
    """A first run has one time beside several: scaled to untraced calls only if all can be."""
    runs = [steps_run(BASE, info=_corrected(0.5)), steps_run(BASE, info=_corrected(0.8))]
    sides = [[measure(run)] for run in (*runs, steps_run(SLOWER))]
    both = compare_each(sides)
    assert [each.corrected for each in both] == [(), ()]
    assert [row(each, "submodule.transformer")["base_ns"] for each in both] == [90, 90]
    (alone,) = compare_each(sides[:2])
    assert alone.corrected == ("transformer",)
    with pytest.raises(InputError, match="two sides"):
        compare_each(sides[:1])


def test_a_cost_within_noise_on_one_side_scales_neither():
    """Runs that took the same as traced are the same, though only one could tell what tracing
    costs; the note says why they are not corrected."""
    known = make_info(
        "capture",
        submodules={"transformer": {"overhead_ratio": {"factor": 0.96, "low": 0.9, "high": 1.02}}},
    )
    found = compared(steps_run(BASE, info=_corrected(0.5)), steps_run(BASE, info=known))
    times = row(found, "submodule.transformer")
    assert (times["base_ns"], times["new_ns"], times["verdict"]) == (90, 90, "within_noise")
    assert (found.corrected, times["corrected"]) == ((), False)
    tracing = [note for note in map(worded_note, found.notes) if "trac" in note]
    assert tracing == [
        "as traced, for what tracing costs is within noise in some of the runs: transformer"
    ]


def test_untraced_calls_are_not_scaled():
    """Only what was traced costs; untraced steps have no roles."""
    info = _corrected(0.5)
    base = steps_run(BASE, info=info, untraced=(2, 3, 4, 5))
    found = compared(base, steps_run(BASE, info=info))
    assert row(found, "submodule.transformer")["base_ns"] == pytest.approx(89, abs=1)
    assert row(found, "submodule.transformer.role.mlp")["base_count"] == 2


def test_tracing_of_one_side_is_said():
    """Traced calls take longer than untraced ones."""
    untraced = steps_run(BASE, untraced=range(len(BASE)))
    notes = [*map(worded_note, compared(steps_run(BASE), untraced).notes)]
    assert any("traced in base only" in note for note in notes)


def test_other_settings_devices_and_versions_are_said():
    """What else differs is in the notes."""
    base = steps_run(BASE, info=make_info("a", settings={"steps": 4}, versions={"torch": "2.9"}))
    new = steps_run(BASE, info=make_info("a", settings={"steps": 8}, versions={"torch": "2.10"}))
    calls = new.calls.with_columns(device=pl.lit("cpu:0").cast(pl.Categorical))
    notes = [*map(worded_note, compared(base, replace(new, calls=calls)).notes)]
    assert "settings differ: steps 4 → 8" in notes
    assert "versions differ: torch 2.9 → 2.10" in notes
    assert "not the same devices: cuda → cpu" in notes


def _on(device, model):
    run = steps_run(BASE, info=make_info("a", devices={device: Device(hardware=model)}))
    return replace(run, calls=run.calls.with_columns(device=pl.lit(device).cast(pl.Categorical)))


def test_a_device_is_its_model_and_not_its_number():
    """cuda:3 and cuda:1 of one model are the same; of two models, these are named."""
    same = compared(_on("cuda:3", "A100"), _on("cuda:1", "A100")).notes
    assert not any("devices" in worded_note(note) for note in same)
    other = [*map(worded_note, compared(_on("cuda:3", "A100"), _on("cuda:1", "V100")).notes)]
    assert "not the same devices: A100 → V100" in other


@pytest.mark.parametrize(("pipelines", "took"), [(1, 50 + 4 * 10), (2, 5 * 10)])
def test_means_of_kernels_are_of_all_calls_in_a_pipeline_call(pipelines, took):
    """Each pipeline call calls a model 5 times for 10 ns, the very first time for 50: its mean is
    that of all of its calls, as that of their role is, or of the second pipeline call alone."""
    calls, commands = [], []
    for number in range(5 * pipelines):
        start, length, place = 100 * number, 10 if number else 50, number // 5
        calls.append(make_call(number, "t", start, start + length, device="cuda:0", pipeline=place))
        kernel = {"op_type": "aten::mul", "kernel": "mul_kernel", "pipeline": place}
        ran = (number, "cuda:0", "stream 7", "compute", "mul", start, length)
        commands.append(Command(*ran, **kernel))
    spans = [
        make_span("pipeline", "P", 500 * place, 500 * place + 500, pipeline=place)
        for place in range(pipelines)
    ]
    run = make_run(calls, commands, spans)
    found = compared(run, run)
    assert found.kernels.select("base_ns", "new_ns", "base_executions").row(0) == (took, took, 5)
    (role,) = found.metrics.filter(pl.col("level") == "role")["base_ns"]
    assert role == took


def test_sums_do_not_depend_on_the_batches_they_are_read_in(monkeypatch):
    """The two commands of a call are of one kind: read one at a time, they are summed up as when
    read at once."""
    run = steps_run(BASE, parts=(("blocks.0.ff", "mlp"),) * 2)
    whole = measure(run)
    (steady,) = whole.details.operations.select("executions", "total_ns").rows()
    assert steady == (2 * len(BASE[1:]), sum(BASE[1:]) - 10 * len(BASE[1:]))
    monkeypatch.setattr(intervals, "_BATCH", 1)
    alone = measure(run)
    assert whole.details.operations.equals(alone.details.operations)
    assert whole.details.layers.equals(alone.details.layers)
    assert whole.work.sort("step").equals(alone.work.sort("step"))
    assert len(whole.work) == len(BASE)


def test_shapes_of_one_side_are_said():
    """The matrix product has other dims in new, which is half of the time; another is in both."""
    columns = {
        "submodule": ["t"] * 3,
        "what": ["mm 32×8×8", "mm 64×8×8", "softmax 8×8"],
        "base_ns": [10.0, None, 10.0],
        "new_ns": [None, 20.0, 10.0],
    }
    (note,) = other_shapes(pl.DataFrame(columns))
    assert worded_note(note) == "shapes differ: mm 32×8×8 → 64×8×8"
    assert not [*other_shapes(pl.DataFrame(columns)[2:])]


def _told(notes):
    """What notes say, with plain spaces."""
    return [worded_note(note).replace("\N{NO-BREAK SPACE}", " ") for note in notes]


def _alike(*new, kernel="gemm"):
    """Shapes of 100 ns each in base, by the same kernel but the last; in new by `kernel`."""
    count = len(new)
    return pl.DataFrame(
        {
            "submodule": ["t"] * count,
            "base_ns": [100] * count,
            "new_ns": list(new),
            **dict.fromkeys(("base_executions", "new_executions"), [4.0] * count),
            **dict.fromkeys(("base_kernels", "new_kernels"), [1] * count),
            "base_kernel": ["gemm"] * count,
            "new_kernel": [*[kernel] * (count - 1), "other"],
        }
    )


def test_a_device_that_ran_at_another_speed_is_said():
    """Of three shapes with the same kernel the one in the middle takes 1.08 times as long, in two
    samples of a pipeline call; that with another kernel has no say."""
    (said,) = _told(other_speed(_alike(108, 101, 120, 900), {"t": (2.0, 2.0)}))
    assert said == (
        "the device ran at another speed: 3 shapes that both ran with the same kernel take 1.08 "
        "times as long (median; 600 ns → 658 ns of a pipeline call)"
    )


@pytest.mark.parametrize(
    "shapes",
    [
        _alike(102, 101, 150, 100),  # most of them take as long
        _alike(108, 110, 120, 100, kernel="other"),
        _alike(120, 100, kernel="gemm").with_columns(new_executions=pl.Series([8.0, 4.0])),
    ],
)
def test_devices_of_which_no_other_speed_is_known(shapes):
    """The same speed, other kernels, or another number of executions."""
    assert not [*other_speed(shapes, {})]


def _loading(length):
    """A run of 1100 ns in whose longest gap the host was in a DataLoader for so long."""
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    given = {"kind": ActivityKind.RANGE, "thread": HOST_TRACK, "start_ns": 0}
    loads = HostActivity(name=name, duration_ns=length, **given)
    return steps_run(BASE, info=make_info("a", host_activities=(loads,)))


def test_a_loader_that_devices_waited_for_is_named():
    """Above 2 % of the longer run."""
    notes = _told(compared(_loading(0), _loading(200)).notes)
    where = "devices waited for the DataLoader in their longest gaps"
    assert f"{where}: 0 ns → 200 ns of a pipeline call" in notes
    assert where not in " ".join(_told(compared(_loading(190), _loading(200)).notes))


@needs_corpus
def test_workers_of_a_loader_in_two_traces():
    """352 ms of the gaps of the trace without workers lie in the loader, with four none."""
    folder = CORPUS / "torch_kineto_tb"
    sides = (load(folder / f"resnet50_num_workers_{workers}") for workers in (0, 4))
    notes = _told(compared(*sides).notes)
    assert any("DataLoader in their longest gaps: 352 ms → 0 ns" in note for note in notes)
    assert not any("another speed" in note for note in notes)


def test_runs_are_compared_without_being_measured_first():
    """The short way for notebooks; the tiny run of the tests has all stages."""
    found = compare_runs([tiny_run()], [tiny_run()])
    assert {"stage.encode", "stage.decode", "submodule.vae"} <= set(found.metrics["metric"])


def test_work_of_a_run_without_commands():
    """A run at call level has no roles."""
    found = measure(steps_run(BASE, untraced=range(len(BASE))))
    assert found.work.is_empty()
    assert found.calls["total_ns"].sum() == 0


_STEPS = st.lists(st.integers(40, 10**9), min_size=1, max_size=12)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(_STEPS, min_size=1, max_size=3), st.lists(_STEPS, min_size=1, max_size=3))
def test_what_holds_of_every_comparison(base, new):
    """Names are unique, the difference lies in its interval, verdicts follow from it."""
    found = compared([steps_run(s) for s in base], [steps_run(s) for s in new]).metrics
    assert found["metric"].is_unique().all()
    assert set(found["verdict"]) <= set(Verdict)
    assert set(found["resampled"].drop_nulls()) <= set(Resampled)
    for each in found.iter_rows(named=True):
        assert (each["low"] is None) == (each["high"] is None)
        if each["low"] is None:
            continue
        assert each["low"] - 1e-9 <= each["change"] <= each["high"] + 1e-9
        beyond = each["low"] > 0 or each["high"] < 0
        assert (each["verdict"] in {"slower", "faster"}) == beyond


def test_two_pipeline_calls_are_too_few_for_steps():
    """Steps of two pipeline calls tell more than the two medians; a pipeline call's own time has
    two values."""
    base, new = (steps_run((500, *steps), steps) for steps in ((100, 101, 99), (120, 121, 119)))
    found = compared(base, new)
    step = row(found, "denoise.step")
    assert (step["resampled"], step["base_count"], step["verdict"]) == ("steps", 6, "slower")
    three = compared(*[steps_run(*[(100, 101)] * 4)] * 2)
    whole = row(compared(*[steps_run(*[(100, 101)] * 3)] * 2), "end_to_end")
    assert (whole["resampled"], whole["base_count"]) == ("pipeline_calls", 2)
    assert row(three, "denoise.step")["resampled"] == "pipeline_calls"


def test_a_side_without_runs():
    """One sentence."""
    with pytest.raises(InputError, match="at least one of each"):
        compare_runs([tiny_run()], [])


@needs_corpus
def test_two_sides_that_share_no_shapes_did_not_do_the_same_work():
    """The same layers with 64 times the rows: 8,192 and 128, by the products' dims in the files."""
    names = ("switch_moe_a100", "switch_moe_a100_launch_bound")
    notes = compared(*(load(CORPUS / "wild" / f"{name}.json.gz") for name in names)).notes
    (found,) = [said for said in map(worded_note, notes) if said.startswith("shapes differ")]
    assert "8192×4096×1024 fp32 → 128×4096×1024 fp32" in found
