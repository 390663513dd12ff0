"""Devices: busy, idle, and when nobody can tell."""

import pytest

from profiler.analysis.analyze import analyze
from tests.runs import Command, make_call, make_info, make_run, tiny_run


def _rows(run):
    return {row["device"]: row for row in analyze(run).devices.iter_rows(named=True)}


def test_busy_is_a_union_of_everything_but_host_work():
    """rbln:0 computes 470 ns and copies 10, 5 of them meanwhile, between 210 and 990 of a pipeline
    call of 1000 ns."""
    row = _rows(tiny_run())["rbln:0"]
    assert (row["hardware"], row["calls"], row["commands"]) == ("CA22", 3, 8)
    assert (row["busy_ns"], row["compute_ns"], row["dma_ns"]) == (475, 470, 10)
    assert (row["calls_ns"], row["span_ns"], row["idle_ns"]) == (580, 780, 305)
    assert (row["utilization"], row["idle_share"]) == (475 / 1000, 525 / 1000)


def test_host_work_is_not_busy():
    """cpu:0 did host work only: how idle it was is not known."""
    row = _rows(tiny_run())["cpu:0"]
    assert (row["commands"], row["host_ns"], row["busy_ns"], row["span_ns"]) == (3, 90, 0, 800)
    assert (row["idle_ns"], row["utilization"]) == (None, None)


def test_device_with_untraced_calls_has_no_utilization():
    """Commands of one of two calls say nothing about the other."""
    calls = [make_call(0, "t", 0, 100), make_call(1, "t", 100, 200, traced=False)]
    row = _rows(make_run(calls, [Command(0, "rbln:0", "C", "compute", "mlp", 0, 60)]))["rbln:0"]
    assert (row["busy_ns"], row["span_ns"]) == (60, 200)
    assert (row["idle_ns"], row["utilization"]) == (None, None)


def test_device_without_calls_depends_on_every_call():
    """A second accelerator that calls reach into is known only where all calls were traced."""
    commands = [Command(0, "rbln:1", "C", "compute", "mlp", 0, 60)]
    traced = [make_call(0, "t", 0, 100)]
    assert _rows(make_run(traced, commands))["rbln:1"]["utilization"] == 0.6
    mixed = [*traced, make_call(1, "t", 100, 200, traced=False)]
    assert _rows(make_run(mixed, commands))["rbln:1"]["utilization"] is None


def test_device_with_calls_and_no_command():
    """A run at call level still lists where its submodules were placed."""
    row = _rows(make_run([make_call(0, "t", 0, 100, traced=False)]))["rbln:0"]
    assert (row["calls"], row["commands"], row["calls_ns"], row["busy_ns"]) == (1, 0, 100, 0)


def test_devices_by_name():
    """In a fixed order, whatever the order of their commands."""
    assert list(_rows(tiny_run())) == ["cpu:0", "rbln:0", "rbln:1"]


def test_weights_by_device():
    """The weights of a device's submodules, shared ones once; null where one does not tell."""
    known = {
        "text_encoder": {"device": "rbln:0", "weight_bytes": 100},
        "transformer": {"device": "rbln:0", "weight_bytes": 70, "shared_weight_bytes": 30},
        "vae": {"device": "rbln:1", "weight_bytes": 50},
        "controlnet": {"device": "rbln:1", "weight_bytes": None},
    }
    commands = [Command(0, f"rbln:{n}", "C", "compute", "mlp", 0, 60) for n in range(3)]
    info = make_info(producer="test", submodules=known)
    rows = _rows(make_run([make_call(0, "t", 0, 100)], commands, info=info))
    weights = {name: row["weight_bytes"] for name, row in rows.items()}
    assert weights == {"rbln:0": 140, "rbln:1": None, "rbln:2": None}


@pytest.mark.parametrize("size", [-1, True, "1", 1.5, 1 << 62, [], {}])
def test_weights_that_are_no_sizes_are_refused(size):
    """No manifest says such a size, so none gets into a table."""
    with pytest.raises(ValueError, match="weight_bytes"):
        make_info(producer="test", submodules={"vae": {"weight_bytes": size}})
