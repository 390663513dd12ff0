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
from dataclasses import dataclass, replace

import numpy as np

from profiler.importers.components import component
from profiler.importers.nsys.activity import NO_TIME, Bools, in_time
from profiler.importers.nsys.database import NsysDatabase
from profiler.kineto.ranges import Ranges
from profiler.trace.columns import Int64s

__all__ = ["Nvtx", "read_nvtx"]

_PUSH_POP, _START_END = 59, 60
_TAILS = (", seq = ", ", op_id = ", ", sizes = ")
_SIZES = re.compile(r", sizes = (\[[\[\], \d-]*\])")
_OPERATOR = re.compile(r"[A-Za-z_]\w*::[\w.:<>]+")
_MODULE = re.compile(r"^\{\s*['\"]Module['\"]:\s*['\"]([\w.\-\[\]]+)['\"]")
_PASS = re.compile(
    r"(?:ProfilerStep#|(?:(?:denois\w*|inference)[ _])?(?:step|iter(?:ation)?)[ _#:]*)(\d{1,9})",
    re.I,
)


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
    asked = {"start": NO_TIME, "end": NO_TIME, "eventType": 0, "globalTid": 0, "textId": -1}
    found = database.numbers("NVTX_EVENTS", asked)
    ranges = np.isin(found["eventType"], (_PUSH_POP, _START_END)) & (found["start"] != NO_TIME)
    closed = ranges & in_time(found["start"], found["end"])
    rows = np.flatnonzero(closed)
    texts = _texts(database, found["textId"], rows)
    names: dict[str, int] = {}
    shapes = {"": 0}
    code = [names.setdefault(_name(text), len(names)) for text in texts]
    sizes = [
        shapes.setdefault(_shapes(text), len(shapes)) if ", sizes = " in text else 0
        for text in texts
    ]
    passes = [_PASS.fullmatch(name) for name in names]
    modules = [_MODULE.match(name) for name in names]
    return Nvtx(
        start=found["start"][rows],
        end=found["end"][rows],
        thread=found["globalTid"][rows],
        text=np.array(code, dtype=np.int64),
        sizes=np.array(sizes, dtype=np.int64),
        texts=tuple(names),
        shapes=tuple(shapes),
        operators=np.array([bool(_OPERATOR.fullmatch(name)) for name in names], dtype=np.bool_),
        modules=tuple(one[1] if one else "" for one in modules),
        passes=np.array([int(one[1]) if one else -1 for one in passes], dtype=np.int64),
        submodules=tuple(_submodule(name, submodules) for name in names),
        unclosed=int((ranges & ~closed).sum()),
    )


def _texts(database: NsysDatabase, ids: Int64s, rows: Int64s) -> list[str]:
    """The texts of some ranges, written in the table itself or in `StringIds`."""
    kept = set(rows.tolist())
    own = (
        text if isinstance(text, str) else None
        for row, (text,) in enumerate(database.rows("NVTX_EVENTS", ("text",)))
        if row in kept
    )
    shared = database.texts(ids[rows].tolist())
    return [
        text if text is not None else shared.get(one, "")
        for text, one in zip(own, ids[rows].tolist(), strict=True)
    ]


def _name(text: str) -> str:
    """A range's text without what torch writes behind an operator."""
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


def _submodule(text: str, given: Collection[str]) -> str:
    """The submodule that a range of this text is a call of, "" where it is none."""
    if given:
        return text if text in given else ""
    return component(text)
