"""RBLN's software as it is today: optimum-rbln's own classes, and the device of torch-rbln."""

from __future__ import annotations

from ast import literal_eval
from importlib.util import find_spec
from pathlib import Path

import pytest

from profiler.run.load import load_bundle
from profiler.trace.bundle import merge_bundle
from tests.capture.switched_on import drops, labels

pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
PIPELINE = (HERE / "rbln_pipeline.py").read_text(encoding="utf-8")
DEVICE = (HERE / "rbln_torch_device.py").read_text(encoding="utf-8")
FAKE = HERE.parent / "capture" / "rbln" / "alone"
ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3")
CALLS = [
    *(
        (name, "encode", branch, -1)
        for branch in ("prompt", "negative_prompt")
        for name in ENCODERS
    ),
    *(("transformer", "denoise", "batched", step) for step in range(2)),
    ("vae", "decode", "", -1),
]


@pytest.fixture
def packages():
    """The path of optimum-rbln and of a `rebel`, of which there is none to install."""
    if find_spec("optimum") is None or (found := find_spec("optimum.rbln")) is None:
        pytest.skip("needs optimum-rbln 0.12.0, installed without its dependencies")
    return f"{FAKE}:{Path(str(found.origin)).parents[2]}"


@pytest.mark.nightly
def test_classes_of_optimum_rbln(scripts, packages):
    """Labels, devices, which calls are profiled and the numbers of runtime calls are those of the
    script's own `rebel`, and the image is that of an unprofiled process."""
    plain = scripts.run(PIPELINE, "here", RBLN_PROFILER=None, PYTHONPATH=packages)
    assert plain.code == 0, plain.err
    ended = scripts.run(PIPELINE, "here", PYTHONPATH=packages)
    assert (ended.code, ended.out) == (0, plain.out), ended.err
    assert labels(ended.bundle) == CALLS
    run = load_bundle(ended.bundle)
    runtimes, profiled = (literal_eval(line) for line in ended.out.splitlines()[::2])
    assert {(one["timeout"], one["device"]) for one in runtimes} == {(60, 0), (60, 1)}
    traced = run.calls["ops_traced"].to_list()
    assert traced == [name != "text_encoder_3" for name, *_ in CALLS]
    devices = run.calls.filter(run.calls["ops_traced"])["device"].to_list()
    assert devices == [f"rbln:{device}" for device in profiled]
    numbers = [
        number
        for submodule in run.info.submodules.values()
        for number, _ in submodule.runtime_calls or ()
    ]
    assert sorted(numbers) == list(range(len(CALLS)))
    assert drops(ended.bundle) == []


@pytest.mark.nightly
def test_without_runtimes_it_fails_as_without_us(scripts, packages):
    """`create_runtimes` False compiles on a machine without an NPU; a call says so."""
    plain = scripts.run(PIPELINE, "without_runtimes", RBLN_PROFILER=None, PYTHONPATH=packages)
    ended = scripts.run(PIPELINE, "without_runtimes", PYTHONPATH=packages)
    assert (ended.code, ended.out) == (0, plain.out), ended.err
    assert "RBLN runtime is not available" in ended.out
    assert "profile-sd3 failed" not in ended.err


@pytest.mark.nightly
def test_a_worker_that_is_killed_leaves_its_calls(scripts, packages):
    """vLLM ends its workers so, and RBLN's own trace is lost with them."""
    ended = scripts.run(PIPELINE, "killed_worker", PYTHONPATH=packages)
    assert ended.code == 0, ended.err
    merge_bundle(ended.bundle)
    assert labels(ended.bundle) == CALLS * 2


def test_rows_of_the_device_of_torch_rbln(scripts):
    """Kineto's rows of a PrivateUse1 backend are work of `rbln:0`, in the layer that launched it,
    with the lengths of the rows."""
    ended = scripts.run(DEVICE, "rows")
    assert (ended.code, ended.out) == (0, "True\n"), ended.err
    commands = load_bundle(ended.bundle).commands
    work = commands.filter(commands["device"] == "rbln:0")
    rows = [("External HDMA", 2000), ("linear_0", 5000), ("Device Sync", 1000)]
    assert work.select("layer", "op_type", "duration_ns").rows() == [
        (layer, *row) for layer in ("0", "1") for row in rows
    ]
