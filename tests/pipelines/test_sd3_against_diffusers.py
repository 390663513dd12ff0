"""The NumPy pipeline computes what diffusers computes with the same weights."""

import json
import shutil

import numpy as np
import onnx
import pytest

from profiler.pipelines import StableDiffusion3Pipeline

pytestmark = [
    pytest.mark.torch,
    # torch, diffusers and transformers warn about each other; that is not what is tested here
    pytest.mark.filterwarnings("ignore"),
]

PROMPT = "A photo of a cat, holding a sign that says hello world!"
ONNX_PARTS = ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae_decoder")


def noise(batch, height, width, seed=0):
    """Latents to start from, float32 [batch, 16, height / 8, width / 8]."""
    shape = (batch, 16, height // 8, width // 8)
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def sized(height, width, batch=1):
    """The arguments of images of a size, with latents to start from."""
    return {"latents": noise(batch, height, width), "height": height, "width": width}


def assert_same(ours, theirs, latent_bound=1e-3, pixel_bound=2 / 255):
    assert ours[0].shape == theirs[0].shape
    assert ours[1].shape == theirs[1].shape
    assert np.abs(ours[0] - theirs[0]).max() < latent_bound
    assert np.abs(ours[1] - theirs[1]).max() < pixel_bound


def test_a_whole_run_equals_diffusers(run_both, reference, shared_pipeline):
    """After each of 28 steps latents differ by less than 1e-3, and the image by less than 2/255."""
    ours, theirs = run_both(
        shared_pipeline,
        reference,
        PROMPT,
        noise(1, 384, 384),
        negative_prompt="low quality",
        num_inference_steps=28,
        guidance_scale=7.0,
    )
    assert len(ours[0]) == 28
    assert_same(ours, theirs)


def test_without_guidance(run_both, reference, shared_pipeline):
    """With a guidance scale of 1 the negative prompt plays no part and results are equal."""
    ours, theirs = run_both(
        shared_pipeline,
        reference,
        PROMPT,
        **sized(128, 128),
        num_inference_steps=5,
        guidance_scale=1.0,
    )
    assert_same(ours, theirs)


@pytest.mark.parametrize(("height", "width"), [(96, 512), (48, 80), (144, 64)])
def test_an_oblong_image(run_both, reference, shared_pipeline, height, width):
    """Height and width are not mixed up, and positions are cropped as diffusers crops them, where
    the number of patches is odd too."""
    ours, theirs = run_both(
        shared_pipeline,
        reference,
        PROMPT,
        **sized(height, width),
        num_inference_steps=4,
        max_sequence_length=64,
    )
    assert_same(ours, theirs)


def test_two_prompts_with_two_images_each(run_both, reference, shared_pipeline):
    """Prompts, negative prompts and images per prompt meet in the same order as in diffusers."""
    ours, theirs = run_both(
        shared_pipeline,
        reference,
        [PROMPT, "a red fox in the snow"],
        **sized(64, 128, batch=4),
        negative_prompt=["", "blurry text"],
        num_images_per_prompt=2,
        num_inference_steps=4,
        guidance_scale=4.5,
    )
    assert_same(ours, theirs)


def test_prompt_embeddings_equal_diffusers(torch_stack, reference, shared_pipeline):
    """All four embeddings have diffusers' shapes, order and values, T5's tokens included."""
    ours = shared_pipeline.encode_prompt([PROMPT, ""], "ugly", max_sequence_length=40)
    with torch_stack.torch.no_grad():
        theirs = reference.encode_prompt(
            [PROMPT, ""],
            None,
            None,
            negative_prompt=["ugly", "ugly"],
            max_sequence_length=40,
        )
    assert ours.prompt_embeds.shape == (2, 77 + 40, 64)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other.numpy(), atol=2e-5)


def test_without_t5(run_both, torch_stack, reference, model_folder, tmp_path):
    """A folder whose text_encoder_3 is null gives zeros in T5's place, as diffusers does."""
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    index = json.loads((folder / "model_index.json").read_text())
    index |= {"text_encoder_3": [None, None], "tokenizer_3": [None, None]}
    (folder / "model_index.json").write_text(json.dumps(index))
    shutil.rmtree(folder / "text_encoder_3")
    shutil.rmtree(folder / "tokenizer_3")
    pipeline = StableDiffusion3Pipeline.from_folder(folder)
    components = {
        name: value
        for name, value in reference.components.items()
        if name not in ("text_encoder_3", "tokenizer_3", "image_encoder", "feature_extractor")
    }
    bare = torch_stack.diffusers.StableDiffusion3Pipeline(
        **components, text_encoder_3=None, tokenizer_3=None
    )
    bare.set_progress_bar_config(disable=True)
    ours, theirs = run_both(pipeline, bare, PROMPT, **sized(64, 64), num_inference_steps=3)
    assert list(pipeline.parts) == ["text_encoder", "text_encoder_2", "transformer", "vae"]
    assert_same(ours, theirs)


