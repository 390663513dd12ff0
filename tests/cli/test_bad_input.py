"""Bad input of every subcommand: one sentence with the recommendation, exit code 2, no
traceback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.pipelines import default_model_folder
from tests.command_line import refused

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "tiny_two_devices"


@pytest.fixture
def bundle(tmp_path):
    """A copy of the sample bundle, to be damaged."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "traces" / "run"))


def test_analyze_a_missing_folder(cli, tmp_path):
    """A folder that does not exist is named."""
    refused(cli("analyze", tmp_path / "nothing"), "nothing does not exist", "give a bundle")


def test_analyze_an_empty_folder(cli, tmp_path):
    """A folder without any bundle says how to record one."""
    refused(cli("analyze", tmp_path), "no bundle in", "profile-sd3 run")


def test_analyze_a_bundle_without_manifest(cli, bundle):
    """Call files without a manifest say that `merge` rebuilds it, and then it does."""
    (bundle / "manifest.json").unlink()
    refused(cli("analyze", bundle), "no manifest.json", f"profile-sd3 merge {bundle}")
    refused(cli("analyze", bundle.parent), "no manifest.json", f"profile-sd3 merge {bundle}")
    assert cli("merge", bundle)[0] == 0
    assert cli("analyze", bundle)[0] == 0


def test_analyze_a_manifest_that_is_no_manifest(cli, bundle):
    """A manifest of another shape is refused, and nothing is taken from it."""
    (bundle / "manifest.json").write_text('{"format_version": 2, "producer": []}')
    refused(cli("analyze", bundle), "not a profile-sd3 manifest", "rebuild")
    (bundle / "manifest.json").write_text("{")
    refused(cli("analyze", bundle), "not valid JSON", "rebuild")


