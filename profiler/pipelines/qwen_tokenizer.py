"""Qwen2's tokenizer: text to ids, with the `tokenizers` library alone.

From tokenizer.json, or vocab.json and merges.txt; the ids equal those of transformers'
`Qwen2Tokenizer`.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler.errors import InputError, needing
from profiler.pipelines.tokenizer import (
    backend_from_json,
    byte_pairs,
    special_tokens,
    token_id,
    tokenizer_settings,
)

with needing("run", "profiler.pipelines"):
    from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

__all__ = ["QwenTokenizer", "Tokens", "qwen_tokenizer"]

_log = logging.getLogger(__name__)

_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEFAULTS = {"pad_token": "<|endoftext|>"}


class Tokens(NamedTuple):
    """Rows of one length: ids int64 [batch, tokens], and a mask int64 that is 0 where ids pad."""

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]


@dataclass(frozen=True)
class QwenTokenizer:
    """Turns texts into rows of ids, padded to the longest at their end."""

    name: str
    backend: Tokenizer
    pad_id: int

    def __call__(self, texts: Sequence[str], max_length: int) -> Tokens:
        """Return the tokens of `texts`; longer ones are cut and a warning is logged."""
        rows = [encoding.ids for encoding in self.backend.encode_batch(list(texts))]
        for ids in rows:
            if len(ids) > max_length:
                words = "%s cuts a prompt of %d tokens to %d; the rest has no effect"
                _log.warning(words, self.name, len(ids), max_length)
        length = min(max_length, max(map(len, rows), default=0))
        found = np.full((len(rows), length), self.pad_id, dtype=np.int64)
        mask = np.zeros_like(found)
        for row, kept, ids in zip(found, mask, rows, strict=True):
            count = min(len(ids), length)
            row[:count], kept[:count] = ids[:count], 1
        return Tokens(found, mask)


def qwen_tokenizer(folder: Path) -> QwenTokenizer:
    """Load a tokenizer folder; raises `InputError` if a file is missing or malformed."""
    if (folder / "tokenizer.json").is_file():
        backend = backend_from_json(folder / "tokenizer.json")
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        backend = _backend(folder)
    else:
        raise InputError(
            f"{folder} holds neither tokenizer.json nor vocab.json with merges.txt; "
            "export the model again or copy the folder whole"
        )
    backend.no_padding()
    backend.no_truncation()
    special = special_tokens(folder, _DEFAULTS)
    return QwenTokenizer(folder.name, backend, token_id(folder, backend, special["pad_token"]))


def _backend(folder: Path) -> Tokenizer:
    """The byte-level BPE, and the added tokens of tokenizer_config.json under their own ids."""
    backend = Tokenizer(byte_pairs(folder, end_of_word_suffix=""))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    added = tokenizer_settings(folder).values.get("added_tokens_decoder")
    entries = added if isinstance(added, dict) else {}
    for number, entry in sorted(entries.items(), key=lambda item: _number(item[0])):
        token = _added(entry)
        backend.add_tokens([token])
        if str(backend.token_to_id(token.content)) != number:
            raise InputError(
                f"{folder}: {token.content!r} of tokenizer_config.json has the number {number}, "
                f"but follows as {backend.token_to_id(token.content)}; fetch vocab.json again"
            )
    return backend


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1


def _added(entry: object) -> AddedToken:
    settings: Mapping[str, object] = entry if isinstance(entry, dict) else {}
    return AddedToken(
        str(settings.get("content", "")),
        single_word=settings.get("single_word") is True,
        lstrip=settings.get("lstrip") is True,
        rstrip=settings.get("rstrip") is True,
        normalized=settings.get("normalized") is True,
        special=settings.get("special") is True,
    )
