"""Build the embedded tiny model: `python -m profiler.graph.tiny_model [OUT]`.

It needs the `torch` extra (torch, diffusers, transformers, onnx, onnxscript). Without OUT it
replaces the folder that the package ships. Builds are reproducible: weights depend on `SEED`
and the parameter's name, and tokenizers are trained in a fixed order.
"""

import argparse
import json
import math
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from profiler.errors import needing
from profiler.graph.export import export_pipeline
from profiler.graph.export_models import SD3_INDEX
from profiler.graph.export_torch import ExportOptions, fill_parameters, quiet_libraries
from profiler.pipelines.tiny import default_model_folder

# --- Tokenizers for the tiny model: byte-level BPE for the CLIPs, unigram for T5, made from one
# text.
#
# The text is in the source below, and every choice is ordered, so the files are the same each time.
# (The trainers in `tokenizers` do not guarantee that: they break ties and number tokens in hash
# order. So the two small ones here count themselves.)


with needing("run", "profiler.pipelines.tiny"):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

VOCABULARY_SIZE = 1024
"""Entries of each vocabulary; the three text encoders have embeddings of this many rows."""

BOS_ID, EOS_ID = VOCABULARY_SIZE - 2, VOCABULARY_SIZE - 1
CLIP_LENGTH = 77
T5_LENGTH = 512

_BOS, _EOS = "<|startoftext|>", "<|endoftext|>"
_T5_SPECIAL = ("<pad>", "</s>", "<unk>")

_TEXT = """
a photo of a cat holding a sign that says hello world
a photograph of an astronaut riding a horse on the moon in bright sunlight
a detailed oil painting of an ancient castle above a green valley and a quiet river
a watercolor painting of a small village near the sea with white houses and blue doors
a cinematic portrait of an old woman with silver hair and kind eyes in soft window light
a red fox sleeping under a maple tree in the middle of autumn with falling leaves
an aerial view of a mountain lake surrounded by pine forest and morning mist
a futuristic city street at night with neon signs and rain on the ground
a close up photo of a yellow flower covered with drops of water after the storm
a wooden table with a bowl of fresh fruit and a glass of orange juice beside an open book
a robot gardener watering plants in a greenhouse full of tropical flowers
a black and white photograph of a train station crowded with travelers
a child flying a paper kite on a windy beach while a brown dog runs behind
the interior of a cozy library with tall shelves and a burning fireplace
a steam locomotive crossing a stone bridge over a deep canyon during winter
a bowl of hot noodle soup with egg and vegetables on a dark wooden counter
three colorful balloons floating over snowy hills at golden sunset
a marble statue of a lion guarding the entrance of a forgotten temple in the jungle
a minimal poster of a sailing boat and a large orange sun with clean geometric shapes
a macro shot of a blue butterfly resting on a leaf with blurred background
a knight in shining armor standing before a dragon made of clouds and lightning
an isometric illustration of a tiny kitchen with pastel colors and round corners
a vintage poster of a motorcycle race across the desert with dramatic shadows
a pencil sketch of a violin player on an empty stage under a single spotlight
a group of penguins walking along the edge of an iceberg in clear turquoise water
a high resolution studio photo of a pair of leather shoes on a plain gray background
a fantasy landscape with floating islands waterfalls and glowing crystals
a realistic digital painting of a wolf howling in front of the full moon
an elegant restaurant terrace decorated with lanterns overlooking the harbor
a quiet street in an old european town with bicycles leaning on brick walls
a spaceship landing on a strange planet with purple sand and two suns
a baker taking fresh bread out of a traditional oven early in the morning
low quality blurry distorted deformed ugly watermark text bad anatomy extra fingers cropped
masterpiece best quality highly detailed sharp focus intricate trending concept art
it is what it was and you are not the one who will be there when they come from where we have been
""".strip()


def _clip_merges(wanted: int) -> list[tuple[str, str]]:
    """Return the pairs that BPE merges, in order, until they give `wanted` new tokens.

    Words end in `</w>`. The commonest pair comes first, and of equally common ones the first in
    alphabetical order.
    """
    counts = Counter(_TEXT.split())
    words = {word: [*word[:-1], f"{word[-1]}</w>"] for word in counts}
    merges: list[tuple[str, str]] = []
    while len({first + second for first, second in merges}) < wanted:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, symbols in words.items():
            for pair in pairwise(symbols):
                pairs[pair] += counts[word]
        if not pairs:
            raise ValueError(f"the text gives {len(merges)} merges; the vocabulary needs {wanted}")
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = {word: _merged(symbols, best) for word, symbols in words.items()}
    return merges


