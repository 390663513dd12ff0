"""What is asked about devices, memory and order: all of it acts, or is refused."""

import dataclasses
import json
from pathlib import Path

import pytest
from msgspec import structs

from profiler.analysis import DeviceProfile
from profiler.errors import InputError
from profiler.prediction import PlacementNote, Scenario
from profiler.prediction.predict import predict
from profiler.prediction.report import prediction_document
from profiler.text import Note
from profiler.tools.sources import load
from profiler.trace import Device, Submodule
from tests.analysis.asked import asked
from tests.analysis.prediction.requested import WARM, stepped_run
from tests.report.test_prediction_report import _text

SAMPLE = Path(__file__).resolve().parents[3] / "sample_traces" / "tiny_two_devices"
_STEPS = [[("transformer", "cond", 300)]] * 3


def _run(sizes=None, devices=("rbln:0", "rbln:1")):
    """All on rbln:0; `sizes` are weights by submodule."""
    info = structs.replace(
        WARM,
        devices={name: Device() for name in devices},
        submodules={
            name: Submodule(device="rbln:0", weight_bytes=size)
            for name, size in (sizes or {}).items()
        },
    )
    return stepped_run([_STEPS], info=info)


def _predict(run, profiles=(), **scenario):
    return predict(run, asked(run, measured=profiles), Scenario(**scenario))


def test_the_best_placement_does_not_depend_on_the_one_that_was_asked_for():
    """The transformer on hardware a tenth as fast as where it was measured: the search finds the
    way back, as it does from where it was measured."""
    run = load(SAMPLE)
    info = structs.replace(
        run.info,
        devices={
            "cpu:0": Device(hardware="fast", cores=(0,)),
            "cpu:1": Device(hardware="slow", cores=(1,)),
        },
    )
    run = dataclasses.replace(run, info=info)
    rates = [
        DeviceProfile(name, {"float32": flops}, bandwidth, launch, "", True, device, 1)
        for name, device, flops, bandwidth, launch in (
            ("fast", "cpu:0", 1e11, 2e10, 100.0),
            ("slow", "cpu:1", 1e10, 2e9, 1000.0),
        )
    ]
    there = _predict(run, rates, place={"transformer": "cpu:1"})
    as_it_was = _predict(run, rates, devices=("cpu:0", "cpu:1"))
    assert there.simulation.throughput < 0.5 * as_it_was.simulation.throughput
    assert there.best.placement["transformer"] == "cpu:0"
    assert there.best.simulation.throughput == pytest.approx(
        as_it_was.best.simulation.throughput, rel=0.01
    )


def test_requests_wait_as_in_the_pipeline_unless_asked():
    """With nothing changed a simulated request takes what the headline says, and what was
    measured; another order alone is simulated too."""
    run = load(SAMPLE)
    found = _predict(run, concurrency=1)
    assert found.simulation.order == "pipeline"
    assert found.simulation.latency(50) == pytest.approx(found.request.ns, rel=1e-4)
    assert found.request.ns == found.measured.ns
    assert _predict(run, order="pipeline").simulation.latency(50) == found.simulation.latency(50)
    assert _predict(run, order="graph").simulation.latency(50) < found.simulation.latency(50)


@pytest.mark.parametrize("device", ["rbln:0", "rbln:1"])
def test_one_device_is_a_set_of_devices(device):
    """The best placement on it: everything there."""
    best = _predict(_run(), devices=(device,)).best
    assert {*best.placement.values()} == {device}
    assert {*best.simulation.utilization} == {"host", device}


def test_memory_of_a_device_that_nothing_uses_is_refused():
    """One sentence; the same device in the set is fine."""
    with pytest.raises(InputError, match="--device-memory names 'rbln:7', on which nothing runs"):
        _predict(_run(), memory={"rbln:7": 1 << 30})
    assert _predict(_run(), memory={"rbln:7": 1 << 30}, devices=("rbln:0", "rbln:7")).best


def test_memory_alone_is_a_question():
    """What fits is simulated as it is; what does not is refused on the only device."""
    run = _run({"transformer": 1000})
    assert _predict(run, memory={"": 2000}).simulation is not None
    with pytest.raises(
        InputError, match=r"rbln:0 has 900 bytes and would hold 1000 bytes of .*; name"
    ):
        _predict(run, memory={"": 900})


def test_what_does_not_fit_as_placed_has_a_best_placement_that_does():
    """Two of 600 bytes on devices of 1000: not together, but apart; where one of them alone is
    too large nothing fits."""
    run = _run({"transformer": 600, "vae": 600})
    asked = {"memory": {"": 1000}, "devices": ("rbln:0", "rbln:1")}
    found = _predict(run, **asked)
    assert found.simulation is None
    assert found.too_large == Note.of(
        PlacementNote.TOO_LARGE,
        submodules=("text_encoder", "transformer", "vae"),
        device="rbln:0",
        required_bytes=1200,
        weights_bytes=1200,
        activations_bytes=0,
        memory_bytes=1000,
    )
    assert found.best.placement["transformer"] != found.best.placement["vae"]
    text = _text(found)
    assert text.startswith("Best placement that fits: text_encoder on rbln:0, ")
    assert "\ndoes not fit into memory; if it did: " in text
    assert "As placed it does not fit" in text
    assert "best placement" in text
    document = json.loads(json.dumps(prediction_document(found)))
    assert document["too_large"].replace("\N{NO-BREAK SPACE}", " ") == (
        "rbln:0 has 1000 B and would hold 1.17 KiB of text_encoder, transformer, vae (1.17 KiB of "
        "weights, 0 B of activations)"
    )
    assert document["too_large_code"] == found.too_large.as_json()
    assert document["simulation"] is None
    with pytest.raises(InputError, match="fits into memory"):
        _predict(_run({"transformer": 1001}), **asked)
