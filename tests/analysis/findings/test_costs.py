"""What findings say that their recommendations save at most: what was measured less what is
left."""

from dataclasses import replace

from profiler.analysis import DeviceProfile, find, words
from tests.analysis.findings.cases import analyzed, command, gpu_call
from tests.runs import make_call, make_span

ADD = "float[4] float[4] -> float[4]"  # 48 bytes
PRODUCT = "float16[16,16] float16[16,16] -> float16[16,16]"  # 8192 FLOPs
MLP = "transformer_blocks.0.ff.net.2"


def _profile(bandwidth, launch=None, peak=1e15):
    peaks = {"float32": peak, "float16": peak}
    return DeviceProfile("unit", peaks, bandwidth, launch, "", True, device="cuda:0")


def _only(analysis, rule):
    (finding,) = [found for found in find(analysis) if found.rule == rule]
    return finding


def _calls(traced):
    return [gpu_call(0, 0, 500), gpu_call(1, 500, 1000, traced=traced)]


def _adds(calls, count=5):
    adds = [command(0, 10 * i, 10 * (i + 1), op_type="Add", layer="block") for i in range(count)]
    return analyzed(calls, adds, shapes=[ADD] * count, profile=_profile(12e9, launch=10.0))


def test_the_share_of_recording_operators_is_not_that_of_all_tracing():
    """Recording operators took 20 of 100 ns, all of tracing 60 %: the title says which it is."""
    overhead = {"share": 0.6, "untraced_ns": 80, "operators_ns": 20, "hooks_ns": 100}
    found = _only(analyzed(overhead=overhead), "tracing_overhead")
    assert found.evidence["overhead_share"] == 0.2
    assert words(found).title.startswith("Recording operators took 20 % of the time in calls")
    found = _only(analyzed(overhead={"share": 0.6, "operators_ns": 20}), "tracing_overhead")
    assert words(found).title.startswith("Tracing took 60 % of the run")


def test_launches_cost_what_the_work_does_not_take():
    """Five commands of 10 ns, each of whose bytes take 4: 30 of the 50 ns can be saved."""
    found = _only(_adds([gpu_call(0, 0, 1000)]), "launch_bound")
    assert (found.cost_ns, found.evidence["without_launches_ns"]) == (30, 20)


def test_no_host_launches_the_nodes_of_a_cpu():
    """The same five commands on a CPU are not bound by launches."""
    call = make_call(0, "transformer", 0, 1000, device="cpu:0", stage="denoise", step=0)
    adds = [
        command(0, 10 * i, 10 * (i + 1), device="cpu:0", op_type="Add", layer="block")
        for i in range(5)
    ]
    profile = replace(_profile(12e9, launch=10.0), device="cpu:0")
    run = analyzed([call], adds, shapes=[ADD] * 5, profile=profile)
    assert run.roofline["bound"].to_list() == ["overhead"]
    assert not [found for found in find(run) if found.rule == "launch_bound"]


def test_commands_are_those_of_all_calls():
    """One of two calls was traced: commands count twice, as their time does."""
    found = _only(_adds(_calls(traced=False)), "launch_bound")
    assert (found.evidence["total_ns"], found.evidence["commands"], found.cost_ns) == (100, 10, 60)


def test_products_cost_nothing_for_what_is_not_known():
    """100 ns that could be 24, and 20 ns of a product without shapes: 76 can be saved."""
    products = [
        command(0, 0, 100, op_type="MatMul", layer=MLP),
        command(0, 100, 120, op_type="MatMul", layer=MLP),
    ]
    profile = _profile(1e15, peak=8192e9 / 24)
    run = analyzed([gpu_call(0, 0, 1000)], products, shapes=[PRODUCT, None], profile=profile)
    found = _only(run, "slow_products")
    assert (found.evidence["total_ns"], found.evidence["roofline_ns"]) == (120, 24)
    assert found.cost_ns == 76


def test_moved_data_costs_all_of_it():
    """An upper bound, which the caveat says; commands are those of all calls."""
    transposes = [
        command(0, i, i + 50, op_type="Transpose", layer="attn/Transpose") for i in (0, 50)
    ]
    found = _only(analyzed(_calls(traced=False), transposes), "data_movement")
    assert (found.evidence["total_ns"], found.evidence["commands"], found.cost_ns) == (200, 4, 200)
    assert "upper bound" in words(found).caveat


def test_what_two_devices_do_at_once_is_gained_once():
    """Each moves data for 60 ns of calls that last from 0 to 500: 120 in all, of which the run can
    save 60. If one call follows the other, it can save all of it."""
    for begin, passes in ((0, 60), (500, 120)):
        calls = [gpu_call(0, 0, 500), replace(gpu_call(1, begin, begin + 500), device="cuda:1")]
        moves = [
            command(n, at + 20, at + 80, device=f"cuda:{n}", op_type="Transpose", layer="attn")
            for n, at in ((0, 0), (1, begin + 20))
        ]
        found = _only(analyzed(calls, moves), "data_movement")
        assert (found.evidence["total_ns"], found.cost_ns) == (120, passes)


def test_a_negative_prompt_costs_what_leads_to_its_calls():
    """Of 70 ns the host needs 20 to get from the prompt's call to it, and 50 are its call. Were it
    the first in its pipeline call, nobody would know what the 15 ns ahead of it are for."""

    def found(first, second):
        calls = [
            make_call(0, "text_encoder", 15, 100, stage="encode", branch=first, pipeline=0),
            make_call(1, "text_encoder", 120, 170, stage="encode", branch=second, pipeline=0),
        ]
        run = analyzed(calls, spans=[make_span("pipeline", "P", 0, 200, pipeline=0)])
        return _only(run, "negative_prompt").cost_ns

    assert found("prompt", "negative_prompt") == 70
    assert found("negative_prompt", "prompt") == 85


def test_what_an_encoder_saves_depends_on_other_runs():
    """Kept embeddings save what comes again: no cost, and medium whatever its share."""
    encoder = make_call(0, "text_encoder_3", 0, 500, stage="encode", branch="prompt")
    run = analyzed(
        [encoder, gpu_call(1, 500, 1000, step=0)],
        spans=[make_span("step", "step 0", 500, 1000, 0)],
    )
    found = _only(run, "encoder_dominates")
    assert (found.cost_ns, found.severity) == (None, "medium")


def test_waits_for_another_device_cost_none_of_the_host_s_gaps():
    """cuda:0 waits 300 µs for cuda:1 and then 200 µs for the host: following the advice about the
    other device gains the first."""
    times = [
        ("t", "cuda:0", 0, 1_000_000),
        ("u", "cuda:1", 1_000_000, 1_300_000),
        ("t", "cuda:0", 1_300_000, 2_300_000),
        ("t", "cuda:0", 2_500_000, 4_000_000),
    ]
    calls = [
        gpu_call(number, begin, end, device=device, submodule=name)
        for number, (name, device, begin, end) in enumerate(times)
    ]
    work = [
        command(number, begin, end, device=device)
        for number, (_, device, begin, end) in enumerate(times)
    ]
    found = find(analyzed(calls, work, end=4_000_000))
    (gaps,) = [one for one in found if (one.rule, one.where.device) == ("idle_gaps", "cuda:0")]
    assert (gaps.evidence["cause"], gaps.evidence["gap_ns"]) == ("other_device", 500_000)
    assert gaps.cost_ns == 300_000
