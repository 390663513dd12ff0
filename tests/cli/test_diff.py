"""`profile-sd3 diff`: sides, outputs, the gate's exit code, and bad input."""

from __future__ import annotations

import json
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from profiler.compare import Compared, columns_report
from profiler.compare.compare import compare_each
from profiler.compare.measure import measure
from profiler.report import print_report
from profiler.run import write_parquet
from profiler.tools.sources import load
from tests.analysis.comparison.small import BASE, SLOWER, write_steps
from tests.command_line import refused
from tests.corpus import CORPUS, needs_corpus
from tests.runs import write_empty_bundle, write_tiny_bundle

_MINUS = "\N{MINUS SIGN}"
SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


@pytest.fixture
def diff(cli):
    """Run `diff` in this process; returns exit code, stdout and stderr."""
    return partial(cli, "diff")


@pytest.fixture
def base(tmp_path):
    return write_steps(tmp_path / "base", "20270115-080000-base", BASE)


@pytest.fixture
def slower(tmp_path):
    return write_steps(tmp_path / "new", "20270115-090000-new", SLOWER)


def test_two_runs(diff, base, slower):
    """The report says what became slower; without a gate the exit code is 0."""
    code, text, _ = diff(base, slower)
    assert code == 0
    assert "step +20.0 %, slower" in " ".join(text.split())


@pytest.mark.parametrize(("limit", "code"), [("5%", 1), ("50%", 0)])
def test_the_gate_is_the_exit_code(diff, base, slower, limit, code):
    """20 % slower fails a gate of 5 % and passes one of 50 %; getting faster passes."""
    gate = ("--fail-over", limit, "--metric", "denoise.step")
    found, text, _ = diff(base, slower, *gate)
    assert found == code
    assert ("FAILED" in text) == bool(code)
    assert diff(slower, base, *gate)[0] == 0


def test_a_run_without_calls_is_left_out(diff, base, slower):
    """A folder of baselines in which one run was refused before its first call: it is named."""
    empty = write_empty_bundle(base.parent, "empty")
    code, text, err = diff(base.parent, slower)
    assert (code, "slower" in text) == (0, True)
    assert f"{empty} holds no call and was left out" in err


def test_several_baselines(diff, tmp_path, slower):
    """Bundles, and folders of them, make a baseline."""
    folder = tmp_path / "folder"
    for number in range(3):
        write_steps(folder, f"20270115-08000{number}-base", [v + number for v in BASE])
    more = [write_steps(tmp_path / "more", f"20270115-10000{n}-base", BASE) for n in range(2)]
    bases = [word for path in (folder, *more) for word in ("--against", path)]
    _, text, _ = diff(slower, *bases, "--json", "-", "--fail-over", "5%")
    document = json.loads(text)
    assert [run["side"] for run in document["runs"]] == ["base"] * 5 + ["new"]
    (gate,) = document["gates"]
    assert gate["metric"] == "end_to_end"
    whole = next(row for row in document["metrics"] if row["metric"] == "end_to_end")
    assert (whole["resampled"], whole["base_count"], whole["new_count"]) == ("runs", 5, 1)


def test_outputs(diff, tmp_path, base, slower):
    """JSON and Markdown as files beside the report."""
    files = tmp_path / "diff.json", tmp_path / "diff.md"
    assert "step +20.0 %" in diff(base, slower, "--json", files[0], "--markdown", files[1])[1]
    assert json.loads(files[0].read_text())["kind"] == "diff"
    assert files[1].read_text().count("| denoise.step |") == 1
    assert diff(base, slower, "--markdown", "-")[1] == files[1].read_text()


