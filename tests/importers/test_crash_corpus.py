"""Inputs that once ended in a traceback: each is read, or ends in one sentence, by kind."""

from __future__ import annotations

import json
import shutil

import polars as pl
import pytest

from profiler.errors import InputError
from profiler.files import paired
from profiler.importers import import_trace
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus
from tests.importers.kineto.traces import Trace, flux

CRASH = CORPUS / "damaged" / "crash"


@needs_corpus
@pytest.mark.parametrize("name", sorted(p.name for p in CRASH.glob("*")) or ["missing"])
def test_the_inputs_of_the_corpus(cli, name):
    """Exit code 0 or 2, and no traceback."""
    code, _, err = cli("analyze", CRASH / name, "--no-html")
    assert code in (0, 2)
    assert "Traceback" not in err
    assert code == 0 or len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("value", [[1], {"a": 1}, None, True, "x", -1, 1e400, 1 << 70, "9" * 5000])
@pytest.mark.parametrize("key", ["id", "name", "totalGlobalMem", "numSms"])
def test_every_type_in_device_properties(tmp_path, key, value):
    """What is no number or text of a device says nothing of it."""
    known = {"id": 0, "name": "GPU", "totalGlobalMem": 1 << 30, "numSms": 8}
    trace = Trace(deviceProperties=[{**known, key: value}, {**known, "id": 1}])
    trace.kernel("k", 10, 5, launched=2)
    text = json.dumps(trace.document()).replace("Infinity", "1e400")
    (tmp_path / "trace.json").write_text(text)
    run = load(import_trace(tmp_path / "trace.json", tmp_path / "traces"))
    assert "cuda:0" in run.info.devices


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (r'"\\ud800"', None),
        (r'"\ud83d\ude00"', "\N{GRINNING FACE}"),
        (r'"a\udc00b"', "a\N{REPLACEMENT CHARACTER}b"),
        (r'"\ud800\ud83d\ude00"', "\N{REPLACEMENT CHARACTER}\N{GRINNING FACE}"),
        (r'"\\\ud800"', "\\\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_halves_of_pairs(text, same):
    """Pairs, and a backslash before the letters, stay."""
    assert json.loads(paired(text)) == (json.loads(text) if same is None else same)


@pytest.mark.parametrize("place", ["model_name", "name"])
def test_halves_of_pairs_in_requests(tmp_path, cli, place):
    """Models and activities of Triton."""
    stamps = [
        {"name": name, "ns": 100 * at}
        for at, name in enumerate(("REQUEST_START", "COMPUTE_START", "COMPUTE_END", "REQUEST_END"))
    ]
    fragments = [{"id": 1, "model_name": "m"}, {"id": 1, "timestamps": stamps}]
    text = json.dumps(fragments).replace(f'"{place}": "', f'"{place}": "\\ud800', 1)
    (tmp_path / "trace.json").write_text(text)
    code, _, err = cli("analyze", tmp_path / "trace.json", "--no-html")
    assert code in (0, 2), err


def _parquet(folder, cli):
    bundle = import_trace(flux().write(folder), folder / "traces")
    assert cli("analyze", bundle, "--no-html", "--parquet", folder / "parquet")[0] == 0
    return folder / "parquet"


def test_a_call_number_for_two_calls(tmp_path, cli):
    """Two runs in one Parquet folder are named as that."""
    folder = _parquet(tmp_path, cli)
    calls = pl.read_parquet(folder / "calls.parquet")
    pl.concat([calls, calls]).write_parquet(folder / "calls.parquet")
    with pytest.raises(InputError, match="several calls of the number 0"):
        load(folder)


@pytest.mark.parametrize("column", ["duration_ns", "bytes_read", "flops"])
def test_sums_beyond_64_bits(tmp_path, cli, column):
    """Each value is possible, and their sum is not."""
    folder = _parquet(tmp_path, cli)
    place = folder / "commands.parquet"
    commands = pl.read_parquet(place)
    large = pl.lit(1 << 61, dtype=pl.Int64).alias(column)
    pl.concat([commands.with_columns(large)] * 3).write_parquet(place)
    with pytest.raises(InputError, match=f"its {column} add up to more than 64 bits"):
        load(folder)
    shutil.rmtree(folder)


def test_launches_whose_work_has_no_number(tmp_path):
    """Nothing says which launch started which kernel."""
    trace = flux()
    for number in range(4):
        trace.event("cuda_runtime", "cudaLaunchKernel", 20.0 * number, 2, correlation=number + 1)
        trace.kernel("gemm", 20.0 * number + 5, 10)
    run = load(import_trace(trace.write(tmp_path), tmp_path / "traces"))
    assert (run.commands["kernel"] == "gemm").sum() == 4
