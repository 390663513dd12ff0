"""Tiny diffusers pipelines with random weights, exported to ONNX by optimum's own exporter."""

from __future__ import annotations

import logging
import tempfile
import warnings
from pathlib import Path

import tokenizers
import transformers

import tests.capture.tiny_diffusers as tiny

__all__ = ["export"]


def letters():
    """A tokenizer that knows letters; made in memory by transformers 4 and 5 alike."""
    words = ["<pad>", *tiny._LETTERS]
    model = tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<pad>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<pad>", model_max_length=77
    )


def export(folder):
    """Write `sd3`, `flux` and `sdxl` to `folder`, each in the layout of optimum, and `saved`: FLUX
    as diffusers saves it."""
    import optimum.onnxruntime as ort

    warnings.simplefilter("ignore")  # of tracing: the sizes that it takes for constant are
    logging.disable(logging.WARNING)
    tiny.clip_tokenizer = tiny.t5_tokenizer = letters  # its own want transformers 5
    classes = {
        "sd3": ort.ORTStableDiffusion3Pipeline,
        "flux": ort.ORTFluxPipeline,
        "sdxl": ort.ORTStableDiffusionXLPipeline,
    }
    for name, pipeline_class in classes.items():
        with tempfile.TemporaryDirectory() as temporary:
            saved = f"{folder}/saved" if name == "flux" else temporary
            getattr(tiny, name)().save_pretrained(saved)
            pipeline = pipeline_class.from_pretrained(saved, export=True)
            pipeline.save_pretrained(Path(folder) / name)
