"""What ranges of NVTX and roctx say: which operator of which shapes, in which module, submodule or
iteration.

- `aten::mm, seq = 12, op_id = 34, sizes = [[2, 3], [3, 4]]`: an operator, as torch's `emit_nvtx`
  writes it, the sizes with `record_shapes=True`;
- `{'Module': 'model.layers.0.mlp', …}`: a module by its path, as vLLM writes them layer by layer;
- `ProfilerStep#3`, `step 3`, `iteration_3`: a pass of the program's loop;
- a name that the user gave, or that of a component (`text_encoder_2`, `transformer`, `vae.decode`):
  a call of a submodule.

Ranges of NVTX are of domains, each of which nests by itself: one library knows nothing of
another's. What says the same thing (the calls, say) is taken from one domain of a process: the
default one where it has any such range, else that with most of them. A text of a named domain is
`text@domain`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiler.errors import InputError
from profiler.importers.components import component
from profiler.importers.gpu.activity import Api, Bools
from profiler.kineto.ranges import Ranges
from profiler.trace.columns import Int32s, Int64s

__all__ = ["MarkTexts", "Marks", "asked_for", "threads_of"]

_DOMAIN = "@"
_TAILS = (", seq = ", ", op_id = ", ", sizes = ")
_SIZES = re.compile(r", sizes = (\[[\[\], \d-]*\])")
_OPERATOR = re.compile(r"[A-Za-z_]\w*::[\w.:<>]+")
_MODULE = re.compile(r"^\{\s*['\"]Module['\"]:\s*['\"]([\w.\-\[\]]+)['\"]")
_PASS = re.compile(
    r"(?:ProfilerStep#|(?:(?:denois\w*|inference)[ _])?(?:step|iter(?:ation)?)[ _#:]*)(\d{1,9})",
    re.I,
)


class MarkTexts:
    """Texts of ranges as numbers: of what names a range in `names`, of its shapes in `shapes`."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.shapes = {"": 0}

    def of(self, texts: Sequence[str]) -> tuple[Int32s, Int32s]:
        """The numbers of the names and of the shapes of some texts, int32 each."""
        names, shapes = self.names, self.shapes
        code = [names.setdefault(_name(text), len(names)) for text in texts]
        sizes = [
            shapes.setdefault(_shapes(text), len(shapes)) if ", sizes = " in text else 0
            for text in texts
        ]
        return np.array(code, dtype=np.int32), np.array(sizes, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """n ranges: begin and end in ns and global id of the thread, int64 [n], and positions in
    `texts` and `shapes` ("in: tensor[2,3] …", "" first), int32 [n]. By text: its `domain` ("" for
    the default one), `operators`, `modules` (the path, "" for none), `passes` (the number, -1 for
    none), `submodules` ("" for none). `unclosed` ranges have no end and are left out."""

    start: Int64s
    end: Int64s
    thread: Int64s
    text: Int32s
    sizes: Int32s
    texts: tuple[str, ...]
    shapes: tuple[str, ...]
    operators: Bools
    modules: tuple[str, ...]
    passes: Int64s
    submodules: tuple[str, ...]
    domains: tuple[str, ...]
    unclosed: int

    @classmethod
    def of(  # what ranges are
        cls,
        start: Int64s,
        end: Int64s,
        thread: Int64s,
        texts: Sequence[str],
        submodules: Collection[str] = (),
        unclosed: int = 0,
    ) -> Marks:
        """Ranges with their texts. `submodules` are the texts of those that are calls, instead of
        the names of components."""
        known = MarkTexts()
        text, sizes = known.of(texts)
        return cls.known(start, end, thread, text, sizes, known, submodules, unclosed)

    @classmethod
    def known(  # noqa: PLR0913, PLR0917 - what ranges are
        cls,
        start: Int64s,
        end: Int64s,
        thread: Int64s,
        text: Int32s,
        sizes: Int32s,
        known: MarkTexts,
        submodules: Collection[str] = (),
        unclosed: int = 0,
        named: Sequence[tuple[int, str]] = (),
    ) -> Marks:
        """Ranges whose texts are numbers of `known`; behind these are the `named`, numbers of
        texts with the domain that ranges of these numbers are of."""
        own = tuple(known.names)
        domains = ("",) * len(own) + tuple(domain for _, domain in named)
        names = own + tuple(own[code] for code, _ in named)
        passes = [_PASS.fullmatch(name) for name in names]
        modules = [_MODULE.match(name) for name in names]
        return cls(
            start=start,
            end=end,
            thread=thread,
            text=text,
            sizes=sizes,
            texts=tuple(map(_with_domain, names, domains)),
            shapes=tuple(known.shapes),
            operators=np.array([bool(_OPERATOR.fullmatch(name)) for name in names], dtype=np.bool_),
            modules=tuple(one[1] if one else "" for one in modules),
            passes=np.array([int(one[1]) if one else -1 for one in passes], dtype=np.int64),
            submodules=tuple(
                _submodule(name, domain, submodules)
                for name, domain in zip(names, domains, strict=True)
            ),
            domains=domains,
            unclosed=unclosed,
        )

    def __len__(self) -> int:
        return len(self.start)

    def plain(self, code: int) -> str:
        """A text without its domain."""
        domain = self.domains[code]
        return self.texts[code].removesuffix(_DOMAIN + domain) if domain else self.texts[code]

    @property
    def speaking(self) -> tuple[str, ...]:
        """The named domains whose ranges say what ran."""
        if not any(self.domains):
            return ()
        said = (
            self.operators,
            np.array([bool(path) for path in self.modules], dtype=np.bool_),
            self.passes >= 0,
            np.array([bool(name) for name in self.submodules], dtype=np.bool_),
        )
        rows = [self._of_one_domain(np.flatnonzero(texts[self.text])) for texts in said]
        codes = np.unique(self.text[np.concatenate(rows)]).tolist()
        return tuple(sorted({self.domains[code] for code in codes} - {""}))

    def check(self, path: Path, given: Sequence[str], what: str) -> None:
        """Raises InputError where one of the texts that were asked for is there in no range."""
        there = {*self.texts, *map(self.plain, range(len(self.texts)))}
        missing = [name for name in given if name not in there]
        if missing:
            raise InputError(
                f"{path} has no {what} {missing[0]!r}: give names of ranges that are there"
            )

    def ranges(self, texts: Bools, codes: Int64s) -> Ranges:
        """The ranges whose text is marked, of one domain of each process, nested by thread: `row`
        is that of the range, the thread its position in the sorted global ids `codes`."""
        rows = np.flatnonzero(texts[self.text]) if len(self) else np.zeros(0, dtype=np.int64)
        rows = self._of_one_domain(rows[np.isin(self.thread[rows], codes)])
        thread = np.searchsorted(codes, self.thread[rows]).astype(np.int32)
        return Ranges.of(rows, thread, self.start[rows], self.end[rows])

    def _of_one_domain(self, rows: Int64s) -> Int64s:
        """Of some rows those of one domain of each process."""
        if not any(self.domains) or not len(rows):
            return rows
        known = ["", *sorted(set(self.domains) - {""})]
        number = np.array([known.index(domain) for domain in self.domains], dtype=np.int64)
        domain, process = number[self.text[rows]], self.thread[rows] >> 24
        kept = np.zeros(len(rows), dtype=np.bool_)
        for one in np.unique(process).tolist():
            here = process == one
            ranges = np.bincount(domain[here], minlength=len(known))
            kept |= here & (domain == (0 if ranges[0] else int(ranges.argmax())))
        return rows[kept]


def threads_of(marks: Marks, api: Api) -> Int64s:
    """The global ids of the threads that have ranges or call the runtime, ascending."""
    return np.union1d(np.unique(marks.thread), np.unique(api.thread))


def asked_for(submodules: str) -> tuple[str, ...]:
    """The texts in an option: with commas."""
    return tuple(name.strip() for name in submodules.split(",") if name.strip())


def _name(text: str) -> str:
    """A range's text without what torch writes behind an operator."""
    first = text.find(", ")
    if first < 0 or text.startswith(_TAILS, first):
        return text if first < 0 else text[:first]
    for key in _TAILS:
        text = text.partition(key)[0]
    return text


def _shapes(text: str) -> str:
    """`aten::mm, sizes = [[2, 3], [], [3, 4]]` → `in: tensor[2,3] tensor[3,4]`; "" for none."""
    found = _SIZES.search(text)
    try:
        sizes = json.loads(found[1]) if found else []
    except (ValueError, RecursionError):
        return ""
    tensors = [one for one in sizes if isinstance(one, list) and one]
    flat = [one for one in tensors if all(type(size) is int for size in one)]
    return "in: " + " ".join(f"tensor[{','.join(map(str, one))}]" for one in flat) if flat else ""


def _with_domain(text: str, domain: str) -> str:
    return f"{text}{_DOMAIN}{domain}" if domain else text


def _submodule(text: str, domain: str, given: Collection[str]) -> str:
    """The submodule that a range of this text is a call of, "" where it is none."""
    if given:
        return next((name for name in (_with_domain(text, domain), text) if name in given), "")
    return component(text)
