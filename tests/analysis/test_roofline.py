"""The roofline: roofline times, bounds, and what is not known, in runs that fit in a head."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.analysis import Bound, DeviceProfile
from tests.analysis.shaped_runs import Shaped, in_order

# 1 FLOP and 1 byte a ns, so that counts are times
UNIT = DeviceProfile("unit", {"float32": 1e9}, 1e9, None, "", measured=True)
LAUNCHING = DeviceProfile("launching", {"float32": 1e9}, 1e9, 500.0, "", measured=True)

MM = ("aten::mm", "float[3,4] float[4,5]")  # 120 FLOPs, 188 bytes
DEEP = ("aten::mm", "float[16,16] float[16,16]")  # 8192 FLOPs, 3072 bytes
ADD = ("aten::add", "float[5] float[5]")  # 5 FLOPs, 60 bytes
UNKNOWN = ("theirs::secret", "float[5]")


def _row(frame):
    assert len(frame) == 1
    return frame.to_dicts()[0]


def test_memory_bound():
    """188 bytes take longer than 120 FLOPs; 200 ns of the total time are 94 % of the roofline."""
    row = _row(Shaped(in_order(MM, duration=200)).found(cuda=UNIT)["operators"])
    assert row["flops"] == 120
    assert row["bytes"] == 188
    assert row["flops_per_byte"] == pytest.approx(120 / 188)
    assert row["roofline_ns"] == 188
    assert row["of_roofline"] == pytest.approx(0.94)
    assert row["bound"] == "memory"


def test_compute_bound():
    """8192 FLOPs take longer than 3072 bytes."""
    row = _row(Shaped(in_order(DEEP, duration=10_000)).found(cuda=UNIT)["operators"])
    assert (row["roofline_ns"], row["bound"]) == (8192, "compute")


def test_launch_bound():
    """A launch takes 500 ns, the work at most 188."""
    row = _row(Shaped(in_order(MM, duration=600)).found(cuda=LAUNCHING)["operators"])
    assert (row["roofline_ns"], row["bound"]) == (500, "launch")


@pytest.mark.parametrize(
    ("duration", "bound"),
    [(5_900, "memory"), (6_100, "launch"), (10_000, "launch"), (10_001, "memory")],
)
def test_short_commands_that_move_next_to_nothing_are_launch_bound(duration, bound):
    """60 bytes in 60 ns are less than a hundredth of it, though a launch cost is not known."""
    row = _row(Shaped(in_order(ADD, duration=duration)).found(cuda=UNIT)["operators"])
    assert (row["roofline_ns"], row["bound"]) == (60, bound)


def test_no_host_launches_the_nodes_of_a_cpu():
    """The same commands on a CPU and on a GPU: what they take beyond their work is the overhead of
    what runs them there, in all tables; what is bound by memory is so on both."""
    for profile, duration in ((LAUNCHING, 600), (UNIT, 6_100)):
        rows = in_order(MM if profile is LAUNCHING else ADD, duration=duration)
        on_gpu, on_cpu = Shaped(rows), Shaped(rows, device="cpu:0")
        assert _row(on_gpu.found(cuda=profile)["operators"])["bound"] == "launch"
        assert _row(on_cpu.found(cpu=profile)["operators"])["bound"] == "overhead"
        roles = pl.Series(["other"], dtype=pl.String)
        assert _row(on_cpu.found(cpu=profile)["roles"](roles))["bound"] == "overhead"
    by_memory = Shaped(in_order(MM, duration=200), device="cpu:0").found(cpu=UNIT)["operators"]
    assert _row(by_memory)["bound"] == "memory"


def test_host_bound():
    """The device waits 300 ns before the second command, longer than both run."""
    rows = [("a", *MM, 0, 100), ("a", *MM, 400, 100)]
    row = _row(Shaped(rows).found(cuda=UNIT)["operators"])
    assert (row["total_ns"], row["wait_ns"], row["bound"]) == (200, 300, "host")


def test_waiting_between_calls_is_not_the_host():
    """Idle time before the first command of a call is between calls; overlap is no idle time."""
    rows = [("a", *MM, 100, 100), ("a", *MM, 150, 100), ("a", *MM, 251, 10)]
    row = _row(Shaped(rows, calls=3).found(cuda=UNIT)["operators"])
    assert row["wait_ns"] == 3


def test_bound_is_that_of_most_roofline_time():
    """One compute-bound command of 8192 ns against two memory-bound ones of 188 ns."""
    found = Shaped(in_order(DEEP, MM, MM, duration=9000)).found(cuda=UNIT)["operators"]
    assert (_row(found)["roofline_ns"], _row(found)["bound"]) == (8568, "compute")


def test_unknown_work_is_counted_not_zero():
    """A command without formula adds busy time to `unknown_ns`, and nothing to FLOPs or
    roofline."""
    row = _row(Shaped(in_order(MM, UNKNOWN, duration=200)).found(cuda=UNIT)["operators"])
    assert (row["total_ns"], row["unknown_commands"], row["unknown_ns"]) == (400, 1, 200)
    assert (row["flops"], row["roofline_ns"]) == (120, 188)
    assert row["of_roofline"] == pytest.approx(188 / 200)
    alone = _row(Shaped(in_order(UNKNOWN)).found(cuda=UNIT)["operators"])
    assert (alone["flops"], alone["bytes"], alone["roofline_ns"]) == (None, None, None)
    assert (alone["of_roofline"], alone["bound"]) == (None, None)


def test_bytes_alone_are_a_roof():
    """A Triton pointwise kernel: nobody knows its FLOPs, which are still unknown work, but 80 bytes
    at 1 a ns take 80 ns."""
    kernel = in_order(("triton_poi_x", "float[10] float[10]"), duration=160)
    row = _row(Shaped(kernel).found(cuda=UNIT)["operators"])
    assert (row["flops"], row["bytes"], row["roofline_ns"]) == (None, 80, 80)
    assert (row["unknown_commands"], row["of_roofline"], row["bound"]) == (1, 0.5, "memory")


def test_time_above_the_roofline_is_that_of_what_is_known():
    """188 of 200 ns, beside 200 ns of a command that nobody knows."""
    row = _row(Shaped(in_order(MM, UNKNOWN, duration=200)).found(cuda=UNIT)["operators"])
    assert (row["excess_ns"], row["unknown_ns"], row["not_explained_ns"]) == (12, 200, 0)
    row = _row(Shaped(in_order(UNKNOWN, duration=200)).found(cuda=UNIT)["operators"])
    assert (row["excess_ns"], row["unknown_ns"]) == (None, 200)


@pytest.mark.parametrize("operation", [MM, DEEP])
def test_what_was_faster_than_its_roofline_has_none(operation):
    """Nothing is faster than its roofline: 120 ns for what takes 188 at least show that this is not
    its roofline. It is not known then, and counted."""
    row = _row(Shaped(in_order(operation, duration=120)).found(cuda=UNIT)["operators"])
    assert (row["roofline_ns"], row["of_roofline"], row["excess_ns"], row["bound"]) == (None,) * 4
    assert (row["not_explained_ns"], row["unknown_ns"]) == (120, 0)


CACHED = replace(UNIT, cache_bytes=1000.0, cache_bandwidth=4e9)
LARGE = ("triton_poi_x", "float[500] float[500]")  # 4000 bytes


def test_the_cache_is_the_roof_of_what_was_faster_than_memory():
    """188 bytes in 130 ns: memory gives 130 of them. The cache has 1000 and gives 4 a ns, so that
    the product's 120 FLOPs take longest; beside 4000 bytes that came from memory."""
    rows = [("a", *LARGE, 0, 4000), ("b", *MM, 4000, 130)]
    found = {row["layer"]: row for row in Shaped(rows).found(cuda=CACHED)["operators"].to_dicts()}
    assert (found["a"]["roofline_ns"], found["a"]["bound"]) == (4000, "memory")
    assert (found["b"]["roofline_ns"], found["b"]["bound"]) == (120, "compute")
    slower = [("a", *LARGE, 0, 4000), ("b", *MM, 4000, 200)]
    found = {row["layer"]: row for row in Shaped(slower).found(cuda=CACHED)["operators"].to_dicts()}
    assert (found["b"]["roofline_ns"], found["b"]["bound"]) == (188, "memory")


