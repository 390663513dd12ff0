"""Secrets in command lines, settings and texts are hidden, and what is none is kept."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.trace.redaction import (
    HIDDEN,
    is_secret_name,
    own_homes,
    redacted_arguments,
    redacted_settings,
    redacted_text,
)

_HOMES = ("/home/alice",)
_NAMES = [
    *("--hf-token", "--token", "--password", "--hf_token", "--hfToken", "-token", "--api-key"),
    *("--secret", "--client-secret", "--aws-secret-access-key", "--db.password", "--passphrase"),
    *("--key", "--private-key", "--accessKey", "--APIKey", "--token-value", "--db-pwd"),
]
_ORDINARY = [
    *("--num-inference-steps", "--key-frames", "--keyframe", "--max-tokens", "--tokenizer"),
    *("--max-new-tokens", "--eos-token", "--placeholder-token", "--sort-key", "--token-file"),
    *("--monkey", "--keyboard", "--num-tokens", "--keys", "--author", "--patience", "--design"),
    *("--tokenizer-2", "--guidance-scale", "--image-key", "--passes", "--token-merging-ratio"),
]
_SECRET = st.text(string.ascii_letters + string.digits, min_size=12, max_size=40)


def _hidden(*arguments: str) -> tuple[str, ...]:
    return redacted_arguments(arguments, _HOMES)


@pytest.mark.parametrize("name", _NAMES)
def test_what_follows_the_name_of_a_secret(name):
    """A value behind such an option, or behind its =, is hidden, whatever it looks like."""
    assert _hidden("run.py", name, "28", "--steps", "4") == (
        *("run.py", name, HIDDEN, "--steps", "4"),
    )
    assert _hidden(f"{name}=two words; and=more") == (f"{name}={HIDDEN}",)
    assert _hidden(name, "-x1-begins-with-a-dash") == (name, HIDDEN)
    assert _hidden(name, "--verbose", "a.py") == (name, "--verbose", "a.py")


@pytest.mark.parametrize("name", _ORDINARY)
def test_ordinary_options_keep_their_values(name):
    """Options that only sound like a secret's, and numbers and words behind them, stay."""
    arguments = (name, "28", f"{name}=28", f"{name}=euler", "prompt.txt", "hf_transfer", "sk-learn")
    assert _hidden(*arguments) == arguments


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345", "hf_***"),
        ("x=hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345,y", "x=hf_***,y"),
        ("sk-proj-AbCd1234efgh_5678", "sk-***"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "ghp_***"),
        ("github_pat_11AAAAAAA0abcdefghij_xyz", "github_pat_***"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIA***"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKE9", "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "eyJ***"),
        ("HF_TOKEN=abc", "HF_TOKEN=***"),
        ("--env=HF_TOKEN=abc def", "--env=HF_TOKEN=***"),
        ("model.auth.token=abc", "model.auth.token=***"),
        ('{"steps": 4, "token": "a\\"b", "n": 1}', '{"steps": 4, "token": "***", "n": 1}'),
        ('{\\"api_key\\": \\"ab c\\"}', '{\\"api_key\\": \\"***\\"}'),
        ("Authorization: Bearer abc def", "Authorization: ***"),
        ("Bearer abcdefgh123", "Bearer ***"),
        ("https://alice:pw@host:80/a/b?sig=1#x", "https://***@host:80/a/b?***"),
        ("https://alice@host/a", "https://***@host/a"),
        ("see https://host/a?token=1 there", "see https://host/a?*** there"),
        ("https://host/a#access=1", "https://host/a#***"),
        ("postgres://u:p/w@host/db", "postgres://***"),
        ("postgres://u:p w@host/db", "postgres://***@host/db"),
        ("git+https://github.com/org/repo@v1", "git+https://github.com/org/repo@v1"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("/home/alice/models/sd3", "~/models/sd3"),
        ("--model=/home/alice", "--model=~"),
        ("file:///home/alice/a", "file://~/a"),
        ("/home/alicent/a /data/home/alice", "/home/alicent/a /data/home/alice"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "***"),
        ("512x512", "512x512"),
        ("0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789abcdef01234567"),
        ("a photograph of an astronaut: 35mm, f/1.4", "a photograph of an astronaut: 35mm, f/1.4"),
        ("stabilityai/stable-diffusion-3.5-large", "stabilityai/stable-diffusion-3.5-large"),
        ("transformer=cuda:1", "transformer=cuda:1"),
        ("every:4 steps:0-3", "every:4 steps:0-3"),
    ],
)
def test_texts(text, expected):
    """What looks like a secret is hidden wherever it stands; what does not stays."""
    assert redacted_text(text, _HOMES) == expected
    assert redacted_text(expected, _HOMES) == expected


