"""Text of reports (translatable sentences, notes, numbers with units), and values of options.

    said("{n} of {all} calls", n=3, all=12)     == "3 of 12 calls"
    Note.of(Evidence.PATH, name="to_k_ip").as_json() == {"code": "path", "name": "to_k_ip"}

A `Said` is its English text and knows its template, which a page looks up in a catalogue. Trace
text is always a value, never a template. Numbers have three significant digits;
`templates/format.js` must agree (`tests/browser/test_report.py`). Options are name lists, step
ranges, KEY=VALUE, memory sizes (`17179869184`, `16GiB`, `80 GB`) and run names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias, Union

from profiler.errors import InputError

Catalogue = Mapping[str, str]

_PLACE = re.compile(r"\{(\w+)\}")


class Said(str):
    """English text, made of `template` and `values`, and then transformed by `change`."""

    __slots__ = ("change", "template", "values")

    template: str
    values: Mapping[str, Any]
    change: Callable[[str], str] | None

    def __new__(
        cls,
        text: str,
        template: str = "",
        values: Mapping[str, Any] | None = None,
        change: Callable[[str], str] | None = None,
    ) -> Said:
        made = super().__new__(cls, text)
        made.template, made.values, made.change = template or text, values or {}, change
        return made

    def changed(self, change: Callable[[str], str]) -> Said:
        """This text, transformed by `change`, which is also applied to each translation, as
        escaping is."""
        before = self.change
        both = change if before is None else lambda text: change(before(text))
        return Said(change(str(self)), self.template, self.values, both)

    def given_in(self, catalogue: Catalogue) -> str:
        """The text by the catalogue's template; English if that has none."""
        template = catalogue.get(self.template, self.template)
        values = {name: in_language(value, catalogue) for name, value in self.values.items()}
        text = _filled(template, values)
        return text if self.change is None else self.change(text)


def said(template: str, /, **values: object) -> Said:
    """`template` with each `{name}` replaced by the value of that name, as `str` gives it; braces
    around other words stay. A value may be `Said` itself."""
    return Said(_filled(template, values), template, values)


def filled(text: str, values: Mapping[str, object]) -> str:
    """Fill in `values` if `text` is a template without values; any other text stays as it is."""
    if not isinstance(text, Said) or text.values or "{" not in text.template:
        return text
    named = {name: value for name, value in values.items() if f"{{{name}}}" in text.template}
    return said(text.template, **named)


def joined(separator: str, parts: Iterable[str]) -> Said:
    """`separator.join(parts)` that keeps the parts translatable."""
    values = {f"part{number}": part for number, part in enumerate(parts)}
    template = separator.join(f"{{{name}}}" for name in values)
    return Said(_filled(template, values), template, values)


def sentence(text: str) -> str:
    """`text` with a capital letter at its start, in English only, and a full stop at its end."""
    english = f"{text[:1].upper()}{text[1:]}."
    if not isinstance(text, Said):
        return english
    ended = text.changed(_ended)
    return Said(english, ended.template, ended.values, ended.change)


def sentence_of(text: str) -> str:
    """`sentence(text)`, but with the first letter as it is if a value begins the text: a name, or
    what another program said."""
    first: Any = text
    while isinstance(first, Said) and first.template.startswith("{"):
        first = first.values[first.template[1 : first.template.index("}")]]
    if isinstance(text, Said) and not isinstance(first, Said):
        return text.changed(lambda one: f"{one.removesuffix('.')}.")
    return sentence(text)


def in_language(text: Any, catalogue: Catalogue) -> str:
    """`text` in the language of `catalogue`; unchanged if it is not a `Said`."""
    return text.given_in(catalogue) if isinstance(text, Said) else str(text)


def _filled(template: str, values: Mapping[str, Any]) -> str:
    def value(place: re.Match[str]) -> str:
        name = place[1]
        return str(values[name]) if name in values else place[0]

    return _PLACE.sub(value, template)


def _ended(text: str) -> str:
    return f"{text}."


# --- Notes of analyses and manifests: a code, and its values. `analysis.table_text` makes sentences
# of them.


