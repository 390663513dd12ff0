"""A comparison in 40 lines: what stands there, that it adds up, that it fits."""

from __future__ import annotations

import io
import re
from functools import cache, partial

import pytest
from rich.console import Console

from profiler.compare import check_gate
from profiler.compare import text as words
from profiler.compare.compare import compare
from profiler.compare.measure import measure
from profiler.compare.side_by_side import ROOMS, brief_report
from profiler.compare.tables import Side
from profiler.compare.text import rates, why
from profiler.report import LINES
from profiler.report.terminal import print_brief
from profiler.text import duration
from profiler.tools.sources import load
from tests.analysis.comparison.small import BASE, SLOWER, compared, steps_run
from tests.corpus import CORPUS, needs_corpus
from tests.runs import make_call, make_run, make_span

SAMPLES = (
    "torch_pairs/*h100.json.gz",
    "torch_pairs/*mi300.json.gz",
    "torch/sd35_mi300x.json.gz",
    "nsys/mfu_2gpu_before.sqlite",
    "rocprofv3/ruv_decode",
    "tensorrt/RTX-3090_fp16",
    "tensorrt/RTX-3090_fp32",
    "ort/*.json.gz",
)
_NANOSECONDS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
_TIME = re.compile(r"([+\N{MINUS SIGN}]?)([0-9.]+) (ns|µs|ms|s)$")


def _brief(comparison, width=80, gates=()):
    console = Console(width=width, record=True, file=io.StringIO())
    print_brief(console, partial(brief_report, comparison, gates))
    return console.export_text().replace("\N{NO-BREAK SPACE}", " ").splitlines()


@cache
def _measured(pattern):
    return measure(load(min(CORPUS.glob(pattern))))


def _ns(cell):
    sign, number, unit = _TIME.match(cell).groups()
    return float(number) * _NANOSECONDS[unit] * (-1 if sign == "\N{MINUS SIGN}" else 1)


def _waterfall(lines):
    """The differences of its lines, indented ones apart, and of the whole."""
    at = next(i for i, line in enumerate(lines) if line.startswith("Where the difference"))
    rows = []
    for line in lines[at + 2 :]:
        if not line:
            break
        rows.append((line.startswith("  "), re.split(r"  +", line.strip())[-1]))
    *parts, (_, whole) = rows
    return [_ns(cell) for inside, cell in parts if not inside], _ns(whole)


@needs_corpus
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("new", SAMPLES)
def test_any_two_runs_fit_forty_lines(new, width):
    """Whatever wrote them; no line is wider than the terminal, and the waterfall's lines add up to
    the difference, as far as three digits tell."""
    found = compare([_measured(SAMPLES[0])], [_measured(new)])
    lines = _brief(found, width)
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= width
    parts, whole = _waterfall(lines)
    largest = max(map(abs, (*parts, whole)))
    assert sum(parts) == pytest.approx(whole, abs=0.01 * len(parts) * largest)
    assert lines[-1].startswith("--full prints everything")


@needs_corpus
def test_why_one_card_is_slower_than_the_other():
    """Of Qwen on an H100 and on an MI300X the product that differs most stands there with its rate
    on both, which follows from its dims and the time, and the kernels of both."""
    found = compare([_measured(SAMPLES[0])], [_measured(SAMPLES[1])])
    shape = found.shapes.row(0, named=True)
    assert shape["what"] == "matmul 8944×1024×2816 bf16"
    flops = 2 * 8944 * 1024 * 2816 * 48
    for side in ("base", "new"):
        expected = flops / shape[f"{side}_ns"] / 1e3
        assert shape[f"{side}_teraflops_per_s"] == pytest.approx(expected)
        assert shape[f"{side}_executions"] == 48
    text = "\n".join(_brief(found))
    assert "617 → 466" in text
    assert re.search(r"^  sm90_xmma_gemm\S+ → Cijk_Alik_Bljk", text, re.MULTILINE)


def test_gates_stay():
    """What passed and what failed is said however little room there is."""
    found = compared(steps_run(BASE), steps_run(SLOWER))
    gate = check_gate(found, "denoise.step", 0.05)
    assert _brief(found, gates=[gate])[-1].startswith("FAILED: denoise.step")


def test_a_run_beside_itself():
    """Nothing differs, and nothing is divided by it."""
    run = steps_run(BASE)
    lines = _brief(compared(run, run))
    assert any("on both sides" in line for line in lines)
    assert _waterfall(lines)[1] == 0


def test_the_last_room_is_small():
    """Even of many submodules with long names it fits, without what ranks."""
    report = brief_report(compared(steps_run(BASE), steps_run(SLOWER)), (), ROOMS[-1])
    assert len(report.sections[0].parts) <= 3


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "a_gemm → b_gemm"),
        ({"new_kernel": "a_gemm"}, "same kernel: a_gemm"),
        ({"new_executions": 4.0}, "2 → 4 times, a_gemm → b_gemm"),
        ({"base_kernel": None}, "no kernel's name → b_gemm"),
        ({"base_kernel": None, "new_kernel": None}, ""),
    ],
)
def test_why_a_shape_differs(changed, expected):
    """Another kernel, the same, more executions; what a trace does not name."""
    row = {"base_kernel": "a_gemm", "new_kernel": "b_gemm"}
    row |= {"base_executions": 2.0, "new_executions": 2.0}
    assert why(row | changed) == expected


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [(616.6, 46.64, "617 → 46.6"), (None, 0.5, "? → 0.5"), (None, None, None)],
)
def test_rates_of_both(base, new, expected):
    """In TFLOP/s; a question mark where one side does not tell."""
    assert rates({"base_teraflops_per_s": base, "new_teraflops_per_s": new}) == expected


def test_a_shape_that_one_side_alone_has_says_its_kernel():
    """Where the other side never ran it, nothing is said of how often."""
    row = {
        "base_executions": 4.0,
        "new_executions": None,
        "base_kernel": "gemm",
        "new_kernel": None,
    }
    assert str(why(row)) == "gemm → no kernel's name"
    assert str(why({**row, "base_kernel": None})) == ""


def test_one_run_each_is_told_and_takes_few_lines():
    """It says that noise is not known and how to know it, and shows nothing that differs by less
    than a hundredth of a step; several runs a side are told nothing of that."""
    lines = _brief(compared([steps_run(BASE)], [steps_run(SLOWER)]))
    text = " ".join(lines)
    assert "One run each: that cannot tell noise from change" in text
    assert "for i in 1 2 3 4 5; do profile-sd3 record" in text
    several = _brief(compared([steps_run(BASE)] * 2, [steps_run(SLOWER)] * 2))
    assert "One run each" not in " ".join(several)


def test_what_one_side_alone_has_is_not_added_up():
    """The stage and the branch of the base contain its steps, which the new side has not either:
    the line has the time of the stage, which is all of the run, and counts the others."""
    whole = sum(BASE)
    call = make_call(0, "transformer", 0, whole, stage="run", pipeline=0)
    new = make_run([call], [], [make_span("pipeline", "Pipe", 0, whole, pipeline=0)])
    found = compared([steps_run(BASE)], [new])
    alone = words.only_in(found.metrics, Side.BASE)
    assert alone["ns"].sum() > whole
    (line,) = (line for line in _brief(found) if line.startswith("only in base: "))
    others = len(alone) - 1
    assert line == f"only in base: stage.denoise, {duration(whole)} and {others} others".replace(
        "\N{NO-BREAK SPACE}", " "
    )
