"""Prompts and paths of images in a command line and in settings, replaced by their length.

    without_prompts(["run.py", "--prompt", "a cat", "--image", "cat.png", "--steps", "28"])
    == ("run.py", "--prompt", "<5 characters>", "--image", "<7 characters>", "--steps", "28")

An option is recognised by its name. Words for which no option is known are hidden as well if they
contain a space or end as images do: a script may take its prompt by position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from profiler.trace.redaction import is_option, name_words

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
_SHORT = ("-p",)  # options of one letter that scripts take prompts by
_ENDS = "png|jpe?g|webp|bmp|gif|tiff?|heic|avif|mp4|mov|webm|mkv|avi|wav|mp3|flac"
_IMAGE_PATH = re.compile(rf"\.(?:{_ENDS})(?:\?.*)?\Z", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?|true|false|none|null", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"(?P<name>[-+]*[A-Za-z_][\w.+/-]*)=(?P<value>.*)", re.DOTALL)
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
    """Each argument as it is shown, and what of it is hidden, "" if nothing."""
    option, first = "", True  # the last option, which the next words may belong to
    for argument in arguments:
        assigned = _ASSIGNMENT.fullmatch(argument)
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
    """What an option is of, "" if it is a number of them."""
    words = name_words(name)
    while len(words) > 1 and words[-1] in _OF_NAMES:
        words.pop()
    return "" if not words or _OF_NUMBERS.intersection(words[:-1]) else words[-1]


def _length(text: str) -> str:
    return f"<{len(text):,} character{'' if len(text) == 1 else 's'}>"
