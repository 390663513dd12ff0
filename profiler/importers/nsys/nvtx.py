"""What NVTX ranges say: which operator, of which shapes, in which module, submodule or iteration.

- `aten::mm, seq = 12, op_id = 34, sizes = [[2, 3], [3, 4]]`: an operator, as torch's `emit_nvtx`
  writes it, the sizes with `record_shapes=True`;
- `{'Module': 'model.layers.0.mlp', …}`: a module by its path, as vLLM writes them layer by layer;
- `ProfilerStep#3`, `step 3`, `iteration_3`: a pass of the program's loop;
- a name that the user gave, or that of a component (`text_encoder_2`, `transformer`, `vae.decode`):
  a call of a submodule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from profiler.importers.nsys.activity import NO_TIME, Bools
from profiler.importers.nsys.database import NsysDatabase
from profiler.kineto.ranges import Ranges
from profiler.trace.columns import Int64s

__all__ = ["Nvtx", "read_nvtx"]

_PUSH_POP, _START_END = 59, 60
_TAIL = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_SIZES = re.compile(r", sizes = (\[[\[\], \d-]*\])")
_OPERATOR = re.compile(r"[A-Za-z_]\w*::[\w.:<>]+")
_MODULE = re.compile(r"^\{\s*['\"]Module['\"]:\s*['\"]([\w.\-\[\]]+)['\"]")
_PASS = re.compile(
    r"(?:ProfilerStep#|(?:(?:denois\w*|inference)[ _])?(?:step|iter(?:ation)?)[ _#:]*)(\d{1,9})",
    re.I,
)
_COMPONENT = re.compile(
    r"(?:text_encoder|image_encoder|transformer|unet|vae|controlnet|prior|decoder|safety_checker"
    r"|denoiser|dit|text_model|vision_model|language_model)(?:_\d)?",
    re.IGNORECASE,
)
_METHOD = re.compile(r"[. ](forward|encode|decode|__call__)$")


@dataclass(slots=True)
class _Reading:
    """The ranges of one file, a list a column; texts as positions."""

    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, int] = field(default_factory=lambda: {"": 0})
    unclosed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Nvtx:
    """n ranges, all int64 [n]: begin and end in ns, global id of the thread, and positions in
    `texts` and `shapes` ("in: tensor[2,3] …", "" first). By text: `operators`, `modules` (the path,
    "" for none), `passes` (the number, -1 for none), `submodules` ("" for none). `unclosed` ranges
    have no end and are left out."""

    start: Int64s
    end: Int64s
    thread: Int64s
    text: Int64s
    sizes: Int64s
    texts: tuple[str, ...]
    shapes: tuple[str, ...]
    operators: Bools
    modules: tuple[str, ...]
    passes: Int64s
    submodules: tuple[str, ...]
    unclosed: int

    def __len__(self) -> int:
        return len(self.start)

    def moved(self, base_ns: int) -> Nvtx:
        """The same `base_ns` later."""
        return replace(self, start=self.start + base_ns, end=self.end + base_ns)

    def ranges(self, texts: Bools, codes: Int64s) -> Ranges:
        """The ranges whose text is marked, nested by thread: `row` is that of the range, the
        thread its position in the sorted global ids `codes`."""
        rows = np.flatnonzero(texts[self.text]) if len(self) else np.zeros(0, dtype=np.int64)
        rows = rows[np.isin(self.thread[rows], codes)]
        thread = np.searchsorted(codes, self.thread[rows]).astype(np.int32)
        return Ranges.of(rows, thread, self.start[rows], self.end[rows])


def read_nvtx(database: NsysDatabase, submodules: Collection[str] = ()) -> Nvtx:
    """The ranges of an export. `submodules` are the texts of those that are calls, instead of the
    names of components."""
    reading = _Reading()
    columns = ("start", "end", "eventType", "globalTid", "text", "textId")
    rows = list(database.rows("NVTX_EVENTS", columns))
    shared = database.texts(row[5] for row in rows if type(row[5]) is int)
    for start, end, kind, thread, text, text_id in rows:
        if kind not in (_PUSH_POP, _START_END) or type(start) is not int:
            continue
        if type(end) is not int or end < start:
            reading.unclosed += 1
            continue
        name = text if isinstance(text, str) else shared.get(_whole(text_id), "")
        _add(reading, start, end, _whole(thread), name)
    return _of(reading, submodules)


def _whole(value: object) -> int:
    return value if type(value) is int else NO_TIME


def _add(reading: _Reading, start: int, end: int, thread: int, text: str) -> None:
    tail = _TAIL.search(text)
    name = text[: tail.start()] if tail else text
    sizes = _SIZES.search(text, tail.start()) if tail else None
    shapes = _shapes(sizes[1]) if sizes else ""
    reading.start.append(start)
    reading.end.append(end)
    reading.thread.append(thread)
    reading.text.append(reading.texts.setdefault(name, len(reading.texts)))
    reading.sizes.append(reading.shapes.setdefault(shapes, len(reading.shapes)))


def _shapes(text: str) -> str:
    """`[[2, 3], [], [3, 4]]` → `in: tensor[2,3] tensor[3,4]`; "" for none."""
    try:
        sizes = json.loads(text)
    except ValueError:
        return ""
    tensors = [one for one in sizes if isinstance(one, list) and one]
    flat = [one for one in tensors if all(type(size) is int for size in one)]
    return "in: " + " ".join(f"tensor[{','.join(map(str, one))}]" for one in flat) if flat else ""


def _of(reading: _Reading, submodules: Collection[str]) -> Nvtx:
    texts = tuple(reading.texts)
    passes = [_PASS.fullmatch(text) for text in texts]
    modules = [_MODULE.match(text) for text in texts]
    return Nvtx(
        start=np.array(reading.start, dtype=np.int64),
        end=np.array(reading.end, dtype=np.int64),
        thread=np.array(reading.thread, dtype=np.int64),
        text=np.array(reading.text, dtype=np.int64),
        sizes=np.array(reading.sizes, dtype=np.int64),
        texts=texts,
        shapes=tuple(reading.shapes),
        operators=np.array([bool(_OPERATOR.fullmatch(text)) for text in texts], dtype=np.bool_),
        modules=tuple(found[1] if found else "" for found in modules),
        passes=np.array([int(found[1]) if found else -1 for found in passes], dtype=np.int64),
        submodules=tuple(_submodule(text, submodules) for text in texts),
        unclosed=reading.unclosed,
    )


def _submodule(text: str, given: Collection[str]) -> str:
    """The submodule that a range of this text is a call of, "" where it is none."""
    if given:
        return text if text in given else ""
    plain = _METHOD.sub("", text)
    return plain.lower() if _COMPONENT.fullmatch(plain) else ""
