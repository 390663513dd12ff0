"""The roofline in the terminal: what is shown, and what is left out where nothing is known."""

from __future__ import annotations

import re
from dataclasses import replace

import polars as pl
import pytest

from profiler.analysis import DeviceProfile
from profiler.analysis.analyze import analyze
from profiler.analysis.table_text import with_rates
from tests.analysis.shaped_runs import Shaped, in_order
from tests.report.rendered import part_lines, printed, section_lines
from tests.runs import tiny_run

X = "float[2,8,4]"
UNIT = DeviceProfile("unit", {"float32": 1e9}, 1e9, None, "measured by hand", True, "cuda:0")
OPERATIONS = in_order(
    ("aten::mm", "float[16,16] float[16,16]"),
    ("Tanh", f"{X} -> {X}"),
    ("Tanh", f"{X} -> {X}"),
    ("theirs::secret", "float[5]"),
    duration=10_000,
)


def _analysis(measured=(UNIT,)):
    return analyze(Shaped(OPERATIONS).run, measured=measured)


def test_roles_or_operators_and_their_bounds():
    """Roofline time, share of the roofline, rates and the bound; where the roofline is from."""
    text = printed(_analysis(), 200)
    section = text[text.index("Roles against the roofline") :]
    assert "compute-bound" in section
    assert "Roofline of cuda:0: measured, measured by hand" in section
    assert "FLOPs or bytes not known for 25" in section.replace("\N{NO-BREAK SPACE}", " ")


def test_rates_are_of_the_commands_whose_work_is_known():
    """A product (8192 FLOPs, 3072 bytes), a fused kernel of known bytes (80) and one that nobody
    knows, 10 µs each: FLOPs are of 10 µs, bytes of 20."""
    fused = ("triton_poi_x", "float[10] float[10]")
    run = Shaped(in_order(OPERATIONS[0][1:3], fused, OPERATIONS[3][1:3], duration=10_000)).run
    (row,) = with_rates(analyze(run, measured=(UNIT,)).roofline).rows(named=True)
    assert row["rate"] == pytest.approx(8192 / 10_000 / 1e3)
    assert row["bandwidth"] == pytest.approx((3072 + 80) / 20_000)


def test_rates_of_roles_and_operators_are_in_one_unit():
    """Of 0.8 GFLOP/s at most both tables name it in their headers, whatever their first rows."""
    text = printed(_analysis(), 200)
    assert text.count("memory MB/s") == 3  # shapes have them too
    assert text.count("compute MFLOP/s") == 4  # and the module tree


def test_fusions():
    """The two activations, 512 bytes, with their unit as in every other place."""
    text = printed(_analysis(), 200)
    section = text[text.index("What fusing would save at most") :]
    assert "elementwise  Tanh → Tanh" in section
    assert "saves traffic" in section
    assert "512 B" in section


def test_roles_beyond_their_roof_are_said_to_be():
    """A profile that is a thousandth of what was measured cannot be right, and the note says so."""
    slow = replace(UNIT, peak_flops={"float32": 1e6}, memory_bandwidth=1e6)
    said = "of the total time was faster than its roofline, which is then not known"
    assert said in " ".join(printed(_analysis((slow,))).split())
    assert said not in " ".join(printed(_analysis()).split())


def test_a_peak_that_the_run_went_beyond_is_said():
    """The profile was measured, and a product of the run was faster: whose peak it is now."""
    raised = replace(UNIT, attained=("float32",))
    analysis = replace(_analysis(), device_profiles={"cuda:0": raised})
    text = " ".join(printed(analysis, 400).split())
    assert (
        "Roofline of cuda:0: measured, measured by hand, of float32 what products of this run "
        "reached beyond it" in text
    )


def test_without_a_bandwidth_it_says_why_there_is_no_bound():
    """A profile such as ATOM's: products have FLOPs and a peak, and still no bound."""
    text = printed(width=200, analysis=_analysis(measured=(replace(UNIT, memory_bandwidth=None),)))
    assert "measured by hand, without a memory bandwidth: nothing there has a bound other" in text
    assert "compute-bound" not in text