def test_a_manifest_cannot_lead_outside_its_bundle(cli, bundle):
    """A file name with a folder in it is refused, whatever it points to."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["calls"][0]["file"] = "../../secret.pb"
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    refused(cli("analyze", bundle), "no plain file name")


@pytest.mark.parametrize("content", [b"", b"hello, world\n" * 9, bytes(range(256)) * 40])
@pytest.mark.parametrize("command", ["analyze", "dump"])
def test_a_file_that_is_no_trace(cli, tmp_path, command, content):
    """Empty, text and random files are no Perfetto traces."""
    path = tmp_path / "wrong.pb"
    path.write_bytes(content)
    refused(cli(command, path), "wrong.pb")


def test_a_cut_call_file_is_reported_after_what_is_whole(cli, bundle):
    """A cut file costs its tail only: the report is printed with the drop, then one sentence."""
    cut = bundle / "006_transformer.step000.pb"
    cut.write_bytes(cut.read_bytes()[:30_000])
    code, out, err = cli("analyze", bundle)
    assert code == 2
    assert "truncated" in out or "cut" in out
    assert "006_transformer.step000.pb" in err
    assert len(err.strip().splitlines()) == 1
    assert (bundle / "report.html").is_file()


def test_a_missing_call_file_is_reported_after_what_is_there(cli, bundle):
    """A call file that the manifest names but that is gone is a drop, not a silence."""
    (bundle / "007_transformer.step001.pb").unlink()
    code, out, err = cli("analyze", bundle)
    assert code == 2
    assert "007_transformer.step001.pb" in out + err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", ["no"]),
        ("[1, 2, 3]", ["trace.json"]),
        ('{"traceEvents": 7}', ["trace.json"]),
        ("not json at all", ["trace.json"]),
        ("", ["trace.json"]),
    ],
)
def test_import_a_json_that_is_no_trace(cli, tmp_path, content, words):
    """JSON that is no trace, and text that is no JSON, are refused; no bundle is left behind."""
    path = tmp_path / "trace.json"
    path.write_text(content)
    refused(cli("import", path, "--out", tmp_path / "traces"), *words)
    assert not list((tmp_path / "traces").glob("*"))


def test_run_a_model_folder_with_a_part_missing(cli, tmp_path):
    """The missing file is named, before anything runs or is written."""
    model = shutil.copytree(default_model_folder(), tmp_path / "sd3")
    (model / "transformer" / "model.onnx").unlink()
    result = cli("run", "--model", model, "--out", tmp_path / "traces")
    refused(result, "transformer", "model.onnx")
    assert not (tmp_path / "traces").exists()


def test_run_a_folder_that_is_no_model(cli, tmp_path):
    """A folder without model_index.json is refused."""
    refused(cli("run", "--model", tmp_path, "--out", tmp_path / "traces"), "model_index.json")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("text_encoder_9=cpu:1", ["text_encoder_9", "text_encoder_3", "transformer"]),
        ("transformer=gpu:0", ["gpu:0", "kind:index"]),
        ("transformer", ["transformer", "="]),
        ("transformer=cuda:0", ["CUDAExecutionProvider"]),
    ],
)
def test_run_with_an_unknown_submodule_or_device(cli, tmp_path, option, words):
    """`--device` names submodules that exist and devices that this onnxruntime has."""
    refused(cli("run", "--device", option, "--out", tmp_path / "traces"), *words)
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize("command", ["run", "import"])
def test_an_output_folder_that_cannot_be_written(cli, tmp_path, command):
    """A place where no folder can be made is refused before the run."""
    (tmp_path / "file").write_text("in the way")
    out = tmp_path / "file" / "traces"
    source = ["--steps", "1"]
    if command == "import":
        source = [Path(__file__).resolve().parents[3] / "shared/corpus/torch/sd35_mi300x.json.gz"]
        if not source[0].is_file():
            pytest.skip("needs ../shared/corpus")
    refused(cli(command, *source, "--out", out), "cannot write", "give another folder")


def test_run_with_an_image_that_cannot_be_written(cli, tmp_path):
    """A wrong `--image` is refused before the run, not after it."""
    out = tmp_path / "traces"
    image = tmp_path / "none" / "a.png"
    refused(cli("run", "--image", image, "--out", out), "does not exist: create it")
    refused(cli("run", "--image", tmp_path / "a.gif", "--out", out), "does not end in .png")
    assert not out.exists()


def test_run_with_wrong_numbers(cli, tmp_path):
    """Steps below one are a usage error; sizes that do not fit the model a sentence."""
    assert cli("run", "--steps", "0", "--out", tmp_path)[0] == 2
    refused(cli("run", "--height", "100", "--out", tmp_path / "traces"), "100")
    refused(cli("run", "--ops", "some", "--out", tmp_path / "traces"), "'some' is not known")


@pytest.mark.parametrize("option", ["--prompt", "--negative-prompt"])
def test_a_prompt_that_is_no_utf8(cli, tmp_path, option):
    """Bytes that are no text are refused before anything runs."""
    refused(
        cli("run", option, "bad\udcff", "--out", tmp_path / "traces"), option, "not valid UTF-8"
    )
    assert not (tmp_path / "traces").exists()


def test_guidance_that_is_no_number(cli, tmp_path):
    """NaN would end in the manifest, which could not be read again."""
    refused(cli("run", "--guidance", "nan", "--out", tmp_path / "traces"), "finite")


def test_merge_a_run_that_was_killed_before_it_wrote(cli, tmp_path):
    """A folder with nothing but ONNX Runtime's leftovers says that nothing can be recovered."""
    (tmp_path / "killed" / ".operators").mkdir(parents=True)
    refused(cli("merge", tmp_path / "killed"), "killed before its calls were written", "run again")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--html", "x.html", "--no-html"], ["contradict"]),
        (["--html", "x.html", "--json", "x.html"], ["both name x.html"]),
        (["--json", "manifest.json"], ["part of a trace"]),
        (["--json", "out.pb"], ["part of a trace"]),
    ],
)
def test_outputs_of_analyze_that_conflict(cli, bundle, tmp_path, monkeypatch, options, words):
    """Outputs that would overwrite each other or look like a trace are refused before any work."""
    monkeypatch.chdir(tmp_path)
    refused(cli("analyze", bundle, *options), *words)
    assert not list(tmp_path.glob("x.html"))


def test_a_selection_does_not_overwrite_the_page_of_the_whole_run(cli, bundle):
    """A filtered report has a page of its own beside the whole run's."""
    assert cli("analyze", bundle)[0] == 0
    whole = (bundle / "report.html").read_bytes()
    assert cli("analyze", bundle, "--step", "1")[0] == 0
    assert (bundle / "report.html").read_bytes() == whole
    assert (bundle / "report.selection.html").is_file()


def test_a_full_stdout_is_one_sentence(bundle):
    """A device without room ends in exit code 2 and a sentence, not in a traceback."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "profiler", "dump", str(bundle / "host.pb")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr


def test_an_existing_bundle_is_never_overwritten(cli, tmp_path):
    """A second run of the same name gets a folder of its own; the first keeps every byte."""
    arguments = ["run", "--steps", "1", "--ops", "none", "--warmup", "0", "--height", "64"]
    arguments += ["--width", "64", "--out", tmp_path, "--name", "same"]
    assert cli(*arguments)[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "same").glob("*.pb")}
    assert cli(*arguments)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["same", "same-2"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "same").glob("*.pb")} == before


def test_a_refusal_has_no_traceback_in_a_process_of_its_own(tmp_path):
    """The installed entry point behaves as the function does: exit code 2, one line."""
    done = subprocess.run(
        [sys.executable, "-m", "profiler", "analyze", str(tmp_path / "nothing")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
