"""Prompts become the ids that transformers' Qwen2Tokenizer makes of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from profiler.errors import InputError
from profiler.pipelines.tokenizer import qwen_tokenizer
from tests.pipelines.test_tokenizers import PROMPTS

MERGES = ["t h", "th e", "a n", "Ġ a", "Ġ the", "c a", "ca t", "i n", "in g", "Ġa n"]
ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def theirs(torch_stack):
    """Qwen2Tokenizer of all bytes, some merges, and the marks of a chat."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    words = [*bytes_to_unicode().values(), *(pair.replace(" ", "") for pair in MERGES)]
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys(words))}
    pairs = [tuple(pair.split()) for pair in MERGES]
    made = torch_stack.transformers.Qwen2Tokenizer(vocab=vocabulary, merges=pairs)
    made.add_special_tokens({"additional_special_tokens": ADDED[1:]})
    return made


def as_files(theirs, folder):
    """The folder as the published model has it: vocab.json, merges.txt and the added tokens."""
    theirs.save_pretrained(folder)
    model = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(model["model"]["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n")
    added = {str(t["id"]): t for t in model["added_tokens"]}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    return folder


@pytest.fixture(params=["tokenizer.json", "vocab.json and merges.txt"])
def folder(request, theirs, tmp_path):
    if request.param == "tokenizer.json":
        theirs.save_pretrained(tmp_path)
        return tmp_path
    return as_files(theirs, tmp_path)


def test_ids_and_masks_equal_those_of_transformers(theirs, folder):
    """Ids and masks of a batch padded to its longest, and cut, equal transformers'."""
    ours = qwen_tokenizer(folder)
    texts = [*PROMPTS, "<|im_start|>user\na cat and the dog<|im_end|>\n"]
    for length in (5, 64, 1024):
        wanted = theirs(
            texts, padding=True, truncation=True, max_length=length, return_tensors="np"
        )
        found = ours(texts, length)
        np.testing.assert_array_equal(found.input_ids, wanted.input_ids)
        np.testing.assert_array_equal(found.attention_mask, wanted.attention_mask)


def test_a_cut_prompt_is_said(theirs, tmp_path, caplog):
    """A prompt that is too long is cut with a warning that has both numbers."""
    theirs.save_pretrained(tmp_path)
    assert qwen_tokenizer(tmp_path)(["x" * 9], 4).input_ids.shape == (1, 4)
    assert "cuts a prompt of 9 tokens to 4" in caplog.text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "merges.txt").unlink(), "holds neither tokenizer.json nor"),
        (lambda folder: (folder / "vocab.json").write_text("[1]"), "holds no JSON object"),
        (
            lambda folder: (folder / "tokenizer_config.json").write_text(
                json.dumps({"added_tokens_decoder": {"7": {"content": "<|endoftext|>"}}})
            ),
            "has the number 7, but follows as",
        ),
        (
            lambda folder: (folder / "tokenizer_config.json").write_text("{}"),
            "lacks the special token",
        ),
    ],
    ids=["no merges", "no vocabulary", "another number", "no padding"],
)
def test_malformed_folders_are_named(theirs, tmp_path, change, words):
    """A file that is missing or does not fit gives one sentence."""
    folder = as_files(theirs, tmp_path)
    change(folder)
    with pytest.raises(InputError, match=words):
        qwen_tokenizer(folder)
