"""Result tables as CSV and Parquet."""

import polars as pl
import pytest

import profiler
from profiler.analysis import tables
from profiler.analysis.analyze import analyze
from profiler.errors import OutputError
from profiler.report.files import worded_tables, write_csv_tables, write_parquet_tables
from profiler.trace import Drop, DropKind
from tests.runs import tiny_run, why

DROP = Drop(DropKind.TRUNCATED_FILE, "vae.pb", 7, "bytes", why("cut, at byte 9"))


@pytest.fixture
def run():
    return tiny_run(drops=(DROP,))


def test_one_csv_a_table(run, tmp_path):
    """The columns of the tables, drops and findings; read back, the same numbers."""
    analysis = analyze(run)
    paths = write_csv_tables(analysis, tmp_path / "new" / "tables")
    assert {path.stem for path in paths} == {table.name for table in tables()}
    assert {path.name for path in (tmp_path / "new" / "tables").iterdir()} == {
        path.name for path in paths
    }
    steps = pl.read_csv(tmp_path / "new" / "tables" / "steps.csv")
    assert steps["duration_ns"].to_list() == [350, 260]
    assert steps["start_ns"].to_list() == analysis.steps["start_ns"].to_list()


def test_csv_replaces_what_it_wrote_before_and_nothing_else(run, tmp_path):
    """Other files in the folder stay."""
    (tmp_path / "notes.csv").write_text("mine")
    (tmp_path / "steps.csv").write_text("old")
    write_csv_tables(analyze(run), tmp_path)
    assert (tmp_path / "notes.csv").read_text() == "mine"
    assert "duration_ns" in (tmp_path / "steps.csv").read_text()


def test_parquet_reads_back_as_the_run(run, tmp_path):
    """`profiler.load` takes the folder; the tables lie beside it."""
    analysis = analyze(run)
    write_parquet_tables(run, analysis, tmp_path / "out")
    again = profiler.load(tmp_path / "out")
    assert analyze(again).operators.equals(analysis.operators)
    assert again.drops == (DROP,)
    for name, frame in worded_tables(analysis).items():
        assert pl.read_parquet(tmp_path / "out" / f"analysis_{name}.parquet").equals(frame)


def test_parquet_does_not_overwrite(run, tmp_path):
    """A folder with anything in it is refused."""
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="is not empty"):
        write_parquet_tables(run, analyze(run), tmp_path)


def test_csv_into_a_file_is_an_output_error(run, tmp_path):
    """One sentence with the recommendation."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="something else has that name: give another folder"):
        write_csv_tables(analyze(run), tmp_path / "file")


def test_table_that_cannot_be_written_is_an_output_error(run, tmp_path):
    """A folder of that name is in the way; no partial file stays behind under the name."""
    (tmp_path / "stages.csv").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .* \(Is a directory\)"):
        write_csv_tables(analyze(run), tmp_path)
