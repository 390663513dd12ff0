"""Damaged and foreign files: what is whole is read and the rest named, or a sentence is said."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from contextlib import suppress
from functools import partial

import polars as pl
import pytest

from profiler.cli.runs import DAMAGED_EXIT
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.tools.sources import load
from profiler.trace import UNKNOWN, DropKind
from profiler.trace.manifest_fields import HealthRule
from tests.command_line import refused

from .generated import SUFFIX, Call, Kernel, Mark, Told, as_csv, as_document, as_json, as_rocpd

HEADER = "Agent_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp\n"


def told(count=50):
    kernels = [Kernel(20 + 10 * n, 25 + 10 * n, n + 1) for n in range(count)]
    return Told(kernels, [Call(10 + 10 * n, 12 + 10 * n, n + 1) for n in range(count)])


def kernels(run):
    return run.commands.filter(pl.col("device") != "cpu:0")


def dropped(run):
    return [(drop.kind, drop.where, drop.count, drop.unit) for drop in run.drops]


def test_half_a_json_is_read_as_far_as_it_is_whole(tmp_path):
    """Cut in a record of a dispatch, plain and packed: the dispatches before it, and a drop."""
    text = as_json(told(), tmp_path).read_bytes()
    at = text.index(b'"start_timestamp": 320')
    for path, data in (
        (tmp_path / "cut.json", text[:at]),
        (tmp_path / "cut.json.gz", gzip.compress(text[:at])[:-8]),
    ):
        path.write_bytes(data)
        run = load(import_trace(path, tmp_path / "traces"))
        assert kernels(run)["start_ns"].to_list() == list(range(20, 320, 10))
        assert dropped(run) == [(DropKind.TRUNCATED_FILE, path.name, UNKNOWN, "events")]


def test_a_json_cut_before_its_records(tmp_path):
    """Nothing is whole of what was recorded, which is said; so is what is no JSON at all."""
    text = as_json(told(), tmp_path).read_bytes()
    cut = tmp_path / "cut.json"
    cut.write_bytes(text[: text.index(b'"kernel_symbols"')])
    with pytest.raises(InputError, match="is cut before the first kernel"):
        import_trace(cut, tmp_path / "traces")
    cut.write_bytes(b'{"rocprofiler-sdk-tool": nonsense')
    with pytest.raises(InputError, match="is damaged"):
        import_trace(cut, tmp_path / "traces")
    cut.write_bytes(b'{"rocprofiler-sdk-tool": [{"agents": 7}]}')
    with pytest.raises(InputError, match="is damaged"):
        import_trace(cut, tmp_path / "traces")
    assert not list((tmp_path / "traces").glob("*"))


def test_half_a_csv_is_read_as_far_as_it_is_whole(tmp_path):
    """Cut in a row, plain and packed, quoted and not: the rows before it, and that it is cut."""
    for number, quoted in enumerate((True, False)):
        folder = as_csv(told(), tmp_path / f"csv{number}", quoted=quoted)
        text = (folder / "4242_kernel_trace.csv").read_bytes()
        cut = text[: text.index(b"mul_kernel", len(text) // 2)]
        for path, data in (
            (tmp_path / f"{number}_kernel_trace.csv", cut),
            (tmp_path / f"{number}_kernel_trace.csv.gz", gzip.compress(cut)[:-8]),
        ):
            path.write_bytes(data)
            run = load(import_trace(path, tmp_path / "traces"))
            assert 20 < len(kernels(run)) < 30
            assert dropped(run) == [(DropKind.TRUNCATED_FILE, path.name, UNKNOWN, "events")]


def test_a_cut_file_is_a_damaged_recording(tmp_path, cli):
    """Of whatever format: the headline says so, `--strict` has its exit code, and gates refuse."""
    folder = as_csv(told(), tmp_path / "csv")
    text = (folder / "4242_kernel_trace.csv").read_bytes()
    path = tmp_path / "x_kernel_trace.csv"
    path.write_bytes(text[: text.index(b"mul_kernel", len(text) // 2)])
    code, out, _ = cli("analyze", path, "--no-html", "--strict")
    assert code == DAMAGED_EXIT
    assert out.startswith("damaged recording: ")
    code, _, error = cli("import", path, "--out", tmp_path / "runs", "--strict")
    assert code == DAMAGED_EXIT
    assert "x_kernel_trace.csv breaks off: what followed is missing" in error
    refused(cli("predict", tmp_path / "runs", "--batch", "2"), "x_kernel_trace.csv breaks off")


def test_rows_that_are_no_rows(tmp_path):
    """Too few and too many fields, no number for a time, an end before the begin or none, blank
    lines."""
    path = tmp_path / "x_kernel_trace.csv"
    rows = [
        "1,k,1,10,20",
        "1,k,2",
        "1,k,3,30,40,50,60",
        "1,k,4,soon,60",
        "1,k,5,70,65",
        "1,k,7,75,",
        "",
    ]
    path.write_text(HEADER + "\n".join([*rows, "1,k,6,80,90"]))
    run = load(import_trace(path, tmp_path / "traces"))
    assert run.commands["start_ns"].to_list() == [10, 80]
    assert dropped(run) == [
        (DropKind.DROPPED_EVENTS, path.name, 2, "events"),
    ]
    counted = [(note.rule, note.count) for note in run.info.health]
    assert (HealthRule.NO_TIME, 1) in counted
    assert (HealthRule.NEGATIVE, 1) in counted
    assert (HealthRule.UNFINISHED, 1) in counted


@pytest.mark.parametrize("form", [as_json, as_csv, partial(as_rocpd, times_in_rows=True)])
def test_times_ahead_of_the_clock(form, tmp_path):
    """A kernel and a call before the machine's clock began are left out and told."""
    what = told(3)
    what.kernels[0].start, what.calls[1].start = -5, -1
    (tmp_path / "in").mkdir()
    run = load(import_trace(form(what, tmp_path / "in"), tmp_path / "traces"))
    assert kernels(run)["start_ns"].to_list() == [30, 40]
    assert sum(count for _, _, count, _ in dropped(run)) == 1
    assert (HealthRule.NO_TIME, 1) in [(note.rule, note.count) for note in run.info.health]


