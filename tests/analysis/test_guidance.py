"""The cost of guidance, by hand."""

import pytest

from tests.analysis.asked import asked
from tests.runs import Command, make_call, make_run, make_span, tiny_run


def _rows(run):
    return asked(run).guidance.rows(named=True)


def test_half_of_a_batched_call_is_an_estimate():
    """300 and 200 ns of batched calls without operators in a run of 1000 ns: 250 ns, a quarter."""
    calls = [
        make_call(0, "transformer", 0, 300, step=0, branch="batched", traced=False),
        make_call(1, "transformer", 300, 500, step=1, branch="batched", traced=False),
    ]
    (row,) = _rows(make_run(calls, spans=[make_span("pipeline", "P", 0, 1000)]))
    assert (row["what"], row["submodule"]) == ("classifier_free_guidance", "transformer")
    assert (row["calls"], row["elapsed_ns"], row["corrected_ns"]) == (2, 250, 250)
    assert row["estimated"] is True
    assert row["evidence"] == '[{"code": "guessed_half"}]'
    assert row["share"] == pytest.approx(0.25)


def test_operators_of_a_batched_call_are_halved():
    """Of unknown work, 530 ns in 410 of device time: 70 ns of each of the six commands are fixed,
    half of the other 110 goes."""
    (row,) = _rows(tiny_run())
    assert row["estimated"] is True
    assert row["elapsed_ns"] == row["busy_ns"] == round(110 * 410 / 530 / 2)
    assert row["evidence"].startswith('[{"code": "halved_operators", "left_share": ')


def test_calls_of_their_own_are_measured():
    """uncond and skip_layers of the denoiser, negative_prompt of an encoder."""
    calls = [
        make_call(0, "text_encoder", 0, 10, stage="encode", branch="prompt"),
        make_call(1, "text_encoder", 10, 25, stage="encode", branch="negative_prompt"),
        make_call(2, "transformer", 30, 60, step=0, branch="cond"),
        make_call(3, "transformer", 60, 80, step=0, branch="uncond"),
        make_call(4, "transformer", 80, 90, step=0, branch="skip_layers"),
    ]
    rows = _rows(make_run(calls, spans=[make_span("pipeline", "P", 0, 100)]))
    assert [(r["what"], r["submodule"], r["elapsed_ns"]) for r in rows] == [
        ("classifier_free_guidance", "transformer", 20),
        ("negative_prompt", "text_encoder", 15),
        ("skip_layer_guidance", "transformer", 10),
    ]
    assert not any(row["estimated"] for row in rows)


def test_guidance_in_some_of_the_steps_is_measured():
    """Batched calls of 50 ns where single ones take 30: 20 ns each, no estimate."""
    calls = [
        make_call(i, "transformer", i * 100, i * 100 + (50 if i < 4 else 30), step=i, branch=branch)
        for i, branch in enumerate(["batched"] * 4 + ["cond"] * 3)
    ]
    (row,) = _rows(make_run(calls))
    assert (row["calls"], row["elapsed_ns"], row["estimated"]) == (4, 80, False)
    assert row["evidence"] == '[{"code": "measured_calls", "calls": 3}]'


def test_two_calls_of_either_kind_measure_nothing():
    """As predictions have it: half, an estimate."""
    calls = [
        make_call(i, "transformer", i * 100, i * 100 + 50, step=i, branch=branch, traced=False)
        for i, branch in enumerate(["batched"] * 4 + ["cond"] * 2)
    ]
    (row,) = _rows(make_run(calls))
    assert (row["elapsed_ns"], row["estimated"]) == (100, True)


def test_traced_calls_are_corrected():
    """Traced uncond calls take 100 ns, untraced ones 80: four fifths of what was traced."""
    times = [(100 * i, 100 * i + 100, True) for i in range(4)]
    times += [(400 + 80 * i, 480 + 80 * i, False) for i in range(4)]
    calls = [
        make_call(i, "t", a, b, step=i, branch="uncond", traced=traced)
        for i, (a, b, traced) in enumerate(times)
    ]
    commands = [Command(i, "rbln:0", "C", "compute", "mlp", times[i][0], 50) for i in range(4)]
    (row,) = _rows(make_run(calls, commands))
    assert (row["elapsed_ns"], row["corrected_ns"]) == (720, 8 * 80)


def test_run_without_guidance_has_none():
    """cond alone."""
    assert _rows(make_run([make_call(0, "transformer", 0, 10, step=0, branch="cond")])) == []
