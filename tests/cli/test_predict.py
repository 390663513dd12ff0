"""`profile-sd3 predict`: options, outputs, and bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from profiler.cli.main import app, main
from profiler.table.load import load
from profiler.table.parquet import write_parquet
from tests.runs import write_tiny_bundle

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


def _run(*arguments):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)], catch_exceptions=False)


def _refused(monkeypatch, capsys, *arguments):
    """The one sentence of a command that cannot do what it was asked."""
    monkeypatch.setattr(sys, "argv", ["profile-sd3", "predict", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    error = capsys.readouterr().err
    assert stopped.value.code == 2, error
    assert len(error.splitlines()) == 1
    return error


@pytest.fixture
def bundle(tmp_path):
    return write_tiny_bundle(tmp_path)


def test_options_combine(bundle):
    """Four steps without the VAE: 200 + 350 + 3 · 260 + 110 ns."""
    done = _run(bundle, "--steps", 4, "--drop", "vae")
    assert done.exit_code == 0
    assert done.stdout.startswith("1.00 µs → 1.44 µs, no interval (4 steps, without vae)")


def test_a_folder_of_bundles(bundle):
    """The newest is taken; a Parquet run does as well."""
    assert _run(bundle.parent).stdout == _run(bundle).stdout
    write_parquet(load(bundle), bundle.parent / "parquet")
    assert _run(bundle.parent / "parquet").stdout == _run(bundle).stdout


def test_json_goes_to_a_file_or_alone_to_stdout(bundle, tmp_path):
    """Both have the same document; with `-` nothing else is printed."""
    path = tmp_path / "prediction.json"
    assert _run(bundle, "--steps", 1, "--json", path).stdout.startswith("1.00 µs → 740 ns")
    printed = _run(bundle, "--steps", 1, "--json", "-").stdout
    assert json.loads(printed) == json.loads(path.read_text())
    assert json.loads(printed)["predicted"]["ns"] == 740


@pytest.mark.parametrize("sample", ["tiny_two_devices", "sd35_mi300x_cut"])
def test_samples(sample):
    """Everything at once on every sample trace."""
    done = _run(SAMPLES / sample, "--steps", 3, "--guidance", "off", "--drop", "text_encoder_3")
    assert done.exit_code == 0, done.output
    simulated = _run(SAMPLES / sample, "--concurrency", 2, "--guidance", "off")
    assert simulated.exit_code == 0, simulated.output
    assert "2 requests at once" in simulated.stdout


def test_placement_on_two_devices():
    """Throughput, latencies, utilization and the best placement found."""
    place = ("--place", "text_encoder_3=cpu:0", "--concurrency", 4, "--device-memory", "1GiB")
    document = json.loads(_run(SAMPLES / "tiny_two_devices", *place, "--json", "-").stdout)
    simulation = document["simulation"]
    assert simulation["throughput"] > 0
    assert simulation["latency_ns"]["p50"] <= simulation["latency_ns"]["p99"]
    assert set(document["best_placement"]["placement"].values()) <= {"cpu:0", "cpu:1"}
    best = document["best_placement"]["simulation"]["throughput"]
    assert best >= 0.999 * simulation["throughput"]
    assert document["scenario"]["device_memory"] == {"": 1 << 30}


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
        (("--pipeline", "5"), "no pipeline call 5"),
        (("--device-memory", "much"), "is no size"),
        (("--place", "vae=rbln:1", "--device-memory", "-1GiB"), "is no size"),
        (("--json", "merged.pb"), "part of a trace"),
        (("--device-profile", "nowhere.json"), "nowhere.json"),
    ],
)
def test_bad_options(bundle, monkeypatch, capsys, arguments, says):
    """One sentence, exit code 2."""
    assert says in _refused(monkeypatch, capsys, bundle, *arguments)


def test_a_run_that_is_not_whole(bundle, monkeypatch, capsys):
    """A request that lacks a part predicts nothing."""
    (bundle / "001_transformer.step000.pb").unlink()
    assert "is not whole" in _refused(monkeypatch, capsys, bundle, "--steps", "4")


def test_no_run(tmp_path, monkeypatch, capsys):
    """A folder without a bundle, and a trace that is one call."""
    _refused(monkeypatch, capsys, tmp_path)
    bundle = write_tiny_bundle(tmp_path)
    one = bundle / "001_transformer.step000.pb"
    assert "pipeline" in _refused(monkeypatch, capsys, one, "--steps", "4")
