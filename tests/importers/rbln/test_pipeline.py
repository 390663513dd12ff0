"""Descriptions of pipelines: built in and from YAML."""

from pathlib import Path

import pytest

from profiler.errors import InputError
from profiler.importers.rbln.labels import BUILT_IN, describe

ENCODERS = ["text_encoder", "text_encoder_2", "text_encoder_3"]


def written(folder: Path, text: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_sd3_is_35_calls_in_diffusers_order() -> None:
    """SD3 encodes the prompt, then the negative prompt, denoises 28 times and decodes once."""
    calls = describe("sd3").calls(28)
    assert [call.submodule for call in calls] == [*ENCODERS * 2, *["transformer"] * 28, "vae"]
    assert [call.branch for call in calls[:6]] == ["prompt"] * 3 + ["negative_prompt"] * 3
    assert [(c.stage, c.branch, c.step) for c in calls[6:34]] == [
        ("denoise", "batched", step) for step in range(28)
    ]
    assert (calls[34].stage, calls[34].branch, calls[34].step) == ("decode", "", -1)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("sd3", 35),
        ("sd3-no-guidance", 32),
        ("sdxl", 33),
        ("sdxl-no-negative-prompt", 31),
        ("sdxl-no-guidance", 31),
        ("flux", 31),
    ],
)
def test_built_in_counts(name: str, count: int) -> None:
    """Each built-in pipeline makes as many calls as its guidance and encoders ask for."""
    assert len(describe(name).calls(28)) == count
    assert name in BUILT_IN


def test_a_description_in_yaml(tmp_path: Path) -> None:
    """YAML gives stages, branches, repeats, windows of steps, devices, steps and warm-up."""
    path = written(
        tmp_path,
        """
        name: sd3-controlnet
        steps: 3
        warmup: 5
        devices: {text_encoder: "rbln:1"}
        encode:
          - {submodule: text_encoder, branch: prompt}
        denoise:
          - controlnet
          - {submodule: transformer, branch: cond}
          - {submodule: transformer, branch: uncond, steps: [1, 2]}
        decode:
          - {submodule: vae, repeat: 2}
        """,
    )
    description = describe(path)
    assert (description.name, description.warmup, description.allow_gaps) == (
        "sd3-controlnet",
        5,
        False,
    )
    found = [(c.submodule, c.branch, c.step, c.device) for c in description.calls()]
    assert found == [
        ("text_encoder", "prompt", -1, "rbln:1"),
        ("controlnet", "", 0, ""),
        ("transformer", "cond", 0, ""),
        ("controlnet", "", 1, ""),
        ("transformer", "cond", 1, ""),
        ("transformer", "uncond", 1, ""),
        ("controlnet", "", 2, ""),
        ("transformer", "cond", 2, ""),
        ("transformer", "uncond", 2, ""),
        ("vae", "", -1, ""),
        ("vae", "", -1, ""),
    ]
    assert len(description.calls(1)) == 5


def test_a_pipeline_without_denoising_needs_no_steps(tmp_path: Path) -> None:
    """An encoder alone is described without steps."""
    assert len(describe(written(tmp_path, "encode: [text_encoder]")).calls()) == 1


@pytest.mark.parametrize("steps", [None, 0, -3, 10**9])
def test_absurd_steps(steps: int | None) -> None:
    """A number of steps that is missing or absurd is refused before calls are counted out."""
    with pytest.raises(InputError, match="--steps"):
        describe("sd3").calls(steps)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no mapping"),
        ("- a", "no mapping"),
        ("name: x", "names no calls"),
        ("encode: 3", "no list"),
        ("encode: [3]", "no mapping"),
        ("encode: [{branch: prompt}]", "names no submodule"),
        ("encode: ['../vae']", "names no submodule"),
        ("encode: [{submodule: a, branch: both}]", "unknown branch"),
        ("encode: [{submodule: a, colour: red}]", "unknown key colour"),
        ("encode: [{submodule: a, repeat: 0}]", "repeat"),
        ("encode: [{submodule: a, repeat: yes}]", "repeat"),
        ("encode: [{submodule: a, steps: [0, 1]}]", "only calls of denoise"),
        ("denoise: [{submodule: a, steps: [3, 1]}]", "end before they begin"),
        ("denoise: [{submodule: a, steps: 3}]", "no \\[first, last\\]"),
        ("encode: [a]\nwarmup: -1", "warmup"),
        ("encode: [a]\nallow_gaps: 1", "allow_gaps"),
        ("encode: [a]\nname: [1]", "name"),
        ("encode: [a]\ndevices: {b: 'rbln:0'}", "unknown key b"),
        ("encode: [a]\ndevices: {a: 0}", "device of a"),
        ("encode: [a]\nstage: x", "unknown key stage"),
        ("encode: [a]\n3: x", "of type int"),
        ("encode: &a [*a]", "alias"),
        ("a: &a {b: 1}\nc: {<<: *a}", "alias"),
        ("encode: [", "not valid YAML"),
        ("!!python/object:os.system {}", "not valid YAML"),
        ("[" * 20_000, "not valid YAML"),
        (f"steps: {'9' * 6_000}", "not valid YAML"),
        ("encode: [a]\n" + "#" * (1 << 16), "64 KiB"),
        ("encode: [" + "a, " * 1_001 + "]", "no list"),
        ("steps: 100000\ndenoise: [{submodule: a, repeat: 1000}]", "more than"),
    ],
)
def test_a_wrong_description_is_refused_in_one_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    """What does not follow the schema is named, and never expanded or executed."""
    with pytest.raises(InputError, match=said) as caught:
        describe(written(tmp_path, text)).calls()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600


def test_an_unknown_pipeline_names_the_known_ones() -> None:
    """A name that is no pipeline is answered with those that are."""
    with pytest.raises(InputError, match=r"sd3-no-guidance.*yaml"):
        describe("sd4")


def test_a_description_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is said to be missing."""
    with pytest.raises(InputError, match="cannot read"):
        describe(tmp_path / "none.yaml")
