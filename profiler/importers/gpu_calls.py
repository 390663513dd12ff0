"""Place GPU work, launches and NVTX or roctx ranges of a recording in submodule calls.

Work and its launch share process and correlation id; the id alone is not unique. Ranges name
operators (`aten::mm, seq = 12, sizes = [[2, 3], [3, 4]]`), modules (`{'Module':
'model.layers.0'}`), iterations (`ProfilerStep#3`) or submodules (`vae.decode`). The outermost
submodule range is a call. Without one, each process is one call. A range of a named NVTX domain is
`text@domain`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from profiler.errors import InputError
from profiler.importers.foreign_run import call_at, component, stages
from profiler.importers.tensorrt import engine_op_type
from profiler.kineto.events import Ranges
from profiler.trace.columns import Int32s, Int64s
from profiler.trace.events import NO_CALL, NO_ITERATION, ROOT_DEVICE, Call
from profiler.trace.runtime_calls import LAUNCH, NO_END, last_begun

# --- What devices did and what the host asked of them: n rows each, int64 [n] in ns of the file.
#
# A piece of work and the call of the runtime that launched it share process and correlation id; the
# id alone is not enough, since each process counts for itself.


Bools = npt.NDArray[np.bool_]
KINDS = ("kernel", "gpu_memcpy", "gpu_memset", "graph")
_NONE = -1
_EXACT_NS = 1_000  # µs clocks may round a start below its launch
NO_TIME = NO_END
"""Where the file has no time."""
OPEN = (1 << 61) - 1
"""The end of a range that has none."""
LATEST = 1 << 61
"""ns, the year 2043: times are before it, so that a session's start can be added."""
Integers = npt.NDArray[np.signedinteger[Any]]  # int32 if there are millions
_MASK = 0xFFFFFF  # bits of a process or thread in a global id
_PRIME, _MASK_OF_SIZE = 1_000_003, 0xFFFFFFFF  # of a number for several sizes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Timed:
    """n rows with a number in every column: `name` indexes `names`, `pid` is -1 if not known."""

    name: Integers
    start: Int64s
    end: Int64s
    pid: Integers
    correlation: Int64s
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.start)

    def columns(self) -> dict[str, Any]:
        """The numbers by the name of their column."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: one for name, one in values.items() if isinstance(one, np.ndarray)}

    def select(self, rows: Int64s | Bools) -> Self:
        """Some of the rows, without a copy if that is all of them."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        return replace(self, **{name: one[rows] for name, one in self.columns().items()})

    def first_ns(self) -> int:
        """The earliest start; 0 if no row has one."""
        begun = self.start[self.start != NO_TIME]
        return int(begun.min()) if len(begun) else 0

    def timed(self) -> Self:
        """The rows with valid times: a start, and an end that is not before it."""
        return self.select(in_time(self.start, self.end))

    @classmethod
    def joined(cls, parts: Sequence[Self], names: Names) -> Self:
        """Concatenate the rows of all parts; their names become codes of `names`."""
        several = [part.columns() for part in parts if len(part)] or [parts[0].columns()]
        if len(several) == 1:
            return replace(parts[0], **several[0], names=tuple(names.texts))
        columns = {name: np.concatenate([one[name] for one in several]) for name in several[0]}
        return replace(parts[0], **columns, names=tuple(names.texts))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Work(_Timed):
    """Kernels, copies, memory sets and replayed graphs: `kind` indexes `KINDS`; `bytes` is -1 for
    kernels, `stream` is -1 if not known. `lane` is the word for a stream."""

    kind: Integers
    device: Int64s
    stream: Int64s
    bytes: Int64s
    lane: str = "stream"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Api(_Timed):
    """Calls of the runtime and the driver: `thread` is the global thread id (`global_ids`), `waits`
    is whether the host waited for a device in it."""

    thread: Int64s
    waits: Bools


def may_be_host_only(work: Work, api: Api) -> bool:
    """Whether kernels were launched and no work was recorded."""
    return not len(work) and any(map(LAUNCH.match, api.names))