def test_several_values_of_a_plural():
    """All that follows an option of several secrets is hidden, up to the next option."""
    assert _hidden("--api-keys", "a", "b", "--n", "3") == ("--api-keys", "***", "***", "--n", "3")


def test_settings():
    """Of settings, texts under a secret's name are hidden, numbers only under that of a password;
    switches, and counts of tokens, stay."""
    given = {"hf_token": "x", "password": 1234, "max_tokens": 77, "token": 3, "use_auth": True}
    expected = {**given, "hf_token": HIDDEN, "password": HIDDEN}
    assert redacted_settings(given, _HOMES) == expected
    assert redacted_settings({"scheduler": "euler", "eta": None}, _HOMES) == {
        "scheduler": "euler",
        "eta": None,
    }


def test_homes(monkeypatch, tmp_path):
    """One's home is known by its name and by where that leads; a root folder is none."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    monkeypatch.setenv("HOME", f"{link}/")
    assert own_homes() == (str(link), str(real))
    assert redacted_arguments([f"{link}/a", f"{real}/b"]) == ("~/a", "~/b")
    monkeypatch.setenv("HOME", "/")
    assert own_homes() == ()


@given(st.lists(st.text(st.sampled_from("-=:/@?# \"'\\{},.\nabtokenkeysecret_AKIA019~*[]"))))
def test_what_was_redacted_stays_as_it_is(arguments):
    """Redacting again changes nothing, so that reading, merging and writing anew do not."""
    once = redacted_arguments(arguments, _HOMES)
    assert redacted_arguments(once, _HOMES) == once
    assert len(once) == len(arguments)


@given(
    secret=_SECRET,
    name=st.sampled_from(_NAMES),
    form=st.sampled_from(
        [
            "{name}={secret}",
            "{name}='{secret}'",
            '{{"{bare}": "{secret}"}}',
            "{{'a': 1, '{bare}' : '{secret}'}}",
            "X={bare}:{secret}",
            "https://user:{secret}@host/x",
            "https://host/x?{bare}={secret}",
            "see https://{secret}@host and {bare}={secret}",
            'Authorization: Basic "{secret}"',
            "hf_A{secret}",
            "ghp_{secret}",
        ]
    ),
)
def test_no_secret_is_left(secret, name, form):
    """A secret under a name, in JSON, in a URL, or with a known beginning never gets through."""
    text = form.format(name=name, bare=name.lstrip("-"), secret=secret)
    assert secret not in redacted_text(text, _HOMES)
    assert secret not in "".join(_hidden("a.py", name, secret, text))


@given(st.lists(st.from_regex(r"[a-z][a-z0-9 ]{0,20}", fullmatch=True)))
def test_plain_words_and_numbers_stay(words):
    """Words behind options that name no secret come through as they are."""
    arguments = [part for word in words for part in ("--prompt", word)]
    assert _hidden(*arguments) == tuple(arguments)


@pytest.mark.parametrize(
    "part",
    ["a", "a-", "sk-", "eyJ-", "a=", "token:", "=", "token: '", "-----BEGIN ", "a/1B", "://"],
)
def test_long_texts(part):
    """A text of any length is read a few times, not once for each of its letters."""
    text = part * (50_000 // len(part))
    assert redacted_text(text, _HOMES).count(HIDDEN) <= len(text) // len(part)
    assert HIDDEN in redacted_text(f"{'a' * 50_000}_token=secret", _HOMES)


def test_names_alone():
    """The working directory's variable is no password; an empty name is no secret's."""
    assert not is_secret_name("PWD")
    assert is_secret_name("MYSQL_PWD")
    assert not is_secret_name("--")
    assert is_secret_name("API_KEY2")
