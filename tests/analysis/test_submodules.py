"""Calls and submodules: first calls apart from steady ones, traced beside untraced."""

import pytest

from profiler.analysis import Selection
from profiler.analysis.analyze import analyze
from tests.analysis.asked import asked
from tests.report.rendered import part_lines, printed
from tests.runs import Command, make_call, make_run, make_span, tiny_run


def _submodule(run, name):
    rows = asked(run).submodules.iter_rows(named=True)
    return next(row for row in rows if row["submodule"] == name)


def _calls(*durations, traced=()):
    starts = [sum(durations[:i]) for i in range(len(durations))]
    return [
        make_call(i, "t", start, start + length, traced=i in traced)
        for i, (start, length) in enumerate(zip(starts, durations, strict=True))
    ]


def test_submodules_in_order_of_their_first_call():
    """Not by name: the order of the pipeline."""
    names = asked(tiny_run()).submodules["submodule"].to_list()
    assert names == ["text_encoder", "transformer", "vae"]


def test_first_call_is_told_apart():
    """300 ns first, then 200, 210 and 220: the slow first one is in no statistic."""
    row = _submodule(make_run(_calls(300, 200, 210, 220)), "t")
    assert (row["calls"], row["duration_ns"], row["first_ns"]) == (4, 930, 300)
    assert (row["min_ns"], row["median_ns"], row["max_ns"]) == (200, 210, 220)


def test_the_longest_steady_call_is_called_so():
    """The first of three calls is the longest, and stands in a column of its own."""
    text = printed(analyze(make_run(_calls(300, 100, 200))), 160)
    head, row = part_lines(text, "Submodules")[:2]
    assert "first call ns shortest steady ns median ns longest steady ns" in head
    assert " 300 100 150 200 " in row


def test_only_call_is_its_own_statistic():
    """The VAE is called once."""
    row = _submodule(tiny_run(), "vae")
    assert (row["first_ns"], row["min_ns"], row["median_ns"], row["max_ns"]) == (80,) * 4


def test_numbers_of_a_submodule():
    """The transformer of the tiny run: 6 commands of 2 operators, busy 250 + 160 ns."""
    row = _submodule(tiny_run(), "transformer")
    assert (row["stage"], row["device"], row["traced_calls"]) == ("denoise", "rbln:0", 2)
    assert (row["commands"], row["operators"], row["busy_ns"]) == (6, 2, 410)
    assert row["share"] == 0.5


def test_device_time_of_calls_beside_each_other_counts_once():
    """Two branches on one device, the second from 60 to 160 beside the first, then one for 20: the
    submodule ran for 180. On two devices it ran for 120 and 100, which add up as elapsed times do.
    The wait of a queue is no work."""
    calls = [
        make_call(0, "t", 0, 100, branch="cond", device="cuda:0"),
        make_call(1, "t", 60, 160, branch="uncond", device="cuda:1"),
        make_call(2, "t", 200, 220, branch="cond", device="cuda:0"),
    ]
    commands = [
        Command(0, "cuda:0", "stream 7", "compute", "a", 0, 100),
        Command(1, "cuda:1", "stream 7", "compute", "a", 60, 100),
        Command(1, "cuda:1", "stream 8", "sync", "wait", 160, 40),
        Command(2, "cuda:0", "stream 7", "compute", "a", 200, 20),
    ]
    found = asked(make_run(calls, commands))
    assert found.calls["busy_ns"].to_list() == [100, 100, 20]
    assert found.submodules["busy_ns"].to_list() == [120 + 100]
    assert dict(found.branches.select("branch", "busy_ns").iter_rows()) == {
        "cond": 120,
        "uncond": 100,
    }
    some = asked(make_run(calls, commands), Selection(device=("cuda:1",)))
    assert some.submodules["busy_ns"].to_list() == [100]
    calls[1] = make_call(1, "t", 60, 160, branch="uncond", device="cuda:0")
    commands[1:3] = [Command(1, "cuda:0", "stream 8", "compute", "a", 60, 100)]
    assert asked(make_run(calls, commands)).submodules["busy_ns"].to_list() == [180]