def test_columns_that_share_a_name(tmp_path):
    """The first of them is read."""
    folder = as_csv(told(3), tmp_path / "csv")
    path = folder / "4242_kernel_trace.csv"
    text = path.read_text().replace("Correlation_Id", "Kernel_Name", 1)
    assert text != path.read_text()
    path.write_text(text)
    run = load(import_trace(folder, tmp_path / "traces"))
    assert kernels(run)["start_ns"].to_list() == [20, 30, 40]
    assert kernels(run)["layer"].cast(pl.String).unique().to_list() == ["at::native::mul_kernel"]


def test_numbers_of_64_bits(tmp_path):
    """Ids above 2^63 and times that do not fit are unknown, not negative."""
    document = as_document(Told([Kernel(10, 20, 1), Kernel(30, 40, 2)]))
    records = document["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"]
    records[0]["correlation_id"]["internal"] = 2**64 - 1
    records[1]["end_timestamp"] = 2**64 - 1
    path = tmp_path / "big.json"
    path.write_text(json.dumps(document))
    run = load(import_trace(path, tmp_path / "traces"))
    assert run.commands["start_ns"].to_list() == [10]
    assert (HealthRule.NO_TIME, 1) in [(note.rule, note.count) for note in run.info.health]
    assert HealthRule.NEGATIVE not in [note.rule for note in run.info.health]


def test_keys_of_json_that_lead_nowhere(tmp_path):
    """A kernel, an agent and an operation that nothing names: numbers stand for them."""
    document = as_document(Told([Kernel(20, 30, 1)], [Call(10, 12, 1)]))
    process = document["rocprofiler-sdk-tool"][0]
    process["buffer_records"]["kernel_dispatch"][0]["dispatch_info"]["kernel_id"] = 77
    process["buffer_records"]["kernel_dispatch"][0]["dispatch_info"]["agent_id"]["handle"] = 5
    process["buffer_records"]["hip_api"][0]["operation"] = 400
    path = tmp_path / "lost.json"
    path.write_text(json.dumps(document))
    run = load(import_trace(path, tmp_path / "traces"))
    assert kernels(run).select(pl.col("device", "kernel").cast(pl.String)).rows() == [
        ("rocm:2", "kernel 77")
    ]
    host = run.commands.filter(pl.col("device") == "cpu:0")
    assert host["layer"].cast(pl.String).to_list() == ["HIP_RUNTIME_API_EXT 400"]


