"""FLUX and Qwen-Image on NumPy compute what diffusers computes with the same weights."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import profiler
from profiler.capture.pipelines import discovery
from profiler.errors import InputError
from profiler.pipelines.pipeline import MODULES, pipeline_class

pytestmark = [
    pytest.mark.torch,
    # torch, diffusers and transformers warn about each other; that is not what is tested here
    pytest.mark.filterwarnings("ignore"),
]

SIZES = {"flux": (4, 1), "qwen": (16, 2)}  # of the tiny models: width of a token, pixels a latent


@pytest.fixture(scope="module", params=["flux", "qwen"])
def both(request, torch_stack):
    """Name, our pipeline on the exported graphs, diffusers' on the weights they were made of."""
    from tests.graph.export_sources import exported, source_folder

    folder, _ = exported(request.param)
    source = source_folder(request.param)
    reference = torch_stack.diffusers.DiffusionPipeline.from_pretrained(source)
    reference.set_progress_bar_config(disable=True)
    return request.param, pipeline_class(folder).from_folder(folder), reference


def of_size(pipelines, prompt, images=1):
    """Arguments of images of 12 by 20 latents, as many as `images` a prompt, and their latents."""
    width, scale = SIZES[pipelines[0]]
    shape = (np.size(prompt) * images, 6 * 10, width)
    latents = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    sizes = {"height": 12 * scale, "width": 20 * scale}
    return {"latents": latents, "num_images_per_prompt": images, **sizes}


@pytest.mark.parametrize(
    ("prompt", "images", "options"),
    [
        ("A photo of a cat", 1, {}),
        (["a cat", "a much longer text about a red fox, in the snow!"], 1, {}),
        ("a cat", 2, {}),
        ("a cat", 1, {"negative_prompt": "ugly, blurry", "true_cfg_scale": 3.0}),
        (
            ["a cat", "a red fox"],
            1,
            {"negative_prompt": ["", "ugly"], "true_cfg_scale": 4.0, "max_sequence_length": 60},
        ),
    ],
    ids=["one", "two prompts", "two images", "negative prompt", "negative prompts, short texts"],
)
def test_a_run_equals_diffusers(run_both, both, prompt, images, options):
    """After each step latents differ by less than 1e-3, and images by less than 2/255; prompts of
    other lengths, images per prompt and negative prompts included."""
    options = {"num_inference_steps": 5, **of_size(both, prompt, images), **options}
    ours, theirs = run_both(*both[1:], prompt, **options)
    for mine, other, bound in zip(ours, theirs, (1e-3, 2 / 255), strict=True):
        assert mine.shape == other.shape
        assert np.abs(mine - other).max() < bound


def test_images_per_prompt_lie_beside_each_other(both):
    """Two images of each of two prompts: those of the second equal a run of it alone. (diffusers
    0.39 mixes up the masks of Qwen-Image's prompts there.)"""
    name, pipeline, _ = both
    width, scale = SIZES[name]
    start = np.random.default_rng(0).standard_normal((4, 16, width), dtype=np.float32)
    options = {"height": 8 * scale, "width": 8 * scale, "num_inference_steps": 2}
    options |= {"output_type": "latent", "max_sequence_length": 60}
    prompts = ["a much longer text about a red fox, in the snow!", "a cat"]
    together = pipeline(prompts, latents=start, num_images_per_prompt=2, **options).images
    alone = pipeline("a cat", latents=start[2:], num_images_per_prompt=2, **options).images
    np.testing.assert_allclose(together[2:], alone, atol=1e-4)


