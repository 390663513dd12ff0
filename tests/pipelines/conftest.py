"""What the pipeline tests share: the embedded model, and the same model in torch as reference."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from profiler.pipelines import StableDiffusion3Pipeline, default_model_folder


@pytest.fixture(scope="session")
def model_folder() -> Path:
    return default_model_folder()


@pytest.fixture(scope="session")
def shared_pipeline(model_folder):
    """A pipeline with open sessions, for tests that leave it as it is."""
    return StableDiffusion3Pipeline.from_folder(model_folder)


@pytest.fixture
def pipeline(model_folder):
    """A pipeline of its own, for tests that change it."""
    return StableDiffusion3Pipeline.from_folder(model_folder)


@pytest.fixture(scope="session")
def torch_stack() -> Iterator[SimpleNamespace]:
    """The torch extra, imported with its own warnings silenced; skips where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reason = "the reference implementation needs the torch extra"
        found = SimpleNamespace(
            torch=pytest.importorskip("torch", reason=reason),
            transformers=pytest.importorskip("transformers", reason=reason),
            diffusers=pytest.importorskip("diffusers", reason=reason),
        )
        yield found


@pytest.fixture(scope="session")
def torch_parts(torch_stack):
    """The tiny model's torch modules, made from their seed."""
    from profiler.graph.tiny_model import build_parts

    return build_parts()


@pytest.fixture(scope="session")
def torch_tokenizers(torch_stack, model_folder):
    """transformers' tokenizers on the shipped files, by pipeline attribute."""
    transformers = torch_stack.transformers
    return {
        "tokenizer": transformers.CLIPTokenizer.from_pretrained(model_folder / "tokenizer"),
        "tokenizer_2": transformers.CLIPTokenizer.from_pretrained(model_folder / "tokenizer_2"),
        "tokenizer_3": transformers.T5TokenizerFast.from_pretrained(model_folder / "tokenizer_3"),
    }


@pytest.fixture(scope="session")
def reference(torch_stack, torch_parts, torch_tokenizers):
    """diffusers' pipeline with the tiny model's weights."""
    pipe = torch_stack.diffusers.StableDiffusion3Pipeline(
        transformer=torch_parts.transformer,
        scheduler=torch_parts.scheduler,
        vae=torch_parts.vae,
        text_encoder=torch_parts.text_encoder,
        text_encoder_2=torch_parts.text_encoder_2,
        text_encoder_3=torch_parts.text_encoder_3,
        **torch_tokenizers,
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture(scope="session")
def run_both(torch_stack):
    """Runs a pipeline of ours and diffusers' from the same latents; gives (ours, theirs), each
    (latents of every step, images)."""
    torch = torch_stack.torch

    def run(pipeline, reference, prompt, latents, **options):
        ours, theirs = [], []
        options["output_type"] = "np"

        def keep_ours(_pipe, _step, _timestep, values):
            ours.append(values["latents"].copy())

        def keep_theirs(_pipe, _step, _timestep, values):
            theirs.append(values["latents"].numpy().copy())
            return values

        made = pipeline(prompt, latents=latents, callback_on_step_end=keep_ours, **options).images
        options |= {"latents": torch.from_numpy(latents), "callback_on_step_end": keep_theirs}
        with torch.no_grad():
            expected = reference(prompt, **options).images
        return (np.stack(ours), made), (np.stack(theirs), expected)

    return run