def in_time(start: Int64s, end: Int64s) -> Bools:
    """Whether each row has a start, and an end that is not before it. NO_TIME and times that
    overflow after adding the epoch are not valid."""
    return (start > -LATEST) & (end >= start) & (end < LATEST)


class Names:
    """Assigns codes to texts: `texts` has that of each code."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}
        self._by_size: dict[int, int] = {}
        self._sized: set[int] = set()

    def of(self, texts: Sequence[str], place: Int64s) -> Int32s:
        """The codes of `texts`, one per entry of `place`."""
        for text in texts:
            if self._codes.setdefault(text, len(self.texts)) == len(self.texts):
                self.texts.append(text)
        codes = [self._codes[text] for text in texts]
        return np.array(codes, dtype=np.int32)[place] if codes else np.zeros(0, dtype=np.int32)

    def by_size(self, code: Int32s, *sizes: Int64s) -> Int32s:
        """Codes of the same texts that differ where sizes do, as grids of kernels: lengths of a
        kernel are compared among those of one size."""
        size = np.zeros(len(code), dtype=np.int64)
        for one in sizes:
            size = (size * _PRIME + one) & _MASK_OF_SIZE
        keys, place = np.unique((code.astype(np.int64) << 32) | size, return_inverse=True)
        codes = np.zeros(len(keys), dtype=np.int32)
        for at, key in enumerate(keys.tolist()):
            if key not in self._by_size:
                of = self._by_size[key] = key >> 32
                if of in self._sized:
                    self._by_size[key] = len(self.texts)
                    self.texts.append(self.texts[of])
                self._sized.add(of)
            codes[at] = self._by_size[key]
        found: Int32s = codes[place.reshape(-1)]
        return found


def global_ids(pid: Int64s, tid: Int64s) -> Int64s:
    """Global ids of threads: the process in bits 24 to 47, the thread below."""
    return ((pid & _MASK) << 24) | (tid & _MASK)


def process_of(identity: Int64s) -> Int32s:
    """The process of global process or thread ids, -1 for none."""
    return np.where(identity == _NONE, _NONE, (identity >> 24) & _MASK).astype(np.int32)


def keys_of(pid: Integers, correlation: Int64s) -> Int64s:
    """A number for each pair of process and correlation id."""
    return (pid.astype(np.int64) << 32) | (correlation & 0xFFFFFFFF)


def launches(work: Work, api: Api) -> Int64s:
    """For each piece of work the row of the call that launched it, int64 [n]; -1 for none. Without
    the work's process, the id decides if only one call has it. If an id is reused, the last call
    before the work counts."""
    known = bool((work.pid != _NONE).any()) or not len(work)
    if known:
        asked, keys = keys_of(work.pid, work.correlation), keys_of(api.pid, api.correlation)
    else:
        asked, keys = work.correlation, api.correlation
    found = last_begun(keys, api.start, api.end, asked, work.start + _EXACT_NS)
    there = work.correlation > 0
    if not known:
        ordered = np.sort(keys)
        until = np.searchsorted(ordered, asked, side="right")
        there &= until - np.searchsorted(ordered, asked) == 1
    return np.where(there, found, _NONE)


# --- What ranges of NVTX and roctx say: which operator of which shapes, in which module, submodule
# or iteration.
#
# - `aten::mm, seq = 12, op_id = 34, sizes = [[2, 3], [3, 4]]`: an operator, as torch's `emit_nvtx`
#   writes it, the sizes with `record_shapes=True`;
# - a range of TensorRT's domain that is none of its C++ API: a layer of the engine;
# - `{'Module': 'model.layers.0.mlp', …}`: a module by its path, as vLLM writes them by layer;
# - `ProfilerStep#3`, `step 3`, `iteration_3`: a pass of the program's loop;
# - a name that the user gave, or that of a component (`text_encoder_2`, `vae.decode`): a call of a
#   submodule.
#
# Ranges of NVTX are of domains, each of which nests by itself: one library knows nothing of
# another's. What says the same thing (the calls, say) is taken from one domain of a process: the
# default one if it has any such range, else that with most of them. A text of a named domain is
# `text@domain`.


_DOMAIN = "@"
_TENSORRT = "TensorRT"  # a domain
_TAILS = (", seq = ", ", op_id = ", ", sizes = ")
_SIZES = re.compile(r", sizes = (\[[\[\], \d-]*\])")
_OPERATOR = re.compile(r"[A-Za-z_]\w*::[\w.:<>]+")
_MODULE = re.compile(r"^\{\s*['\"]Module['\"]:\s*['\"]([\w.\-\[\]]+)['\"]")
_PASS = re.compile(
    r"(?:ProfilerStep#|(?:(?:denois\w*|inference)[ _])?(?:step|iter(?:ation)?)[ _#:]*)(\d{1,9})",
    re.I,
)


class MarkTexts:
    """Codes for texts of ranges: `names` without shapes, and `shapes`."""

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
    """n ranges: start and end in ns and global thread id, int64 [n], and codes of `texts` and
    `shapes` ("in: tensor[2,3] …", "" first), int32 [n]. Per text: `domains` ("" for the default
    one), `operators`, `modules` (the path, "" for none), `passes` (the number, -1 for none),
    `submodules` ("" for none). A range without an end lasts to the end of the recording (`OPEN`
    until that is known). `unclosed` counts ranges without a valid end; those with an impossible one
    are left out."""

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
    def of(  # noqa: PLR0913, PLR0917 - what ranges are
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
        """Ranges whose texts are codes of `known`. The codes after these are of `named`: a code of
        `known` and a domain."""
        own = tuple(known.names)
        domains = ("",) * len(own) + tuple(domain for _, domain in named)
        names = own + tuple(own[code] for code, _ in named)
        passes = [_PASS.fullmatch(name) for name in names]
        modules = [_MODULE.match(name) for name in names]
        texts = tuple(map(_with_domain, names, domains))
        asked = (
            next((t for t in two if t in submodules), "") for two in zip(texts, names, strict=True)
        )
        return cls(
            start=start,
            end=end,
            thread=thread,
            text=text,
            sizes=sizes,
            texts=texts,
            shapes=tuple(known.shapes),
            operators=np.array([*map(_is_operator, names, domains)], dtype=np.bool_),
            modules=tuple(one[1] if one else "" for one in modules),
            passes=np.array([int(one[1]) if one else -1 for one in passes], dtype=np.int64),
            submodules=tuple(asked if submodules else map(component, names)),
            domains=domains,
            unclosed=unclosed,
        )

    def __len__(self) -> int:
        return len(self.start)

    def plain(self, code: int) -> str:
        """The text of a code without its domain."""
        domain = self.domains[code]
        return self.texts[code].removesuffix(_DOMAIN + domain) if domain else self.texts[code]

    def op_type(self, code: int) -> str:
        """The op type of an operator."""
        name = self.plain(code)
        return (self.domains[code] == _TENSORRT and engine_op_type(name)) or name

    @property
    def speaking(self) -> tuple[str, ...]:
        """The named domains whose ranges name operators, modules, passes or submodules."""
        if not any(self.domains):
            return ()
        said = (self.operators, there(self.modules), self.passes >= 0, there(self.submodules))
        rows = [self._of_one_domain(np.flatnonzero(texts[self.text])) for texts in said]
        codes = np.unique(self.text[np.concatenate(rows)]).tolist()
        return tuple(sorted({self.domains[code] for code in codes} - {""}))

    def check(self, path: Path, given: Sequence[str], what: str) -> None:
        """Raise InputError if a requested text is in no range."""
        there = {*self.texts, *map(self.plain, range(len(self.texts)))}
        missing = [name for name in given if name not in there]
        if missing:
            raise InputError(
                f"{path} has no {what} {missing[0]!r}: give names of ranges that are there"
            )

    def ranges(self, texts: Bools, codes: Int64s, *, nested: bool = True) -> Ranges:
        """The ranges with marked texts, of one domain per process, by thread. `row` is the range's
        row, the thread its index in the sorted global ids `codes`. To only look up what is around
        a time they need not be `nested`, which takes less memory."""
        rows = np.flatnonzero(texts[self.text]) if len(self) else np.zeros(0, dtype=np.int64)
        rows = self._of_one_domain(rows[np.isin(self.thread[rows], codes)])
        thread = np.searchsorted(codes, self.thread[rows]).astype(np.int32)
        if nested:
            return Ranges.of(rows, thread, self.start[rows], self.end[rows])
        rows, end = rows.astype(np.int32), self.end[rows]
        order = np.lexsort((np.negative(end, out=end), self.start[rows], thread))
        del end
        rows, thread = rows[order], thread[order]
        del order
        return Ranges(rows, thread, self.start[rows], self.end[rows], rows[:0])

    def _of_one_domain(self, rows: Int64s) -> Int64s:
        """The given rows of one domain per process: the default domain, else the one with most
        ranges."""
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


def there(texts: Sequence[str]) -> Bools:
    """Whether each text is not empty."""
    return np.array([bool(text) for text in texts], dtype=np.bool_)


def threads_of(marks: Marks, api: Api) -> Int64s:
    """The global ids of the threads that have ranges or call the runtime, ascending."""
    return np.union1d(np.unique(marks.thread), np.unique(api.thread))


def asked_for(submodules: str) -> tuple[str, ...]:
    """The texts in an option, separated by commas."""
    return tuple(name.strip() for name in submodules.split(",") if name.strip())


def _name(text: str) -> str:
    """The text of a range without what torch appends to an operator."""
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


def _is_operator(name: str, domain: str) -> bool:
    """Whether a range is an operator: TensorRT's are layers within `ExecutionContext::execute`."""
    return bool(_OPERATOR.fullmatch(name)) != (domain == _TENSORRT)