def test_without_a_profile_it_says_how_to_get_one():
    """FLOPs and bytes are there, the roofline is not."""
    text = printed(width=200, analysis=_analysis(measured=()))
    assert "No profile of cuda:0: profile-sd3 benchmark-device measures one" in text


def test_a_run_without_shapes_has_no_roofline():
    """The tiny run says nothing about what it computes."""
    assert "against the roofline" not in printed(analyze(tiny_run()))
    assert "Operators against the roofline" not in printed(_analysis(), top=0)


@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_fits_the_width(width):
    """No line is wider than the terminal."""
    lines = section_lines(printed(_analysis(), width), "Operators and roofline")
    assert max(map(len, lines), default=0) <= width


def test_names_from_traces_are_cleaned():
    """Control characters of a layer or of a profile's source do not reach the terminal."""
    bad = DeviceProfile("x", {"float32": 1e9}, 1e9, None, "so\x1b[31mrce", True, "cuda:0")
    analysis = analyze(
        Shaped(in_order(("Tanh", f"{X} -> {X}"), layer="a\x1b[2J")).run, measured=(bad,)
    )
    assert isinstance(analysis.roofline, pl.DataFrame)
    assert "\x1b" not in printed(analysis)


def test_a_role_on_two_devices_at_once_takes_its_time_once():
    """What runs at the same times on a second device, too, takes no more of the run."""
    run = Shaped(OPERATIONS).run
    device = pl.lit("cuda:1").cast(run.commands.schema["device"]).alias("device")
    doubled = replace(run, commands=pl.concat([run.commands, run.commands.with_columns(device)]))
    title = "What faster kernels of a role could gain at most"
    lines = [part_lines(printed(analyze(one), 200), title) for one in (run, doubled)]
    assert "without" in lines[0][0]
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    ("category", "took", "bounds"),
    [
        ("compute", 10_000, ("20.0 µs", "2.00×")),
        ("compute", 30_000, ("30.0 µs", "1.33×")),
        ("compute", 40_000, None),
        ("collective", 40_000, ("20.0 µs", "2.00×")),
    ],
)
def test_another_device_works_on_without_a_role(category, took, bounds):
    """Of 40 µs two Tanh take 20: without them the run takes no less than other work of a second
    device does, and nothing is said if that is as long as the run. A collective may only wait."""
    run = Shaped(OPERATIONS).run
    types = run.commands.schema
    other = run.commands.head(1).with_columns(
        pl.lit(-1).cast(types["call"]).alias("call"),
        pl.lit("cuda:1").cast(types["device"]).alias("device"),
        pl.lit(category).cast(types["category"]).alias("category"),
        duration_ns=pl.lit(took, pl.Int64),
    )
    both = replace(run, commands=pl.concat([other, run.commands]))
    text = " ".join(printed(analyze(both), 200).split())
    found = re.search(r"([\d.]+ µs) without mlp of transformer \(([\d.]+×)", text)
    assert (found and found.groups()) == bounds


def test_what_runs_beside_a_role_is_said():
    """Without it the run takes at least the rest, but other work that ran beside it for half of its
    time takes that time without it, too."""
    run = Shaped(OPERATIONS).run
    first = run.commands.head(1).with_columns(
        pl.lit(-1).cast(run.commands.schema["call"]).alias("call"),
        pl.col("duration_ns") // 2,
        track=pl.lit("stream 9").cast(run.commands.schema["track"]),
    )
    beside = replace(run, commands=pl.concat([first, run.commands]))
    title = "What faster kernels of a role could gain at most"
    (line,) = part_lines(printed(analyze(beside), 200), title)
    assert line.endswith("of transformer (1.33×; other work ran beside 5.00 µs of it).")
    assert "20.0 µs without mlp of transformer (2.00×)," in line
