"""Tokenizers for the tiny model: byte-level BPE for the CLIPs, unigram for T5, made from one text.

The text below stands in the source, and every choice is ordered, so the files come out the same
each time. (The trainers in `tokenizers` do not promise that: they break ties and add numbers in
hash order. The two small ones here therefore count for themselves.)
"""

import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

from profiler.errors import needing

with needing("run", "profiler.pipelines.tiny"):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

__all__ = [
    "BOS_ID",
    "CLIP_LENGTH",
    "EOS_ID",
    "T5_LENGTH",
    "VOCABULARY_SIZE",
    "write_clip",
    "write_t5",
]

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
