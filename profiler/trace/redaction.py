"""Remove secrets and prompts from command lines, settings and messages of a run.

    redacted_arguments(["run.py", "--hf-token", "hf_abc", "--num-inference-steps", "28"])
    == ("run.py", "--hf-token", "***", "--num-inference-steps", "28")

The one place that decides what a secret is. It errs towards hiding: an argument too many is `***`.
What was redacted stays as it is when it is redacted again. Prompts and paths of images are replaced
by their length:

    without_prompts(["run.py", "--prompt", "a cat", "--image", "cat.png", "--steps", "28"])
    == ("run.py", "--prompt", "<5 characters>", "--image", "<7 characters>", "--steps", "28")
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

HIDDEN = "***"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of hf_token, hfToken, HF-TOKEN, API_KEY2
_ALWAYS = (
    *("password", "passwords", "passwd", "passphrase", "secret", "secrets"),
    *("credential", "credentials", "apikey", "apikeys", "accesskey", "secretkey", "privatekey"),
)
_EXACTLY = frozenset(("auth", "authorization", "bearer", "cookie", "cookies", "pwd", "sig"))
_KEYS_OF_DATA = frozenset(
    (
        *("answer", "attention", "by", "cache", "caption", "class", "column", "data"),
        *("dataset", "dict", "feature", "field", "foreign", "group", "hot", "image", "index"),
        *("item", "join", "json", "label", "layer", "lookup", "map", "max", "metric", "min"),
        *("num", "order", "partition", "per", "primary", "prompt", "public", "query", "row"),
        *("sort", "state", "target", "text"),
    )
)
_TOKENS_OF_TEXT = frozenset(
    (
        *("begin", "bos", "class", "cls", "concept", "end", "eos", "first", "identifier"),
        *("image", "initializer", "instance", "last", "mask", "max", "min", "modifier"),
        *("next", "num", "pad", "padding", "per", "placeholder", "prompt", "rare", "sep"),
        *("separator", "special", "start", "stop", "style", "text", "trigger", "unk"),
        "unknown",
    )
)
_OF_ACCESS = frozenset(
    (*("access", "api", "auth", "bearer", "hf", "refresh", "secret", "ssh", "private"), "session")
)
_AFTER_THE_NAME = frozenset(("value", "string", "plain"))  # --token-value
_OPTION = re.compile(r"--[A-Za-z][^\s]*|-[A-Za-z]")
_ASSIGNMENT = re.compile(r"(?P<name>[-+]*[A-Za-z_][\w.+/-]*)=(?P<value>.*)", re.DOTALL)

# Lengths are bounded where a partial match would be retried again and again.
_URL = re.compile(r"""(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<rest>[^\s"'<>]*)""")
_ONE_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<rest>.*)", re.DOTALL)
_HOST = re.compile(r"(?:[\w.~%*-]*|\[[0-9A-Fa-f:.]+\])(?::\d*)?")
_LINE = re.compile(
    r"""(?P<name>\b(?:(?:proxy-)?authorization|(?:set-)?cookie)["'\\]*\s*:\s*)"""
    r"""(?:"[^"]*"|'[^']*'|[^\r\n]+)""",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"""(?<=[\w."'\s-])[:=]\s*""")
_NAME = re.compile(r"""(?<![\w.-])[\w.-]+\\*["']?\s*\Z|[\w.-]{100}\\*["']?\s*\Z""")
_NAME_AND_QUOTE = 120  # characters before a separator that are looked at
_LEVELS = 8  # of assignments within assignments
_VALUE = re.compile(
    r"""(?P<quote>["'])(?:(?!(?P=quote))[^\\]|\\.)*(?P=quote)"""  # "…" with escapes
    r"""|(?P<escaped>\\+["']).*?(?P=escaped)"""  # \"…\" as JSON within JSON has it
    r"""|[^\s,;&}"'\\][^\s,;&}"']*"""  # a word
    r"""|\\*["'].+""",  # a quote that nothing ends
    re.DOTALL,
)
_LETTERS = r"(?=[\w-]{0,200}[A-Z0-9])"  # hf_transfer and sk-learning are names of packages
_KNOWN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    rf"(?P<short>hf_{_LETTERS}|sk-{_LETTERS})[\w-]{{8,}}"
    r"|(?P<long>hf_|sk-)[\w-]{20,}"
    r"|(?P<host>gh[pousr]_|github_pat_|glpat-|xox[a-z]-|nvapi-|npm_|pypi-|r8_|AIza)[\w-]{8,}"
    r"|(?P<aws>A(?:KIA|SIA|GPA|IDA|ROA|NPA|IPA|BIA|CCA))[A-Z0-9]{12,}"
    r"|(?P<jwt>eyJ)[\w-]{8,2000}\.[\w-]+(?:\.[\w-]*)?"
    r"|(?P<scheme>(?:[Bb]earer|[Bb]asic)\s+)[\w.~+/=-]{8,}"
    r")"
)
_AWS_SECRET = re.compile(
    r"(?<![\w/+=.-])(?=[A-Za-z0-9/+]*[a-z])(?=[A-Za-z0-9/+]*[A-Z])(?=[A-Za-z0-9/+]*[0-9])"
    r"[A-Za-z0-9/+]{40}(?![\w/+=.-])"
)
_PEM = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL
)


