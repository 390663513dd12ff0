"""Tokenizers of CLIP, T5 and Qwen2, with the `tokenizers` library alone.

The ids equal those of transformers' `CLIPTokenizer`, `T5TokenizerFast` and `Qwen2Tokenizer`.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler.errors import InputError, needing
from profiler.files import read_file
from profiler.pipelines.model_folder import MOST_BYTES, Settings, read_json

# --- The prompts of a run.


def as_prompts(prompt: object, what: str, batch: int | None = None) -> list[str]:
    """Return one text or a sequence of them as a list; one text stands for a whole batch.

    `what` names the argument in errors. Raises `InputError` for anything that is not text, for
    no texts at all, and for a count other than `batch`.
    """
    if isinstance(prompt, str):
        return [prompt] * (batch or 1)
    if not isinstance(prompt, Sequence) or not all(isinstance(text, str) for text in prompt):
        raise InputError(f"{what} must be a text or a list of texts, not {type(prompt).__name__}")
    texts = list(prompt)
    if not texts:
        raise InputError(f"{what} is an empty list; give at least one text")
    if batch is not None and len(texts) != batch:
        raise InputError(
            f"{what} has {len(texts)} texts for {batch} prompts; give one for each, or one text"
        )
    return texts


# --- CLIP's and T5's tokenizers: text to ids. CLIP's are read from vocab.json and merges.txt (or
# tokenizer.json), T5's from tokenizer.json.


with needing("run", "profiler.pipelines"):
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

_log = logging.getLogger(__name__)

_CLIP_PATTERN = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)
_CLIP_DEFAULTS = {
    "bos_token": "<|startoftext|>",
    "eos_token": "<|endoftext|>",
    "unk_token": "<|endoftext|>",
    "pad_token": "<|endoftext|>",
}
_T5_DEFAULTS = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


@dataclass(frozen=True)
class PromptTokenizer:
    """Turns texts into rows of ids of one length: start, text, end, padding.

    `backend` splits text and has the vocabulary; `bos_id` is None if texts have no start token.
    """

    name: str
    backend: Tokenizer
    bos_id: int | None
    eos_id: int
    pad_id: int
    model_max_length: int

    def __call__(
        self, texts: str | Sequence[str], max_length: int | None = None
    ) -> NDArray[np.int64]:
        """Return ids int64 [batch, max_length] (default: `model_max_length`).

        Longer texts are cut and a warning is logged. Raises `InputError` if `max_length` leaves
        no room for text.
        """
        batch = [texts] if isinstance(texts, str) else list(texts)
        length = self.model_max_length if max_length is None else max_length
        before = [] if self.bos_id is None else [self.bos_id]
        room = length - len(before) - 1
        if room < 1:
            raise InputError(f"{length} tokens leave no room for text; use at least 3")
        rows = np.full((len(batch), length), self.pad_id, dtype=np.int64)
        for row, encoding in zip(
            rows, self.backend.encode_batch(batch, add_special_tokens=False), strict=True
        ):
            ids = encoding.ids
            if len(ids) > room:
                _log.warning(
                    "%s cuts a prompt of %d tokens to %d; the rest has no effect",
                    self.name,
                    len(ids),
                    room,
                )
            full = [*before, *ids[:room], self.eos_id]
            row[: len(full)] = full
        return rows


def clip_tokenizer(folder: Path) -> PromptTokenizer:
    """Load a CLIP tokenizer folder; raises `InputError` if a file is missing or malformed."""
    special = special_tokens(folder, _CLIP_DEFAULTS)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        backend = _clip_backend(folder, special["unk_token"].content)
    elif (folder / "tokenizer.json").is_file():
        backend = backend_from_json(folder / "tokenizer.json")
    else:
        raise InputError(
            f"{folder} holds neither vocab.json with merges.txt nor tokenizer.json; "
            "export the model again or copy the folder whole"
        )
    return _assemble(folder, backend, special, default_length=77)


def t5_tokenizer(folder: Path) -> PromptTokenizer:
    """Load a T5 tokenizer folder; raises `InputError` if a file is missing or malformed."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(
            f"{path} is missing; save the tokenizer with transformers' T5TokenizerFast, which "
            "writes it"
        )
    backend = backend_from_json(path)
    return _assemble(folder, backend, special_tokens(folder, _T5_DEFAULTS), default_length=512)


def _assemble(
    folder: Path, backend: Tokenizer, special: Mapping[str, AddedToken], default_length: int
) -> PromptTokenizer:
    """Add the special tokens to `backend` and look their ids up."""
    backend.no_padding()
    backend.no_truncation()
    ids = {key: token_id(folder, backend, token) for key, token in special.items()}
    backend.add_special_tokens(list(special.values()))
    settings = tokenizer_settings(folder)
    length = settings.integer("model_max_length", default_length)
    return PromptTokenizer(
        name=folder.name,
        backend=backend,
        bos_id=ids.get("bos_token"),
        eos_id=ids["eos_token"],
        pad_id=ids["pad_token"],
        # transformers writes a huge number if a tokenizer has no limit of its own
        model_max_length=length if length <= 1_000_000 else default_length,
    )