Value: TypeAlias = Union[int, float, str, "Note", tuple["Value", ...]]
"""A number, a name from the trace, a code (`StrEnum`), a note, or several of these."""


class NoteCode(StrEnum):
    """The code of a note; each question has a subclass with its codes."""


@dataclass(frozen=True, slots=True)
class Note:
    """A code with `values` by name. The name ends with the unit (`_ns`, `_bytes`, `_share`: 1.0 is
    all; none: a count, a ratio or a name)."""

    code: NoteCode
    values: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, code: NoteCode, /, **values: Value) -> Note:
        """A note with these values."""
        return cls(code, values)

    def __hash__(self) -> int:
        return hash((self.code, frozenset(self.values.items())))

    def as_json(self) -> dict[str, Any]:
        """Plain values: the `code`, then the note's values."""
        return {"code": self.code.value} | {
            name: plain_value(value) for name, value in self.values.items()
        }


def plain_value(value: Value) -> Any:
    """`value` as plain JSON values."""
    if isinstance(value, Note):
        return value.as_json()
    if isinstance(value, tuple):
        return [plain_value(part) for part in value]
    return value.value if isinstance(value, StrEnum) else value


def notes_from(text: str, codes: type[NoteCode]) -> tuple[Note, ...]:
    """The notes in a table's cell; notes in their values have codes of the same enum."""
    return tuple(_note(entry, codes) for entry in json.loads(text))


def _note(entry: Mapping[str, Any], codes: type[NoteCode]) -> Note:
    values = {name: _value(value, codes) for name, value in entry.items() if name != "code"}
    return Note(codes(entry["code"]), values)


def _value(plain: Any, codes: type[NoteCode]) -> Value:
    if isinstance(plain, list):
        return tuple(_value(part, codes) for part in plain)
    return _note(plain, codes) if isinstance(plain, dict) else plain


def notes_text(notes: Iterable[Note]) -> str:
    """Notes as the text of a table's cell: a JSON list."""
    return json.dumps([note.as_json() for note in notes], ensure_ascii=False)


# --- What a producer calls the commands of a run.


class Noun(StrEnum):
    """The producer's noun for commands: kernels of GPUs, nodes of ONNX Runtime, operators of torch
    on a CPU, else commands."""

    KERNELS = "kernels"
    NODES = "nodes"
    OPERATORS = "operators"
    COMMANDS = "commands"


# --- Numbers in reports: three significant digits and a unit.
#
# `templates/format.js` does the same in the page; `tests/browser/test_report.py` checks that both
# agree.


RateUnits = Sequence[tuple[float, str]]
"""Units, the largest first, each with its size in the unit of the values."""
FLOP_RATES: RateUnits = ((1.0, "TFLOP/s"), (1e-3, "GFLOP/s"), (1e-6, "MFLOP/s"))
RATES: dict[str, RateUnits] = {
    "flop_rate": FLOP_RATES,
    "byte_rate": ((1.0, "GB/s"), (1e-3, "MB/s")),
}
"""The rate units, by kind of column."""

_SPACE = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"


def duration(ns: float) -> str:
    """`"2.31 s"`, `"68.4 ms"`, `"740 ns"`."""
    return _scaled(ns, 1000, ("ns", "µs", "ms", "s"))


def durations(low_ns: float, high_ns: float) -> str:
    """`"28.6 to 62.7 ms"`, `"733 ms to 1.19 s"`; one duration if both are the same."""
    low, high = duration(low_ns), duration(high_ns)
    if low == high:
        return high
    (number, unit), (_, same) = low.split(_SPACE), high.split(_SPACE)
    return said("{low} to {high}", low=number if unit == same else low, high=high)


