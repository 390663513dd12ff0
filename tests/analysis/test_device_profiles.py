"""Device profiles: which one a device gets, and files of measured ones."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.analysis import DeviceProfile
from profiler.analysis.device_profiles import profiles_of, profiles_text, published, read_profiles
from profiler.errors import InputError
from profiler.trace import Device


def _measured(device, hardware="", cores=None, peak=1e9):
    return DeviceProfile(
        hardware, {"float32": peak}, 1e9, 100.0, "best of 1 s", True, device, cores
    )


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("AMD Instinct MI300X VF", "AMD Instinct MI300X"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB SXM"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200", "NVIDIA H200 SXM"),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H200 MIG 1g.18gb", None),
        ("NVIDIA B200", "NVIDIA B200"),
        ("NVIDIA GB200", None),
        ("AMD Instinct MI325X", "AMD Instinct MI325X"),
        ("NVIDIA L40S", "NVIDIA L40S"),
        ("NVIDIA L40", None),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA GH200 480GB", "NVIDIA GH200 96GB"),
        ("NVIDIA GH200 144G HBM3e", "NVIDIA GH200 144GB"),
        ("NVIDIA A10", "NVIDIA A10"),
        ("NVIDIA A10G", None),
        ("Tesla T4", "NVIDIA T4"),
        ("NVIDIA T400 4GB", None),
        ("Tesla V100-SXM2-32GB", "NVIDIA V100 SXM2"),
        ("Tesla V100-DGXS-32GB", "NVIDIA V100 SXM2"),
        ("Tesla V100-PCIE-16GB", "NVIDIA V100 PCIe"),
        ("AMD Instinct MI250X / MI250", None),
        ("Tesla V100S-PCIE-32GB", None),
        ("AMD Instinct MI250X", "AMD Instinct MI250X"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090"),
        ("NVIDIA GeForce RTX 5090 D v2", None),
        ("RBLN-CA12", "RBLN ATOM"),
        ("RBLN-CA25", None),
        ("RBLN-CR03", "RBLN Rebel100"),
        ("AMD EPYC", None),
        ("", None),
    ],
)
def test_published_profile_of_hardware(hardware, expected):
    """By the name that the driver gives; what has other figures under a like name has none."""
    found = profiles_of({"cuda:0": Device(hardware=hardware)}).get("cuda:0")
    assert (found.hardware if found else None) == expected


def test_published_figures_have_their_source():
    """Each has a URL, says that it was not measured, and no figure of 0."""
    for profile in published():
        assert profile.source.startswith("https://")
        assert not profile.measured
        assert all(rate > 0 for rate in profile.peak_flops.values())
        assert profile.memory_bandwidth is None or profile.memory_bandwidth > 1e11
        if profile.cache_bandwidth is not None:
            assert profile.cache_bytes
            assert profile.cache_bandwidth > profile.memory_bandwidth


@pytest.mark.parametrize(
    ("hardware", "bfloat16", "bandwidth", "cache"),
    [
        ("AMD Instinct MI300X", 1307.4, 5.3, 256),
        ("AMD Instinct MI325X", 1307.4, 6.0, 256),
        ("NVIDIA A100-PCIE-40GB", 312, 1.555, 40),
        ("NVIDIA A100 80GB PCIe", 312, 1.935, 40),
        ("NVIDIA A100-SXM4-80GB", 312, 2.039, 40),
        ("NVIDIA H100 80GB HBM3", 989.4, 3.35, 50),
        ("NVIDIA H200", 989.4, 4.8, 50),
        ("NVIDIA B200", 2250, 8.0, 126),
        ("NVIDIA L40S", 366.4, 0.864, 96),
        ("NVIDIA L4", 121, 0.3, 48),
        ("NVIDIA GH200 480GB", 989.4, 4.0, 50),
        ("Tesla T4", 8.1, 0.32, 4),
        ("Tesla V100-SXM2-16GB", 15.7, 0.9, 6),
        ("AMD Instinct MI210", 181, 1.638, 8),
        ("AMD Instinct MI250", 181, 1.638, 8),
        ("AMD Instinct MI250X", 191.5, 1.638, 8),
        ("NVIDIA GeForce RTX 4090", 165.2, 1.008, 72),
        ("NVIDIA GeForce RTX 5090", 209.5, 1.792, 96),
    ],
)
def test_figures_of_data_sheets(hardware, bfloat16, bandwidth, cache):
    """Dense TFLOP/s, TB/s, MiB of the last-level cache."""
    profile = profiles_of({"cuda:0": Device(hardware=hardware)})["cuda:0"]
    assert profile.peak("bfloat16") == pytest.approx(bfloat16 * 1e12)
    assert profile.memory_bandwidth == pytest.approx(bandwidth * 1e12)
    assert profile.cache_bytes == cache * 2**20


def test_a_type_without_a_rate():
    """That of a type that is no faster stands in; of what no type stands in for, nothing does."""
    profile = DeviceProfile("", {"float32": 1.0, "float16": 2.0}, None, None, "", measured=True)
    found = {name: profile.peak(name) for name in ("float16", "bfloat16", "float8e5m2", "float64")}
    assert found == {"float16": 2.0, "bfloat16": 2.0, "float8e5m2": 2.0, "float64": None}


def test_measured_stands_before_published():
    """The file of this machine says more than a data sheet, but of caches, which it has not."""
    measured = _measured("cuda:1", "NVIDIA H200")
    facts = {"cuda:0": Device(hardware="NVIDIA H200")}
    sheet = profiles_of(facts)["cuda:0"]
    cache = {"cache_bytes": sheet.cache_bytes, "cache_bandwidth": sheet.cache_bandwidth}
    assert profiles_of(facts, [measured]) == {"cuda:0": replace(measured, **cache)}
    own = replace(measured, cache_bytes=1e6)
    assert profiles_of(facts, [own]) == {"cuda:0": own}
    assert profiles_of({"cuda:0": Device()}, [measured]) == {}
    unknown = _measured("cuda:0")
    assert profiles_of({"cuda:0": Device(hardware="none")}, [unknown]) == {"cuda:0": unknown}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Device(hardware="EPYC", cores=(0, 1)), 2.0),
        (Device(hardware="EPYC", cores=(1,)), 1.0),
        (Device(hardware="EPYC", cores=(0, 1, 2)), 4.0),  # no such number of cores: the most
        (Device(hardware="EPYC"), 4.0),
        (Device(), 4.0),
        (Device(hardware="Xeon", cores=(0, 1)), None),
        (None, 4.0),
    ],
)
def test_a_cpu_device_by_its_cores(facts, expected):
    """cpu:1 with one core of two is held against what one core does."""
    measured = [_measured("cpu", "EPYC", cores, float(cores)) for cores in (1, 2, 4)]
    found = profiles_of({"cpu:1": facts}, measured).get("cpu:1")
    assert (found.peak("float32") if found else None) == expected


def test_a_file_is_read_as_written(tmp_path):
    """Every field of a measured profile, unknown ones too."""
    profiles = (
        _measured("cpu", "EPYC", 2),
        DeviceProfile("X", {"int8": 5.0}, None, None, "by hand", True, "cuda:0"),
        replace(_measured("cuda:1", "Y"), cache_bytes=4096.0, cache_bandwidth=1e13),
    )
    path = tmp_path / "device_profiles.json"
    path.write_text(profiles_text(profiles), encoding="utf-8")
    assert read_profiles(path) == profiles


def _file(**changes):
    entry = {"device": "cpu", "peak_flops": {"float32": 1e9}, **changes}
    return json.dumps({"device_profiles": 1, "devices": [entry]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not JSON", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "holds no device profiles"),
        ('{"device_profiles": 2}', "holds no device profiles that this version reads"),
        ('{"device_profiles": 1, "devices": []}', "names no device"),
        ('{"device_profiles": 1, "devices": [3]}', "has no peak_flops"),
        (_file(peak_flops=[1]), "has no peak_flops"),
        (_file(peak_flops={"float32": "fast"}), "'cpu'.*no number above 0"),
        (_file(peak_flops={"float32": True}), "no number above 0"),
        (_file(peak_flops={"float32": -1}), "no number above 0"),
        (_file(memory_bandwidth=0), "no number above 0"),
        (_file(launch_ns=float("nan")), "no number above 0"),
        (_file(launch_ns=10**400), "no number above 0"),
        (_file(cache_bytes=-1), "no number above 0"),
        (_file(cores=0), "a number of cores"),
        (_file(cores=1.5), "a number of cores"),
        (_file(hardware=7), "a name that is no text"),
        ("x" * (2 << 20), "is too large"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, text, message):
    """What, where, and what to do."""
    path = tmp_path / "profiles.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_profiles(path)
    assert str(path) in str(caught.value)
    assert "benchmark-device" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    """The name that was asked for is in the sentence."""
    with pytest.raises(InputError, match=r"cannot read .*none\.json"):
        read_profiles(tmp_path / "none.json")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["device", "hardware", "cores", "peak_flops", "launch_ns", "x"]), inner
        )
    ),
    max_leaves=8,
)


@given(_JSON)
def test_any_document_is_profiles_or_a_sentence(tmp_path_factory, entry):
    """Nothing else is raised."""
    path = tmp_path_factory.mktemp("profiles") / "profiles.json"
    path.write_text(json.dumps({"device_profiles": 1, "devices": [entry]}), encoding="utf-8")
    with contextlib.suppress(InputError):
        assert len(read_profiles(path)) == 1
