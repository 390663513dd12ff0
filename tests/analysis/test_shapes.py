"""What each shape costs: rows, executions, kernels, labels, and rates against a device."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest
from hypothesis import given, settings

from profiler.analysis import DeviceProfile, parse_shapes, work_of
from profiler.analysis.shapes import label_of
from tests.analysis.asked import asked
from tests.analysis.shaped_runs import Row, Shaped
from tests.examples import examples
from tests.shape_runs import shape_runs

_BF16 = "in: bfloat16[8,4] bfloat16[4,2]"
_PROFILE = DeviceProfile(
    hardware="Example",
    peak_flops={"bfloat16": 64e9},
    memory_bandwidth=56e9,
    launch_ns=None,
    source="",
    measured=True,
    device="cuda:0",
)


def _table(rows: list[Row], **options) -> pl.DataFrame:
    return asked(Shaped(rows, **options).run, measured=[_PROFILE]).shapes


@settings(max_examples=examples(100), deadline=None)
@given(shape_runs())
def test_rows_are_what_was_launched(known):
    """Executions, commands, time, layers, kernels, share and FLOPs of each shape are those of a
    tally that is kept while a device is simulated, and there are no other rows."""
    table = asked(known.run).shapes
    assert len(table) == len(known.tallies)
    left = dict(known.tallies)
    for row in table.to_dicts():
        own = row["kernel"] if row["shapes"] is None else None
        key = (row["submodule"], row["op_type"], row["shapes"], own, row["device"])
        tally = left.pop(key)
        names = ("executions", "commands", "total_ns", "kernels", "layers")
        expected = (
            *(tally.executions, tally.commands, tally.total_ns, len(tally.kernels)),
            len(tally.layers) or None,
        )
        assert tuple(row[name] for name in names) == expected
        longest = max(tally.kernels.values())
        others = f" +{len(tally.kernels) - 1}" if len(tally.kernels) > 1 else ""
        possible = {f"{name}{others}" for name, ns in tally.kernels.items() if ns == longest}
        assert row["kernel"] in possible
        if row["submodule"] is None:
            assert row["share"] is None
        else:
            assert row["share"] == pytest.approx(tally.total_ns / known.busy[row["device"]])
        one = known.flops[row["op_type"], row["shapes"]]
        assert row["flops"] == (None if one is None else one * tally.executions)
    assert not left
    assert table["total_ns"].to_list() == sorted(table["total_ns"], reverse=True)


def test_a_shape_of_many_layers_is_one_row():
    """Blocks that do the same are one row, with their number in `layers`."""
    table = _table([(f"block.{i}", "aten::mm", _BF16, 10 * i, 10) for i in range(24)], calls=2)
    assert table.select("label", "layers", "executions", "commands", "total_ns").rows() == [
        ("mm 8×4×2 bf16", 24, 48, 48, 480)
    ]


def test_rates_and_shares_of_a_peak():
    """128 FLOPs and 112 bytes in 10 ns, of a device that does 640 and moves 560 in that time."""
    (row,) = _table([("a", "aten::mm", _BF16, 0, 10)]).to_dicts()
    assert (row["flops"], row["bytes"]) == (128, 112)
    assert row["teraflops_per_s"] == pytest.approx(0.0128)
    assert row["gigabytes_per_s"] == pytest.approx(11.2)
    assert row["flops_of_peak"] == pytest.approx(0.2)
    assert row["bandwidth_of_peak"] == pytest.approx(0.2)
    assert (row["above_roofline_ns"], row["share"]) == (8, 1)


def test_what_nobody_knows_is_null():
    """Without a formula there are no rates; without a profile no part of a peak and no bound."""
    (row,) = _table([("a", "own::op", "in: bfloat16[8,4]", 0, 10)]).to_dicts()
    unknown = ("teraflops_per_s", "gigabytes_per_s", "flops_of_peak", "above_roofline_ns", "family")
    assert [row[name] for name in unknown] == [None] * 5
    assert (row["label"], row["dtype"]) == ("own::op 8×4 bf16", "bfloat16")
    (row,) = asked(Shaped([("a", "aten::mm", _BF16, 0, 10)]).run).shapes.to_dicts()
    assert (row["flops_of_peak"], row["bandwidth_of_peak"], row["bound"]) == (None, None, None)


def test_what_is_faster_than_a_peak_has_no_part_of_it():
    """In 1 ns 128 FLOPs and 112 bytes are more than the device does, which needs 2: the rates
    stand, against neither peak. In 3 ns they are 2/3 of it."""
    (row,) = _table([("a", "aten::mm", _BF16, 0, 1)]).to_dicts()
    assert (row["teraflops_per_s"], row["gigabytes_per_s"]) == (0.128, 112)
    names = ("flops_of_peak", "bandwidth_of_peak", "above_roofline_ns", "bound")
    assert [row[name] for name in names] == [None] * 4
    (row,) = _table([("a", "aten::mm", _BF16, 0, 3)]).to_dicts()
    assert row["bandwidth_of_peak"] == pytest.approx(2 / 3)
    assert (row["above_roofline_ns"], row["bound"]) == (1, "memory")


def test_kernels_of_one_operator_share_its_roofline():
    """A product of two kernels is held against the roofline as one, though one of them alone was
    faster than half of the work would be."""
    parts = [(f"{_BF16} part {number}/2", 10 * number) for number in (1, 2)]
    rows = [("a", "aten::mm", text, start, 19 if start > 10 else 0) for text, start in parts]
    (row,) = _table(rows).to_dicts()
    assert (row["executions"], row["commands"], row["flops"], row["bytes"]) == (1, 2, 128, 112)
    assert (row["above_roofline_ns"], row["bound"]) == (17, "memory")


def test_numbers_beyond_reason_are_no_error():
    """FLOPs that a producer recorded may add up to more than an integer holds."""
    run = Shaped([("a", "own::op", "in: bfloat16[8,4]", 0, 10)], calls=2)
    table = asked(run.recorded(flops=[(1 << 63) - 1] * 2).run, measured=[_PROFILE]).shapes
    assert table["flops"].item() >= 1 << 62


def test_copies_count_in_the_share_alone():
    """A copy is no row, and is part of what its device did."""
    commands = [("a", "aten::mm", _BF16, 0, 30)]
    run = Shaped(commands).run
    copy = run.commands.with_columns(
        category=pl.lit("copy").cast(run.commands["category"].dtype),
        duration_ns=pl.lit(10, dtype=pl.Int64),
    )
    run = dataclasses.replace(run, commands=pl.concat([run.commands, copy]))
    both = asked(run).shapes
    assert both.select("total_ns", "share").rows() == [(30, 0.75)]


@pytest.mark.parametrize(
    ("op_type", "shapes", "label"),
    [
        ("aten::mm", "in: bfloat16[8192,2432] bfloat16[2432,9728]", "mm 8192×2432×9728 bf16"),
        (
            "aten::addmm",
            "in: float16[9] float16[7,5] float16[5,9] float16[7,9]",
            "addmm 7×5×9 fp16",
        ),
        ("aten::bmm", "in: float32[24,7,5] float32[24,5,9]", "bmm 24×7×5×9 fp32"),
        ("aten::linear", "in: float32[2,7,5] float32[9,5] float32[9]", "linear 14×5×9 fp32"),
        ("MatMul", "float[2,7,5] -> float[2,7,9]", "MatMul 14×5×9 fp32"),
        (
            "aten::_flash_attention_forward",
            "in: bfloat16[2,4429,38,64] bfloat16[2,4429,38,64] bfloat16[2,4429,38,64]",
            "attention B2 H38 S4429 D64 bf16",
        ),
        (
            "aten::_scaled_dot_product_flash_attention",
            "in: bfloat16[2,38,4096,64] bfloat16[2,38,333,64] bfloat16[2,38,333,64]",
            "attention B2 H38 S4096/333 D64 bf16",
        ),
        (
            "aten::_cudnn_attention_forward",
            "in: bfloat16[2,24,4429,64] bfloat16[2,24,4429,64] bfloat16[2,24,4429,64]",
            "attention B2 H24 S4429 D64 bf16",
        ),
        (
            "aten::miopen_convolution",
            "bfloat16[1,128,64,64] bfloat16[256,128,3,3] bfloat16[256] -> bfloat16[1,256,64,64]",
            "conv 1×128×64×64 → 256 3×3 bf16",
        ),
        (
            "aten::layer_norm",
            "in: bfloat16[1,77,768] bfloat16[768]",
            "layer_norm 1×77×768, 768 bf16",
        ),
        ("aten::add", "in: bfloat16[2,8] bfloat16[2,8]", "add 2×8 bf16"),
        ("aten::mul", "in: float32[2,8] float32[2,1] float32[1]", "mul 2×8, 2×1 fp32"),
        ("aten::cat", "in: tensor[2,8] tensor[2,8]", "cat 2×8"),
        ("aten::cat", "in: bits16[2,8] bits16[2,4]", "cat 2×8, 2×4"),
        ("aten::fill_", "in: int64[1]", "fill_ 1 i64"),
        ("sgl::pick", "in: uint8[5] float32[4] bool[3] int8[2]", "sgl::pick 5, 4, 3, … u8"),
        ("gemm_kernel", None, "gemm_kernel"),
    ],
)
def test_labels(op_type, shapes, label):
    """A shape is called by what a reader calls it."""
    parsed = parse_shapes(shapes)
    assert label_of(op_type, parsed, work_of(op_type, parsed)) == label