def _with_domain(text: str, domain: str) -> str:
    return f"{text}{_DOMAIN}{domain}" if domain else text


# --- Which ranges are submodule calls, and which call each piece of work and host call belongs to.
#
# Where ranges name submodules, each outermost of them is a call. If none does, each process
# is one: from its first launch to the return of the last call that launched or waited. Work with a
# number below those of all calls that were recorded was launched before that: it is of none.


@dataclass(frozen=True, slots=True, eq=False)
class Placing:
    """The calls in order of start, and for each host call and piece of work the index of its call,
    `NO_CALL` for none."""

    calls: tuple[Call, ...]
    api: Int64s
    work: Int64s


def place(work: Work, api: Api, launch: Int64s, marks: Marks) -> Placing:
    """The calls of a recording; `launch` is the row in `api` that launched each piece of work."""
    threads = threads_of(marks, api)
    ranges = marks.ranges(there(marks.submodules), threads).outermost()
    if not len(ranges):
        return _by_process(work, api, launch)
    of_api = ranges.innermost(np.searchsorted(threads, api.thread).astype(np.int32), api.start)
    _lend(api, ranges, threads, of_api)
    of_work = np.where(launch >= 0, of_api[launch] if len(api) else NO_CALL, NO_CALL)
    if not (launch >= 0).any():  # without any launch: the call open at the work's start
        no_thread = np.zeros(max(len(ranges), len(work)), dtype=np.int32)
        rows = np.arange(len(ranges), dtype=np.int64)
        together = Ranges.of(rows, no_thread[: len(rows)], ranges.start_ns, ranges.end_ns)
        open_then = together.innermost(no_thread[: len(work)], work.start)
        of_work = np.append(together.row, NO_CALL)[open_then]
    # the iteration of the program's loop of each call; a single one is no loop
    passes = marks.ranges(marks.passes >= 0, threads)
    numbers = np.full(len(ranges), NO_ITERATION, dtype=np.int64)
    if len(passes) > 1:
        inside = passes.innermost(ranges.thread, ranges.start_ns)
        numbers = np.append(marks.passes[marks.text[passes.row]], NO_ITERATION)[inside]
    names = [marks.submodules[code] for code in marks.text[ranges.row].tolist()]
    times = ranges.start_ns.tolist(), (ranges.end_ns - ranges.start_ns).tolist()
    calls = [
        call_at(0, name, start, duration, ROOT_DEVICE, True, iteration=number)
        for name, start, duration, number in zip(names, *times, numbers.tolist(), strict=True)
    ]
    placed = _ordered(calls, of_api, of_work)
    labels = stages([c.submodule for c in placed.calls], [c.iteration for c in placed.calls])
    staged = (
        replace(call, stage=stage, step=step, iteration=iteration)
        for call, (stage, step, iteration) in zip(placed.calls, labels, strict=True)
    )
    return replace(placed, calls=tuple(staged))