def test_what_does_not_fit_into_the_cache_comes_from_memory():
    """4000 bytes, of which 1000 can be in the cache: 3000 ns at least."""
    rows = [("a", *LARGE, 0, 3200), ("b", *LARGE, 3200, 2900)]
    found = {row["layer"]: row for row in Shaped(rows).found(cuda=CACHED)["operators"].to_dicts()}
    assert (found["a"]["roofline_ns"], found["a"]["of_roofline"]) == (3000, 3000 / 3200)
    assert (found["b"]["roofline_ns"], found["b"]["not_explained_ns"]) == (None, 2900)


def test_the_cache_is_the_roof_where_everything_fits():
    """A submodule that touches 60 bytes has them in the cache; one of which something is not known
    may touch more."""
    row = _row(Shaped(in_order(ADD, duration=100)).found(cuda=CACHED)["operators"])
    assert row["roofline_ns"] == 15
    row = _row(Shaped(in_order(ADD, UNKNOWN, duration=100)).found(cuda=CACHED)["operators"])
    assert row["roofline_ns"] == 60


def test_a_cache_whose_rate_is_not_known_is_no_roof():
    """Faster than memory, and nobody says how fast the cache is: not known, and counted."""
    profile = replace(CACHED, cache_bandwidth=None)
    rows = [("a", *LARGE, 0, 4000), ("b", *MM, 4000, 150)]
    found = {row["layer"]: row for row in Shaped(rows).found(cuda=profile)["operators"].to_dicts()}
    assert (found["b"]["roofline_ns"], found["b"]["not_explained_ns"]) == (None, 150)


