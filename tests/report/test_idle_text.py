"""Who waits for whom, in the terminal."""

import io

from rich.console import Console

from profiler.analysis.analyze import analyze
from profiler.report.idle_text import idle_sections
from profiler.report.sections.idle import waiting_section
from tests.analysis.test_boundaries import ISLAND
from tests.runs import Command, make_call, make_run, tiny_run


def _lines(run, width=120, top=15):
    console = Console(width=width, record=True, file=io.StringIO())
    for title, parts in idle_sections(analyze(run), top, width):
        console.print(title)
        for part in parts:
            console.print(part)
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


def test_idle_devices_and_path():
    """rbln:0 waits 310 of 780 ns, 105 for the host; 760 of 1000 ns are on the path."""
    lines = _lines(tiny_run())
    assert "What devices waited for, whole run" in lines
    assert "rbln:0 780 310 105 5 200 80 50.0" in lines
    assert "Critical path: 760 ns of 1.00 µs, 76 %" in lines
    assert "transformer call rbln:0 2 500 50.0" in lines
    assert "- host work cpu:0 3 90 9.0" in lines


def test_providers_and_stranded_nodes():
    """Both directions without the long suffix of providers."""
    lines = _lines(make_run([make_call(0, "unet", 0, 100, device="cuda:0")], ISLAND))
    assert "unet CUDA CPU 1 1 1 - 3 2" in lines
    assert any(line.startswith("Stranded on the host between copies") for line in lines)
    assert "nonzero unet NonZero 1 5" in lines


def test_why_nothing_is_known():
    """One of two calls was traced: what the device did in the other nobody tells."""
    calls = [make_call(n, "unet", 100 * n, 100 * n + 90, traced=not n) for n in range(2)]
    run = make_run(calls, [Command(0, "rbln:0", "Cluster 0", "compute", "conv", 10, 50)])
    lines = _lines(run)
    at = lines.index("What devices waited for, whole run")
    assert "the operators of 1 of 2 calls were not recorded" in " ".join(lines[at:])
    (part, *_) = waiting_section(analyze(run)).parts
    assert part.always
    assert "the operators of 1 of 2 calls were not recorded" in part.lead


def test_narrow_terminals_keep_the_tables():
    """No line is longer than the terminal."""
    assert max(map(len, _lines(tiny_run(), width=60))) <= 60


def test_run_without_calls_has_no_section():
    """Nothing is known to have waited."""
    assert _lines(make_run()) == []
