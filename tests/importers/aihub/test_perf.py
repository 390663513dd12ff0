"""Measurements of AI Hub: the corpus by its totals, columns that are chosen, broken files."""

from __future__ import annotations

import json

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.run_headline import headline
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.importers.aihub import measurements_in
from profiler.importers.importing import import_all
from profiler.importers.openvino import plain_yaml
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus
from tests.importers.broken import read_or_refused

FILES = ("stable_diffusion_v1_5.perf.yaml", "whisper_base.perf.yaml")
S24 = {"device": "Samsung Galaxy S24", "runtime": "qnn_context_binary"}


def document(**changes):
    """Two components on two devices, one of which ran on the GPU."""

    def measured(time, unit="NPU", **more):
        counts = {"total": 3, unit.lower(): 3}
        return {
            "job_id": "jsecret",
            "job_status": "Passed",
            "inference_time_milliseconds": time,
            "estimated_peak_memory_range_mb": {"min": 1, "max": 5},
            "primary_compute_unit": unit,
            "layer_counts": counts,
            **more,
        }

    def component(scale):
        return {
            "performance_metrics": {
                "Phone": {"tflite": measured(3.0 * scale, "GPU"), "qnn": measured(1.5 * scale)},
                "Laptop": {"qnn": measured(1.0 * scale)},
            }
        }

    parts = {"components": {"text_encoder": component(1), "unet": component(10)}}
    return {"supported_devices": ["Laptop", "Phone"], "precisions": {"w8a16": parts}, **changes}


def imported(folder, content, **options):
    path = folder / "sd.perf.yaml"
    text = content if isinstance(content, str) else as_yaml(content)
    path.write_text(text, encoding="utf-8")
    return load(import_trace([path], folder / "traces", options=options))


def as_yaml(value, indent=0):
    """As the tool writes it: block mappings."""
    if isinstance(value, dict):
        lines = (
            f"{' ' * indent}{key}:"
            + ("\n" + as_yaml(one, indent + 2) if isinstance(one, dict | list) else f" {one}\n")
            for key, one in value.items()
        )
        return "".join(lines)
    return "".join(f"{' ' * indent}- {one}\n" for one in value)


def test_the_first_lines_tell_components_apart(tmp_path, cli):
    """All of them are called the same: the table of the costliest says which is which; above it
    stand the device, runtime and precision that were measured."""
    path = tmp_path / "sd.perf.yaml"
    path.write_text(as_yaml(document()))
    code, out, err = cli("analyze", path, "--no-html", "--import", "device=Phone")
    assert code == 0, err
    assert "gpu:0 (Phone) · tflite · w8a16 · sd" in out
    costliest = out[out.index("Costliest op types") :]
    assert "Inference  unet" in costliest
    assert "Inference  text_encoder" in costliest


def test_parts_that_run_differently_often_have_no_shares(tmp_path):
    """One execution each: nobody knows what a pipeline takes of them."""
    analysis = analyze(imported(tmp_path, document(), device="Phone", runtime="tflite"))
    assert analysis.submodules["share"].to_list() == [None, None]
    assert analysis.calls["share"].to_list() == [None, None]
    assert analysis.module_tree["share"].null_count() == len(analysis.module_tree)
    assert "%" not in headline(analysis, 0)


@pytest.mark.parametrize(
    ("options", "passes"),
    [({}, 1), ({"guidance": "1"}, 1), ({"guidance": "7.5"}, 2), ({"guidance": "0"}, 1)],
)
def test_steps_and_guidance_make_a_pipeline(tmp_path, options, passes):
    """The encoder for each prompt, the denoiser in each pass, the decoder once."""
    given = document()
    parts = given["precisions"]["w8a16"]["components"]
    unet = parts.pop("unet")
    parts |= {"vae_decoder": unet, "unet": unet}
    run = imported(tmp_path, given, device="Laptop", steps="20", **options)
    analysis = analyze(run)
    total = (passes * 1.0 + 20 * passes * 10.0 + 10.0) * 1e6
    assert analysis.accounting.end_to_end_ns == total
    assert analysis.accounting.steps == 20
    stages = dict(run.calls.group_by(pl.col("stage").cast(pl.String)).len().rows())
    assert stages == {"encode": passes, "denoise": 20 * passes, "decode": 1}
    shares = dict(analysis.submodules.select("submodule", "share").rows())
    assert shares["unet"] == pytest.approx(20 * passes * 10e6 / total)


@needs_corpus
def test_stable_diffusion_of_the_corpus_with_steps(tmp_path):
    """The total by the file's own times of one device."""
    path = CORPUS / "aihub" / FILES[0]
    told = {
        one.component: one.time_ns
        for one in measurements_in(plain_yaml(path.read_bytes()))
        if (one.device, one.runtime) == tuple(S24.values())
    }
    options = {**S24, "steps": 20, "guidance": "7.5"}
    run = load(import_trace([path], tmp_path, options=options))
    encoder, unet, vae = (told[name] for name in ("text_encoder", "unet", "vae"))
    assert analyze(run).accounting.end_to_end_ns == 2 * encoder + 40 * unet + vae


def test_parts_can_be_placed_if_steps_are_given(tmp_path, cli):
    """Without steps the sum of the parts is no request, which is a sentence with what to give; with
    them the first line is the answer."""
    path = tmp_path / "sd.perf.yaml"
    path.write_text(as_yaml(document()))
    given = ("predict", path, "--import", "device=Laptop", "--devices", "qnn:0")
    code, out, err = cli(*given)
    assert (code, out) == (2, "")
    assert "nothing can be predicted of a request" in err
    assert "--import steps=N" in err
    code, out, err = cli(*given, "--import", "steps=20")
    assert code == 0, err
    assert out.startswith("No placement on these devices helps one request at a time")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": "20", "guidance": "much"}, "is no number from 0"),
        ({"guidance": "7.5"}, "needs steps=N"),
        ({"steps": "20000"}, "are more than 10,000"),
        ({"steps": "0"}, "is no number from 1"),
    ],
)
def test_wrong_steps_are_a_sentence(tmp_path, options, sentence):
    with pytest.raises(InputError, match=sentence):
        imported(tmp_path, document(), device="Laptop", **options)


