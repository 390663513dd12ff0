"""`diff` with a kept `summary.json`: counts and memory exactly, times only where that can be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import polars as pl
import pytest

import profiler
from profiler.fleet.summaries import SummaryVerdict, check_growth, compare_summaries
from profiler.tools.metrics import LARGEST, Measure, fitting, read_summary_file, summarized
from profiler.tools.sources import Kind, Source
from tests.command_line import run_command
from tests.documents import conforms

TINY = Path(__file__).parents[2] / "sample_traces" / "tiny_two_devices"
COMMANDS = "denoise.transformer.commands"
PEAK = "peak_memory[device=cpu:0]"


@pytest.fixture
def bundle(tmp_path):
    shutil.copytree(TINY, tmp_path / "new", ignore=shutil.ignore_patterns("summary.json", "*.html"))
    return tmp_path / "new"


@pytest.fixture
def kept(bundle, tmp_path):
    """Write a baseline: the run's own summary, in which metrics have `factors` of their values and
    columns of the run other values."""

    def write(name="base.json", factors=(), **columns):
        document = json.loads(msgspec.json.encode(summarized(Source(bundle, Kind.BUNDLE))))
        document["run"] |= columns
        for row in document["metrics"]:
            row[7] *= dict(factors).get(row[6], 1)
        (tmp_path / name).write_text(json.dumps(document, separators=(",", ":")), "utf-8")
        return tmp_path / name

    return write


def diffed(tmp_path, *arguments):
    """Exit code and metrics by name, of a document that conforms to its schema."""
    code = run_command("diff", *arguments, "--json", tmp_path / "out.json")
    document = conforms(json.loads((tmp_path / "out.json").read_text("utf-8")))
    return code, {row["metric"]: row for row in document["metrics"]}, document


def test_the_figures_are_those_of_the_run(kept, bundle, tmp_path):
    """Commands of a call and peaks of memory, counted here from the run's commands and counters;
    against its own summary all counts are the same, and a gate passes."""
    code, rows, _ = diffed(tmp_path, kept(), bundle, "--fail-over", "0%")
    assert code == 0
    run = profiler.load(bundle)
    calls = run.calls.filter(pl.col("submodule") == "transformer")
    commands = run.commands.join(calls.select("call"), on="call", how="semi")
    assert rows[COMMANDS]["base"] == rows[COMMANDS]["new"] == len(commands) / len(calls)
    memory = profiler.analyze(bundle).memory_devices
    peaks = {row["device"]: row["peak_bytes"] for row in memory.to_dicts()}
    assert rows[PEAK]["new"] == peaks["cpu:0"] > 0
    counted = [row for row in rows.values() if row["unit"] in ("count", "bytes")]
    assert {row["verdict"] for row in counted} == {"same"}


def test_growth_fails(kept, bundle, tmp_path, capsys):
    """A baseline of nine tenths of the commands: 11 % more, which fails over 10 %, passes over
    12 %, and the line says so; less never fails."""
    base = kept(factors={"commands": 0.9})
    code, rows, document = diffed(tmp_path, base, bundle, "--fail-over", "10%")
    assert code == 1
    assert rows[COMMANDS]["change"] == pytest.approx(1 / 9)
    failed = [gate["metric"] for gate in document["gates"] if gate["failed"]]
    assert COMMANDS in failed
    assert all(name.endswith(".commands") for name in failed)
    assert f"FAILED: {COMMANDS}: +11 %, limit 10 %" in capsys.readouterr().out.replace("\xa0", " ")
    assert diffed(tmp_path, base, bundle, "--fail-over", "12%")[0] == 0
    assert diffed(tmp_path, bundle, base, "--fail-over", "0%")[0] == 0
    summary = tmp_path / "summary.md"
    assert run_command("diff", base, bundle, "--fail-over", "10%", "--markdown", summary) == 1
    assert "FAILED" in summary.read_text("utf-8")


def test_times_of_another_machine_are_not_compared(kept, bundle, tmp_path, capsys):
    """Another CPU: no verdict on times, a note that says so, and a gate on them ends with 2; counts
    are compared all the same."""
    base = kept(cpu="another")
    _, rows, document = diffed(tmp_path, base, bundle)
    assert rows["elapsed"]["verdict"] == "not_compared"
    assert rows[COMMANDS]["verdict"] == "same"
    assert any("times of other machines are not compared" in note for note in document["notes"])
    capsys.readouterr()
    gate = ("--fail-over", "5%", "--metric", "elapsed")
    assert run_command("diff", base, bundle, *gate) == 2
    assert "cpu another" in capsys.readouterr().err


def test_times_of_one_machine(kept, tmp_path):
    """Six summaries a side tell 50 % from their scatter of 1 %; of one a side they do not."""
    base = [kept(f"b{n}.json", {"elapsed": 1 + n / 500}) for n in range(6)]
    new = [kept(f"n{n}.json", {"elapsed": 1.5 + n / 500}) for n in range(6)]
    sides = [[read_summary_file(path) for path in side] for side in (base, new)]
    found = compare_summaries(*sides)
    assert check_growth(found, "elapsed", 0.05).failed
    assert not check_growth(found, "elapsed", 0.6).failed
    few = compare_summaries(*(side[:1] for side in sides))
    row = few.rows.row(by_predicate=pl.col("metric") == "elapsed", named=True)
    assert row["verdict"] == SummaryVerdict.NEEDS_MORE
    with pytest.raises(profiler.ProfilerError, match="six or more runs"):
        check_growth(few, "elapsed", 0.05)


def test_a_formatted_summary_is_one(kept, bundle, tmp_path):
    """Hooks of a repository may indent it, and sort its keys."""
    text = kept().read_text("utf-8")
    for options in ({"indent": 2}, {"indent": 2, "sort_keys": True}):
        path = tmp_path / "formatted.json"
        path.write_text(json.dumps(json.loads(text), **options), "utf-8")
        assert diffed(tmp_path, path, bundle, "--fail-over", "0%")[0] == 0


def test_other_commands_say_what_it_is(kept, bundle, tmp_path, capsys):
    """A summary, or a document of `--json`, is no run: one sentence with what to give."""
    assert run_command("analyze", kept()) == 2
    assert "is a summary of a run" in capsys.readouterr().err
    diffed(tmp_path, kept(), bundle)
    capsys.readouterr()
    assert run_command("diff", tmp_path / "out.json", bundle) == 2
    assert "is a document that profile-sd3 wrote" in capsys.readouterr().err


def test_nothing_in_common_is_not_passed(kept, bundle, tmp_path, capsys):
    """A gate without anything to gate cannot pass."""
    path = kept()
    document = json.loads(path.read_text("utf-8"))
    document["metrics"] = [row for row in document["metrics"] if row[-1] == "ns"]
    path.write_text(json.dumps(document), "utf-8")
    assert run_command("diff", path, bundle, "--fail-over", "5%") == 2
    assert "no count and no memory is in both" in capsys.readouterr().err


def test_all_forms_of_sides(kept, bundle, tmp_path, capsys):
    """Files on both sides, a file among others behind --against, and a folder of bundles."""
    base, other = kept(), kept("other.json", {"commands": 2})
    assert diffed(tmp_path, base, other, "--fail-over", "5%")[0] == 1
    shutil.copytree(bundle, tmp_path / "many" / "one")
    assert diffed(tmp_path, base, tmp_path / "many", "--fail-over", "0%")[0] == 0
    _, rows, document = diffed(tmp_path, bundle, "--against", base, "--against", other)
    assert rows[COMMANDS]["verdict"] == "no_difference"  # the baselines span it
    assert [run["side"] for run in document["runs"]] == ["base", "base", "new"]
    assert run_command("diff", base, other, bundle) == 2
    assert "give BASE and NEW" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--fail-over", "5%", "--metric", "denoise.transformer.comands"), f"such as {COMMANDS}"),
        (("--html", "page.html"), "--html needs"),
        (("--by", "kernel"), "--by needs"),
    ],
)
def test_what_a_summary_cannot_answer(kept, bundle, capsys, arguments, said):
    """One sentence, exit code 2."""
    assert run_command("diff", kept(), bundle, *arguments) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"schema_version":1}',
        '{"schema_version":99,"content":"","run":{},"metrics":[]}',
        '{"schema_version":1,"content":"","run":{},"metrics":[["x"]]}',
    ],
)
def test_damaged_summaries(bundle, tmp_path, capsys, text):
    """One sentence that names the file."""
    path = tmp_path / "kept.json"
    path.write_text(text)
    assert run_command("diff", path, bundle) == 2
    assert f"{path} is damaged, or no summary" in capsys.readouterr().err


def test_missing_parts_are_no_baseline(kept, bundle, capsys):
    """A run from which events were dropped has fewer commands: it gates nothing."""
    assert run_command("diff", kept(quality="drops"), bundle, "--fail-over", "5%") == 2
    assert "events were dropped" in capsys.readouterr().err


def test_a_summary_is_small():
    """Of 3,000 steps, 60 shapes and 40 roles what fits: totals all, then roles, shapes, steps."""
    none = (None, None, "ns")
    rows = [Measure(None, None, None, None, None, None, "elapsed", 1.0, *none)]
    rows += [Measure("denoise", None, n, None, None, None, "step", 1e9, *none) for n in range(3000)]
    rows += [Measure(None, "x", None, f"r{n}", None, None, "time", 1e9, *none) for n in range(40)]
    rows += [Measure(None, "x", None, None, f"s{n}", None, "time", 1e9, *none) for n in range(60)]
    found = fitting(rows, LARGEST)
    assert len(msgspec.json.encode(found)) <= LARGEST + 2
    assert [row for row in rows if row.step is None] == [row for row in found if row.step is None]
    steps = [row.step for row in found if row.step is not None]
    assert steps == [*range(len(steps))]
    assert len(steps) > 500
    few = fitting(rows, 4000)
    assert {row.metric for row in few} == {"elapsed", "time"}
    assert sum(row.role is not None for row in few) == 40
