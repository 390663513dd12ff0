"""Calls and submodules: first calls apart from steady ones, traced beside untraced."""

import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.selection import Selection
from tests.runs import Command, make_call, make_run, make_span, tiny_run


def _submodule(run, name):
    rows = analyze(run).submodules.iter_rows(named=True)
    return next(row for row in rows if row["submodule"] == name)


def _calls(*durations, traced=()):
    starts = [sum(durations[:i]) for i in range(len(durations))]
    return [
        make_call(i, "t", start, start + length, traced=i in traced)
        for i, (start, length) in enumerate(zip(starts, durations, strict=True))
    ]


def test_submodules_in_order_of_their_first_call():
    """Not by name: the order of the pipeline."""
    names = analyze(tiny_run()).submodules["submodule"].to_list()
    assert names == ["text_encoder", "transformer", "vae"]


def test_first_call_is_told_apart():
    """300 ns first, then 200, 210 and 220: the slow first one is in no statistic."""
    row = _submodule(make_run(_calls(300, 200, 210, 220)), "t")
    assert (row["calls"], row["total_ns"], row["first_ns"]) == (4, 930, 300)
    assert (row["min_ns"], row["median_ns"], row["max_ns"]) == (200, 210, 220)


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


def test_share_needs_an_end_to_end_time():
    """Without a pipeline span there is nothing to be a share of."""
    assert _submodule(make_run(_calls(100)), "t")["share"] is None


def test_stages_and_devices_of_a_submodule_are_joined():
    """A text encoder that runs on two devices, once in another stage."""
    calls = [
        make_call(0, "t", 0, 10, stage="encode", device="rbln:1"),
        make_call(1, "t", 10, 20, stage="denoise", device="rbln:0"),
    ]
    row = _submodule(make_run(calls), "t")
    assert (row["stage"], row["device"]) == ("encode, denoise", "rbln:0, rbln:1")


def test_calibration_compares_steady_calls():
    """Steady traced calls take 125 ns, untraced ones 100: operators cost a quarter on top."""
    run = make_run(_calls(900, 125, 125, 100, 100, traced=(0, 1, 2)))
    assert _submodule(run, "t")["calibration"] == pytest.approx(0.8)


def test_calibration_needs_durations():
    """Calls of which nobody knows how long they took tell nothing of tracing."""
    for traced, untraced in ((0, 10), (10, 0), (0, 0)):
        calls = _calls(untraced, traced, untraced, traced, traced=(1, 3))
        assert _submodule(make_run(calls), "t")["calibration"] is None


def test_calibration_needs_both_kinds():
    """All traced or none traced: nothing to compare."""
    assert _submodule(make_run(_calls(10, 10, traced=(0, 1))), "t")["calibration"] is None
    assert _submodule(make_run(_calls(10, 10)), "t")["calibration"] is None


def test_calls_have_their_commands():
    """Work of no call belongs to no call; unions are per call."""
    calls = analyze(tiny_run()).calls
    assert calls["commands"].to_list() == [1, 3, 3, 2]
    assert calls["operators"].to_list() == [1, 2, 2, 1]
    assert calls["busy_ns"].to_list() == [70, 250, 160, 65]
    assert calls["first"].to_list() == [True, True, False, True]


def test_call_of_unknown_duration_takes_no_time():
    """A manifest knows of a call whose file is lost, but not how long it took."""
    row = _submodule(make_run([*_calls(100), make_call(1, "t", 100, 99)]), "t")
    assert (row["total_ns"], row["min_ns"]) == (100, 0)


def test_calls_without_numbers_from_zero():
    """Calls 7 and 1,000,000,000 of a cut bundle find their commands, in order of calls."""
    calls = [make_call(1_000_000_000, "t", 50, 90), make_call(7, "t", 0, 40)]
    commands = [Command(1_000_000_000, "rbln:0", "C", "compute", "mlp", 50, 30)]
    found = analyze(make_run(calls, commands, [make_span("pipeline", "P", 0, 100)])).calls
    assert found.select("call", "commands", "busy_ns").rows() == [(7, 0, 0), (1_000_000_000, 1, 30)]


def test_first_is_the_first_of_the_run_whatever_is_selected():
    """Selecting steps 1-2 of three leaves two steady calls: none of them is the first."""
    calls = [
        make_call(i, "transformer", 100 * i, 100 * i + length, stage="denoise", step=i)
        for i, length in enumerate((90, 40, 60))
    ]
    analysis = analyze(make_run(calls), Selection(step=("1-2",)))
    assert analysis.calls["first"].to_list() == [False, False]
    (row,) = analysis.submodules.iter_rows(named=True)
    assert (row["min_ns"], row["median_ns"], row["max_ns"]) == (40, 50, 60)
