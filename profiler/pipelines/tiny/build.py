"""Make the embedded tiny model: `python -m profiler.pipelines.tiny.build [OUT]`.

Needs the `torch` extra (torch, diffusers, transformers, onnx, onnxscript). Without OUT it replaces
the folder that the package ships.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import diffusers

from profiler.pipelines.tiny import default_model_folder
from profiler.pipelines.tiny.architecture import TinyParts, build_parts
from profiler.pipelines.tiny.export import export_parts
from profiler.pipelines.tiny.vocabulary import write_clip, write_t5

__all__ = ["build_model", "main"]


def build_model(folder: Path) -> None:
    """Write the whole model folder; what `folder` held before is replaced."""
    parts = build_parts()
    if folder.exists():
        shutil.rmtree(folder)
    export_parts(parts, folder)
    _write_configs(parts, folder)
    write_clip(folder / "tokenizer", "<|endoftext|>")
    write_clip(folder / "tokenizer_2", "!")
    write_t5(folder / "tokenizer_3")


def _write_configs(parts: TinyParts, folder: Path) -> None:
    """Write config.json beside each graph, the scheduler's settings and model_index.json."""
    parts.text_encoder.config.save_pretrained(folder / "text_encoder")
    parts.text_encoder_2.config.save_pretrained(folder / "text_encoder_2")
    parts.text_encoder_3.config.save_pretrained(folder / "text_encoder_3")
    parts.transformer.save_config(folder / "transformer")
    parts.vae.save_config(folder / "vae_decoder")
    parts.scheduler.save_config(folder / "scheduler")
    index = {
        "_class_name": "StableDiffusion3Pipeline",
        "_diffusers_version": diffusers.__version__,
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "CLIPTextModelWithProjection"],
        "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
        "text_encoder_3": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "CLIPTokenizer"],
        "tokenizer_3": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "SD3Transformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    text = json.dumps(index, indent=2) + "\n"
    (folder / "model_index.json").write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the embedded tiny Stable Diffusion 3.")
    parser.add_argument(
        "out",
        nargs="?",
        type=Path,
        default=default_model_folder(),
        help="folder to write, replaced if it exists (default: the one the package ships)",
    )
    folder: Path = parser.parse_args(arguments).out
    if folder.exists() and any(folder.iterdir()) and not (folder / "model_index.json").is_file():
        parser.error(f"{folder} is not a model folder; name an empty or new one")
    build_model(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    sys.stdout.write(f"{folder}: {size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
