"""`profile-sd3 query` as it is typed: runs and SQL told apart, outputs, exit codes."""

from __future__ import annotations

import io
import json
import signal
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.cli.pty_command import PtyCommand
from tests.command_line import run_command
from tests.trace.samples import small_bundle

pytest.importorskip("duckdb", reason="needs the query extra")

_CALLS = "SELECT run, count(*) AS calls FROM calls GROUP BY run ORDER BY run"


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]):
    """Runs the command line; gives exit code, stdout and stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        code = run_command("query", *words)
        return code, *capfd.readouterr()

    return run


def test_newest_or_all(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder the newest run is asked, or every one; without a path it is `traces`; two
    runs of one name are told apart by their paths."""
    first, second = (small_bundle(tmp_path / "traces", name) for name in ("a", "b"))
    assert run(tmp_path / "traces", "--all", "--csv", "-", _CALLS)[1] == "run,calls\na,5\nb,5\n"
    monkeypatch.chdir(tmp_path)
    (line,) = run("--csv", "-", _CALLS)[1].splitlines()[1:]
    assert line in {"a,5", "b,5"}
    other = small_bundle(tmp_path / "other", "a")
    assert run(first, second, other, "--csv", "-", _CALLS)[1] == f"run,calls\n{other},5\na,5\nb,5\n"
    code, _, err = run(first, first, _CALLS)
    assert (code, err) == (2, f"profile-sd3: {first} is given twice: name every run once\n")


def test_a_query_from_a_file(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--file` takes SQL with its comments from a file or stdin; all words are paths then."""
    bundle = small_bundle(tmp_path)
    file = tmp_path / "calls.sql"
    file.write_text(f"-- calls by run\n{_CALLS};\n")
    expected = (0, "run    calls\n─────  ─────\nsmall      5\n", "")
    assert run(bundle, "--file", file) == expected
    monkeypatch.setattr(sys, "stdin", io.StringIO(_CALLS))
    assert run(bundle, "--file", "-") == expected


def test_a_query_longer_than_any_name(run, tmp_path: Path) -> None:
    """A query of 5,000 characters is none the less no path."""
    columns = ", ".join(f"{n} AS column_{n}" for n in range(300))
    code, out, err = run(small_bundle(tmp_path), "--csv", "-", f"SELECT {columns}")
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == ",".join(map(str, range(300)))


def test_long_texts_of_json(run, tmp_path: Path) -> None:
    """A text of 1 MB is cut in JSON, where a program reads it, and whole in CSV."""
    bundle, sql = small_bundle(tmp_path), "SELECT repeat('A', 1000000) AS name, 1 AS n"
    (row,) = json.loads(run(bundle, "--json", "-", sql)[1])["rows"]
    assert row["name"].startswith("A" * 10_000)
    assert (len(row["name"]) < 10_100, row["n"]) == (True, 1)
    assert run(bundle, "--csv", "-", sql)[1] == f"name,n\n{'A' * 1_000_000},1\n"


def test_outputs(run, tmp_path: Path) -> None:
    """Files are named, with their rows; beside what goes to stdout they are named on stderr."""
    bundle, target = small_bundle(tmp_path), tmp_path / "calls.parquet"
    code, out, err = run(bundle, "SELECT * FROM calls", "--parquet", target)
    assert (code, out, err) == (0, f"wrote {target}: 5 rows\n", "")
    assert len(pl.read_parquet(target)) == 5
    code, out, err = run(bundle, "SELECT 1 AS a", "--json", "-", "--csv", tmp_path / "a.csv")
    assert (code, err) == (0, f"wrote {tmp_path / 'a.csv'}: 1 rows\n")
    assert json.loads(out)["rows"] == [{"a": 1}]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "give a query"),
        (("{bundle}",), "is a path: give the query behind it"),
        (("{bundle}", "SELEC"), 'syntax error at or near "SELEC" (line 1, column 1)'),
        (("{bundle}", "SELECT 1", "--parquet", "-"), "Parquet goes to a file"),
        (("{bundle}", "SELECT 1", "--csv", "{bundle}/merged.pb"), "is part of a trace"),
        (("{bundle}", "SELECT 1", "--csv", "x", "--json", "x"), "--csv and --json both name x"),
        (("{bundle}", "--file", "{bundle}/none.sql"), "none.sql: No such file or directory"),
        (("nowhere", "SELECT 1"), "nowhere does not exist"),
    ],
)
def test_bad_input(run, tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    """Each is one sentence on stderr and exit code 2, and nothing is written."""
    bundle = small_bundle(tmp_path)
    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    code, out, err = run(*(word.format(bundle=bundle) for word in words))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before


def test_a_damaged_run_is_said(run, tmp_path: Path) -> None:
    """What a run lacks is said on stderr; the answer is of what is there."""
    bundle = small_bundle(tmp_path)
    next(bundle.glob("000_*")).unlink()
    code, out, err = run(bundle, "SELECT count(*) AS n FROM calls", "--csv", "-")
    assert (code, out) == (0, "n\n5\n")
    assert err.startswith(f"not whole: {bundle}: 000_")


def test_the_list_of_tables(run) -> None:
    """`--tables` needs no run and names every table and unit."""
    code, out, _ = run("--tables")
    assert code == 0
    assert "\ncommands: one command" in out
    assert "duration_ns    BIGINT   wall time; 0 for an instant, -1 if it never ended (ns)" in out


_ENDLESS = "SELECT count(*) FROM " + ", ".join(f"commands c{number}" for number in range(16))


def test_ctrl_c_ends_a_long_query(run, tmp_path: Path) -> None:
    """A query that would take hours ends at Ctrl-C, with exit code 130 and without a word."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        assert run(small_bundle(tmp_path), _ENDLESS) == (130, "", "")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_query_has_a_limit_of_time(run, tmp_path: Path) -> None:
    """One that would take hours ends when its time is up, in one sentence; one that is quick has
    time left, however small the limit of another was."""
    bundle = small_bundle(tmp_path)
    code, out, err = run(bundle, _ENDLESS, "--timeout", "0.05")
    assert (code, out) == (2, "")
    assert err == (
        "profile-sd3: the query took more than the 0.05 s that it may take: give it more with "
        "--timeout, or ask for less\n"
    )
    assert run(bundle, "SELECT 1 AS a", "--csv", "-", "--timeout", "0")[:2] == (0, "a\n1\n")


def test_a_long_query_shows_that_it_goes_on(tmp_path: Path) -> None:
    """On a terminal a query that takes its time is said to run, until Ctrl-C takes the line away
    and ends it."""
    bundle = small_bundle(tmp_path)
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code = f"{start}from profiler.cli.main import main; main()"
    shown = PtyCommand(["-c", code, "query", bundle, _ENDLESS])
    shown.read_until("asking")
    shown.process.send_signal(signal.SIGINT)
    assert shown.finish() == 130
    assert "Traceback" not in shown.text
    assert shown.text.endswith("\x1b[2K")