def _merged(symbols: list[str], pair: tuple[str, str]) -> list[str]:
    """Return `symbols` with each occurrence of `pair`, from the left, joined into one symbol."""
    joined: list[str] = []
    position = 0
    while position < len(symbols):
        width = 2 if tuple(symbols[position : position + 2]) == pair else 1
        joined.append("".join(symbols[position : position + width]))
        position += width
    return joined


def _byte_symbols() -> list[str]:
    """Return the 256 symbols of byte-level BPE in CLIP's order: printable bytes first, `!` is 0."""
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    printable = sorted(symbol for symbol in alphabet if ord(symbol) < 256)
    return printable + sorted(alphabet.difference(printable))


def write_clip(folder: Path, pad_token: str) -> None:
    """Write a CLIP tokenizer (vocab.json, merges.txt and the two settings files) into `folder`.

    `pad_token` is `<|endoftext|>` in the first and `!` in the second tokenizer of SD3.
    """
    merges = _clip_merges(VOCABULARY_SIZE - 2 * 256 - 2)
    symbols = _byte_symbols()
    tokens = symbols + [f"{symbol}</w>" for symbol in symbols]
    tokens += [*dict.fromkeys(first + second for first, second in merges), _BOS, _EOS]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    special = {"bos_token": _BOS, "eos_token": _EOS, "pad_token": pad_token, "unk_token": _EOS}
    settings = {
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": True,
        "do_lower_case": True,
        "errors": "replace",
        "model_max_length": CLIP_LENGTH,
        "tokenizer_class": "CLIPTokenizer",
        **special,
    }
    lines = ["#version: 0.2", *(f"{first} {second}" for first, second in merges)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = json.dumps(vocabulary, ensure_ascii=False, separators=(",", ":"))
    (folder / "vocab.json").write_text(text + "\n", encoding="utf-8")
    _write_json(folder / "special_tokens_map.json", special)
    _write_json(folder / "tokenizer_config.json", settings)


def _unigram_pieces() -> list[tuple[str, float]]:
    """Return T5's pieces with their log probabilities: specials, characters, words, word parts."""
    counts: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    for word in _TEXT.split():
        marked = f"▁{word}"
        counts[marked] += 1
        counts.update(marked)
        for start in range(len(marked)):
            parts.update(marked[start : start + size] for size in (2, 3, 4))
    characters = ["▁", *(chr(code) for code in range(33, 127))]
    whole = sorted((piece for piece in counts if len(piece) > 1), key=lambda p: (-counts[p], p))
    rest = sorted((part for part in parts if len(part) > 1), key=lambda p: (-parts[p], p))
    pieces = list(dict.fromkeys(characters + whole + rest))
    total = sum(counts.values()) + sum(parts.values())
    scored = [
        (piece, round(math.log(max(counts[piece], parts[piece], 1) / total), 4))
        for piece in pieces[: VOCABULARY_SIZE - len(_T5_SPECIAL)]
    ]
    return [*((token, 0.0) for token in _T5_SPECIAL), *scored]


def write_t5(folder: Path) -> None:
    """Write a T5 tokenizer (tokenizer.json, unigram) and its settings into `folder`."""
    pad, eos, unknown = _T5_SPECIAL
    tokenizer = Tokenizer(models.Unigram(_unigram_pieces(), unk_id=2, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in _T5_SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A {eos} $B {eos}", special_tokens=[(eos, 1)]
    )
    special = {"eos_token": eos, "pad_token": pad, "unk_token": unknown}
    settings = {
        "additional_special_tokens": [],
        "clean_up_tokenization_spaces": True,
        "extra_ids": 0,
        "model_max_length": T5_LENGTH,
        "tokenizer_class": "T5Tokenizer",
        **special,
    }
    folder.mkdir(parents=True, exist_ok=True)
    compact = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(compact + "\n", encoding="utf-8")
    _write_json(folder / "special_tokens_map.json", special)
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# --- The tiny model's parts as torch modules: Stable Diffusion 3's own classes, small sizes.
#
# Weights are random and depend only on `SEED` and each parameter's name, not on torch's generator,
# so two builds give the same numbers in any order of the parts.


with needing("torch", "profiler.pipelines.tiny"):
    import torch
    from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection, T5Config, T5EncoderModel

SEED = 3
"""Seed of every weight."""

SAMPLE_SIZE = 48
"""Default height and width of the latents; the image is eight times as large: 384 pixels."""

LATENT_CHANNELS = 16
CLIP_WIDTH, CLIP_2_WIDTH, T5_WIDTH = 24, 32, 64
TRANSFORMER_HEADS, HEAD_WIDTH, TRANSFORMER_BLOCKS = 4, 16, 4
VAE_CHANNELS = (8, 16, 24, 24)

_Model = TypeVar("_Model", bound=torch.nn.Module)


@dataclass(frozen=True)
class TinyParts:
    """The modules of the model, in evaluation mode, float32, on the CPU."""

    text_encoder: CLIPTextModelWithProjection
    text_encoder_2: CLIPTextModelWithProjection
    text_encoder_3: T5EncoderModel
    transformer: SD3Transformer2DModel
    vae: AutoencoderKL
    scheduler: FlowMatchEulerDiscreteScheduler


def build_parts() -> TinyParts:
    """Make the model's parts with their fixed weights."""
    return TinyParts(
        text_encoder=_clip(CLIP_WIDTH, heads=2, layers=2, activation="quick_gelu"),
        text_encoder_2=_clip(CLIP_2_WIDTH, heads=4, layers=3, activation="gelu"),
        text_encoder_3=_t5(),
        transformer=_transformer(),
        vae=_vae(),
        scheduler=FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=3.0),
    )


def _clip(width: int, *, heads: int, layers: int, activation: str) -> CLIPTextModelWithProjection:
    config = CLIPTextConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=width,
        intermediate_size=4 * width,
        projection_dim=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=77,
        hidden_act=activation,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=EOS_ID,
    )
    return _with_weights(CLIPTextModelWithProjection(config))


