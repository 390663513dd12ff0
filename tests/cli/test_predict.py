"""`profile-sd3 predict`: options, outputs, and bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from profiler.run import write_parquet
from profiler.tools.sources import load
from tests.command_line import refused
from tests.runs import write_tiny_bundle

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


@pytest.fixture
def predict(cli):
    """Run `predict` in this process; returns exit code, stdout and stderr."""
    return partial(cli, "predict")


@pytest.fixture
def bundle(tmp_path):
    return write_tiny_bundle(tmp_path)


def test_options_combine(predict, bundle):
    """Four steps without the VAE: 210 + 300 + 3 · 250 + 160 ns."""
    code, text, _ = predict(bundle, "--steps", 4, "--drop", "vae")
    assert code == 0
    assert text.startswith("1.00 µs → 1.42 µs, no interval (4 steps, without vae)")


def test_a_folder_of_bundles(predict, bundle):
    """The newest is taken; a Parquet run does as well."""
    assert predict(bundle.parent) == predict(bundle)
    write_parquet(load(bundle), bundle.parent / "parquet")
    assert predict(bundle.parent / "parquet") == predict(bundle)


def test_json_goes_to_a_file_or_alone_to_stdout(predict, bundle, tmp_path):
    """Both have the same document; with `-` nothing else is printed."""
    path = tmp_path / "prediction.json"
    assert predict(bundle, "--steps", 1, "--json", path)[1].startswith("1.00 µs → 750 ns")
    printed = predict(bundle, "--steps", 1, "--json", "-")[1]
    assert json.loads(printed) == json.loads(path.read_text())
    assert json.loads(printed)["predicted"]["ns"] == 750


def test_a_sample(predict):
    """Everything at once on a sample trace."""
    sample = SAMPLES / "tiny_two_devices"
    options = ("--steps", 3, "--guidance", "off", "--drop", "text_encoder_3")
    code, _, error = predict(sample, *options)
    assert code == 0, error
    code, text, error = predict(sample, "--concurrency", 2, "--guidance", "off")
    assert code == 0, error
    assert "2 requests at once" in text


def test_a_gpu_trace_of_which_a_call_was_not_traced_is_refused(predict, tmp_path):
    """Its launches are missing, so it says what is missing, and nothing is predicted; as a whole
    it is predicted."""
    whole = load(SAMPLES / "sd35_mi300x")
    traced = (pl.col("step") != 2).fill_null(True).alias("ops_traced")
    write_parquet(replace(whole, calls=whole.calls.with_columns(traced)), tmp_path / "excerpt")
    code, text, error = predict(tmp_path / "excerpt", "--guidance", "off")
    assert (code, text) == (2, "")
    assert "some calls of transformer were recorded without their launches" in error
    code, text, _ = predict(SAMPLES / "sd35_mi300x", "--concurrency", 2)
    assert (code, "2 requests at once" in text) == (0, True)


def test_a_graph_on_a_run_without_launches_is_refused(predict):
    """A run of the CPU has none of which one could be made."""
    code, text, error = predict(SAMPLES / "tiny_two_devices", "--cuda-graph")
    assert (code, text) == (2, "")
    assert "recorded no launches" in error


def test_placement_on_two_devices(predict):
    """Throughput, latencies, utilization and the best placement found."""
    place = ("--place", "text_encoder_3=cpu:0", "--concurrency", 4, "--device-memory", "1GiB")
    document = json.loads(predict(SAMPLES / "tiny_two_devices", *place, "--json", "-")[1])
    simulation = document["simulation"]
    assert simulation["requests_per_s"] > 0
    assert simulation["latency_ns"]["p50"] <= simulation["latency_ns"]["p99"]
    assert set(document["best_placement"]["placement"].values()) <= {"cpu:0", "cpu:1"}
    best = document["best_placement"]["simulation"]["requests_per_s"]
    assert best >= 0.999 * simulation["requests_per_s"]
    assert document["scenario"]["device_memory_bytes"] == {"": 1 << 30}


@pytest.mark.parametrize(
    "arguments",
    [("--devices", "cpu:1"), ("--order", "pipeline"), ("--device-memory", "64GiB")],
)
def test_options_about_devices_act_alone(predict, arguments):
    """Each has requests simulated, in the order of the pipeline."""
    code, text, error = predict(SAMPLES / "tiny_two_devices", *arguments)
    assert code == 0, error
    assert "1 request at once, the calls of each one after the other" in text


def test_memory_that_nothing_fits_in(predict):
    """One sentence."""
    sample = SAMPLES / "tiny_two_devices"
    refused(predict(sample, "--device-memory", "1KiB"), "fits into memory")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--steps", "0"), "--steps 0 is no number of steps"),
        (("--drop", "unet"), "'unet' is no submodule that the run called"),
        (("--place", "vae"), "write SUBMODULE=DEVICE"),
        (("--place", "vae=cuda:7"), "nothing is known of cuda:7"),
        (("--devices", "tpu:0"), "nothing is known of tpu:0"),
        (("--guidance", "3"), "give off, or leave it out"),
        (("--precision", "fp16"), "--precision"),
        (("--precision", "int3"), "is no type"),
        (("--order", "lifo"), "is no order"),
        (("--devices", ","), "names nothing"),
        (("--drop", ""), "names nothing"),
        (("--device-memory", "cpu:7=1GiB"), "on which nothing runs"),
        (("--device-memory", "cpu:0=1GiB"), "on which nothing runs"),
        (("--pipeline", "5"), "no pipeline call 5"),
        (("--device-memory", "much"), "is no size"),
        (("--place", "vae=rbln:1", "--device-memory", "-1GiB"), "is no size"),
        (("--json", "merged.pb"), "part of a trace"),
        (("--device-profile", "nowhere.json"), "nowhere.json"),
    ],
)
def test_bad_options(predict, bundle, arguments, says):
    """One sentence, exit code 2."""
    refused(predict(bundle, *arguments), says)


def test_a_run_that_is_not_whole(predict, bundle):
    """A request that lacks a part predicts nothing."""
    (bundle / "001_transformer.step000.pb").unlink()
    refused(predict(bundle, "--steps", "4"), "is not whole")


def test_no_run(predict, tmp_path):
    """A folder without a bundle, and a trace that is one call."""
    refused(predict(tmp_path), "no bundle in")
    bundle = write_tiny_bundle(tmp_path)
    one = bundle / "001_transformer.step000.pb"
    refused(predict(one, "--steps", "4"), "pipeline")