def redacted_arguments(
    arguments: Iterable[str], homes: Iterable[str] | None = None
) -> tuple[str, ...]:
    """A command line with secrets replaced by `***`: values of options with secret names, values
    that look like secrets, users and queries of URLs. Home folders, `own_homes()` by default,
    become `~`."""
    return tuple(_arguments(arguments, own_homes() if homes is None else tuple(homes)))


def is_option(argument: str) -> bool:
    """Whether an argument is the name of an option, with or without its value."""
    return _OPTION.fullmatch(argument) is not None


def _arguments(arguments: Iterable[str], homes: tuple[str, ...]) -> Iterator[str]:
    awaited, several = False, False  # a secret, secrets up to the next option
    for argument in arguments:
        if awaited and not is_option(argument):
            awaited = several
            yield HIDDEN
            continue
        is_name = _OPTION.match(argument) is not None or argument.startswith("-")
        awaited = is_name and "=" not in argument and is_secret_name(argument)
        several = awaited and argument.endswith("s")
        yield redacted_text(argument, homes)


def redacted_settings(
    settings: Mapping[str, object], homes: Iterable[str] | None = None
) -> dict[str, object]:
    """Settings by name without secrets. Numbers and switches are kept unless the name is a
    password's or secret's."""
    homes = own_homes() if homes is None else tuple(homes)
    return {name: _setting(name, value, homes) for name, value in settings.items()}


def _setting(name: str, value: object, homes: tuple[str, ...]) -> object:
    if isinstance(value, str):
        return HIDDEN if is_secret_name(name) else redacted_text(value, homes)
    if value is None or isinstance(value, bool):
        return value
    return HIDDEN if name_words(name)[-1:] and name_words(name)[-1].endswith(_ALWAYS) else value


def redacted_text(text: str, homes: Iterable[str] | None = None) -> str:
    """A text, such as one argument or a message, without secrets."""
    homes = own_homes() if homes is None else tuple(homes)
    names = ""
    for _ in range(_LEVELS):
        assigned = _ASSIGNMENT.fullmatch(text)
        if assigned is None:
            break
        names, text = f"{names}{assigned['name']}=", assigned["value"]
        if is_secret_name(assigned["name"]):
            return _redacted(names, homes) + HIDDEN
    return _redacted(names, homes) + _redacted(text, homes)


def _redacted(text: str, homes: tuple[str, ...]) -> str:
    text = (_ONE_URL if _ONE_URL.match(text) else _URL).sub(_without_user_and_query, text)
    text = _PEM.sub(HIDDEN, text)
    text = _LINE.sub(lambda found: f"{found['name']}{HIDDEN}", text)
    text = _without_values(text)
    text = _KNOWN.sub(lambda found: f"{found[found.lastgroup or 0]}{HIDDEN}", text)
    return _without_homes(_AWS_SECRET.sub(HIDDEN, text), homes)


def is_secret_name(name: str) -> bool:
    """Whether the value of `name` is a secret: --hf-token, HF_TOKEN, auth.apiKey, not --max-tokens,
    --tokenizer, --key-frames, --sort-key, --token-file."""
    words = name_words(name)
    if not words or name == "PWD":
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last.endswith(_ALWAYS) or last in _EXACTLY:
        return True
    if last.endswith("token"):  # hftoken
        return before not in _TOKENS_OF_TEXT
    if last == "key":
        return before not in _KEYS_OF_DATA
    return last in ("tokens", "keys") and before in _OF_ACCESS


def name_words(name: str) -> list[str]:
    """The words of an option's or a setting's name, in lower case: --hfToken2 → hf, token."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and words[-1] in _AFTER_THE_NAME:
        words.pop()
    return words


def own_homes() -> tuple[str, ...]:
    """The current user's home folder, as it is named and with links resolved."""
    home = os.path.expanduser("~")  # noqa: PTH111  # Path.home() raises where there is none
    found = (Path(home), Path(os.path.realpath(home)))
    below = (str(one) for one in found if one.is_absolute() and one.parent != one)
    return tuple(dict.fromkeys(below))


def _without_user_and_query(found: re.Match[str]) -> str:
    """scheme://user:password@host/path?query#fragment → scheme://***@host/path?***"""
    scheme, rest = found["scheme"], found["rest"]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    after = rest[len(authority) :]
    user, at, host = authority.rpartition("@")
    if not _HOST.fullmatch(host):  # a password that contains the end of a host
        return f"{scheme}{HIDDEN}"
    ends = re.search(r"[?#]", after)
    if ends is not None:
        after = f"{after[: ends.end()]}{HIDDEN}"
    return f"{scheme}{HIDDEN if user else ''}{at}{host}{after}"


