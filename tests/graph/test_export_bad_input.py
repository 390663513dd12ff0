"""`graph export` refuses in one sentence, with exit code 2, and leaves nothing behind."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("diffusers", reason="needs the torch extra")

from tests import command_line
from tests.graph.export_sources import source_folder

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def refused(cli, tmp_path):
    """Run `graph export SOURCE OUT …`; the one sentence on stderr, after checks of the rest."""

    def run(source, *options, out=None):
        before = sorted(tmp_path.rglob("*"))
        target = tmp_path / "out" if out is None else out
        sentence = command_line.refused(cli("graph", "export", source, target, *options))
        assert sorted(tmp_path.rglob("*")) == before
        return sentence

    return run


@pytest.fixture
def source(tmp_path):
    """A copy of the tiny SD3's folder, to be spoilt."""
    return shutil.copytree(source_folder("sd3"), tmp_path / "source")


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_no_folder(refused, tmp_path):
    """A name that is neither a folder nor known, and a path that is not there."""
    assert "neither a folder nor a known name (tiny, sd3-medium)" in refused("sd4-large")
    assert "is no folder" in refused(tmp_path / "nowhere")


def test_a_configuration_needs_random_weights(refused):
    """A known configuration has no weights, and says what to give."""
    assert "give --random-weights" in refused("sd3-medium")


def test_pickled_weights(refused, source):
    """Weights that could run code are not loaded, and nothing is exported of other parts."""
    weights = source / "transformer" / "diffusion_pytorch_model.safetensors"
    weights.rename(weights.with_name("diffusion_pytorch_model.bin"))
    assert "pickled weights alone, which can run any code" in refused(source)


def test_no_weights(refused, source):
    """A part without weights is told before any work."""
    (source / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    assert "vae has no weights: copy its safetensors, or give --random-weights" in refused(source)


def test_cut_weights(refused, source):
    """A file of weights that ends early is not read."""
    weights = source / "text_encoder_3" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "cannot be loaded as T5EncoderModel" in refused(source, "--parts", "text_encoder_3")


@pytest.mark.parametrize("part", ["text_encoder", "vae"])
def test_weights_that_lack_some(refused, source, part):
    """A weight that is not in the file is not made up."""
    from safetensors.numpy import load_file, save_file

    (file,) = (source / part).glob("*.safetensors")
    tensors = load_file(file)
    del tensors[sorted(tensors)[0]]
    save_file(tensors, file, metadata={"format": "pt"})
    assert "fetch it again" in refused(source, "--parts", part)


def test_an_index_that_leads_elsewhere(refused, source, tmp_path):
    """The list of weight files may name files of its folder alone."""
    listed = {"weight_map": {"shared.weight": "../../other.safetensors"}}
    (source / "text_encoder_3" / "model.safetensors.index.json").write_text(json.dumps(listed))
    said = refused(source, "--parts", "text_encoder_3")
    assert "names '../../other.safetensors', which is not in its folder" in said


def test_parts_that_run_would_refuse(refused, source):
    """Encoders that do not fit the denoiser are told before any work, with how to export them."""
    change(source / "text_encoder_3" / "config.json", d_model=32)
    said = refused(source, "--random-weights")
    assert "hidden_size of text_encoder and text_encoder_2 together is 64, more than" in said
    assert "which profile-sd3 run refuses; --parts with the names of parts exports them" in said


def test_files_outside_the_source(refused, source, tmp_path):
    """A tokenizer that is a link out of the folder is not copied."""
    (tmp_path / "secret.json").write_text("{}")
    (source / "tokenizer" / "extra.json").symlink_to(tmp_path / "secret.json")
    assert "outside" in refused(source)


def test_other_pipelines(refused, source):
    """A pipeline that is not known, and a part of another class, are named."""
    change(source / "model_index.json", _class_name="StableDiffusionXLPipeline")
    assert "'StableDiffusionXLPipeline', which is not exported" in refused(source)
    change(source / "model_index.json", _class_name="FluxPipeline")
    assert "text_encoder is 'CLIPTextModelWithProjection' where CLIPTextModel" in refused(source)


def test_damaged_configurations(refused, source):
    """JSON that is none, a folder without model_index.json, and values that no model has."""
    config = source / "vae" / "config.json"
    change(config, block_out_channels="no")
    assert "fetch it again" in refused(source, "--parts", "vae", "--random-weights")
    config.write_text("{")
    assert "cannot be read as JSON" in refused(source)
    (source / "model_index.json").unlink()
    assert "model_index.json is missing" in refused(source)


def test_the_output_is_never_written_over(refused, source, tmp_path):
    """A folder that holds something, a file, and a folder inside the source stay as they are."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("keep")
    assert "exists already" in refused(source, out=tmp_path / "full")
    assert "exists already" in refused(source, out=tmp_path / "full" / "letter.txt")
    assert "lies in the input" in refused(source, out=source / "onnx")
    assert "exists already" in refused(source, out=source)
    assert (tmp_path / "full" / "letter.txt").read_text() == "keep"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--dtype", "int4"), "give one of fp32, fp16, bf16"),
        (("--opset", 3), "--opset 3 cannot be exported"),
        (("--static", "depth=3"), "--static depth=3 is no size"),
        (("--static", "height=12,height=12"), "each once"),
        (("--static", "height=0"), "out of range"),
        (("--static", "height=33x"), "is no size"),
        (
            ("--parts", "unet"),
            "this StableDiffusion3Pipeline has no such part: give some of text_encoder, ",
        ),
        (("--seed", -1), "--seed -1 is negative"),
        (("--static", "height=500", "--parts", "transformer"), "beyond this model's position"),
    ],
)
def test_options(refused, options, said):
    """An option that cannot be used is named, with what can."""
    assert said in refused(source_folder("sd3"), *options)


def test_sizes_of_whole_patches(refused):
    """An image that is no multiple of the model's patches is refused with the next that is."""
    said = refused("tiny", "--static", "height=500", "--parts", "transformer")
    assert "height=500 is no multiple of 16 pixels" in said
    assert "height=512" in said


def test_json_in_the_new_folder(refused, tmp_path):
    """The result is not written into the folder that is to appear."""
    said = refused(source_folder("sd3"), "--json", tmp_path / "out" / "result.json")
    assert "out is no folder: make it, or give another" in said
