"""Shapes of shared traces against TraceLens and against an independent script's figures.

../shared/corpus/torch/*.tracelens_*.csv, ../shared/corpus/truth_torch.json
"""

from __future__ import annotations

import csv
import json
import re

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.tools.sources import load
from tests.corpus import CORPUS, SD35, needs_corpus

pytestmark = needs_corpus

_TRUTH = CORPUS / "truth_torch.json"
_ATTENTION = "aten::_flash_attention_forward"
_NORMS = {  # TraceLens' name → ours, where it counts an operator around the one that launches
    "aten::layer_norm": "aten::native_layer_norm",
    "aten::group_norm": "aten::native_group_norm",
}
_DTYPES = {"bf16": "bfloat16", "fp32": "float32", "i64": "int64", "i32": "int32"}


def _traces():
    """Those whose calls are modules, and that need no other file."""
    documents = json.loads(_TRUTH.read_text()) if _TRUTH.is_file() else {}
    return {
        name: truth["shapes"]
        for name, truth in documents.items()
        if name != "_about" and truth["calls_from"] == "modules" and "join" not in truth
    }


def _shapes(path):
    run = load(path)
    found = analyze(run).shapes
    run.close()
    return found


@pytest.fixture(scope="module")
def shapes():
    return _shapes(SD35)


def _tracelens(name):
    with (SD35.parent / f"sd35_mi300x.tracelens_{name}.csv").open() as file:
        return list(csv.DictReader(file))


def _own_seconds(row):
    """Time of a row's own kernels. TraceLens adds those of operators inside it, which fill and copy
    its inputs; they have rows of their own here."""
    details = row["kernel_details__summarize_kernel_stats"]
    found = re.findall(r"'name': '([^']*)'.*?'total_duration_us': np.float64\(([\d.]+)\)", details)
    return sum(float(us) for name, us in found if "elementwise_kernel" not in name) / 1e6


def _dims(text):
    """The dims of each input of a row, those without any left out."""
    return re.findall(r"\[([\d,]+)\]", (text or "").partition(" -> ")[0])


def _with_dims(rows, dims):
    """The rows whose inputs have these dims."""
    wanted = [",".join(map(str, one)) for one in dims]
    return rows.filter(pl.Series([_dims(text) == wanted for text in rows["shapes"]], dtype=bool))


def _flat(dims):
    """Input dims of an event, members of lists one by one, without tensors of no dims."""
    flat = []
    for one in dims:
        flat += one if one and isinstance(one[0], list) else [one]
    return [one for one in flat if one]


def test_attention_by_shape_is_that_of_tracelens(shapes):
    """Executions, time, TFLOP/s and TB/s of each shape, with a causal mask and without. TraceLens
    has batch, heads and sequence of another operator."""
    rows = _tracelens("SDPA_fwd")
    for row in rows:
        b, s, h, d = (int(row[f"param: {name}"]) for name in ("B", "N_Q", "H_Q", "d_h_qk"))
        causal = "causal " if row["param: causal"] == "True" else ""
        label = f"attention B{b} H{h} S{s} D{d} {causal}bf16"
        found = shapes.filter(pl.col("label") == label, pl.col("op_type") == _ATTENTION)
        seconds = _own_seconds(row)
        count = int(row["name_count"])
        assert found["executions"].sum() == count
        assert found["total_ns"].sum() / 1e9 == pytest.approx(seconds, rel=1e-4)
        flops = float(row["GFLOPS_first"]) * 1e9 * count
        assert found["flops"].sum() == pytest.approx(flops, rel=1e-9)
        moved = float(row["Data Moved (MB)_first"]) * 2**20 * count
        assert found["bytes"].sum() == pytest.approx(moved, rel=1e-6)
        rates = found.select("teraflops_per_s", "gigabytes_per_s")
        if len(rates) == 1:
            expected = (flops / seconds / 1e12, moved / seconds / 1e9)
            assert rates.row(0) == pytest.approx(expected, rel=1e-4)
    assert shapes.filter(pl.col("family") == "attention")["executions"].sum() == sum(
        int(row["name_count"]) for row in rows
    )