def _without_values(text: str) -> str:
    """`text` with the values of secret names (after a colon or an equals sign) hidden."""
    found, at = [], 0
    for separator in _SEPARATOR.finditer(text):
        if separator.start() < at:  # inside a hidden value
            continue
        named = _NAME.search(text[max(at, separator.start() - _NAME_AND_QUOTE) : separator.start()])
        if named is None or not is_secret_name(named[0]):
            continue
        value = _VALUE.match(text, separator.end())
        if value is not None:
            quote = value["quote"] or value["escaped"] or ""
            found += [text[at : separator.end()], quote, HIDDEN, quote]
            at = value.end()
    return "".join([*found, text[at:]])


def _without_homes(text: str, homes: Iterable[str]) -> str:
    for home in homes:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.~-])", "~", text)
    return text


# --- Prompts and paths of images in a command line and in settings, replaced by their length.
#
# An option is recognised by its name. Words for which no option is known are hidden as well if they
# contain a space or end as images do: a script may take its prompt by position.


_PROMPTS = frozenset(
    (
        *("caption", "captions", "instruction", "instructions", "lyrics", "message", "messages"),
        *("negative", "negatives", "question", "questions", "query", "text", "texts"),
    )
)
_IMAGES = frozenset(
    (
        *("audio", "face", "image", "images", "img", "imgs", "mask", "masks", "photo", "photos"),
        *("picture", "pictures", "portrait", "video", "videos"),
    )
)
_OF_NAMES = frozenset(("dir", "file", "files", "folder", "list", "path", "paths", "string", "url"))
_OF_NUMBERS = frozenset(("max", "min", "num", "number", "per", "n"))
_SHORT = ("-p",)  # one-letter options for prompts
_ENDS = "png|jpe?g|webp|bmp|gif|tiff?|heic|avif|mp4|mov|webm|mkv|avi|wav|mp3|flac"
_IMAGE_PATH = re.compile(rf"\.(?:{_ENDS})(?:\?.*)?\Z", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?|true|false|none|null", re.IGNORECASE)
_NAME_AND_VALUE = re.compile(r"(?P<name>[-+]*[A-Za-z_][\w.+/-]*)=(?P<value>.*)", re.DOTALL)
_KEY = re.compile(r"""["']?([A-Za-z_][\w.-]{0,100})\\*["']?\s*[:=]""")
_HIDDEN = re.compile(r"<[\d,]+ characters?>")


def without_prompts(arguments: Iterable[str]) -> tuple[str, ...]:
    """The command line with prompts and paths of images replaced by their length."""
    return tuple(shown for shown, _ in _looked_at(arguments))


def prompts_in(arguments: Iterable[str]) -> tuple[str, ...]:
    """The prompts and paths of images in a command line, the longest first."""
    found = {hidden for _, hidden in _looked_at(arguments) if hidden}
    return tuple(sorted(found, key=len, reverse=True))


def settings_without_prompts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with texts that are prompts or paths of images replaced by their length."""
    return {
        name: _length(value) if isinstance(value, str) and _identifies(name, value) else value
        for name, value in settings.items()
    }


def names_prompt(name: str) -> bool:
    """Whether a setting or an option of this name is a prompt: --prompt-2, negative_prompt,
    --prompt-file, not num_images_per_prompt, prompt_embeds, --text-encoder."""
    last = _last_word(name)
    return last in _PROMPTS or last.startswith("prompt")


def _looked_at(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each argument as shown, and its hidden part, "" if nothing is hidden."""
    option, first = "", True  # the last option, which the next words may belong to
    for argument in arguments:
        assigned = _NAME_AND_VALUE.fullmatch(argument)
        if first:
            first = False
            yield argument, ""
        elif assigned is not None and not re.search(r"\s", assigned["name"]):
            option = ""
            name, value = assigned["name"], assigned["value"]
            hidden = _identifies(name, value)
            yield (f"{name}={_length(value)}", value) if hidden else (argument, "")
        elif is_option(argument):
            option = argument
            yield argument, ""
        else:
            hidden = _identifies(option, argument)
            yield (_length(argument), argument) if hidden else (argument, "")


def _identifies(name: str, value: str) -> bool:
    """Whether the value of an option, "" for none, is a prompt or the path of an image."""
    if not value or _HIDDEN.fullmatch(value):
        return False
    if name in _SHORT or names_prompt(name):
        return not (name in _SHORT and _NUMBER.fullmatch(value))
    if _last_word(name) in _IMAGES and not _NUMBER.fullmatch(value):
        return True
    if any(names_prompt(key) for key in _KEY.findall(value)):  # JSON, or a list of assignments
        return True
    return re.search(r"\s", value.strip()) is not None or _IMAGE_PATH.search(value) is not None


def _last_word(name: str) -> str:
    """The last word of a name without "file", "path" and the like; "" for a number, as
    num_images."""
    words = name_words(name)
    while len(words) > 1 and words[-1] in _OF_NAMES:
        words.pop()
    return "" if not words or _OF_NUMBERS.intersection(words[:-1]) else words[-1]


def _length(text: str) -> str:
    return f"<{len(text):,} character{'' if len(text) == 1 else 's'}>"