def _by_process(work: Work, api: Api, launch: Int64s) -> Placing:
    """One call per process that had work, or of any if none had, numbered by pid; a single call if
    the processes of work are not known."""
    rows = work if len(work) else api
    pids = np.unique(rows.pid)
    separate = len(pids) > 1 or bool((pids >= 0).all())
    launching = np.isin(np.arange(len(api)), launch)
    of_api = np.full(len(api), NO_CALL, dtype=np.int64)
    calls = []
    for number, pid in enumerate(pids.tolist()):
        own = (api.pid == pid) if separate else np.ones(len(api), dtype=np.bool_)
        # from its first launch to the return of its last call that launched or waited
        begins, ends = api.start[own & launching], api.end[own & (launching | api.waits)]
        if not len(begins):
            begins, ends = rows.start[rows.pid == pid], rows.end[rows.pid == pid]
        begin, end = int(begins.min()), int(ends.max())
        name = "run" if len(pids) == 1 else f"process_{number}"
        calls.append(call_at(0, name, begin, end - begin, ROOT_DEVICE, True))
        of_api[own & (api.start >= begin) & (api.start < end)] = number
    of_work = np.where(launch >= 0, np.append(of_api, NO_CALL)[launch], NO_CALL)
    of_work = np.where(of_work >= 0, of_work, np.searchsorted(pids, work.pid))
    of_work[_before(work, api, launch)] = NO_CALL
    return _ordered(calls, of_api, of_work)


