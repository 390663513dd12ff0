"""Parse option values: name lists, step ranges, KEY=VALUE, memory sizes, run names.

Examples are `vae,transformer`, `0-3`, `17179869184`, `16GiB` and `80 GB`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from profiler.errors import InputError

# --- What options take: lists of names (`vae,transformer`), ranges of steps (`0-3`), KEY=VALUE.


_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def name_list(given: int | str | Iterable[int | str]) -> tuple[str, ...]:
    """The names in one text or several, each with commas, once each, in order; numbers as text."""
    texts = (given,) if isinstance(given, (int, str)) else given
    words = (word.strip() for text in texts for word in str(text).split(","))
    return tuple(dict.fromkeys(filter(None, words)))


def step_range(text: str) -> tuple[int, int] | None:
    """The first and the last step of `"7"` or `"0-3"`; None for what is neither, or ends before it
    begins."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    return (first, last) if first <= last else None


def key_values(texts: Iterable[str] | None, option: str, example: str) -> dict[str, str]:
    """KEY=VALUE texts of an option by key. Raises InputError, which shows an `example`, for a text
    that is none, or a key that is given twice."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, _, value = text.partition("=")
        if not key or not value:
            raise InputError(f"{option} {text!r:.80} is no KEY=VALUE: write {option} {example}")
        if key in found:
            raise InputError(f"{option} {key} is given twice: give it once")
        found[key] = value
    return found


# --- Names of runs, which are names of their folders, too.


_FOREIGN = re.compile(r"[^\w.+-]+")
_MOST_BYTES = 200  # a folder's name may have 255, and `-2` may follow


def check_run_name(name: str) -> str:
    """`name`, if it can name a run. Raises InputError where it cannot."""
    if not name or name.startswith(".") or _FOREIGN.search(name):
        raise InputError(
            f"{name!r:.80} cannot name a run: use letters, digits, '.', '-' and '_', and no '.' "
            "at the beginning"
        )
    if len(name.encode()) > _MOST_BYTES:
        raise InputError(f"{name!r:.80}… cannot name a run: use at most {_MOST_BYTES} bytes")
    return name


def run_name_of(text: str) -> str:
    """The name of a run that is closest to `text`, such as a file's name; "" where none is."""
    name = _FOREIGN.sub("-", text).encode()[:_MOST_BYTES].decode(errors="ignore")
    return name.strip(".-")


# --- Sizes of memory as people write them: `17179869184`, `16GiB`, `16G`, `80 GB`.


_SIZE = re.compile(
    r"(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?:(?P<prefix>[KMGTP]?)(?P<binary>I?)(?P<byte>B?))",
    re.ASCII | re.IGNORECASE,
)
_PREFIXES = "KMGTP"
_LARGEST = 1 << 62


def parse_size(text: str) -> int | None:
    """Bytes; None for what is no size, below 1 byte or beyond all memory.

    A plain number is bytes. `KiB`, `Ki` and `K` are 1024 bytes, as memory is sold and as other
    tools read `16G`; `KB` is 1000. So for M, G, T and P, in either case.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match["binary"] and not match["prefix"]):
        return None
    power = _PREFIXES.index(match["prefix"].upper()) + 1 if match["prefix"] else 0
    decimal = bool(match["byte"]) and not match["binary"]
    unit = (1000 if decimal else 1024) ** power
    whole, _, fraction = match["number"].partition(".")
    size = int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
    return size if 0 < size < _LARGEST else None
