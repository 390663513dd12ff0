"""Model folders: what is missing or malformed is named in one sentence."""

import json
import shutil

import numpy as np
import pytest

from profiler.errors import InputError
from profiler.pipelines import StableDiffusion3Pipeline
from profiler.pipelines.sd3 import join_embeddings


@pytest.fixture
def folder(model_folder, tmp_path):
    """A copy of the model folder, to be damaged."""
    copy = tmp_path / "model"
    shutil.copytree(model_folder, copy)
    return copy


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("model_index.json", "model_index.json is missing; name a folder in the layout"),
        ("transformer/model.onnx", "transformer/model.onnx is missing from .*export the model"),
        ("vae_decoder/model.onnx", "vae_decoder/model.onnx is missing"),
        ("text_encoder_3/config.json", "text_encoder_3/config.json is missing"),
        ("scheduler/scheduler_config.json", "scheduler_config.json is missing"),
        ("tokenizer/vocab.json", "tokenizer holds neither vocab.json"),
        ("tokenizer_3/tokenizer.json", "tokenizer_3/tokenizer.json is missing"),
    ],
)
def test_a_missing_file_is_named_with_a_recommendation(folder, missing, words):
    """Loading a folder that lacks a file gives one sentence about that file."""
    (folder / missing).unlink()
    with pytest.raises(InputError, match=words):
        StableDiffusion3Pipeline.from_folder(folder)


def test_no_folder(tmp_path):
    """A path that is no folder is named."""
    with pytest.raises(InputError, match="is not a folder"):
        StableDiffusion3Pipeline.from_folder(tmp_path / "none")


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("model_index.json", {"_class_name": "FluxPipeline"}, "holds a 'FluxPipeline'"),
        ("model_index.json", {"_class_name": ["x"]}, "runs StableDiffusion3Pipeline only"),
        ("transformer/config.json", {"sample_size": "big"}, "sample_size in .* positive integer"),
        ("vae_decoder/config.json", {"scaling_factor": None}, "scaling_factor in .* a number"),
        ("vae_decoder/config.json", {"block_out_channels": 4}, "must be a list"),
        ("scheduler/scheduler_config.json", {"_class_name": "DDIMScheduler"}, "'DDIMScheduler'"),
        ("tokenizer/tokenizer_config.json", {"eos_token": 7}, "eos_token in .* must be a text"),
    ],
)
def test_malformed_settings_are_named(folder, file, changes, words):
    """A setting of the wrong kind gives a sentence with the key and the file."""
    edit_json(folder / file, **changes)
    with pytest.raises(InputError, match=words):
        StableDiffusion3Pipeline.from_folder(folder)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\xff", "[" * 100_000])
def test_malformed_json_is_named(folder, text):
    """A model_index.json that is no JSON object gives a sentence, whatever it holds."""
    (folder / "model_index.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"model_index\.json"):
        StableDiffusion3Pipeline.from_folder(folder)


def test_the_index_makes_no_paths(folder):
    """What model_index.json calls its parts does not decide which files are opened."""
    edit_json(
        folder / "model_index.json",
        transformer=["../../elsewhere", "/etc/passwd"],
        text_encoder_3=["..", "../../../outside"],
    )
    pipeline = StableDiffusion3Pipeline.from_folder(folder)
    assert all(part.model_path.is_relative_to(folder) for part in pipeline.parts.values())


def test_an_encoder_of_another_class_is_noticed(folder):
    """A text encoder without text_embeds and hidden states gives a sentence with what it has."""
    shutil.copy(folder / "text_encoder_3" / "model.onnx", folder / "text_encoder" / "model.onnx")
    pipeline = StableDiffusion3Pipeline.from_folder(folder)
    with pytest.raises(InputError, match=r"gives last_hidden_state; .* needs text_embeds"):
        pipeline.encode_prompt("a cat")


def test_encoders_of_different_models_are_noticed():
    """CLIP encoders that are wider together than T5 cannot be padded to its width."""
    clip, t5 = np.zeros((1, 77, 40)), np.zeros((1, 16, 64))
    with pytest.raises(InputError, match="80 wide together and T5 only 64"):
        join_embeddings(clip, clip, t5)