def test_steps_without_a_denoiser_are_a_sentence(tmp_path):
    """Whisper has none: its decoder runs once a token."""
    given = json.loads(json.dumps(document()).replace("unet", "decoder"))
    with pytest.raises(InputError, match="has no denoiser among"):
        imported(tmp_path, given, device="Laptop", steps="20")


@needs_corpus
@pytest.mark.parametrize("name", FILES)
def test_the_totals_of_the_corpus(tmp_path, name):
    """Measurements, their sum, the slowest, devices; the column of one device: those of
    `truth.json`."""
    truth = json.loads((CORPUS / "truth.json").read_text())[f"aihub/{name}"]
    path = CORPUS / "aihub" / name
    every = list(measurements_in(plain_yaml(path.read_bytes())))
    assert len(every) == truth["count"]
    assert sum(one.time_ns for one in every) / 1e6 == pytest.approx(truth["sum_ms"])
    assert len({one.device for one in every}) == truth["devices"]
    slowest = sorted(((one.time_ns / 1e6, one) for one in every), key=lambda each: -each[0])[:3]
    assert [ms for ms, _ in slowest] == [ms for _, ms in truth["top3"]]
    for ms, one in slowest[:1]:
        assert truth["top3"][0] == [f"{one.component} | {one.device} | {one.runtime}", ms]
    run = load(import_trace([path], tmp_path, options=S24))
    found = run.calls.select(pl.col("submodule").cast(pl.String), pl.col("duration_ns") / 1e6)
    expected = {name.partition(" on ")[0]: ms for name, ms in truth["busy_ms"].items()}
    assert dict(found.iter_rows()) == expected


def test_a_column_is_a_run(tmp_path):
    """By device, runtime and precision; the unit of most layers is the device."""
    run = imported(tmp_path, document(), device="Phone", runtime="tflite")
    found = run.calls.select(pl.col("submodule").cast(pl.String), "device", "duration_ns").rows()
    assert found == [("text_encoder", "gpu:0", 3_000_000), ("unet", "gpu:0", 30_000_000)]
    assert run.info.devices["gpu:0"].hardware == "Phone"
    assert run.info.settings["unet.layers_gpu"] == 3
    codes = [drop.detail.code.value for drop in run.drops]
    assert codes == ["steps_unknown", "one_column"]
    assert run.info.capabilities == ("averages",)


def test_without_a_choice_it_is_the_first_device_that_has_most(tmp_path):
    """In the order of the supported devices; how many measurements there are is said."""
    run = imported(tmp_path, document())
    assert run.info.settings["device"] == "Laptop"
    assert run.drops[1].detail.values["measurements"] == 6


def test_every_column_becomes_a_run_if_none_is_chosen(tmp_path):
    """Three devices and runtimes are three runs that may be compared: six times in all; a choice
    makes one."""
    path = tmp_path / "sd.perf.yaml"
    path.write_text(as_yaml(document()), encoding="utf-8")
    runs = [load(bundle) for bundle in import_all(path, tmp_path / "traces")]
    times = sorted(run.commands["duration_ns"].sum() / 1e6 for run in runs)
    assert times == [11.0, 16.5, 33.0]  # 1 + 10 of each column's own
    assert {run.info.pipeline for run in runs} == {"sd"}
    assert len(import_all(path, tmp_path / "one", options={"device": "Phone"})) == 1


def test_another_device_is_a_sentence(tmp_path):
    """With the columns that there are."""
    with pytest.raises(
        InputError, match="no measurement of device 'Toaster': it has Phone / tflite"
    ):
        imported(tmp_path, document(), device="Toaster")


def test_jobs_stay_in_the_file(tmp_path):
    """Ids of jobs reach no file of the bundle."""
    imported(tmp_path, document())
    files = [file for file in (tmp_path / "traces").rglob("*") if file.is_file()]
    assert files
    assert not any(b"jsecret" in file.read_bytes() for file in files)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (as_yaml(document()).replace("inference_time_milliseconds: ", "x: "), "no measured time"),
        (as_yaml(document()).replace("job_status", "job_status: ["), "damaged or was cut"),
        (as_yaml(document()) + "a: &a 1\nb: *a\n", "damaged or was cut"),
    ],
)
def test_a_damaged_file_is_a_sentence(tmp_path, text, sentence):
    """Aliases are refused like what is no YAML."""
    with pytest.raises(InputError, match=sentence):
        imported(tmp_path, text)


def test_a_cut_file_is_a_sentence_or_less(tmp_path):
    """At whatever byte it ends: what of it is YAML is read."""
    text = as_yaml(document())
    for length in range(60, len(text), 83):
        run = read_or_refused(imported, tmp_path, text[:length])
        assert run is None or 1 <= len(run.calls) <= 2


@pytest.mark.parametrize("time", ["-1", ".nan", ".inf", "1e300", "9" * 400, "true", "soon"])
def test_a_time_that_is_none_is_no_measurement(tmp_path, time):
    """The others are."""
    text = as_yaml(document()).replace(
        "inference_time_milliseconds: 10.0", f"inference_time_milliseconds: {time}"
    )
    run = imported(tmp_path, text, device="Laptop")
    assert run.calls["submodule"].cast(pl.String).to_list() == ["text_encoder"]
