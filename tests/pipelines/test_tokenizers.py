"""Prompts become the ids that transformers' tokenizers make of them."""

import json
import shutil
import string

import numpy as np
import pytest

from profiler.errors import InputError
from profiler.pipelines.tokenizer import clip_tokenizer, t5_tokenizer

PROMPTS = [
    "",
    " ",
    "a photo of a cat",
    "A Photo Of A CAT",
    "don't stop; it's the astronaut's horse!",
    "two\nlines\tand  many   blanks ",
    "numbers 1234567890 and 3.14",
    string.printable,
    "".join(chr(code) for code in range(32, 127)),
    "naïve café, Übergröße, Ελλάδα, 東京, привет",
    "emoji ☕🚀 and combining e\u0301 and ligature ﬁ",
    "full stop.No space,here;or(there)",
    "<|startoftext|> inside <|endoftext|> the <|EndOfText|> text </s> <pad> <unk>",
    "word " * 200,
    "antidisestablishmentarianism" * 9,
    "!!! wow !! a!b",
    "\u200bzero width\u00a0no break",
]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["tokenizer", "tokenizer_2", "tokenizer_3"])
@pytest.mark.parametrize("length", [16, 77])
@pytest.mark.parametrize("prompt", PROMPTS, ids=range(len(PROMPTS)))
def test_ids_equal_those_of_transformers(torch_tokenizers, shared_pipeline, name, length, prompt):
    """Ids, truncation and padding equal transformers' for each tokenizer."""
    expected = torch_tokenizers[name](
        [prompt], padding="max_length", max_length=length, truncation=True, return_tensors="np"
    ).input_ids
    ids = getattr(shared_pipeline, name)([prompt], length)
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(ids, expected)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_clip_from_tokenizer_json(torch_tokenizers, tmp_path, shared_pipeline):
    """A CLIP folder with tokenizer.json alone, as newer transformers save it, gives the same."""
    torch_tokenizers["tokenizer_2"].save_pretrained(tmp_path)
    (tmp_path / "vocab.json").unlink(missing_ok=True)
    (tmp_path / "merges.txt").unlink(missing_ok=True)
    loaded = clip_tokenizer(tmp_path)
    np.testing.assert_array_equal(loaded(PROMPTS), shared_pipeline.tokenizer_2(PROMPTS))


@pytest.mark.parametrize("name", ["tokenizer", "tokenizer_2"])
def test_every_ascii_character_has_ids_in_clip(shared_pipeline, name):
    """Byte-level BPE knows every character, so none but the specials are the end token."""
    tokenizer = getattr(shared_pipeline, name)
    for character in map(chr, range(33, 127)):
        row = tokenizer(character, 8)[0]
        assert row[0] == tokenizer.bos_id
        assert 1 <= list(row).index(tokenizer.eos_id) - 1 <= 2


def test_every_ascii_character_is_known_to_t5(shared_pipeline):
    """T5's pieces cover printable ASCII; other characters become the unknown token."""
    tokenizer = shared_pipeline.tokenizer_3
    unknown = tokenizer.backend.token_to_id("<unk>")
    rows = tokenizer(list(map(chr, range(33, 127))), 8)
    assert unknown not in rows
    assert unknown in tokenizer("東京", 8)


def test_one_text_is_a_batch_of_one(shared_pipeline):
    """A text and a list of it give the same ids [1, model_max_length]."""
    one = shared_pipeline.tokenizer("a cat")
    assert one.shape == (1, 77)
    np.testing.assert_array_equal(one, shared_pipeline.tokenizer(["a cat"]))


def test_the_second_tokenizer_pads_with_its_own_token(shared_pipeline):
    """CLIP-L pads with its end token and CLIP-G with `!`, id 0, as in SD3."""
    assert shared_pipeline.tokenizer("", 5).tolist() == [[1022, 1023, 1023, 1023, 1023]]
    assert shared_pipeline.tokenizer_2("", 5).tolist() == [[1022, 1023, 0, 0, 0]]


def test_a_cut_prompt_is_said(shared_pipeline, caplog):
    """A prompt that is too long leaves a warning with both lengths."""
    shared_pipeline.tokenizer("cat " * 100)
    assert "tokenizer cuts a prompt of 100 tokens to 75" in caplog.text


def test_no_room_for_text(shared_pipeline):
    """A length that begin and end fill alone is refused."""
    with pytest.raises(InputError, match="no room"):
        shared_pipeline.tokenizer("cat", 2)


def test_missing_and_broken_files(model_folder, tmp_path):
    """Each missing or malformed tokenizer file is named in the error."""
    with pytest.raises(InputError, match="neither vocab"):
        clip_tokenizer(tmp_path)
    with pytest.raises(InputError, match=r"tokenizer\.json is missing"):
        t5_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match="is not a tokenizer"):
        t5_tokenizer(tmp_path)
    folder = tmp_path / "clip"
    shutil.copytree(model_folder / "tokenizer", folder)
    merges = (folder / "merges.txt").read_text()
    (folder / "merges.txt").write_text(merges + "one two three\n")
    with pytest.raises(InputError, match="no pair of tokens"):
        clip_tokenizer(folder)
    (folder / "merges.txt").write_text(merges + "unheard of\n")
    with pytest.raises(InputError, match="do not fit"):
        clip_tokenizer(folder)
    (folder / "merges.txt").write_text(merges)
    (folder / "vocab.json").write_text('{"a": "b"}')
    with pytest.raises(InputError, match="must map tokens to integers"):
        clip_tokenizer(folder)


def test_a_vocabulary_without_its_special_tokens(model_folder, tmp_path):
    """A special token that the vocabulary lacks is an error, never a new id past the embeddings."""
    folder = tmp_path / "clip"
    shutil.copytree(model_folder / "tokenizer", folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": "<none>"}))
    with pytest.raises(InputError, match="lacks the special token '<none>'"):
        clip_tokenizer(folder)