def test_without_a_profile_there_is_no_roof():
    """FLOPs and bytes are counted; nothing is roofline and nothing is said, but host-bound."""
    rows = [("a", *MM, 0, 100), ("b", *MM, 400, 100)]
    found = {row["layer"]: row for row in Shaped(rows).found()["operators"].to_dicts()}
    assert (found["a"]["flops"], found["a"]["roofline_ns"], found["a"]["bound"]) == (
        120,
        None,
        None,
    )
    assert found["b"]["bound"] == "host"


@pytest.mark.parametrize(
    "lacking",
    [
        DeviceProfile("bandwidth", {"float32": 1e9}, None, 500.0, "", measured=False),
        DeviceProfile("peak", {"int8": 1e9}, 1e9, 500.0, "", measured=False),
    ],
    ids=lambda profile: profile.hardware,
)
@pytest.mark.parametrize("operation", [ADD, MM, DEEP])
def test_a_rate_that_is_not_known_becomes_no_bound(lacking, operation):
    """As ATOM's bandwidth: an addition is not compute-bound because only its FLOPs have a
    roofline."""
    row = _row(Shaped(in_order(operation, duration=10_000)).found(cuda=lacking)["operators"])
    assert row["flops"] > 0
    assert row["bytes"] > 0
    assert (row["roofline_ns"], row["of_roofline"], row["bound"]) == (None, None, None)


def test_few_known_commands_do_not_speak_for_the_others():
    """One product of 200 ns, 94 % of its roofline, says nothing of 400 ns that nobody knows."""
    found = Shaped(in_order(MM, UNKNOWN, UNKNOWN, duration=200)).found(cuda=UNIT)
    row = _row(found["operators"])
    assert (row["roofline_ns"], row["of_roofline"], row["bound"]) == (188, None, None)


def test_parts_of_one_operator_count_once():
    """Three commands of one product: together its FLOPs, bytes and roofline."""
    parts = [("aten::mm", f"{MM[1]} part {i}/3") for i in (1, 2, 3)]
    row = _row(Shaped(in_order(*parts, duration=100)).found(cuda=UNIT)["operators"])
    assert (row["commands"], row["flops"], row["bytes"]) == (3, 120, 186)  # a third, rounded down


def test_commands_of_one_operator_have_one_roofline():
    """Two commands of one product, of which the first took 30 of 240 ns: whatever each of them did,
    the product takes 188 ns at least, and no row with a part of it is faster than it can be."""
    rows = [
        ("a", "aten::mm", f"{MM[1]} part 1/2", 0, 30),
        ("a", "aten::mm", f"{MM[1]} part 2/2", 30, 210),
    ]
    shaped = Shaped(rows).found(cuda=UNIT)
    row = _row(shaped["operators"])
    assert (row["roofline_ns"], row["excess_ns"], row["not_explained_ns"]) == (188, 52, 0)
    assert (shaped["roofline"]["roofline_ns"] <= shaped["roofline"]["total_ns"]).all()


@pytest.mark.parametrize("category", ["host", "sync", "dma"])
def test_what_is_no_device_work_has_no_roof(category):
    """Launches, waits and transfers to the host are left out."""
    assert len(Shaped(in_order(MM), category=category).found(cuda=UNIT)["operators"]) == 0


def test_recorded_flops_stand_before_formulas():
    """A producer that counted knows better, where it counted all commands of the kind."""
    shaped = Shaped(in_order(MM, MM)).recorded(flops=[7, 8])
    assert shaped.found(cuda=UNIT)["work"]["flops"].to_list() == [15]
    some = Shaped(in_order(MM, MM)).recorded(flops=[7, None])
    assert some.found(cuda=UNIT)["work"]["flops"].to_list() == [240]