def test_norms_by_shape_are_those_of_tracelens(shapes):
    """Executions, time and bytes of each shape; two kernels of a group norm are one execution.
    TraceLens has 12 bytes a channel for a scale and a shift of 2 bytes each, 2.5 % at most."""
    expected = {}
    for row in _tracelens("Normalization_fwd"):
        if row["name"] in _NORMS:
            continue  # stands there once more, under the operator inside it
        key = (row["name"], str(_flat(json.loads(row["Input Dims_first"]))))
        count, seconds, moved = expected.get(key, (0, 0.0, 0.0))
        number = int(row["name_count"])
        moved += float(row["Data Moved (MB)_first"]) * 2**20 * number
        expected[key] = (count + number, seconds + _own_seconds(row), moved)
    for (name, dims), (count, seconds, moved) in expected.items():
        found = _with_dims(shapes.filter(pl.col("op_type") == name), json.loads(dims))
        assert found["executions"].sum() == count
        assert found["total_ns"].sum() / 1e9 == pytest.approx(seconds, rel=1e-4)
        assert found["bytes"].sum() == pytest.approx(moved, rel=0.03)
    assert len(expected) > 8


def _gemm_ms(name, submodule=""):
    return sum(
        float(row["total_direct_kernel_time_ms"])
        for row in _tracelens(name)
        if (row.get("op category") == "GEMM" or row.get("name") == "aten::mm")
        and submodule in row["parent_module"]
    )


def test_products_are_those_of_tracelens_in_all_and_in_the_denoiser(shapes):
    """Time of aten::mm and of all matrix products, and FLOPs of 2·M·N·K by the dims of each row."""
    products = shapes.filter(pl.col("family") == "matmul")
    multiplied = products.filter(pl.col("op_type") == "aten::mm")
    for rows, name, known in (
        (multiplied, "ops_summary", (338.441, 322.809)),
        (products, "ops_summary_by_category", (375.305, 354.087)),
    ):
        denoiser = rows.filter(pl.col("submodule") == "transformer")
        found = [part["total_ns"].sum() / 1e6 for part in (rows, denoiser)]
        tracelens = [_gemm_ms(name), _gemm_ms(name, "SD3Transformer2DModel")]
        assert found == pytest.approx(tracelens, rel=1e-4)
        assert found == pytest.approx(known, rel=1e-4)
    for row in products.to_dicts():
        sizes = [int(size) for size in row["label"].split()[1].split("×")]
        batch, m, k, n = (1, *sizes)[-4:]
        first = 0 if "addmm" not in row["op_type"] else 1
        left, right = ([int(n) for n in one.split(",")] for one in _dims(row["shapes"])[first:][:2])
        assert (left[-2:], right[-2:]) == ([m, k], [k, n])
        assert row["flops"] == 2 * batch * m * k * n * row["executions"]


@pytest.mark.parametrize("name", _traces())
def test_the_costliest_shapes_are_those_of_the_truth(name):
    """The 15 costliest shapes within 1 %, and no other row costs more than the last of them."""
    found, truth = _shapes(CORPUS / name), _traces()[name]
    for one in truth:
        operator = one["operator"]
        rows = found.filter(
            (pl.col("op_type") == operator)
            | ((pl.col("kernel") == operator) & pl.col("shapes").is_null())
        )
        rows = _with_dims(rows, _flat(json.loads(one["dims"] or "[]")))
        if one["dtype"] in _DTYPES:
            rows = rows.filter(pl.col("dtype") == _DTYPES[one["dtype"]])
        assert rows["executions"].sum() == one["calls"]
        assert rows["total_ns"].sum() / 1e6 == pytest.approx(one["time"], rel=0.01)
        assert rows["kernels"].max() == one["kernels"]
    if len(truth) == 15:
        last = 1.01 * truth[-1]["time"]
        assert (found["total_ns"].sort(descending=True)[15:] / 1e6 <= last).all()


@pytest.mark.parametrize("name", _traces())
def test_shares_and_parts_of_peaks_are_parts(name):
    """Shares add up to at most 1, and no shape is faster than the peaks of its device."""
    found = _shapes(CORPUS / name)
    assert found["share"].is_between(0, 1).all()
    assert found["share"].sum() <= 1 + 1e-9
    for column in ("flops_of_peak", "bandwidth_of_peak"):
        assert found[column].drop_nulls().is_between(0, 1).all()
    assert (found["above_roofline_ns"].drop_nulls() >= 0).all()