def size(number: float) -> str:
    """Bytes, in powers of 1024: `"1.50 MiB"`."""
    return _scaled(number, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def number(value: float) -> str:
    """`"7.41"`, `"12.3"`, `"8,158"`: for values of very different magnitude."""
    magnitude = abs(value)
    whole = magnitude >= 99.95 or magnitude == 0
    digits = 0 if whole else 1 if magnitude >= 9.995 else 2 if magnitude >= 0.0995 else 3
    return f"{value:z,.{digits}f}"


def percent(ratio: float) -> str:
    """`"92 %"`, `"4.0 %"`, `"0.31 %"`: two digits, and never 100 % for less than all."""
    value = abs(ratio) * 100
    sign = _MINUS if ratio < 0 else ""
    if value == 0:
        return f"0{_SPACE}%"
    if value < 0.01:
        return f"{sign}<0.01{_SPACE}%"
    digits = 0 if value >= 9.95 else 1 if value >= 0.995 else 2
    if 99.5 <= value < 100:
        digits, value = (1, min(value, 99.9))
    return f"{sign}{value:.{digits}f}{_SPACE}%"


def rate_unit(largest: float, units: RateUnits) -> tuple[float, str]:
    """The unit in which the largest of several rates is at least 1, else the smallest unit."""
    return next((pair for pair in units if largest >= pair[0]), units[-1])


def count(number: int) -> str:
    """`"47,504"`."""
    return f"{number:,}"


def counted(number: int, noun: str) -> Said:
    """`"1 call"`, `"35 calls"`."""
    return said(f"{{number}} {noun}" + ("" if number == 1 else "s"), number=count(number))


def of_all(shown: int, total: int) -> Said:
    """`"3 of 12"` or `"all 12"`."""
    if shown == total:
        return said("all {total}", total=count(total))
    return said("{shown} of {total}", shown=count(shown), total=count(total))


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    sign, value = (_MINUS, -value) if value < 0 else ("", value)
    unit = 0
    while value >= step - 0.5 * (step == 1000) and unit < len(units) - 1:
        value /= step
        unit += 1
    whole = float(value).is_integer() and unit == 0
    digits = 0 if whole or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{sign}{value:.{digits}f}{_SPACE}{units[unit]}"


# --- Values of options: lists of names (`vae,transformer`), ranges of steps (`0-3`), KEY=VALUE.


_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def name_list(given: int | str | Iterable[int | str]) -> tuple[str, ...]:
    """The distinct names in one comma-separated text or several, in order; numbers become text."""
    texts = (given,) if isinstance(given, (int, str)) else given
    words = (word.strip() for text in texts for word in str(text).split(","))
    return tuple(dict.fromkeys(filter(None, words)))


def step_range(text: str) -> tuple[int, int] | None:
    """The first and the last step of `"7"` or `"0-3"`; None for other texts, or if the end is
    before the start."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    return (first, last) if first <= last else None


def check_utf8(text: str, what: str) -> None:
    """Raise InputError if a text of the command line has bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what} {text!a:.120} is not valid UTF-8: type it again") from None


def key_values(texts: Iterable[str] | None, option: str, example: str) -> dict[str, str]:
    """The values of an option's KEY=VALUE texts, by key. Raises InputError, which shows an
    `example`, for an invalid text or a repeated key."""
    found: dict[str, str] = {}
    for text in texts or ():
        check_utf8(text, option)
        key, _, value = text.partition("=")
        if not key or not value:
            raise InputError(f"{option} {text!r:.80} is no KEY=VALUE: write {option} {example}")
        if key in found:
            raise InputError(f"{option} {key} is given twice: give it once")
        found[key] = value
    return found


# --- Names of runs, which are also names of their folders.


_FOREIGN = re.compile(r"[^\w.+-]+")
_MOST_BYTES = 200  # a folder's name may have 255, and `-2` may follow


def check_run_name(name: str) -> str:
    """Return `name` if it is a valid run name; raises InputError if not."""
    if not name or name.startswith(".") or _FOREIGN.search(name):
        raise InputError(
            f"{name!r:.80} cannot name a run: use letters, digits, '.', '-' and '_', and no '.' "
            "at the beginning"
        )
    if len(name.encode()) > _MOST_BYTES:
        raise InputError(f"{name!r:.80}… cannot name a run: use at most {_MOST_BYTES} bytes")
    return name


def run_name_of(text: str) -> str:
    """The valid run name closest to `text`, such as a file's name; "" if there is none."""
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
    """The number of bytes; None if the text is not a size, below 1 byte or beyond all memory.

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
