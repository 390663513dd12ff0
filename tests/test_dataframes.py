"""Tables in Python: what `docs/dataframes.md` promises of them (tests/docs runs its examples)."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import profiler
from profiler.analysis import Selection, tables
from profiler.analysis.question import markdown
from profiler.trace import Drop, DropKind
from tests.runs import tiny_run, why, write_tiny_bundle

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "tables.md").read_text(encoding="utf-8")
DROP = Drop(DropKind.TRUNCATED_FILE, "vae.pb", 7, "bytes", why("cut"))
NAMES = [table.name for table in tables()]
VALUES = ("drops", "findings")  # attributes that are tuples of values


@pytest.fixture(scope="module")
def analysis():
    return profiler.analyze(tiny_run(drops=(DROP,)))


def test_page_is_what_the_declarations_say():
    """docs/tables.md is generated."""
    assert markdown() == PAGE, "run python -m profiler.analysis.question > docs/tables.md"


def test_tables_are_those_of_the_attributes(analysis):
    """`tables()` has every table by name, and the drops as a frame."""
    found = analysis.tables()
    assert list(found) == NAMES
    assert all(found[name] is getattr(analysis, name) for name in NAMES if name not in VALUES)
    assert found["drops"].rows() == [
        ("truncated_file", True, "vae.pb", 7, "bytes", '[{"code": "error", "error": "cut"}]')
    ]


@pytest.mark.parametrize("name", NAMES)
def test_pandas_has_the_same_values(analysis, name):
    """Every table in pandas: columns, rows, nulls; integers stay integers."""
    frame, found = analysis.tables()[name], analysis.to_pandas(name)
    assert list(found.columns) == frame.columns
    assert len(found) == len(frame)
    for column, dtype in frame.schema.items():
        assert found[column].isna().sum() == frame[column].null_count()
        if dtype.is_integer() and len(frame):
            assert found[column].dtype.kind == "i"
            assert found[column].dropna().tolist() == frame[column].drop_nulls().to_list()


@pytest.mark.parametrize("name", NAMES)
def test_description_is_of_the_columns(analysis, name):
    """`describe` has a row a column of the frame, with its dtype and a meaning."""
    found, frame = analysis.describe(name), analysis.tables()[name]
    assert found.columns == ["column", "dtype", "unit", "null", "meaning"]
    assert found["column"].to_list() == frame.columns
    assert found["dtype"].to_list() == [str(dtype) for dtype in frame.dtypes]
    assert found["meaning"].str.len_chars().min() > 0


def test_unknown_table_says_which_there_are(analysis):
    """One sentence that names the tables."""
    with pytest.raises(profiler.ProfilerError, match="no table 'rolls': there is pipelines, sta"):
        analysis.to_pandas("rolls")
    with pytest.raises(profiler.ProfilerError, match="no table 'rolls'"):
        analysis.describe("rolls")


def test_path_and_run_give_the_same(tmp_path):
    """`analyze` loads what it is given a path of, a folder of bundles too."""
    bundle = write_tiny_bundle(tmp_path)
    loaded = profiler.analyze(profiler.load(bundle))
    for place in (bundle, str(bundle), tmp_path):
        found = profiler.analyze(place)
        assert repr(found) == f"Analysis({bundle.name!r}: 4 calls, 12 commands)"
        for name, frame in loaded.tables().items():
            assert frame.equals(found.tables()[name]), name


def test_options_are_those_of_the_command_line():
    """One name or several, a step as a number; memory of all devices or of one."""
    run = tiny_run()
    one = profiler.analyze(run, submodule="transformer", step=0, device_memory=1 << 30)
    several = profiler.analyze(run, submodule=["transformer"], step=("0",), stage=())
    assert one.calls.equals(several.calls)
    assert one.run.selection == Selection(submodule=("transformer",), step=("0",))
    assert 0 < len(one.calls) < len(run.calls)


def test_profile_beside_the_bundle_counts(tmp_path):
    """Without `device_profile` the file in or beside the bundle is taken, as the command does."""
    bundle = write_tiny_bundle(tmp_path)
    text = '{"device_profiles": 1, "devices": [{"device": "%s", "peak_flops": {"float32": 1e12}}]}'
    (tmp_path / "device_profiles.json").write_text(text % "rbln:0", encoding="utf-8")
    other = tmp_path / "other.json"
    other.write_text(text % "cpu:0", encoding="utf-8")
    assert set(profiler.analyze(bundle).device_profiles) == {"rbln:0"}
    assert set(profiler.analyze(bundle, device_profile=other).device_profiles) == {"cpu:0"}


def test_frames_of_a_table_are_polars(analysis):
    """Attributes are frames."""
    assert all(isinstance(frame, pl.DataFrame) for frame in analysis.tables().values())
