"""Prompts and paths of images are not recorded, and other options keep their values."""

from __future__ import annotations

import sys

import pytest

import profiler
from profiler.capture import FakeClock
from profiler.capture.run_info import _command_line
from profiler.capture.settings import Settings, environment_settings
from profiler.errors import InputError
from profiler.trace.manifest import read_manifest
from profiler.trace.redaction import names_prompt, settings_without_prompts, without_prompts
from tests.capture.toy import ToyPipeline
from tests.command_line import run_command


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        ("--prompt|a cat", "--prompt|<5 characters>"),
        ("--prompt=cat", "--prompt=<3 characters>"),
        ("--negative-prompt-2|x", "--negative-prompt-2|<1 character>"),
        ("--prompt|black|cat|--steps|4", "--prompt|<5 characters>|<3 characters>|--steps|4"),
        ("prompt=cat|seed=4", "prompt=<3 characters>|seed=4"),
        ("-p|cat|-p|8080", "-p|<3 characters>|-p|8080"),
        ("--promptFile|of_alice.txt", "--promptFile|<12 characters>"),
        ("--image|alice|--mask=bob", "--image|<5 characters>|--mask=<3 characters>"),
        ("--out|alice/cat.PNG", "--out|<13 characters>"),
        ("a photo of alice", "<16 characters>"),
        ('--config|{"prompt":"cat"}', "--config|<16 characters>"),
        ("--unknown|two words", "--unknown|<9 characters>"),
    ],
)  # fmt: skip
def test_prompts_are_replaced_by_their_length(given, recorded):
    """Values of options for prompts and images, and words that look like them."""
    shown = without_prompts(["run.py", *given.split("|")])
    assert list(shown) == ["run.py", *recorded.split("|")]
    assert without_prompts(shown) == shown


@pytest.mark.parametrize(
    "arguments",
    [
        "run.py|--num-images-per-prompt|4|--num_images|2|--max-prompt-length|77",
        "run.py|--image-size|1024|--text-encoder|clip|--prompt-embeds|a.pt|--prompt-strength|0.8",
        "my script.py|--model|stabilityai/sd3|--steps=28|--ops|none|out|model.onnx",
        "inference.py|--image|1|--video|false",
    ],
)
def test_other_options_keep_their_values(arguments):
    """Numbers of images, sizes, encoders, models and files."""
    given = tuple(arguments.split("|"))
    assert without_prompts(given) == given


def test_settings():
    """Texts of settings that are prompts are hidden; numbers never are."""
    given = {"prompt": "a cat", "num_images_per_prompt": 2, "scheduler": "euler"}
    assert settings_without_prompts(given) == {**given, "prompt": "<5 characters>"}
    assert [name for name in given if names_prompt(name)] == ["prompt"]


@pytest.mark.parametrize("keep", [False, True])
def test_a_run_and_its_page(tmp_path, monkeypatch, keep):
    """A real run whose command line has a prompt: in no text of the bundle unless it is asked for,
    and then in manifest and page."""
    options = ["run", "--prompt", "alice on a horse", "--steps", "1", "--warmup", "0"]
    options += [
        "--ops",
        "none",
        "--name",
        "run",
        "--out",
        str(tmp_path),
        *["--keep-prompts"] * keep,
    ]
    monkeypatch.setattr(sys, "argv", ["profile-sd3", *options])
    assert run_command(*options) == 0
    holding = {
        path.name for path in (tmp_path / "run").iterdir() if b"alice on" in path.read_bytes()
    }
    assert holding == ({"manifest.json", "report.html"} if keep else set())
    line = read_manifest(tmp_path / "run" / "manifest.json").info.command_line
    assert ("<16 characters>" in line) is not keep


def _quote(pipe: ToyPipeline) -> None:
    pipe()
    raise ValueError("cannot tokenize 'alice on a horse'")


def test_an_error_that_quotes_the_prompt(tmp_path, monkeypatch):
    """What ended the run is recorded without the prompt of the command line."""
    monkeypatch.setattr(sys, "argv", ["run.py", "--prompt", "alice on a horse"])
    pipe = ToyPipeline(FakeClock())
    run = profiler.profile(pipe, ops="none", out=tmp_path)
    with pytest.raises(ValueError, match="alice"), run:
        _quote(pipe)
    text = (run.path / "manifest.json").read_text()
    assert "cannot tokenize '***'" in text
    assert "alice" not in text


def test_the_settings_of_a_process(monkeypatch):
    """Environment, JSON and keyword mean the same; anything but a switch is refused."""
    by_variable = environment_settings({"RBLN_PROFILER_KEEP_PROMPTS": "1"})
    by_json = environment_settings({"RBLN_PROFILER_CONFIG": '{"keep_prompts": true}'})
    assert by_variable == by_json == Settings.of({"keep_prompts": True})
    inherited: dict[str, str] = {}
    by_json.write_environment(inherited)
    assert environment_settings(inherited).keep_prompts
    with pytest.raises(InputError, match="use 1 to record prompts, 0 not to"):
        environment_settings({"RBLN_PROFILER_KEEP_PROMPTS": "maybe"})
    monkeypatch.setattr(sys, "argv", ["/x/run.py", "--prompt", "cat"])
    assert _command_line(keep_prompts=True) == ("run.py", "--prompt", "cat")