def test_other_kinds_of_runs(diff, tmp_path, base):
    """A Parquet run and a single .pb are runs as a bundle is."""
    parquet = tmp_path / "parquet"
    write_parquet(load(base), parquet)
    assert "within noise" in " ".join(diff(base, parquet)[1].split())
    assert diff(base, base / "merged.pb")[0] == 0


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("tiny_two_devices", "sd35_mi300x"),
        ("sd35_mi300x", "tiny_two_devices"),
        ("tiny_two_devices", "tiny_two_devices"),
    ],
)
def test_across_runtimes(diff, left, right):
    """ONNX Runtime on a CPU against an imported trace of a GPU: down to roles."""
    code, text, _ = diff(SAMPLES / left, SAMPLES / right, "--json", "-")
    assert code == 0
    metrics = {row["metric"]: row for row in json.loads(text)["metrics"]}
    for name in ("end_to_end", "denoise.step", "submodule.transformer.role.attention"):
        assert metrics[name]["base_ns"] > 0
        assert metrics[name]["new_ns"] > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fail-over", "5"], "is no limit: give per cent"),
        (["--metric", "denoise.step"], "give --fail-over 5% with it"),
        (["--fail-over", "5%"], "end_to_end was measured once on each side"),
        (["--fail-over", "5%", "--metric", "denoise.stp"], "such as denoise.step"),
        (["--json", "x.pb"], "is part of a trace"),
        (["--json", "x", "--markdown", "x"], "both name x"),
    ],
)
def test_bad_options(diff, base, slower, options, words):
    """One sentence, exit code 2."""
    refused(diff(base, slower, *options), words)


def test_one_run(diff, base):
    """A run alone compares with nothing."""
    refused(diff(base), "alone: give the baseline before it, or behind --against")


def test_against_names_the_baseline(diff, base, slower):
    """`diff NEW --against BASE` is `diff BASE NEW`."""
    assert diff(slower, "--against", base) == diff(base, slower)


@pytest.fixture
def faster(tmp_path):
    return write_steps(tmp_path / "third", "20270115-100000-third", [v - 20 for v in BASE])


def test_three_runs_side_by_side(diff, base, slower, faster):
    """Each further run is a column, with its time and its difference to the first."""
    code, text, _ = diff(base, slower, faster)
    assert code == 0
    (line,) = [line for line in text.splitlines() if line.startswith("denoise.step  ")]
    assert line.split("  ")[0].strip() == "denoise.step"
    cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
    assert cells[1:] == ["100 µs", "120 µs, +20.0 %*", f"80.0 µs, {_MINUS}20.0 %*"]
    assert "Changes are relative to 20270115-080000-base; * beyond noise" in text


def test_columns_that_do_not_fit_stand_below(base, slower, faster):
    """A narrow terminal has every run, in several tables."""
    sides = [[measure(load(path))] for path in (base, slower, faster)]
    found = zip(("new", "third"), compare_each(sides), strict=True)
    columns = [Compared(name, comparison) for name, comparison in found]
    texts = {}
    for width in (50, 80):
        console = Console(width=width, file=StringIO(), highlight=False)
        print_report(console, columns_report("base", columns))
        texts[width] = console.file.getvalue()
        assert max(map(len, texts[width].splitlines())) <= width
        assert "not shown" not in texts[width]
    assert (texts[50].count("denoise.step.first"), texts[80].count("denoise.step.first")) == (2, 1)


def test_columns_as_json(diff, base, slower, faster):
    """Each comparison is the document of two runs, and the first run has one time in all."""
    _, text, _ = diff(base, slower, faster, "--json", "-")
    document = json.loads(text)
    assert document["base"] == base.name
    assert [each["name"] for each in document["comparisons"]] == [slower.name, faster.name]
    for each, path in zip(document["comparisons"], (slower, faster), strict=True):
        alone = json.loads(diff(base, path, "--json", "-")[1])
        assert {key: alone[key] for key in each if key != "name"} == {
            key: value for key, value in each.items() if key != "name"
        }


def test_columns_as_markdown(diff, base, slower, faster):
    """A row a metric, with a cell for each run."""
    _, text, _ = diff(base, slower, faster, "--markdown", "-")
    assert f"120 µs, +20.0 %\\* | 80.0 µs, {_MINUS}20.0 %\\* |" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| denoise.step |")]
    assert row.count("|") == 5


def test_the_gate_of_columns(diff, base, slower, faster):
    """One column that is slower fails the gate, and its line names it."""
    gate = ("--fail-over", "5%", "--metric", "denoise.step")
    code, text, _ = diff(base, faster, slower, *gate)
    assert code == 1
    assert f"{slower.name}: FAILED: denoise.step" in text
    assert f"{faster.name}: passed: denoise.step" in text
    assert diff(base, faster, faster.parent, *gate)[0] == 0


