"""`fleet compare` and `fleet query`: planted differences are told, and no others."""

from __future__ import annotations

import json

import polars as pl
import pytest

from profiler.fleet import Dataset, LocalStorage
from profiler.fleet.add import metrics_frame, parquet_bytes
from profiler.fleet.compare import Verdict, compare
from profiler.fleet.storage import file_name
from tests.command_line import run_command
from tests.documents import conforms
from tests.fleet.bundles import write_bundle
from tests.fleet.simulated import addition, filled, noisy

MI300X, A100 = "1 × AMD Instinct MI300X", "1 × NVIDIA A100"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """40 runs at 5 ms a step, 30 on another device at 4 ms, 3 on a third; 20 of other steps; one
    with an unknown cache, one with drops."""
    place = tmp_path_factory.mktemp("compare") / "data"
    groups = [
        (0, 5e6, 40, {}),
        (100, 4e6, 30, {"hardware": MI300X}),
        (200, 5e6, 3, {"hardware": A100}),
        (300, 3e6, 20, {"steps": 20, "hardware": MI300X}),
    ]
    runs = [
        addition(first + number, {"step": value}, **columns)
        for first, center, count, columns in groups
        for number, value in enumerate(noisy(count, center, 0.01, first))
    ]
    runs += [addition(400, {"step": 9e6}, cache=None), addition(401, quality="drops", drops=2)]
    filled(LocalStorage(place), runs)
    return place


def _verdicts(compared):
    return {
        (row["workload"].split(" steps")[0][-2:], row["value"]): (row["verdict"], row["runs"])
        for row in compared.rows.filter(compared.rows["metric"] == "denoise.step").iter_rows(
            named=True
        )
    }


def test_by_hardware(place):
    """A planted difference of a fifth is told, three runs are too few, and runs of other steps
    stand by themselves; what is unknown or bad is said."""
    compared = compare(Dataset(place), "hardware")
    assert _verdicts(compared) == {
        ("28", "1 × NVIDIA H100"): (Verdict.BASE, 40),
        ("28", MI300X): (Verdict.FASTER, 30),
        ("28", A100): (Verdict.NEEDS_MORE, 3),
        ("20", MI300X): (Verdict.ALONE, 20),
    }
    row = compared.rows.row(by_predicate=pl.col("verdict") == "faster", named=True)
    assert row["ratio_low"] < 0.8 < row["ratio_high"]
    unknown, bad = compared.apart
    assert [one.field for one in unknown.why] == ["cache"]
    assert (unknown.runs, bad.runs, bad.bad_quality) == (1, 1, True)


def test_assumed_and_ignored_fields(place):
    """An unknown field that is taken to agree lets its run count; an ignored one may differ."""
    data = Dataset(place)
    assert _verdicts(compare(data, "hardware", assume_same=("cache",)))[
        ("28", "1 × NVIDIA H100")
    ] == (Verdict.BASE, 41)
    merged = compare(data, "hardware", ignored=("steps",))
    assert merged.rows.filter(merged.rows["value"] == MI300X)["runs"].to_list() == [50, 50]


def test_what_is_printed(place, capsys):
    """Tables by workload, the codes in words, the same rows as JSON."""
    assert run_command("fleet", "compare", place, "--by", "hardware", "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["verdict"] for row in rows} >= {"base", "faster", "needs_more"}
    assert run_command("fleet", "compare", place, "--metric", "denoise.step") == 0
    out, err = capsys.readouterr()
    assert "faster" in out
    assert "needs 3 more runs" in out
    assert "nothing to compare with;" not in out  # no number of its own runs changes that
    assert "not recorded: cache; --assume-same cache treats these as equal" in err
    assert run_command("fleet", "compare", place, "--by", "speed") == 2
    assert "no field of the identity" in capsys.readouterr().err


def test_sql(place, tmp_path, capsys):
    """SQL over runs and metrics gives what reading the data set gives, and reaches nothing else."""
    pytest.importorskip("duckdb", reason="needs the query extra: duckdb")
    sql = (
        "select count(*) n, median(value) m from metrics join runs using (run) where metric='step'"
    )
    assert run_command("fleet", "query", place, sql, "--json", "-") == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    history = Dataset(place).history("denoise.step", quality=True)
    assert row == {"n": len(history), "m": history["value"].median()}
    for wrong in ("select * from '/etc/passwd'", "drop table runs", "select * from calls"):
        assert run_command("fleet", "query", place, wrong) == 2
    assert run_command("fleet", "query", place, "select 1", "--bundle", "run0") == 2
    assert "is not at /bundles/run0" in capsys.readouterr().err


def test_sql_over_metrics_counts_what_counts(tmp_path, capsys):
    """Metrics are read while a query runs, from files: those of a run that was removed, of one that
    was added twice, and of one whose row was never written count as in `Dataset`; a file that is
    damaged or gone is said in a sentence."""
    pytest.importorskip("duckdb", reason="needs the query extra: duckdb")
    data = tmp_path / "data"
    storage = filled(LocalStorage(data), [addition(number) for number in (0, 1, 2)])
    filled(storage, [addition(1)])
    orphan = addition(7)
    name = file_name("metrics", orphan.folder, f"b{9:032x}")
    storage.create(name, parquet_bytes(metrics_frame([orphan], f"b{9:032x}")))
    assert run_command("fleet", "remove", data, "run0") == 0
    capsys.readouterr()
    sql = "select run, metric, value from metrics order by all"
    assert run_command("fleet", "query", data, sql, "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    found = Dataset(data)
    expected = found.metrics(found.names(), quality=True)
    assert len(rows) == len(expected) > 0
    assert {row["run"] for row in rows} == {*expected["run"]}
    (tmp_path / "data" / name).write_bytes(b"hello")
    assert run_command("fleet", "query", data, sql) == 2
    assert "hello" not in (err := capsys.readouterr().err)
    assert name.rpartition("/")[2] in err
    assert "Traceback" not in err


def test_commands_of_a_bundle(tmp_path, capsys):
    """The commands of a run that is named join its row."""
    pytest.importorskip("duckdb", reason="needs the query extra: duckdb")
    write_bundle(tmp_path / "traces", 0)
    assert run_command("fleet", "add", tmp_path / "data", tmp_path / "traces", "--keep-paths") == 0
    capsys.readouterr()
    sql = "select run_id, sum(duration_ns) ns from calls join runs using (run) group by all"
    arguments = ("query", tmp_path / "data", sql, "--bundle", "run000", "--json", "-")
    assert run_command("fleet", *arguments) == 0
    document = conforms(json.loads(capsys.readouterr().out))
    assert document["rows"] == [{"run_id": "run000", "ns": 670}]