def test_share_needs_an_end_to_end_time():
    """Without a pipeline span it lasts from the first tile to the last; without that there is
    nothing to be a share of."""
    assert _submodule(make_run(_calls(100)), "t")["share"] == 1.0
    assert _submodule(make_run(_calls(0)), "t")["share"] is None


def test_stages_and_devices_of_a_submodule_are_joined():
    """A text encoder that runs on two devices, once in another stage."""
    calls = [
        make_call(0, "t", 0, 10, stage="encode", device="rbln:1"),
        make_call(1, "t", 10, 20, stage="denoise", device="rbln:0"),
    ]
    row = _submodule(make_run(calls), "t")
    assert (row["stage"], row["device"]) == ("encode, denoise", "rbln:0, rbln:1")


def test_overhead_ratio_compares_steady_calls():
    """Steady traced calls take 125 ns, untraced ones 100: operators cost a quarter on top. The
    first of either kind is cold."""
    run = make_run(_calls(900, 125, 125, 125, 300, 100, 100, 100, traced=(0, 1, 2, 3)))
    assert _submodule(run, "t")["overhead_ratio"] == pytest.approx(0.8)


@pytest.mark.parametrize("durations", [(900, 125, 125, 100, 100, 100), (900, 125, 125, 125, 100)])
def test_overhead_ratio_needs_three_calls_of_either_kind(durations):
    """Fewer differ by chance; the first call is not one of them."""
    traced = [number for number, ns in enumerate(durations) if ns > 100]
    run = make_run(_calls(*durations, traced=traced))
    assert _submodule(run, "t")["overhead_ratio"] is None


def test_overhead_ratio_needs_durations():
    """Calls of which nobody knows how long they took tell nothing of tracing."""
    for traced, untraced in ((0, 10), (10, 0), (0, 0)):
        calls = _calls(9, *[untraced] * 3, *[traced] * 3, traced=(0, 4, 5, 6))
        assert _submodule(make_run(calls), "t")["overhead_ratio"] is None


def test_overhead_ratio_needs_both_kinds():
    """All traced or none traced: nothing to compare."""
    assert _submodule(make_run(_calls(10, 10, traced=(0, 1))), "t")["overhead_ratio"] is None
    assert _submodule(make_run(_calls(10, 10)), "t")["overhead_ratio"] is None


def test_calls_have_their_commands():
    """Work of no call belongs to no call; unions are per call."""
    calls = asked(tiny_run()).calls
    assert calls["commands"].to_list() == [1, 3, 3, 2]
    assert calls["operators"].to_list() == [1, 2, 2, 1]
    assert calls["busy_ns"].to_list() == [70, 250, 160, 65]
    assert calls["first"].to_list() == [True, True, False, True]


def test_call_of_unknown_duration_takes_no_time():
    """A manifest knows of a call whose file is lost, but not how long it took."""
    row = _submodule(make_run([*_calls(100), make_call(1, "t", 100, 99)]), "t")
    assert (row["duration_ns"], row["min_ns"]) == (100, 0)


def test_calls_without_numbers_from_zero():
    """Calls 7 and 1,000,000,000 of a cut bundle find their commands, in order of calls."""
    calls = [make_call(1_000_000_000, "t", 50, 90), make_call(7, "t", 0, 40)]
    commands = [Command(1_000_000_000, "rbln:0", "C", "compute", "mlp", 50, 30)]
    found = asked(make_run(calls, commands, [make_span("pipeline", "P", 0, 100)])).calls
    assert found.select("call", "commands", "busy_ns").rows() == [(7, 0, 0), (1_000_000_000, 1, 30)]


def test_first_is_the_first_of_the_run_whatever_is_selected():
    """Selecting steps 1-2 of three leaves two steady calls: none of them is the first."""
    calls = [
        make_call(i, "transformer", 100 * i, 100 * i + length, stage="denoise", step=i)
        for i, length in enumerate((90, 40, 60))
    ]
    analysis = asked(make_run(calls), Selection(step=("1-2",)))
    assert analysis.calls["first"].to_list() == [False, False]
    (row,) = analysis.submodules.iter_rows(named=True)
    assert (row["min_ns"], row["median_ns"], row["max_ns"]) == (40, 50, 60)
