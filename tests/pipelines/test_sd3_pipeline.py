"""The pipeline without torch: order of calls, shapes, arguments, placement."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest

from profiler.errors import InputError
from profiler.pipelines import StableDiffusion3Pipeline

SUBMODULES = StableDiffusion3Pipeline.SUBMODULES
SMALL = {"height": 64, "width": 96, "num_inference_steps": 2, "max_sequence_length": 16}


def record_calls(pipeline):
    """Note the name of each part as it runs, and the shapes of its inputs."""
    calls = []

    def wrap(name, original):
        def forward(**inputs):
            calls.append((name, {key: value.shape for key, value in inputs.items()}))
            return original(**inputs)

        return forward

    for name, part in pipeline.parts.items():
        part.forward = wrap(name, part.forward)
    return calls


def test_a_run_calls_the_parts_in_diffusers_order(pipeline):
    """Encoders 1, 2, 3 for the prompt and again for the negative one, a step each, one decode."""
    calls = record_calls(pipeline)
    images = pipeline("a cat", "ugly", **SMALL).images
    encoders = ["text_encoder", "text_encoder_2", "text_encoder_3"]
    names = [name for name, _shapes in calls]
    assert names == [*encoders, *encoders, "transformer", "transformer", "vae"]
    assert calls[0][1] == {"input_ids": (1, 77)}
    assert calls[5][1] == {"input_ids": (1, 16)}
    assert calls[6][1] == {
        "hidden_states": (2, 16, 8, 12),
        "encoder_hidden_states": (2, 93, 64),
        "pooled_projections": (2, 56),
        "timestep": (2,),
    }
    assert calls[8][1] == {"latent_sample": (1, 16, 8, 12)}
    assert [image.size for image in images] == [(96, 64)]
    assert pipeline.do_classifier_free_guidance


def test_without_guidance_three_encoder_calls(pipeline):
    """A guidance scale of 1 or less leaves the negative prompt and the doubled batch out."""
    calls = record_calls(pipeline)
    pipeline("a cat", guidance_scale=1.0, **SMALL)
    assert [name for name, _shapes in calls][:4] == [*SUBMODULES[:3], "transformer"]
    assert calls[3][1]["hidden_states"] == (1, 16, 8, 12)
    assert not pipeline.do_classifier_free_guidance
    assert pipeline.guidance_scale == 1.0


def test_the_seed_decides(shared_pipeline):
    """Equal seeds give equal images, other seeds and prompts other ones; a generator will do."""

    def run(prompt="a cat", **options):
        return shared_pipeline(prompt, output_type="np", **SMALL, **options).images

    first = run(seed=5)
    assert first.shape == (1, 64, 96, 3)
    assert first.dtype == np.float32
    assert 0 <= first.min() < first.max() <= 1
    np.testing.assert_array_equal(first, run(seed=5))
    np.testing.assert_array_equal(first, run(generator=np.random.default_rng(5)))
    assert np.abs(first - run(seed=6)).mean() > 0.01
    assert np.abs(first - run(prompt="a red fox", seed=5)).mean() > 0.01
    assert np.abs(run() - run()).mean() > 0.01


def test_output_types_agree(shared_pipeline):
    """The PIL image is the rounded array, and both come from the latents."""
    array = shared_pipeline("a cat", seed=1, output_type="np", **SMALL).images
    image = shared_pipeline("a cat", seed=1, **SMALL).images[0]
    latents = shared_pipeline("a cat", seed=1, output_type="latent", **SMALL).images
    np.testing.assert_array_equal(np.asarray(image), (array[0] * 255).round().astype(np.uint8))
    assert latents.shape == (1, 16, 8, 12)
    decoded = shared_pipeline.vae.decode(latents / 1.5305 + 0.0609)
    np.testing.assert_allclose(
        shared_pipeline.image_processor.postprocess(decoded, "np"), array, atol=1e-5
    )


def test_images_per_prompt_lie_beside_each_other(shared_pipeline):
    """Images of one prompt follow one another, and each equals a run with its latents alone."""
    start = np.random.default_rng(0).standard_normal((4, 16, 8, 12), dtype=np.float32)
    options = {**SMALL, "output_type": "latent"}
    together = shared_pipeline(
        ["a cat", "a dog"], latents=start, num_images_per_prompt=2, **options
    ).images
    alone = shared_pipeline("a dog", latents=start[2:3], **options).images
    np.testing.assert_allclose(together[2:3], alone, atol=1e-3)


def test_the_callback_sees_and_may_change_latents(shared_pipeline):
    """The callback runs after each step, and latents that it returns go on."""
    seen = []

    def zero(pipe, step, timestep, values):
        seen.append((pipe, step, timestep))
        return {"latents": values["latents"] * 0}

    result = shared_pipeline(
        "a cat", callback_on_step_end=zero, output_type="latent", **SMALL
    ).images
    assert [step for _pipe, step, _timestep in seen] == [0, 1]
    assert seen[0][0] is shared_pipeline
    assert seen[0][2] > seen[1][2] > 0
    assert not result.any()


def test_guidance_is_a_method_of_its_own(pipeline):
    """`apply_guidance` weighs the halves, and a run goes through the instance's own."""
    stacked = np.array([[1.0], [3.0]], dtype=np.float16)
    assert pipeline.apply_guidance(stacked, 2.0).tolist() == [[5.0]]
    calls = []
    original = pipeline.apply_guidance
    pipeline.apply_guidance = lambda *given: calls.append(given[1]) or original(*given)
    pipeline("a cat", guidance_scale=3.0, **SMALL)
    assert calls == [3.0, 3.0]