def test_guidance_matters(torch_stack, both):
    """The scale that the command line sets changes the image."""
    _, pipeline, _ = both
    made = [
        pipeline(
            "a cat",
            **pipeline.guidance_arguments(scale, None),
            height=64,
            width=64,
            num_inference_steps=2,
            seed=0,
            output_type="np",
        ).images
        for scale in (None, 1.5, 9.0)
    ]
    assert np.abs(made[1] - made[2]).max() > 1e-4
    assert np.abs(made[0] - made[1]).max() > 1e-5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"height": 13}, "height is 13; this model makes images of .* pixels and more in steps of"),
        ({"latents": np.zeros((1, 3, 4), np.float32)}, "the given latents have shape"),
        ({"true_cfg_scale": float("nan")}, "true_cfg_scale is nan"),
        ({"max_sequence_length": 5000}, "max_sequence_length is 5000"),
        ({"seed": -1}, "the seed is -1"),
        ({"output_type": "jpeg"}, "is not an output type"),
        ({"num_inference_steps": 0}, "at least one denoising step"),
    ],
)
def test_bad_arguments(both, options, words):
    """Arguments that do not fit give a sentence before anything runs for long."""
    _, pipeline, _ = both
    with pytest.raises(InputError, match=words):
        pipeline("a cat", **({"height": 32, "width": 32} | options))


def test_what_flux_does_not_take(both):
    """FLUX refuses a negative prompt of the command line, and schnell a scale."""
    name, pipeline, _ = both
    if name != "flux":
        assert pipeline.guidance_arguments(None, "ugly")["negative_prompt"] == "ugly"
        return
    with pytest.raises(InputError, match="takes no negative prompt"):
        pipeline.guidance_arguments(None, "ugly")
    folder = pipeline.folder
    config = folder / "transformer" / "config.json"
    before = config.read_text()
    config.write_text(json.dumps(json.loads(before) | {"guidance_embeds": False}))
    try:
        schnell = pipeline_class(folder).from_folder(folder)
    finally:
        config.write_text(before)
    assert schnell.guidance_arguments(None, "") == {}
    with pytest.raises(InputError, match="knows no guidance scale"):
        schnell.guidance_arguments(3.0, "")


def test_it_runs_without_torch_and_onnx(both):
    """A run of the exported folder needs none of torch, diffusers, transformers, onnx, onnx_ir."""
    script = """
import sys
for name in ("torch", "diffusers", "transformers", "onnx", "onnx_ir"):
    sys.modules[name] = None  # importing it would fail
from profiler.pipelines.pipeline import pipeline_class
pipeline = pipeline_class(sys.argv[1]).from_folder(sys.argv[1])
print(pipeline("a cat", height=32, width=32, num_inference_steps=1, seed=0).images[0].size)
"""
    command = [sys.executable, "-c", script, str(both[1].folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("(32, 32)\n", 0), done.stderr


def test_a_switched_on_process_records_it(both, tmp_path):
    """`profiler.start()` records the pipeline by its calls, unasked, from its next use on."""
    _, pipeline, _ = both
    profiler.start(out=tmp_path, ops="none")
    try:
        pipeline("a cat", height=32, width=32, num_inference_steps=2, seed=0)
    finally:
        bundle = profiler.done()
    calls = profiler.load(bundle).calls
    encoders = [part for part in pipeline.parts if part.startswith("text_encoder")]
    wanted = [*encoders, "transformer", "transformer", "vae"]
    assert calls["submodule"].cast(pl.String).to_list() == wanted
    assert calls["step"].to_list() == [-1] * len(encoders) + [0, 1, -1]


def test_all_pipelines_are_watched():
    """Each of our pipelines is one that a switched-on process waits for."""
    assert {class_name: module for module, class_name in discovery.OWN.items()} == MODULES


def test_submodules_and_components(both):
    """Parts are in the order of calls, and components have diffusers' names."""
    _, pipeline, reference = both
    assert tuple(pipeline.parts) == pipeline.SUBMODULES
    wanted = {key for key, part in reference.components.items() if part is not None}
    assert set(pipeline.components) == wanted
    assert pipeline.name_or_path == "onnx"


def test_another_pipeline_is_named(both, tmp_path):
    """A folder of a pipeline that is not there says which are."""
    _, pipeline, _ = both
    shutil.copy(pipeline.folder / "model_index.json", tmp_path)
    index = tmp_path / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"_class_name": "KolorsPipeline"}))
    with pytest.raises(InputError, match="'KolorsPipeline': give a folder of one of Stable"):
        pipeline_class(tmp_path)
