"""How metrics are named and runs are chosen, and what is said of names that are none."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.fleet import Dataset, LocalStorage
from profiler.fleet.dataset import full_name, metric_name
from profiler.fleet.storage import conditions, period
from profiler.tools.metrics import recorded_identity
from tests.fleet.simulated import addition, filled
from tests.runs import Command, make_call, make_info, make_run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("elapsed", {"metric": "elapsed"}),
        ("denoise.step", {"metric": "step", "stage": "denoise"}),
        ("denoise.step[step=3]", {"metric": "step", "stage": "denoise", "step": 3}),
        ("vae.call", {"metric": "call", "submodule": "vae", "any_stage": True}),
        ("decode.vae.call", {"metric": "call", "stage": "decode", "submodule": "vae"}),
        ("busy[device=cuda:0]", {"metric": "busy", "device": "cuda:0"}),
        (
            "unet.mid.time[shape=GEMM 4×2, 2 bf16]",
            {
                "metric": "time",
                "submodule": "unet.mid",
                "shape": "GEMM 4×2, 2 bf16",
                "any_stage": True,
            },
        ),
    ],
)
def test_names(text, expected):
    """Scope, metric and keys; a shape may hold commas, a submodule dots."""
    found = metric_name(text)
    fields = {name: getattr(found, name) for name in found.__struct_fields__}
    told = {name: value for name, value in fields.items() if value not in (None, False)}
    assert told == {"text": text, **expected}


@pytest.mark.parametrize(
    "text", ["", "speed", "denoise.step[time=3]", "denoise.step[step=x]", "a["]
)
def test_no_names(text):
    """One sentence says what may be written."""
    with pytest.raises(InputError, match=r"no metric|no key|no step"):
        metric_name(text)


def test_full_names_name_the_row_they_are_of():
    """The name of a row matches that row and no other."""
    keys = ("stage", "submodule", "step", "role", "shape", "device", "metric")
    rows = pl.DataFrame(
        [
            ("denoise", None, None, None, None, None, "step"),
            ("denoise", None, 3, None, None, None, "step"),
            ("denoise", "transformer", None, None, None, None, "elapsed"),
            (None, "transformer", None, "attention", None, None, "time"),
            (None, "transformer", None, None, "mm 1×2, 2", None, "time"),
            (None, None, None, None, None, "cuda:0", "busy"),
        ],
        schema=dict.fromkeys(keys, pl.String) | {"step": pl.Int32},
        orient="row",
    )
    for number, row in enumerate(rows.iter_rows(named=True)):
        matches = rows.select(metric_name(full_name(row)).matches().alias("is"))["is"]
        assert matches.arg_true().to_list() == [number]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Four runs: 20 and 28 steps, one unknown, one labelled."""
    place = tmp_path_factory.mktemp("fleet") / "data"
    filled(
        LocalStorage(place),
        [
            addition(0, steps=20),
            addition(1, steps=28, hardware="1 × AMD Instinct MI300X"),
            addition(2, steps=None, quality="drops"),
            addition(3, labels={"branch": "main"}),
        ],
    )
    return Dataset(place)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ((), [0, 1, 2, 3]),
        ("steps=20", [0]),
        ("steps>=28", [1, 3]),
        ("steps!=20", [1, 3]),
        ("steps=unknown", [2]),
        ("steps!=unknown", [0, 1, 3]),
        ("hardware~MI300X", [1]),
        ("hardware=1 × AMD Instinct MI300X", [1]),
        ("label.branch=main", [3]),
        (("steps=28", "hardware~H100"), [3]),
        ("guidance<7.5", [0, 1, 2, 3]),
        ("time<2026-11-20", [0, 1]),
    ],
)
def test_conditions(data, where, expected):
    """What meets all conditions, in order of time; unknown meets none but `unknown`."""
    assert data.runs(where)["run_id"].to_list() == [f"run{number}" for number in expected]


@pytest.mark.parametrize("text", ["steps", "speed=3", "steps=many", "time=soon"])
def test_no_conditions(text):
    """One sentence says what is wrong with a condition."""
    with pytest.raises(InputError, match="--where"):
        conditions(text)


def test_periods():
    """Ages in words."""
    assert [period(text) for text in ("12h", "90d", "2w", "1y")] == [
        timedelta(hours=12), timedelta(days=90), timedelta(weeks=2), timedelta(days=365),
    ]  # fmt: skip
    with pytest.raises(InputError, match="no age"):
        period("soon")


def test_history_leaves_bad_runs_out(data):
    """Runs of bad quality stand in a history only where they are asked for."""
    assert len(data.history("denoise.step")) == 3
    assert len(data.history("denoise.step", quality=True)) == 4
    assert data.history("denoise.step").columns == [
        "run", "run_id", "time_ns", "commit", "value", "low", "high", "unit", "place", "quality",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("devices", "hardware"),
    [
        ({"cuda:0": "NVIDIA A100", "cpu:0": ""}, "1 × NVIDIA A100"),
        ({"cuda:0": "NVIDIA A100", "cuda:1": ""}, None),
        ({"cuda:0": "NVIDIA A100", "cpu:0": "EPYC"}, "1 × EPYC + 1 × NVIDIA A100"),
        ({"cpu:0": ""}, None),
    ],
)
def test_hardware_of_a_run_whose_host_nobody_named(devices, hardware):
    """An accelerator with a name is known, though some calls ran on its host."""
    calls = [
        make_call(number, f"part{number}", 10 * number, 10 * number + 10, device=device)
        for number, device in enumerate(devices)
    ]
    work = [
        Command(number, device, "q", "compute", "layer", 10 * number, 5)
        for number, device in enumerate(devices)
    ]
    known = {device: {"hardware": name} for device, name in devices.items() if name}
    run = make_run(calls, work, info=make_info(devices=known))
    assert recorded_identity(analyze(run))["hardware"] == hardware