def test_it_runs_without_torch_and_onnx(tmp_path):
    """A whole run, image file included, needs none of torch, diffusers, transformers and onnx."""
    script = """
import sys
for name in ("torch", "diffusers", "transformers", "onnx"):
    sys.modules[name] = None  # importing it would fail
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder
pipeline = StableDiffusion3Pipeline.from_folder(default_model_folder())
output = pipeline("a cat", height=64, width=64, num_inference_steps=1, seed=0)
output.images[0].save(sys.argv[1])
"""
    path = tmp_path / "out.png"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_parts_and_components(pipeline):
    """Names are the profiler's: five submodules in calling order, the VAE as its decoder."""
    assert tuple(pipeline.parts) == SUBMODULES
    assert pipeline.parts["vae"] is pipeline.vae.decoder
    assert pipeline.components["vae"] is pipeline.vae
    assert {part.name for part in pipeline.parts.values()} == set(SUBMODULES)
    assert pipeline.components["scheduler"] is pipeline.scheduler


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt": 3}, "prompt must be a text"),
        ({"prompt": []}, "empty list"),
        ({"prompt": ["a", 1]}, "list of texts"),
        ({"negative_prompt": ["a", "b"]}, "2 texts for 1 prompts"),
        ({"height": 100}, "height is 100; this model makes images of 32 to 512 pixels in steps"),
        ({"width": 528}, "width is 528"),
        ({"height": 0}, "height is 0"),
        ({"num_inference_steps": 0}, "at least one denoising step"),
        ({"num_images_per_prompt": 0}, "give 1 or more"),
        ({"max_sequence_length": 513}, "use 3 to 512"),
        ({"output_type": "jpg"}, "use pil, np or latent"),
        ({"seed": -1}, "use 0 or more"),
        ({"seed": 1, "generator": np.random.default_rng()}, "keep one"),
        ({"latents": np.zeros((1, 16, 4, 4))}, r"needs \(1, 16, 8, 12\)"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(shared_pipeline, options, words):
    """Each gives one sentence that says what would fit."""
    with pytest.raises(InputError, match=words):
        shared_pipeline(**({"prompt": "a cat"} | SMALL | options))


def test_submodules_go_where_they_are_placed(model_folder, shared_pipeline):
    """Devices change where parts run and what cores they have, not what they compute."""
    placed = StableDiffusion3Pipeline.from_folder(
        model_folder, devices={"text_encoder_3": "cpu:1", "vae": "cpu:1"}
    )
    devices = {name: part.device for name, part in placed.parts.items()}
    assert devices == dict.fromkeys(SUBMODULES, "cpu:0") | {
        "text_encoder_3": "cpu:1",
        "vae": "cpu:1",
    }
    assert [share.device for share in placed.placement.shares] == ["cpu:0", "cpu:1"]
    ours = placed("a cat", seed=2, output_type="np", **SMALL).images
    theirs = shared_pipeline("a cat", seed=2, output_type="np", **SMALL).images
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_pipelines_in_threads_do_not_disturb_each_other(model_folder, shared_pipeline):
    """Two instances at once give what one gives alone."""

    def run(seed):
        own = StableDiffusion3Pipeline.from_folder(model_folder, {"transformer": f"cpu:{seed}"})
        return own("a cat", seed=seed, output_type="np", **SMALL).images

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(run, (0, 1)))
    for seed, image in enumerate(together):
        alone = shared_pipeline("a cat", seed=seed, output_type="np", **SMALL).images
        np.testing.assert_allclose(image, alone, atol=1e-4)


def test_unknown_submodules_and_providers_are_refused(model_folder, monkeypatch):
    """A submodule or provider that is not there gives a sentence with those that are."""
    with pytest.raises(InputError, match="'unet' is not a submodule of this pipeline; it has text"):
        StableDiffusion3Pipeline.from_folder(model_folder, devices={"unet": "cpu:0"})
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(InputError, match="no CUDAExecutionProvider, only CPUExecutionProvider"):
        StableDiffusion3Pipeline.from_folder(model_folder, devices={"vae": "cuda:1"})
    with pytest.raises(InputError, match="no DmlExecutionProvider"):
        StableDiffusion3Pipeline.from_folder(model_folder, providers=["DmlExecutionProvider"])


def test_providers_name_the_device_of_unplaced_parts(model_folder, monkeypatch):
    """Given providers serve the parts that have no device, under the device they stand for."""
    available = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: available)
    providers = [("CUDAExecutionProvider", {"device_id": "1"}), "CPUExecutionProvider"]
    pipeline = StableDiffusion3Pipeline.from_folder(
        model_folder, devices={"vae": "cpu:0"}, providers=providers
    )
    assert pipeline.transformer.device == "cuda:1"
    assert list(pipeline.transformer.providers) == providers
    assert pipeline.vae.decoder.device == "cpu:0"
    assert pipeline.vae.decoder.providers == ("CPUExecutionProvider",)
