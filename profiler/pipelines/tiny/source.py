"""The tiny model as diffusers saves a pipeline: what `graph export` makes the graphs of."""

import json
from pathlib import Path

from profiler.errors import needing
from profiler.graph.export.known import SD3_INDEX
from profiler.pipelines.tiny.architecture import build_parts
from profiler.pipelines.tiny.vocabulary import write_clip, write_t5

with needing("torch", "profiler.pipelines.tiny"):
    import diffusers

__all__ = ["write_source"]


def write_source(folder: Path) -> None:
    """Write model_index.json, weights as safetensors, tokenizers and scheduler into `folder`."""
    parts = build_parts()
    parts.text_encoder.save_pretrained(folder / "text_encoder")
    parts.text_encoder_2.save_pretrained(folder / "text_encoder_2")
    parts.text_encoder_3.save_pretrained(folder / "text_encoder_3")
    parts.transformer.save_pretrained(folder / "transformer")
    parts.vae.save_pretrained(folder / "vae")
    parts.scheduler.save_config(folder / "scheduler")
    write_clip(folder / "tokenizer", "<|endoftext|>")
    write_clip(folder / "tokenizer_2", "!")
    write_t5(folder / "tokenizer_3")
    index = SD3_INDEX | {"_diffusers_version": diffusers.__version__}
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    (folder / "model_index.json").write_text(text, encoding="utf-8")