def _t5() -> T5EncoderModel:
    config = T5Config(
        vocab_size=VOCABULARY_SIZE,
        d_model=T5_WIDTH,
        d_kv=16,
        d_ff=2 * T5_WIDTH,
        num_layers=2,
        num_heads=T5_WIDTH // 16,
        feed_forward_proj="gated-gelu",
        is_encoder_decoder=False,
        use_cache=False,
    )
    return _with_weights(T5EncoderModel(config))


def _transformer() -> SD3Transformer2DModel:
    transformer = SD3Transformer2DModel(
        sample_size=SAMPLE_SIZE,
        patch_size=2,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        num_layers=TRANSFORMER_BLOCKS,
        num_attention_heads=TRANSFORMER_HEADS,
        attention_head_dim=HEAD_WIDTH,
        joint_attention_dim=T5_WIDTH,
        caption_projection_dim=TRANSFORMER_HEADS * HEAD_WIDTH,
        pooled_projection_dim=CLIP_WIDTH + CLIP_2_WIDTH,
        pos_embed_max_size=32,
    )
    return _with_weights(transformer)


def _vae() -> AutoencoderKL:
    vae = AutoencoderKL(
        in_channels=3,
        out_channels=3,
        latent_channels=LATENT_CHANNELS,
        block_out_channels=VAE_CHANNELS,
        down_block_types=("DownEncoderBlock2D",) * len(VAE_CHANNELS),
        up_block_types=("UpDecoderBlock2D",) * len(VAE_CHANNELS),
        layers_per_block=1,
        norm_num_groups=4,
        sample_size=8 * SAMPLE_SIZE,
        scaling_factor=1.5305,
        shift_factor=0.0609,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    return _with_weights(vae)


def _with_weights(model: _Model) -> _Model:
    """Fill every parameter: matrices keep the variance of their input, norms are about one."""
    fill_parameters(model, SEED)
    model.eval()
    return model


# --- The tiny model as a diffusers pipeline folder, the source of `graph export`.


with needing("torch", "profiler.pipelines.tiny"):
    import diffusers


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


# --- Make the embedded tiny model: `python -m profiler.graph.tiny_model [OUT]`.
#
# Needs the `torch` extra (torch, diffusers, transformers, onnx, onnxscript). Without OUT it
# replaces the folder that the package ships.


def build_model(folder: Path) -> None:
    """Write the whole model folder, replacing `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        source, made = Path(scratch) / "source", Path(scratch) / "made"
        with quiet_libraries():
            write_source(source)
        export_pipeline(source, made, ExportOptions(layernorm_fix=False))
        if folder.exists():
            shutil.rmtree(folder)
        shutil.move(made, folder)


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
