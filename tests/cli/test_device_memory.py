"""Sizes of memory on the command line."""

import json

import pytest
from typer.testing import CliRunner

from profiler.cli.device_memory import device_sizes
from profiler.cli.main import app
from profiler.errors import InputError
from tests.runs import write_tiny_bundle


def test_sizes():
    """Powers of 1024 and of 1000; with a device and without."""
    assert device_sizes(["16GiB", "cuda:0=80GB", "cpu:0=1.5 mib"]) == {
        "": 16 << 30,
        "cuda:0": 80_000_000_000,
        "cpu:0": 3 << 19,
    }
    assert device_sizes([]) == {}


@pytest.mark.parametrize(
    "text", ["16", "16G", "GiB", "-1GB", "0GB", "=", "x=", "1e9B", "99999999TB"]
)
def test_what_is_no_size(text):
    """One sentence that says how to write it."""
    with pytest.raises(InputError, match="is no size: write 16GiB, 80GB"):
        device_sizes([text])


def test_twice():
    """Which of both nobody could tell."""
    with pytest.raises(InputError, match="of cuda:0 is given twice"):
        device_sizes(["cuda:0=1GB", "cuda:0=2GB"])


def test_head_room_of_a_run(tmp_path):
    """`analyze --device-memory` reaches the table of devices that counters or weights tell of."""
    bundle = write_tiny_bundle(
        tmp_path / "traces", submodules={"vae": {"device": "rbln:0", "weight_bytes": 300}}
    )
    found = CliRunner().invoke(
        app, ["analyze", str(bundle), "--no-html", "--json", "-", "--device-memory", "rbln:7=1KiB"]
    )
    assert found.exit_code == 0
    assert json.loads(found.stdout)["memory_devices"] == []
    info = {"device": "rbln:1", "weight_bytes": 300}
    bundle = write_tiny_bundle(tmp_path / "others", submodules={"text_encoder": info})
    found = CliRunner().invoke(
        app, ["analyze", str(bundle), "--no-html", "--json", "-", "--device-memory", "1KiB"]
    )
    (row,) = json.loads(found.stdout)["memory_devices"]
    assert (row["device"], row["size_bytes"], row["headroom_bytes"]) == ("rbln:1", 1024, 724)
