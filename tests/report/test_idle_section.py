"""Who waits for whom, in the report."""

from __future__ import annotations

from profiler.analysis.analyze import analyze
from tests.analysis.linked_runs import gpu, host, linked, wait
from tests.analysis.test_device_transitions import ISLAND
from tests.report.rendered import part_lines, printed, report_of, section_lines
from tests.runs import Command, make_call, make_run, tiny_run

_TITLE = "Idle time"
_WAITED = "What devices waited for, whole run"


def test_idle_devices_and_path():
    """rbln:0 is idle for 305 of its 780 ns, 105 for launches, and for 220 before and after; 760
    of 1000 ns are on the path."""
    lines = section_lines(printed(analyze(tiny_run()), 140), _TITLE)
    assert _WAITED in lines
    assert any(line.startswith("rbln:0 780 525 52.5 105 200 80 5 10 50.0") for line in lines)
    assert "Critical path: 760 ns of 1.00 µs, 76 %" in lines
    assert "call transformer rbln:0 2 500 50.0" in lines
    assert "host work - cpu:0 3 90 9.0" in lines


def test_providers_and_stranded_nodes():
    """Both directions without the long suffix of providers."""
    run = make_run([make_call(0, "unet", 0, 100, device="cuda:0")], ISLAND)
    lines = section_lines(printed(analyze(run), 120), _TITLE)
    assert "unet CUDA CPU 1 1 1 3 2" in lines
    assert "CPU fallback between copies, by total time" in lines
    assert any(line.startswith("nonzero unet NonZero") for line in lines)


def test_why_nothing_is_known():
    """One of two calls was traced: what the device did in the other nobody tells."""
    calls = [make_call(n, "unet", 100 * n, 100 * n + 90, traced=not n) for n in range(2)]
    run = make_run(calls, [Command(0, "rbln:0", "Cluster 0", "compute", "conv", 10, 50)])
    lines = part_lines(printed(analyze(run)), _WAITED)
    assert "the operators of 1 of 2 calls were not recorded" in " ".join(lines)


def test_guessed_waits_are_said():
    """No wait of the host was recorded: the path lies on the device by a guess, which the table and
    a sentence below it say; with a record of the waits neither is there."""
    silent = [host(0, 0, 10), host(0, 41, 42), gpu(0, 10, 40), gpu(0, 42, 98)]
    waits = [wait(0, 10, 40), wait(0, 42, 98)]
    for commands, guessed in ((silent, True), ([*silent, *waits], False)):
        run = make_run([make_call(0, "t", 0, 100, device="cuda:0")], commands)
        text = " ".join(section_lines(printed(analyze(linked(run, (0, 2), (1, 3))), 140), _TITLE))
        assert ("of it guessed ns" in text) == guessed
        assert ("86 ns of the path, 86 %, is guessed: " in text) == guessed


def test_what_lies_between_operators_of_a_cpu_waits_for_no_launch():
    """Alone it is called so; beside an accelerator, in one column with launch-bound time, a note
    says it."""
    calls = [make_call(n, f"t{n}", 0, 100, device=("cpu:0", "rbln:0")[n]) for n in range(2)]
    works = [
        Command(n, call.device, "track", "compute", "op", start, 40)
        for n, call in enumerate(calls)
        for start in (0, 60)
    ]
    for count, said, note in ((1, "between operators ns", False), (2, "launch-bound ns", True)):
        run = make_run(calls[:count], works[: 2 * count])
        text = " ".join(part_lines(printed(analyze(run), 140), _WAITED))
        assert said in text
        assert ("Of a CPU, launch-bound is what lies between operators" in text) is note


def test_run_without_calls_has_no_section():
    """Nothing is known to have waited."""
    assert "idle" not in [section.key for section in report_of(analyze(make_run())).sections]
