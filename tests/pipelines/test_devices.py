"""Devices, their cores, and threads that stay on them."""

import os
import sys

import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.errors import InputError
from profiler.pipelines import Placement
from profiler.pipelines.model_folder import (
    Device,
    check_providers,
    parse_device_options,
    pinned,
    usable_cores,
)
from profiler.trace import manifest_fields

PARTS = ("text_encoder", "transformer", "vae")
linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux lets a process choose its cores"
)


def test_device_options_are_read():
    """`submodule=kind:index` options give a mapping in their order."""
    options = ["vae=cpu:1", "transformer=cuda:0"]
    assert parse_device_options(options, PARTS) == {"vae": "cpu:1", "transformer": "cuda:0"}
    assert parse_device_options([], PARTS) == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["cpu:1"], "which submodule"),
        (["unet=cpu:1"], "'unet' is not a submodule of this pipeline; it has text_encoder, tran"),
        (["vae=cpu"], "kind:index such as cpu:1"),
        (["vae=cpu:x"], "'cpu:x' is not a device"),
        (["vae=cpu:-1"], "'cpu:-1' is not a device"),
        (["vae=abacus:0"], "with one of cpu, cuda"),
        (["vae=cpu:1 "], "is not a device"),
        (["vae="], "is not a device"),
        (["vae=cpu:0", "vae=cpu:1"], "placed twice"),
    ],
)
def test_malformed_device_options_are_refused(options, words):
    """Each malformed option gives one sentence that says what to write instead."""
    with pytest.raises(InputError, match=words):
        parse_device_options(options, PARTS)


def test_a_device_names_its_provider():
    """An accelerator selects its provider with the index as device_id, and the CPU after it."""
    assert Device.parse("cpu:1").providers() == ["CPUExecutionProvider"]
    assert Device.parse("cuda:1").providers() == [
        ("CUDAExecutionProvider", {"device_id": "1"}),
        "CPUExecutionProvider",
    ]
    for text in ("rocm:0", "tensorrt:2", "dml:0"):
        assert str(Device.of_provider(Device.parse(text).providers()[0])) == text
    with pytest.raises(InputError, match="not a provider"):
        Device.of_provider("AbacusExecutionProvider")


def test_a_missing_provider_is_named_with_those_there_are(monkeypatch):
    """A provider that this onnxruntime lacks gives a sentence listing what it has."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    check_providers(["CPUExecutionProvider"])
    with pytest.raises(InputError, match="no CUDAExecutionProvider, only CPUExecutionProvider;"):
        check_providers(Device.parse("cuda:0").providers())


def test_one_cpu_device_has_all_cores():
    """Alone, a CPU device uses every core and its threads are not pinned."""
    share = Placement.plan(["cpu:0", "cpu:0"], cores=[2, 3, 5]).of("cpu:0")
    assert share.cores == (2, 3, 5)
    assert not share.pinned


def test_the_manifest_form():
    """Cores that are a device's own, or what provides it."""
    placement = Placement.plan(["cpu:1", "cpu:0", "cuda:1"], cores=[0, 1])
    assert placement.described() == {
        "cpu:0": manifest_fields.Device(cores=(0,), pinned=True),
        "cpu:1": manifest_fields.Device(cores=(1,), pinned=True),
        "cuda:1": manifest_fields.Device(provider="CUDAExecutionProvider"),
    }
    with pytest.raises(InputError, match="it has cpu:0, cpu:1, cuda:1"):
        placement.of("cpu:2")


def test_more_devices_than_cores_share_and_say_so():
    """With too few cores each device has one, and says whom it shares with."""
    placement = Placement.plan(["cpu:0", "cpu:1", "cpu:2"], cores=[4, 7])
    assert [share.cores for share in placement.shares] == [(4,), (7,), (4,)]
    assert placement.of("cpu:2").shared_with == ("cpu:0",)
    assert placement.of("cpu:1").shared_with == ()


def test_no_cores_are_refused():
    """An empty set of cores is an error, not a division by zero."""
    with pytest.raises(InputError, match="no cores"):
        Placement.plan(["cpu:0"], cores=[])


@given(
    indices=st.sets(st.integers(0, 40), min_size=1, max_size=12),
    cores=st.sets(st.integers(0, 300), min_size=1, max_size=64),
)
def test_cores_are_partitioned_evenly(indices, cores):
    """Enough cores: every core has exactly one device, and shares differ by at most one core."""
    placement = Placement.plan([f"cpu:{index}" for index in indices], cores=sorted(cores))
    shares = [share.cores for share in placement.shares]
    assert all(shares)
    if len(indices) <= len(cores):
        assert sorted(core for share in shares for core in share) == sorted(cores)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert not any(share.shared_with for share in placement.shares)
    else:
        assert {core for share in shares for core in share} == cores
        assert all(len(share) == 1 for share in shares)


@linux
def test_pinning_ends_with_the_block():
    """The thread is on the given cores inside the block and on its former ones after it."""
    before = os.sched_getaffinity(0)
    core = usable_cores()[-1]
    with pinned([core]):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before
    with pinned([]):
        assert os.sched_getaffinity(0) == before


@linux
def test_pinning_ends_with_an_exception():
    """An exception inside the block leaves the thread on its former cores."""
    before = os.sched_getaffinity(0)
    with pytest.raises(RuntimeError, match="inside"), pinned(usable_cores()[:1]):
        raise RuntimeError("inside")
    assert os.sched_getaffinity(0) == before
