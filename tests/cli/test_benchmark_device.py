"""`profile-sd3 benchmark-device`, and `analyze` with what it wrote."""

import json
from dataclasses import replace

import pytest

from profiler.analysis import DeviceProfile
from profiler.analysis.device_profiles import FILE_NAME, read_profiles
from profiler.cli.commands.benchmark_device import doubts
from profiler.pipelines import benchmark
from tests.command_line import refused
from tests.runs import write_tiny_bundle


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """Small products and copies: what is measured does not matter here."""
    effort = benchmark.Effort(seconds=0.01, size=32, copy_bytes=1 << 12)
    monkeypatch.setattr(benchmark, "DEFAULT_EFFORT", effort)


@pytest.fixture
def printed(cli):
    """What a command prints that does what it was asked."""

    def run(*arguments):
        code, out, _ = cli(*arguments)
        assert code == 0
        return out

    return run


def test_measures_the_cpu_and_writes_a_file(printed, tmp_path):
    """One profile a number of cores, each printed in a line."""
    path = tmp_path / "new" / FILE_NAME
    out = printed("benchmark-device", "--seconds", "0.01", "--out", path)
    profiles = read_profiles(path)
    assert {profile.device for profile in profiles} == {"cpu"}
    assert len({profile.cores for profile in profiles}) == len(profiles) >= 1
    assert out.count("GFLOP/s float32") == len(profiles)
    assert out.endswith(f"wrote {path}\n")


def test_more_cores_are_not_slower():
    """What cannot be right is said with both rates; what scatters is not."""
    few = DeviceProfile("cpu", {"float32": 1e11}, 1e10, 1.0, "", True, "cpu", 4)
    slow = replace(few, peak_flops={"float32": 5e10}, cores=8)
    (found,) = doubts([few, slow])
    assert found.startswith("float32 products on cpu are slower with 8 cores than with 4")
    copies = replace(few, memory_bandwidth=5e9, cores=8)
    assert [text.partition(" ")[0] for text in doubts([copies, few])] == ["copies"]
    assert not [*doubts([few, replace(few, peak_flops={"float32": 9.7e10}, cores=8)])]
    assert not [*doubts([few, replace(slow, hardware="another"), replace(slow, device="x")])]


def test_other_devices_stay_in_the_file(printed, tmp_path):
    """Measuring again replaces the CPU's profiles and keeps what is of other devices."""
    path = tmp_path / FILE_NAME
    entry = {"device": "cuda:0", "peak_flops": {"float16": 5}}
    path.write_text(json.dumps({"device_profiles": 1, "devices": [entry]}), encoding="utf-8")
    for _ in range(2):
        printed("benchmark-device", "--seconds", "0.01", "--out", path)
    devices = [profile.device for profile in read_profiles(path)]
    assert devices[0] == "cuda:0"
    assert devices.count("cpu") == len(devices) - 1


@pytest.mark.parametrize("name", ["cpu:7", "gpu", "cuda", "cuda:x", "rbln:0", ""])
def test_a_device_that_nobody_can_measure(cli, tmp_path, name):
    """One sentence names what can be."""
    path = tmp_path / FILE_NAME
    result = cli("benchmark-device", "--device", name, "--out", path)
    refused(result, "is no device that can be measured: give cpu or cuda:0")
    assert not path.exists()


def test_a_file_that_is_something_else_is_not_written_over(cli, tmp_path):
    """A file that holds no profiles stays as it is."""
    path = tmp_path / "notes.json"
    path.write_text("[1]", encoding="utf-8")
    result = cli("benchmark-device", "--seconds", "0.01", "--out", path)
    refused(result, "holds no device profiles")
    assert path.read_text(encoding="utf-8") == "[1]"


def _profile(path, rate):
    entry = {
        "device": "rbln:0",
        "peak_flops": {"float32": rate},
        "source": f"rate {rate}",
        "launch_ns": 50,
    }
    path.write_text(json.dumps({"device_profiles": 1, "devices": [entry]}), encoding="utf-8")
    return path


def _sources(printed, bundle, *arguments):
    document = json.loads(printed("analyze", bundle, "--no-html", "--json", "-", *arguments))
    return {name: profile["source"] for name, profile in document["device_profiles"].items()}


def test_analyze_takes_the_nearest_file(printed, tmp_path):
    """The file asked for, else that in the bundle, else that beside it."""
    bundle = write_tiny_bundle(tmp_path / "traces")
    assert _sources(printed, bundle) == {}
    _profile(tmp_path / "traces" / FILE_NAME, 1)
    assert _sources(printed, bundle) == {"rbln:0": "rate 1"}
    assert _sources(printed, tmp_path / "traces") == {"rbln:0": "rate 1"}
    _profile(bundle / FILE_NAME, 2)
    assert _sources(printed, bundle) == {"rbln:0": "rate 2"}
    asked = _profile(tmp_path / "mine.json", 3)
    assert _sources(printed, bundle, "--device-profile", asked) == {"rbln:0": "rate 3"}


def test_analyze_refuses_a_bad_file(cli, tmp_path):
    """One sentence, also for the default places."""
    bundle = write_tiny_bundle(tmp_path / "traces")
    missing = tmp_path / "none.json"
    result = cli("analyze", bundle, "--device-profile", missing)
    refused(result, f"cannot read {missing}")
    (bundle / FILE_NAME).write_text("{", encoding="utf-8")
    refused(cli("analyze", bundle), "is not JSON")