def token_id(folder: Path, backend: Tokenizer, token: AddedToken) -> int:
    """Return the id of a special token; raises `InputError` if the vocabulary lacks it."""
    found = backend.token_to_id(token.content)
    if found is None:
        raise InputError(
            f"{folder}: the vocabulary lacks the special token {token.content!r}; fetch it"
        )
    return found


def _clip_backend(folder: Path, unknown: str) -> Tokenizer:
    """Build CLIP's byte-level BPE from vocab.json and merges.txt."""
    backend = Tokenizer(byte_pairs(folder, end_of_word_suffix="</w>", unk_token=unknown))
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CLIP_PATTERN), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return backend


def byte_pairs(folder: Path, **options: str) -> models.BPE:
    """Load the byte-pair encoding from vocab.json and merges.txt; raises `InputError` if they are
    invalid."""
    vocabulary = read_json(folder / "vocab.json")
    merges = list(_read_merges(folder / "merges.txt"))
    numbered = {token: index for token, index in vocabulary.items() if isinstance(index, int)}
    if len(numbered) != len(vocabulary):
        raise InputError(f"{folder / 'vocab.json'} must map tokens to integers; fetch it again")
    try:
        return models.BPE(
            vocab=numbered, merges=merges, continuing_subword_prefix="", fuse_unk=False, **options
        )
    except Exception as error:  # the library raises nothing more specific
        raise InputError(
            f"{folder}: vocab.json and merges.txt do not fit ({error}); fetch both"
        ) from error


def _read_merges(path: Path) -> Iterable[tuple[str, str]]:
    """Yield the pairs of merges.txt; raises `InputError` at a line that is not a pair."""
    try:
        lines = read_file(path, MOST_BYTES).decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); fetch it again") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        pair = line.rstrip("\r").split(" ")
        if len(pair) != 2:
            raise InputError(
                f"{path}, line {number}: {line!r} is no pair of tokens; fetch it again"
            )
        yield pair[0], pair[1]


def backend_from_json(path: Path) -> Tokenizer:
    """Load tokenizer.json; raises `InputError` if it is malformed."""
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more specific
        raise InputError(f"{path} is not a tokenizer ({error}); fetch it again") from error


def tokenizer_settings(folder: Path) -> Settings:
    """Return tokenizer_config.json, or empty settings if it does not exist."""
    path = folder / "tokenizer_config.json"
    return Settings.read(path) if path.is_file() else Settings(path, {})


def special_tokens(folder: Path, defaults: Mapping[str, str]) -> dict[str, AddedToken]:
    """Return role (`eos_token`, …) → token, from the folder's settings over `defaults`."""
    settings = tokenizer_settings(folder).values
    map_path = folder / "special_tokens_map.json"
    fallback = read_json(map_path) if map_path.is_file() else {}
    found: dict[str, AddedToken] = {}
    for role, default in defaults.items():
        entry = settings.get(role) or fallback.get(role) or default
        content = entry.get("content") if isinstance(entry, dict) else entry
        if not isinstance(content, str):
            raise InputError(
                f"{role} in {folder / 'tokenizer_config.json'} must be a text, "
                f"not {json.dumps(entry)}"
            )
        flags = entry if isinstance(entry, dict) else _added_flags(settings, content)
        found[role] = _added(content, {**flags, "special": True})
    return found


def _added_flags(settings: Mapping[str, object], content: str) -> Mapping[str, object]:
    """Return how tokenizer_config.json says the special token `content` must be matched."""
    added = settings.get("added_tokens_decoder")
    for entry in added.values() if isinstance(added, dict) else ():
        if isinstance(entry, dict) and entry.get("content") == content:
            return entry
    return {}


# --- Qwen2's tokenizer: text to ids, from tokenizer.json, or vocab.json and merges.txt.

_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEFAULTS = {"pad_token": "<|endoftext|>"}


class Tokens(NamedTuple):
    """Rows of one length: ids int64 [batch, tokens], and a mask int64 that is 0 for padding."""

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
        flags = entry if isinstance(entry, dict) else {}
        token = _added(str(flags.get("content", "")), flags)
        backend.add_tokens([token])
        if str(backend.token_to_id(token.content)) != number:
            raise InputError(
                f"{folder}: {token.content!r} of tokenizer_config.json has the number {number}, "
                f"but follows as {backend.token_to_id(token.content)}; fetch vocab.json again"
            )
    return backend


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1


def _added(content: str, flags: Mapping[str, object]) -> AddedToken:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(content, **{name: flags.get(name) is True for name in names})
