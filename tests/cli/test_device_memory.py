"""Sizes of memory on the command line."""

import json

import pytest

import profiler
from profiler.analysis.memory import sizes_by_device
from profiler.cli.options import device_sizes
from profiler.errors import InputError
from tests.command_line import refused
from tests.runs import tiny_run, write_tiny_bundle


def test_sizes():
    """Powers of 1024 and of 1000; with a device and without."""
    assert device_sizes(["16GiB", "cuda:0=80GB", "cpu:0=1.5 mib"]) == {
        "": 16 << 30,
        "cuda:0": 80_000_000_000,
        "cpu:0": 3 << 19,
    }
    assert device_sizes([]) == {}


@pytest.mark.parametrize("text", ["16XB", "GiB", "-1GB", "0GB", "=", "x=", "1e9B", "99999999TB"])
def test_what_is_no_size(text):
    """One sentence that says how to write it."""
    with pytest.raises(InputError, match="is no size: write 16GiB, 80GB"):
        device_sizes([text])


def test_twice():
    """Which of both nobody could tell."""
    with pytest.raises(InputError, match="of cuda:0 is given twice"):
        device_sizes(["cuda:0=1GB", "cuda:0=2GB"])


def test_a_device_that_the_run_does_not_have(cli, tmp_path):
    """One sentence with those that it has."""
    found = cli("analyze", write_tiny_bundle(tmp_path), "--device-memory", "rbln:7=1GiB")
    refused(found, "memory is given for rbln:7, but the run's devices are", "rbln:0, rbln:1")


def test_sizes_in_python():
    """Text or bytes, for all devices or by device."""
    assert sizes_by_device("16GiB") == {"": 16 << 30}
    assert sizes_by_device(5) == {"": 5}
    assert sizes_by_device({"cuda:0": "80GB", "": 7}) == {"cuda:0": 80_000_000_000, "": 7}
    assert sizes_by_device({}) == {}


@pytest.mark.parametrize(
    "given",
    [-1, 0, True, 1.5, None, 1 << 62, "16XB", "cuda:0=1GB", ["1GB"], {"rbln:0": -1}, {0: 1}],
)
def test_what_is_no_size_in_python(given):
    """Refused in one sentence, never a TypeError."""
    with pytest.raises(InputError, match="device_memory"):
        profiler.analyze(tiny_run(), device_memory=given)


def test_unknown_device_in_python():
    """As on the command line."""
    with pytest.raises(InputError, match=r"for cuda:9, but the run's devices are .*rbln:0"):
        profiler.analyze(tiny_run(), device_memory={"cuda:9": 1})


def test_head_room_of_a_run(cli, tmp_path):
    """`analyze --device-memory` reaches the table of devices that counters or weights tell of."""
    bundle = write_tiny_bundle(
        tmp_path / "traces", submodules={"vae": {"device": "rbln:0", "weight_bytes": 300}}
    )
    code, text, _ = cli("analyze", bundle, "--no-html", "--json", "-")
    assert code == 0
    assert json.loads(text)["memory_devices"] == []
    info = {"device": "rbln:1", "weight_bytes": 300}
    bundle = write_tiny_bundle(tmp_path / "others", submodules={"text_encoder": info})
    _, text, _ = cli("analyze", bundle, "--no-html", "--json", "-", "--device-memory", "1KiB")
    (row,) = json.loads(text)["memory_devices"]
    assert (row["device"], row["size_bytes"], row["headroom_bytes"]) == ("rbln:1", 1024, 724)
