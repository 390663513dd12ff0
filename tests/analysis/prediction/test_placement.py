"""Placements: times on other devices, memory limits, and the search for the best one."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import profiler
from profiler.analysis import DeviceProfile
from profiler.errors import InputError
from profiler.prediction import PlacementNote, Scenario
from profiler.prediction import placement as placement_module
from profiler.prediction.placement import (
    TargetDevice,
    best_placement,
    memory_by_device,
    placed,
    placement_of,
    target_devices,
    too_large,
)
from profiler.prediction.predict import predict
from profiler.prediction.report import prediction_report
from profiler.prediction.requests import simulate
from profiler.text import Note
from profiler.trace import Device
from tests.analysis.asked import asked
from tests.analysis.prediction.served import call, host, workload, workloads
from tests.examples import examples

TWO = {f"cpu:{core}": Device(hardware="EPYC", cores=(core,)) for core in range(2)}


def everything_on_one(**known):
    """T5 10, transformer 30, VAE 20 ns, all on cpu:0."""
    return workload(
        [call("text_encoder_3", 10)], [call("transformer", 30)], [call("vae", 20)], **known
    )


def targets(made, devices=None, names=("cpu:0", "cpu:1"), **known):
    return target_devices(names, made, TWO if devices is None else devices, **known)


def test_a_device_of_the_same_hardware_takes_the_same_time():
    """Equal hardware and as many cores: only the device changes."""
    made = everything_on_one()
    moved = placed(made, {"vae": "cpu:1"}, targets(made))
    assert placement_of(moved) == {
        "text_encoder_3": "cpu:0",
        "transformer": "cpu:0",
        "vae": "cpu:1",
    }
    assert moved.decode[0].steady_ns.tolist() == [[20]]


def test_moving_parts_to_a_second_device_by_hand():
    """Two requests: all on one device 60 ns each; with T5 and VAE beside it 30."""
    made = everything_on_one()
    assert simulate(made, 2).throughput == pytest.approx(1e9 / 60)
    moved = placed(made, {"vae": "cpu:1", "text_encoder_3": "cpu:1"}, targets(made))
    assert simulate(moved, 2).throughput == pytest.approx(1e9 / 30)


def profile(flops, bandwidth, launch):
    return DeviceProfile("", {"float32": flops}, bandwidth, launch, "", measured=True)


def test_other_hardware_goes_by_the_rates_of_what_bounds_each_operator():
    """40 ns compute-bound on a device twice as fast, 10 ns memory-bound at half the bandwidth,
    10 ns launch-bound with three times the launch time: 20 + 20 + 30 for 60 ns."""
    made = workload(step=[call("transformer", 600)])
    operators = pl.DataFrame(
        {
            "submodule": ["transformer"] * 4,
            "device": ["cpu:0"] * 4,
            "bound": ["compute", "memory", "launch", None],
            "total_ns": [40, 10, 10, 99],
        }
    )
    devices = {**TWO, "cuda:0": Device(hardware="H100")}
    rates = {"cpu:0": profile(1e9, 4e9, 100), "cuda:0": profile(2e9, 2e9, 300)}
    (fast,) = targets(made, devices, ("cuda:0",), profiles=rates, roofline=operators)
    assert fast.factors == pytest.approx({"transformer": 70 / 60})
    moved = placed(made, {"transformer": "cuda:0"}, [fast])
    assert moved.step[0].steady_ns.tolist() == [[700]]


def test_other_hardware_without_rates_is_refused():
    """Nothing is predicted for a device whose rates nobody knows, and the search leaves it out."""
    made = everything_on_one()
    devices = {**TWO, "cpu:1": Device(hardware="EPYC", cores=(1, 2))}
    there = targets(made, devices)
    with pytest.raises(InputError, match="vae cannot be placed on cpu:1: cpu:1 is other hardware"):
        placed(made, {"vae": "cpu:1"}, there)
    found = best_placement(made, there, 2)
    assert set(found.placement.values()) == {"cpu:0"}
    other = Note.of(PlacementNote.OTHER_HARDWARE, device="cpu:1", measured_on="cpu:0")
    assert other in found.notes


def test_a_device_that_did_not_run_is_like_the_first_of_its_kind():
    """With a note, for CPU devices of cores that it takes away; other kinds are refused."""
    made = everything_on_one()
    one = {"cpu:0": TWO["cpu:0"]}
    second = targets(made, one)[1]
    assert second.factors == dict.fromkeys(("text_encoder_3", "transformer", "vae"), 1.0)
    assert second.notes == (Note.of(PlacementNote.LIKE_OTHER_CPU, device="cpu:1", other="cpu:0"),)
    with pytest.raises(InputError, match="nothing is known of cuda:0, only of cpu:0"):
        targets(made, one, ("cuda:0",))


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"unet": "cpu:0"}, "'unet' is not a submodule of this run; it has text_encoder_3, "),
        ({"vae": "cpu:7"}, "'cpu:7' is not among the devices to place on: cpu:0, cpu:1"),
    ],
)
def test_refuses_what_is_not_there(where, words):
    """Names that the run or the devices do not have."""
    made = everything_on_one()
    with pytest.raises(InputError, match=words):
        placed(made, where, targets(made))


def test_refuses_a_submodule_on_two_devices():
    """Its place cannot be told."""
    made = workload([call("vae", 1), call("vae", 1, "cpu:1")])
    with pytest.raises(InputError, match="vae ran on cpu:0 and on cpu:1"):
        placement_of(made)


def test_weights_and_the_largest_activations_must_fit():
    """cpu:1 has 2 KiB: 1 KiB of weights and activations of 512 bytes, one call at a time, fit
    twice over, a third KiB does not."""
    weights = {"text_encoder_3": 512, "transformer": 4096, "vae": 512}
    made = everything_on_one(weights=weights, activations={"vae": 1024, "text_encoder_3": 512})
    there = targets(made, memory={"cpu:1": 2048})
    both = {"text_encoder_3": "cpu:1", "transformer": "cpu:0", "vae": "cpu:1"}
    assert too_large(made, both, there) is None
    there = targets(made, memory={"cpu:1": 2047})
    found = too_large(made, both, there)
    assert found.note.values == {
        "submodules": ("text_encoder_3", "vae"),
        "device": "cpu:1",
        "required_bytes": 2048,
        "weights_bytes": 1024,
        "activations_bytes": 1024,
        "memory_bytes": 2047,
    }
    assert found.error == "cpu:1 has 2.0 KiB and would hold 2.0 KiB of text_encoder_3, vae"


def test_what_others_keep_counts_beside_what_runs():
    """T5 keeps 300 of its 512 bytes while the VAE holds 1,024: together 1,324."""
    weights = {"text_encoder_3": 0, "transformer": 0, "vae": 0}
    activations = {"vae": 1024, "text_encoder_3": 512}
    made = everything_on_one(weights=weights, activations=activations)
    made = replace(made, kept={"text_encoder_3": 300})
    here = dict.fromkeys(weights, "cpu:0")
    assert memory_by_device(made, here)["cpu:0"].needed == 1324


def test_the_search_finds_the_balance():
    """The transformer alone, T5 and VAE together, with as few moves as that takes: one."""
    found = best_placement(everything_on_one(), targets(everything_on_one()), 4)
    assert found.placement == {"text_encoder_3": "cpu:0", "transformer": "cpu:1", "vae": "cpu:0"}
    assert found.simulation.throughput == pytest.approx(1e9 / 30)
    assert (found.possible, found.exhaustive) == (8, True)
    assert found.simulated < 4


def test_the_search_from_a_placement_on_slower_hardware():
    """Measured on cuda:0, placed on a device 50 times slower, by factors relative to where it was
    measured: the best is where it was measured, and it is found from either start."""
    made = workload(step=[call("transformer", 100, "cuda:0")], steps=4)
    there = [
        TargetDevice("cuda:0", None, {"transformer": 1.0}, like="fast"),
        TargetDevice("cpu:0", None, {"transformer": 50.0}, like="slow"),
    ]
    for start in ("cuda:0", "cpu:0"):
        found = best_placement(made, there, 1, start={"transformer": start})
        assert found.placement == {"transformer": "cuda:0"}
        assert found.simulation.throughput == pytest.approx(1e9 / 400)


def test_moves_are_counted_from_the_placement_that_was_asked_for():
    """Two equal placements: the one where the submodules are is kept."""
    made = workload(step=[call("transformer", 1000)])
    found = best_placement(made, targets(made), 1, start={"transformer": "cpu:1"})
    assert found.placement == {"transformer": "cpu:1"}


def test_the_search_keeps_what_is_as_good():
    """Where the transformer takes all the time nothing is moved."""
    made = workload(step=[call("transformer", 1000)], decode=[call("vae", 20, "cpu:1")])
    assert best_placement(made, targets(made), 2).placement == placement_of(made)


@pytest.mark.parametrize(("clip", "moved"), [(4, []), (200, ["text_encoder_3"])])
def test_what_is_about_as_good_is_not_worth_a_move(clip, moved):
    """Two encoders beside T5 on two more devices save a lone request 8 of 1,258 ns, which nobody
    moves for; where the second takes 200 moving T5 alone saves all but 4 of what can be."""
    encode = [call("text_encoder", 4), call("text_encoder_2", clip), call("text_encoder_3", 250)]
    made = workload(encode, [call("transformer", 742)], [call("vae", 258)])
    there = targets(made, {**TWO, "cpu:2": TWO["cpu:0"]}, ("cpu:0", "cpu:1", "cpu:2"))
    found = best_placement(made, there, 1, "graph")
    assert [name for name, device in found.placement.items() if device != "cpu:0"] == moved


def test_the_search_heeds_memory():
    """cpu:1 only takes T5: 50 ns on cpu:0 stay. Where nothing fits it says so."""
    weights = {"text_encoder_3": 100, "transformer": 400, "vae": 300}
    made = everything_on_one(weights=weights)
    found = best_placement(made, targets(made, memory={"cpu:1": 200}), 4)
    assert found.placement == {"text_encoder_3": "cpu:1", "transformer": "cpu:0", "vae": "cpu:0"}
    assert found.notes[0] == Note.of(
        PlacementNote.ACTIVATIONS_UNKNOWN, submodules=("text_encoder_3", "transformer", "vae")
    )
    with pytest.raises(InputError, match="no placement on cpu:0, cpu:1 found that fits"):
        best_placement(made, targets(made, memory={"cpu:0": 200, "cpu:1": 200}), 4)


def test_the_search_by_moves_finds_the_balance_too(monkeypatch):
    """Beyond the limit of an exhaustive search, from several starts; it says that it was not."""
    monkeypatch.setattr(placement_module, "EXHAUSTIVE", 1)
    found = best_placement(everything_on_one(), targets(everything_on_one()), 4)
    assert found.simulation.throughput == pytest.approx(1e9 / 30)
    assert not found.exhaustive


def test_many_submodules_on_many_devices():
    """Twelve equal encoders on four devices beside a transformer: three each and one device for
    the transformer are out of reach of all assignments, but not of the search."""
    made = workload(
        [call(f"text_encoder_{i}", 10) for i in range(12)], [call("transformer", 40)], steps=1
    )
    devices = {f"cpu:{i}": TWO["cpu:0"] for i in range(4)}
    found = best_placement(made, targets(made, devices, tuple(devices)), 8)
    assert found.possible == 4**13
    assert found.simulation.throughput == pytest.approx(1e9 / 40, rel=0.05)


@settings(max_examples=examples(25), deadline=None, phases=[Phase.generate])
@given(workloads(), st.integers(1, 3))
def test_no_assignment_is_better_than_the_best(made, concurrency):
    """Every assignment to two devices is simulated: none has a higher throughput, but for what
    the window's ends and ties within 0.1 % make."""
    there = targets(made, {**TWO, "cpu:2": TWO["cpu:0"]})
    found = best_placement(made, there, concurrency)
    present = list(placement_of(made))
    for devices in itertools.product(("cpu:0", "cpu:1"), repeat=len(present)):
        other = placed(made, dict(zip(present, devices, strict=True)), there)
        reached = simulate(other, concurrency, requests=30).throughput
        assert reached <= found.simulation.throughput * 1.05


def test_host_work_is_no_submodule():
    """It stays with the process."""
    made = workload([host(5), call("vae", 10)])
    assert placed(made, {"vae": "cpu:1"}, targets(made)).encode[0].device == ""


def test_the_first_line_is_the_best_placement_or_that_none_helps():
    """Two equal devices help no request that is alone; of four at once the transformer moves, and
    the gain is that of the throughputs below."""
    run = profiler.load(Path(__file__).parents[3] / "sample_traces/tiny_two_devices")
    analysis = asked(run)

    def first(**scenario):
        found = predict(run, analysis, Scenario(**scenario))
        return found, prediction_report(found).summary.headline

    _, alone = first(devices=("cpu:0", "cpu:1"))
    assert alone.startswith("No placement on these devices helps one request at a time")
    found, four = first(devices=("cpu:0", "cpu:1", "cpu:2"), concurrency=4)
    gain = found.best.simulation.throughput / found.simulation.throughput
    assert four.startswith("Best placement: transformer on cpu:2, ")
    assert f"({gain:.2f}×, 4 requests at once)" in four