def test_a_run_is_a_column_once(diff, base, slower):
    """The same path twice could not be told apart."""
    refused(diff(base, slower, slower), "is given twice")


def test_columns_of_one_name(diff, base, slower, tmp_path):
    """Runs in folders of one name go by their paths."""
    other = write_steps(tmp_path / "other", base.name, BASE)
    _, text, _ = diff(base, slower, other, "--json", "-")
    assert [each["name"] for each in json.loads(text)["comparisons"]] == [str(slower), str(other)]


def test_runs_that_cannot_be_compared(diff, tmp_path, base):
    """Nothing there, no trace, no bundle in a folder."""
    (tmp_path / "notes.pb").write_text("hello")
    (tmp_path / "empty").mkdir()
    for path in ("missing", "notes.pb", "empty"):
        refused(diff(base, tmp_path / path), path)


def test_a_damaged_run_is_refused(diff, tmp_path, base):
    """Times that lack a part compare with nothing."""
    damaged = write_tiny_bundle(tmp_path / "damaged")
    file = damaged / "001_transformer.step000.pb"
    file.write_bytes(file.read_bytes()[:-20])
    refused(diff(base, damaged), "is not whole", file.name)


def test_forty_lines_unless_asked_for_more(diff, base, slower):
    """Everything with `--full` and with `--top`, sections by name; gates in each."""
    gate = ("--fail-over", "5%", "--metric", "denoise.step")
    brief, full = diff(base, slower, *gate)[1], diff(base, slower, "--full", *gate)[1]
    assert brief.count("\n") <= 40
    assert "Times, and 95% intervals" in full
    assert "Times, and 95% intervals" not in brief
    assert "Times, and 95% intervals" in diff(base, slower, "--top", "3")[1]
    text = diff(base, slower, "--section", "waterfall,steps", *gate)[1]
    assert "From one end-to-end time" in text
    assert "intervals of the change" not in text
    assert all("FAILED" in one for one in (brief, full, text))


def test_sections_have_names(diff, base, slower):
    """They are listed; another name, and `--full` beside one, are refused."""
    listed = diff("--list-sections")[1]
    assert [line.split()[0] for line in listed.splitlines()][:2] == ["notes", "waterfall"]
    assert "there is no section 'idle'" in refused(diff(base, slower, "--section", "idle"))
    refused(diff(base, slower, "--section", "shapes", "--full"))


def test_a_page_of_two_sides(diff, base, slower, tmp_path):
    """`--html` writes it and names it at the end; the terminal has what it has without."""
    page = tmp_path / "diff.html"
    _, alone, _ = diff(base, slower)
    code, text, _ = diff(base, slower, "--html", page)
    assert code == 0
    assert text == f"{alone}wrote {page}\n"
    assert 'id="two-timelines"' in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("place", ["-", "none/diff.html", "."])
def test_a_page_needs_a_file(diff, base, slower, place):
    """Not stdout, not a folder, not in a folder that is not there."""
    code, _, error = diff(base, slower, "--html", place)
    assert code == 2
    assert "--html" in error


def test_a_page_of_three_sides_is_refused(diff, base, slower, tmp_path):
    """It shows two; nothing is written."""
    third = write_steps(tmp_path / "third", "20270115-100000-third", BASE)
    page = tmp_path / "diff.html"
    code, _, error = diff(base, slower, third, "--html", page)
    assert code == 2
    assert "two sides" in error
    assert not page.exists()


@needs_corpus
def test_side_by_side_by_shape(diff):
    """A column a card, with time, change and rate, and the kernels of all below."""
    h100, mi300 = (min(CORPUS.glob(f"torch_pairs/*{card}.json.gz")) for card in ("h100", "mi300"))
    code, text, _ = diff(h100, mi300, CORPUS / "torch" / "sd35_mi300x.json.gz", "--by", "shape")
    assert code == 0
    lines = text.replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert any(line.startswith("matmul 8944×1024×2816 bf16") for line in lines)
    assert "4.02 ms, 617 TFLOP/s" in "\n".join(lines)
    assert "5.31 ms, +32.2 %, 466 TFLOP/s" in "\n".join(lines)
    assert not any(line.startswith("Roles") for line in lines)