def test_dynamic_shifting(run_both, reference, model_folder, tmp_path):
    """With use_dynamic_shifting the schedule depends on the image's size as in diffusers."""
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    path = folder / "scheduler" / "scheduler_config.json"
    config = json.loads(path.read_text()) | {"use_dynamic_shifting": True}
    path.write_text(json.dumps(config))
    pipeline = StableDiffusion3Pipeline.from_folder(folder)
    before = reference.scheduler
    reference.scheduler = type(before).from_config(config)
    try:
        ours, theirs = run_both(pipeline, reference, PROMPT, **sized(64, 96), num_inference_steps=4)
    finally:
        reference.scheduler = before
    assert_same(ours, theirs)


def unshare_resize_scales(graph):
    """Give every Resize its own scales: the converter names its cast after the tensor alone."""
    initializers = {value.name: value for value in graph.initializer}
    for position, node in enumerate(graph.node):
        if node.op_type == "Resize":
            copy = onnx.TensorProto()
            copy.CopyFrom(initializers[node.input[2]])
            copy.name = f"scales_{position}"
            graph.initializer.append(copy)
            node.input[2] = copy.name


def test_a_float16_folder(run_both, reference, model_folder, tmp_path):
    """A float16 export runs with latents in float32, a fifth of their deviation off at most.

    The bound is loose because float16 rounds at every node (about 1e-3 of a value) and guidance
    multiplies the difference of two such results by its scale; 0.05 deviations were measured.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    for part in ONNX_PARTS:
        path = folder / part / "model.onnx"
        model = onnx.load(path)
        unshare_resize_scales(model.graph)
        onnx.save(convert_float_to_float16(model, keep_io_types=False), path)
    pipeline = StableDiffusion3Pipeline.from_folder(folder)
    ours, theirs = run_both(
        pipeline, reference, PROMPT, **sized(128, 128), num_inference_steps=8, guidance_scale=4.0
    )
    declared = {value.type for value in pipeline.transformer.session.get_inputs()}
    assert declared == {"tensor(float16)"}
    assert ours[0].dtype == np.float32
    scale = float(theirs[0][-1].std())
    assert_same(ours, theirs, latent_bound=0.2 * scale, pixel_bound=0.1)


def test_a_folder_with_external_data(shared_pipeline, model_folder, tmp_path):
    """Weights in files beside the graphs give exactly the same latents as weights inside."""
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    for part in ONNX_PARTS:
        path = folder / part / "model.onnx"
        model = onnx.load(path)
        path.unlink()
        onnx.save_model(
            model, path, save_as_external_data=True, location="weights.bin", size_threshold=1024
        )
        assert (folder / part / "weights.bin").stat().st_size > path.stat().st_size / 4
    options = {
        **sized(64, 64),
        "num_inference_steps": 2,
        "output_type": "latent",
    }
    external = StableDiffusion3Pipeline.from_folder(folder)
    expected = shared_pipeline(PROMPT, **options).images
    np.testing.assert_array_equal(external(PROMPT, **options).images, expected)


def test_shipped_weights_are_those_of_the_seed(torch_parts, model_folder):
    """Every torch parameter that a graph uses stands in it, as it is or transposed."""
    modules = {
        "text_encoder": torch_parts.text_encoder,
        "text_encoder_2": torch_parts.text_encoder_2,
        "text_encoder_3": torch_parts.text_encoder_3,
        "transformer": torch_parts.transformer,
        "vae_decoder": torch_parts.vae.decoder,
    }
    for part, module in modules.items():
        graph = onnx.load(model_folder / part / "model.onnx").graph
        shipped = {onnx.numpy_helper.to_array(value).tobytes() for value in graph.initializer}
        for name, parameter in module.named_parameters():
            values = parameter.detach().numpy()
            forms = {values.tobytes(), np.ascontiguousarray(values.T).tobytes()}
            assert forms & shipped, f"{part}: {name}"
