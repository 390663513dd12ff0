"""Runs of more devices or names than any model has: one sentence, before anything is worked out."""

from __future__ import annotations

import time

import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from tests.importers.kineto.traces import Trace
from tests.runs import Command, make_call, make_run


def _run(devices: int, names: int):
    calls = [make_call(n, "unet", 100 * n, 100 * n + 90) for n in range(2)]
    commands = [
        Command(0, f"cuda:{n % devices}", "stream", "compute", f"layer {n % names}", n, 1, "Add")
        for n in range(max(devices, names))
    ]
    return make_run(calls, commands)


@pytest.mark.parametrize(("devices", "names", "what"), [(5, 1, "device"), (1, 12, "layer")])
def test_too_many(monkeypatch, devices, names, what):
    """The sentence says how many there are, of what, and how many are analyzed."""
    limits = {"device": 4, "layer": 10}
    monkeypatch.setattr("profiler.analysis.analyze._MOST", limits)
    said = rf"has {max(devices, names)} different values of {what}, more than the {limits[what]} "
    with pytest.raises(InputError, match=said):
        analyze(_run(devices, names))
    assert analyze(_run(2, 3)).run.commands == 3


def test_a_bomb_of_devices_is_refused(tmp_path, cli):
    """A trace of 1,100 devices, each with one kernel, through the command line: exit code 2."""
    trace = Trace()
    for number in range(1100):
        trace.kernel("k", 10 * number + 5, 1, launched=10 * number, device=number)
    code, _, err = cli("analyze", trace.write(tmp_path), "--no-html")
    assert code == 2
    assert "different values of device, more than the 1,024" in err


def test_names_of_ten_megabytes(tmp_path, cli):
    """What a kernel is for is told by the first 20,000 characters of its name: a name of 2 MB takes
    no longer than its reading."""
    trace = Trace()
    trace.kernel("sm90_xmma_gemm_" + "x" * 2_000_000, 5, 1, launched=1)
    begin = time.process_time()
    assert cli("analyze", trace.write(tmp_path), "--no-html")[0] == 0
    assert time.process_time() - begin < 30