def test_recorded_bytes_stand_where_no_formula_knows():
    """ONNX Runtime's bytes leave out packed weights, so a formula goes first; a copy on the
    device has the bytes that it copied."""
    shaped = Shaped(in_order(MM, UNKNOWN)).recorded(bytes_read=[1, 2], bytes_written=[1, 3])
    work = shaped.found(cuda=UNIT)["work"]
    assert sorted(work.select("bytes_read", "bytes_written").rows()) == [(2, 3), (128, 60)]
    copied = Shaped(in_order(("Memcpy DtoD", "float[9]")), category="copy")
    work = copied.recorded(bytes_read=[64], bytes_written=[64]).found()["work"]
    assert work.select("flops", "bytes_read", "bytes_written").rows() == [(None, 64, 64)]


def test_by_role():
    """Operators of one role add up; without roles there is no row."""
    found = Shaped(in_order(MM, duration=200, layer="a")).found(cuda=UNIT)
    row = _row(found["roles"](pl.Series(["mlp"])))
    assert (row["role"], row["flops"], row["bound"]) == ("mlp", 120, "memory")
    assert len(found["roles"](None)) == 0


def test_absurd_shapes_and_counts():
    """Traces are untrusted: numbers beyond an int64 are cut off there, nothing overflows."""
    huge = f"float[{1 << 40},{1 << 20}]"
    rows = in_order(
        ("Tanh", f"{huge} -> {huge}"),
        ("Tanh", f"{huge} -> {huge}"),
        ("Tanh", f"{huge} -> {huge}"),
        ("aten::mm", f"float[{1 << 30},{1 << 30}] float[{1 << 30},{1 << 30}]"),
        UNKNOWN,
    )
    most = (1 << 63) - 1
    counts = {"flops": [most] * 45, "bytes_read": [most] * 45, "bytes_written": [0] * 45}
    shaped = Shaped(rows, calls=9).recorded(**counts)
    slow = DeviceProfile("slow", {"float32": 1e-3}, 1e-3, None, "", measured=True)
    found = shaped.found(cuda=slow)
    row = _row(found["operators"])
    assert (row["flops"], row["roofline_ns"]) == (1 << 62, None)
    assert row["not_explained_ns"] == row["total_ns"]
    assert found["fusions"]["saved_bytes"].to_list() == [1 << 62]


def test_an_empty_run():
    """No commands, no rows."""
    found = Shaped([]).found(cuda=UNIT)
    assert len(found["operators"]) == len(found["fusions"]) == 0


_OPERATION = st.sampled_from(
    [MM, DEEP, ADD, UNKNOWN, ("aten::view", "float[5]"), ("aten::cat", "tensor[3]"), ("x", None)]
)
_ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), _OPERATION, st.integers(0, 3000), st.integers(0, 999)).map(
        lambda row: (row[0], *row[1], *row[2:])
    ),
    max_size=12,
).map(lambda rows: sorted(rows, key=lambda row: row[3]))


@given(_ROWS, st.sampled_from([UNIT, LAUNCHING, CACHED]), st.integers(1, 3))
def test_shares_add_up(rows, profile, calls):
    """Commands, busy time, FLOPs and bytes of all operators are those of the kinds; no term of
    the roofline is longer than the roofline time, and no roofline time than all terms."""
    found = Shaped(rows, calls=calls).found(cuda=profile)
    operators, roofline, work = found["operators"], found["roofline"], found["work"]
    assert operators["commands"].sum() == len(rows) * calls
    assert operators["total_ns"].sum() == sum(row[4] for row in rows) * calls
    assert operators["flops"].sum() == work["flops"].sum()
    known = (work["bytes_read"] + work["bytes_written"]).sum()
    assert operators["bytes"].sum() == known
    assert roofline["roofline_ns"].sum() == pytest.approx(operators["roofline_ns"].sum(), abs=2)
    for row in roofline.filter(pl.col("roofline_ns").is_not_null()).to_dicts():
        terms = [row[name] or 0 for name in ("compute_ns", "memory_ns", "launch_ns")]
        assert max(terms) == row["roofline_ns"] <= sum(terms)
        assert row["roofline_ns"] <= row["total_ns"]
    shares = operators["of_roofline"].drop_nulls()
    assert shares.is_between(0, 1).all()
    assert (operators["excess_ns"].drop_nulls() >= 0).all()
    assert (operators["not_explained_ns"] <= operators["total_ns"]).all()
    assert (operators["unknown_ns"] <= operators["total_ns"]).all()
    assert (operators["wait_ns"] >= 0).all()
    assert operators["bound"].drop_nulls().is_in([*Bound]).all()