def _before(work: Work, api: Api, launch: Int64s) -> Bools:
    """Whether work was launched before the recording: its number is below all recorded numbers of
    its process."""
    least = np.full(len(work), -1, dtype=np.int64)
    numbered = np.flatnonzero(api.correlation > 0)
    for pid in np.unique(api.pid[numbered]).tolist():
        numbers = api.correlation[numbered[api.pid[numbered] == pid]]
        least[(work.pid == pid) | (work.pid == _NONE)] = int(numbers.min())
    return (launch < 0) & (work.correlation > 0) & (work.correlation < least)


def _lend(api: Api, ranges: Ranges, threads: Int64s, of_api: Int64s) -> None:
    """Assign runtime calls of threads without submodule calls to the only call that is open in
    their process."""
    calling = threads[np.unique(ranges.thread)]
    rows = np.flatnonzero(~np.isin(api.thread, calling))
    of_range = process_of(threads[ranges.thread])
    for pid in np.unique(api.pid[rows]).tolist():
        own = np.flatnonzero(of_range == pid)
        here = rows[api.pid[rows] == pid]
        order = own[np.argsort(ranges.start_ns[own], kind="stable")]
        begun = np.searchsorted(ranges.start_ns[order], api.start[here], side="right")
        ended = np.searchsorted(np.sort(ranges.end_ns[own]), api.start[here], side="right")
        single = begun - ended == 1
        latest = order[np.maximum(begun[single] - 1, 0)] if len(order) else order
        inside = ranges.end_ns[latest] > api.start[here[single]]
        of_api[here[single][inside]] = latest[inside]


def _ordered(calls: list[Call], of_api: Int64s, of_work: Int64s) -> Placing:
    order = sorted(range(len(calls)), key=lambda number: (calls[number].start_ns, number))
    position = np.empty(len(calls) + 1, dtype=np.int64)
    position[order] = np.arange(len(calls))
    position[-1] = NO_CALL
    return Placing(tuple(calls[n] for n in order), position[of_api], position[of_work])
