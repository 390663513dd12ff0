"""Roles of the real Stable Diffusion 3.5 trace against TraceLens' categories.

TraceLens says what kind of kernel ran (GEMM, convolution, norm, `triton`), not what for; so each of
its categories must be made up of the roles that such kernels can have, to the microsecond.
"""

from __future__ import annotations

import csv

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.importers import import_trace
from profiler.tools.sources import load
from tests.corpus import SD35, needs_corpus

pytestmark = needs_corpus


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """The kinds of device work of the trace with their roles, without what no submodule ran."""
    found = analyze(load(import_trace(SD35, tmp_path_factory.mktemp("traces"))))
    table = found.kinds.table.join(found.kind_roles, on="kind")
    return table.filter(pl.col("role").is_not_null() & pl.col("submodule").is_not_null())


def _tracelens(*categories, module=""):
    """TraceLens' kernel time in ms of some categories, below modules of a class."""
    name = "sd35_mi300x.tracelens_ops_summary_by_category.csv"
    with (SD35.parent / name).open() as file:
        return sum(
            float(row["total_direct_kernel_time_ms"])
            for row in csv.DictReader(file)
            if row["op category"] in categories
            and row["parent_module"] != "NA"
            and module in row["parent_module"]
        )


def _ms(kinds, *roles):
    return kinds.filter(pl.col("role").cast(pl.String).is_in(roles))["total_ns"].sum() / 1e6


PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::linear", "aten::matmul")


def test_matrix_products_are_projections(kinds):
    """GEMM: projections, mlp, modulation and embeddings, and T5's unfused attention."""
    products = kinds.filter(pl.col("op_type").is_in(PRODUCTS))
    expected = ("qkv_projection", "mlp", "modulation", "embedding", "attention")
    assert _ms(products, *expected) == pytest.approx(_tracelens("GEMM"), rel=1e-3)
    attention = _ms(products, "attention")
    assert attention == pytest.approx(_tracelens("GEMM", module="T5Attention"), rel=1e-3)


def test_flash_attention_is_attention(kinds):
    """TraceLens has it under `other`."""
    flash = kinds.filter(pl.col("op_type") == "aten::_flash_attention_forward")
    modules = ("SD3Transformer2DModel", "Attention", "CLIPAttention")
    expected = sum(_tracelens("other", module=f"nn.Module: {name}") for name in modules)
    assert set(flash["role"]) == {"attention"}
    assert _ms(flash, "attention") == pytest.approx(expected, rel=1e-3)


def test_convolutions_are_convolution(kinds):
    """CONV_fwd, and the biases and activations that stand between convolutions."""
    convolutions = kinds.filter(pl.col("op_type") == "aten::miopen_convolution")
    assert _ms(convolutions, "convolution") == pytest.approx(_tracelens("CONV_fwd"), rel=1e-3)
    assert set(convolutions["role"]) == {"convolution"}


def test_norms_are_norm_with_their_kind(kinds):
    """NORM_fwd, and T5's hand-written RMSNorm, which TraceLens has as elementwise and reduce."""
    norms = kinds.filter(
        pl.col("op_type").is_in(["aten::native_layer_norm", "aiter::_groupnorm_run"])
    )
    assert _ms(norms, "norm") == pytest.approx(_tracelens("NORM_fwd"), rel=1e-3)
    rms = kinds.filter((pl.col("submodule") == "text_encoder_3") & (pl.col("role") == "norm"))
    assert set(rms["norm_kind"]) == {"RMSNorm"}
    by_hand = _tracelens("elementwise", "reduce", module="T5LayerNorm")
    assert _ms(rms, "norm") == pytest.approx(by_hand, rel=1e-3)


def test_compiled_kernels_have_roles(kinds):
    """Of the kernels that TraceLens calls `triton` none is left without a role."""
    fused = kinds.filter(pl.col("op_type").str.starts_with("triton_"))
    assert fused["total_ns"].sum() / 1e6 == pytest.approx(_tracelens("triton"), rel=1e-3)
    assert "other" not in set(fused["role"])
    shares = dict(
        fused.group_by(pl.col("role").cast(pl.String))
        .agg(pl.col("total_ns").sum() / fused["total_ns"].sum())
        .rows()
    )
    assert shares["norm"] == pytest.approx(0.52, abs=0.01)
    assert shares["mlp"] == pytest.approx(0.35, abs=0.01)


def test_almost_no_time_is_other(kinds):
    """Less than one part in a thousand of the submodules' device time."""
    assert _ms(kinds, "other") < kinds["total_ns"].sum() / 1e6 / 1000
