"""The pipeline guessed from RBLN's files, where nobody says what ran."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import profiler
from tests.command_line import refused
from tests.importers.rbln.generator import STEM, runtime_call, trace_bytes, write_sd3
from tests.importers.rbln.importing import import_rbln
from tests.runs import told

CONVOLVES = "conv_2d_9"


def written(folder: Path, models: Sequence[str], *, unet: bool = False) -> Path:
    """A file for each call of a model, whose layers have its name."""
    folder.mkdir(exist_ok=True)
    for number, model in enumerate(models):
        layers = [f"{model}_linear_{n}" for n in range(3)] + [CONVOLVES] * (unet and model == "d")
        commands = runtime_call(0, 1_000_000 * number, layers)
        (folder / f"{STEM}_{number}.pb").write_bytes(trace_bytes([commands], first_call=number))
    return folder


def guessed(folder: Path, out: Path, **options: object) -> tuple[str, int | None, list[str]]:
    """The pipeline, its steps and what the drops say of the labels."""
    run = profiler.load(import_rbln(folder, out, **options))
    said = [told(drop) for drop in run.drops if drop.kind in ("doubtful_label", "unlabelled_call")]
    return run.info.pipeline, run.info.recording.steps, said


@pytest.mark.parametrize(
    ("models", "unet", "pipeline", "steps", "others"),
    [
        ("abcabcdddv", False, "sd3", 3, ""),
        ("abcabcdv", False, "sd3", 1, ""),
        ("abcddv", False, "sd3-no-guidance", 2, ""),
        ("ababddv", True, "sdxl", 2, ""),
        ("abddddv", True, "sdxl-no-negative-prompt", 4, "sdxl-no-guidance, flux would fit"),
        ("abddddv", False, "flux", 4, "sdxl-no-negative-prompt, sdxl-no-guidance would fit"),
    ],
)
def test_a_pipeline_that_fits_is_guessed_and_said(
    tmp_path: Path, models: str, unet: bool, pipeline: str, steps: int, others: str
) -> None:
    """Number and layers of the files tell the pipeline; a drop says that it is a guess, and what
    else fits."""
    found = guessed(written(tmp_path / "in", models, unet=unet), tmp_path / "out")
    assert found[:2] == (pipeline, steps)
    (sentence,) = found[2]
    assert sentence.startswith(f"the pipeline {pipeline} (steps: {steps}) was guessed")
    assert others in sentence
    assert f"--import pipeline={pipeline}" in sentence


@pytest.mark.parametrize("models", ["a", "abc", "abddva", "abcabcddd", "adddddd", "abcacbddv"])
def test_what_fits_no_pipeline_is_not_guessed(tmp_path: Path, models: str) -> None:
    """A decoder that never comes, a model that returns, a language model: nothing is labelled."""
    pipeline, _, said = guessed(written(tmp_path / "in", models), tmp_path / "out")
    assert pipeline == ""
    assert "none that is known fits" in said[0]


def test_a_pipeline_that_is_named_is_not_guessed(tmp_path: Path) -> None:
    """With `pipeline` there is no word of a guess; `steps` and `skip` narrow one down."""
    folder = written(tmp_path / "in", "abddddv")
    assert guessed(folder, tmp_path / "1", pipeline="flux", steps=4) == ("flux", 4, [])
    assert guessed(folder, tmp_path / "2", steps=3)[0] == ""
    folder = written(tmp_path / "warm", "abcabcdv" + "abcabcddv")
    assert guessed(folder, tmp_path / "3")[0] == ""
    assert guessed(folder, tmp_path / "4", skip=8)[:2] == ("sd3", 2)


def test_an_empty_file_is_of_any_submodule(tmp_path: Path) -> None:
    """A call of which nothing is known speaks against nothing."""
    folder = written(tmp_path / "in", "abcabcddv")
    (folder / f"{STEM}_6.pb").write_bytes(b"")
    assert guessed(folder, tmp_path / "out")[:2] == ("sd3", 2)


def test_analyze_guesses_what_ran_in_rblns_own_folder(cli, tmp_path, monkeypatch):
    """`profile-sd3 analyze traces/`: the files, their aggregate and logs beside them become 9 calls
    of SD3 with two steps; `--import pipeline=` says it instead, and a name that is none is
    refused."""
    write_sd3(tmp_path / "traces", steps=2)
    (tmp_path / "traces" / "runtime.log").write_text("comp_name(linear), comp_cycle(12)")
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("analyze", "traces/", "--no-html", "--full", "--json", "guessed.json")
    assert code == 0, err
    document = json.loads((tmp_path / "guessed.json").read_text())
    submodules = [call["submodule"] for call in document["calls"]]
    encoders = ["text_encoder", "text_encoder_2", "text_encoder_3"]
    assert submodules == [*encoders, *encoders, "transformer", "transformer", "vae"]
    assert "sd3 (steps: 2) was guessed" in " ".join(out.split())
    said = ("--import", "pipeline=sd3", "--import", "steps=2")
    code, out, err = cli("analyze", "traces/", "--no-html", "--full", *said)
    assert code == 0, err
    assert "guessed" not in out
    refused(cli("analyze", "traces/", "--import", "pipeline=sd4"), "no pipeline 'sd4'")