@pytest.mark.parametrize("times_in_rows", [True, False])
def test_keys_of_rocpd_that_lead_nowhere(times_in_rows, tmp_path):
    """Rows whose event, kernel, agent or thread is not there are kept, with numbers for names: the
    file's own views would leave them out. A time that is not there is a drop."""
    path = as_rocpd(told(), tmp_path, times_in_rows=times_in_rows)
    with sqlite3.connect(path) as database:
        for table in ("info_kernel_symbol", "info_agent", "info_thread", "info_process", "event"):
            database.execute(f'DELETE FROM "rocpd_{table}{SUFFIX}"')
        if not times_in_rows:
            database.execute(f'DELETE FROM "rocpd_timestamp{SUFFIX}" WHERE value = 20')
    database.close()
    run = load(import_trace(path, tmp_path / "traces"))
    assert set(kernels(run)["kernel"].cast(pl.String)) == {"kernel 1"}
    assert len(kernels(run)) == (50 if times_in_rows else 49)
    assert run.flows.is_empty()


@pytest.mark.parametrize("table", ["event", "track", "string", "info_agent", "timestamp", "region"])
def test_tables_of_rocpd_that_are_not_there(table, tmp_path):
    """Without any one table there is a run or a sentence, never a traceback."""
    path = as_rocpd(told(), tmp_path, times_in_rows=False)
    with sqlite3.connect(path) as database:
        database.execute(f'DROP TABLE "rocpd_{table}{SUFFIX}"')
    database.close()
    if table == "timestamp":
        with pytest.raises(InputError, match="holds no kernel"):
            import_trace(path, tmp_path / "traces")
        return
    assert len(kernels(load(import_trace(path, tmp_path / "traces")))) == 50


def test_a_rocpd_that_was_cut(tmp_path):
    """Plain and packed: refused, with the command that writes it."""
    path = as_rocpd(told(1000), tmp_path, times_in_rows=True)
    for name, data in (
        ("a.db", path.read_bytes()[: path.stat().st_size // 2]),
        ("b.db.gz", gzip.compress(path.read_bytes())[:-50]),
    ):
        cut = tmp_path / name
        cut.write_bytes(data)
        with pytest.raises(InputError, match=r"was cut.*rocprofv3 --output-format rocpd"):
            import_trace(cut, tmp_path / "traces")


def test_a_rocpd_whose_schema_is_no_text(tmp_path):
    """What SQLite says of it is no text either."""
    path = as_rocpd(told(), tmp_path, times_in_rows=True)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"machine_id", "hostname")', b'"machine_id", \xff"hostname"'))
    with pytest.raises(InputError, match="is damaged"):
        import_trace(path, tmp_path / "traces")


def test_ranges_that_never_ended(tmp_path):
    """A range that ends before it begins is counted among those without an end."""
    marked = Told([Kernel(20, 30, 1)], [Call(10, 12, 1)], marks=[Mark(15, 0, "vae")])
    run = load(import_trace(as_json(marked, tmp_path), tmp_path / "traces"))
    assert [(kind, count) for kind, _, count, _ in dropped(run)] == [(DropKind.UNCLOSED_SLICE, 1)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x_agent_info.csv", "Node_Id,Agent_Type\n0,GPU\n", "kernel_trace.csv"),
        ("x_kernel_trace.csv", HEADER, "holds no kernel"),
        ("x.json", '{"rocprofiler-sdk-tool": []}', "holds no kernel"),
    ],
)
def test_what_has_no_times(name, text, said, tmp_path):
    """A list of agents, empty traces: said, with what to give."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        import_trace(path, tmp_path / "traces")


@pytest.mark.parametrize("value", [1 << 63, 1 << 70, -(1 << 70), -1])
@pytest.mark.parametrize(
    "key",
    ["pid", "handle", "logical_node_type_id", "start_timestamp", "internal", "kernel_id", "kind"],
)
def test_numbers_beyond_64_bits(tmp_path, key, value):
    """As an id they are none that is known, as a time none at all: the run is read, or refused."""
    text = re.sub(rf'"{key}": -?\d+', f'"{key}": {value}', as_json(told(), tmp_path).read_text())
    path = tmp_path / "large.json"
    path.write_text(text)
    with suppress(InputError):
        load(import_trace(path, tmp_path / "traces"))
