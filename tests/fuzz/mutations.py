"""Mutations that know the structure of a file: JSON, SQLite, protobuf, text, and files in folders.

    mutate(path, random)      # changes one file of a trace or a bundle in place
    python -m tests.fuzz.mutations --seconds 600 [--core] [--seed N] [NAME…]

A random change of bytes is refused by the parser of the format; these are not, and reach what reads
the values. The program tries them on each importer that is registered, and on bundles. With
`--core` each is read into frames, which is all that the trace core does, and not analyzed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from profiler.analysis.analyze import analyze
from profiler.errors import ProfilerError
from profiler.importers import import_trace
from profiler.report.files import to_json
from profiler.tools.sources import load

__all__ = ["campaign", "mutate", "options_of", "seeds"]

_ODD: tuple[Callable[[random.Random], Any], ...] = (
    lambda _: None,
    lambda _: [],
    lambda _: {},
    lambda _: "",
    lambda _: True,
    lambda _: 0,
    lambda _: -1,
    lambda r: r.choice((1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 63), 10**400)),
    lambda r: r.choice((0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), -float("inf"))),
    lambda r: str(r.choice((-1, 1 << 70, "1e999", "NaN", "0x10", " 7 ", "٣", "1_000"))),
    lambda r: r.choice(
        ("\ud800", "\0", "\x1b[2J", "\u202e", "a\nb", "=1+1", "../../x", "x" * 5000)
    ),
    lambda r: [[]] * r.randrange(3),
    lambda r: {"": {"a": [1, None, "b"]}},
    lambda r: [1, "a", None, {}],
)


def mutate(path: Path, rng: random.Random) -> str:
    """Change `path`, or a file in it, at one to four places; returns what was done."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    file = rng.choice(files)
    if path.is_dir() and rng.random() < 0.05:
        return _file_level(file, files, rng)
    data = file.read_bytes()
    done = [file.name]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if data.startswith(b"SQLite format 3\0"):
            done.append(_sqlite(file, rng))
            continue
        how, change = _of(data, rng)
        data = change(data, rng)
        done.append(how)
        file.write_bytes(data)
    return " ".join(done)


def _of(data: bytes, rng: random.Random) -> tuple[str, Callable[[bytes, random.Random], bytes]]:
    if rng.random() < 0.1:
        return "bytes", _bytes
    if data.lstrip()[:1] in (b"{", b"["):
        return "json", _json
    with contextlib.suppress(UnicodeDecodeError):
        data.decode()
        return "text", _text
    return "protobuf", _protobuf


def _file_level(file: Path, files: list[Path], rng: random.Random) -> str:
    what = rng.choice(("remove", "empty", "swap", "double"))
    if what == "remove":
        file.unlink()
    elif what == "empty":
        file.write_bytes(b"")
    elif what == "swap":
        file.write_bytes(rng.choice(files).read_bytes())
    else:
        file.write_bytes(file.read_bytes() * 2)
    return f"{what} {file.name}"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container with each of its keys."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        keys = one.keys() if isinstance(one, dict) else range(len(one))
        for key in list(keys):
            yield one, key
            if isinstance(one[key], (dict, list)):
                waiting.append(one[key])


def _json(data: bytes, rng: random.Random) -> bytes:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return _bytes(data, rng)
    places = list(_places(document))
    if not places:
        return json.dumps(rng.choice(_ODD)(rng)).encode()
    holder, key = rng.choice(places)
    match rng.randrange(7):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, holder[rng.randrange(len(holder))])
        case 1:
            holder[rng.choice(_ODD[9:11])(rng)] = holder[key]
        case 2:
            other, at = rng.choice(places)
            with contextlib.suppress(LookupError):
                holder[key] = other[at] if not isinstance(other[at], (dict, list)) else "swapped"
        case 3 if isinstance(holder, list) and len(holder) > 1:
            rng.shuffle(holder)
        case 4 if isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
            holder[key] = holder[key] * rng.choice((-1, 0, 1000, 1 << 40, 0.001))
        case 5 if isinstance(holder[key], str):
            holder[key] = holder[key][: rng.randrange(1 + len(holder[key]))] + rng.choice("\0é�9 ")
        case _:
            holder[key] = rng.choice(_ODD)(rng)
    text = json.dumps(document, ensure_ascii=rng.random() < 0.8)
    return text.encode("utf-8", "surrogatepass")


def _sqlite(file: Path, rng: random.Random) -> str:
    values = (None, -1, (1 << 63) - 1, -(1 << 63), 0.5, "x", "", b"\0\xff", "\x1b", 10**6)
    connection = sqlite3.connect(file)
    try:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        table = rng.choice([row[0] for row in connection.execute(named)] or [""])
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        column = rng.choice(columns or [""])
        what = rng.choice(
            [
                *[f'UPDATE "{table}" SET "{column}" = ?1'] * 2,
                *[f'UPDATE "{table}" SET "{column}" = ?1 WHERE abs(random()) % 3 = 0'] * 4,
                f'DELETE FROM "{table}" WHERE abs(random()) % 2 = 0 OR ?1 IS 2',
                f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE ?1 IS NOT 3',
                f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"',
                f'DROP TABLE "{table}"',
            ]
        )
        given = (rng.choice(values),) if "?1" in what else ()
        with contextlib.suppress(sqlite3.Error):
            connection.execute(what, given)
            connection.commit()
    except sqlite3.Error as error:  # a change of before has damaged it
        return str(error)
    finally:
        connection.close()
    return what


def _text(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    signs = next((one for one in (b";", b",", b"|", b":", b" ") if one in lines[at]), b" ")
    cells = lines[at].split(signs)
    cell = rng.randrange(len(cells))
    odd = json.dumps(rng.choice(_ODD)(rng)).encode()
    match rng.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, rng.choice(lines))
        case 2:
            cells[cell] = odd
            lines[at] = signs.join(cells)
        case 3:
            del cells[cell]
            lines[at] = signs.join(cells)
        case 4:
            cells[cell] = odd.strip(b'"')
            lines[at] = signs.join(cells)
        case _:
            lines[at] = lines[at][: rng.randrange(1 + len(lines[at]))]
    return b"\n".join(lines)


def _fields(data: bytes, begin: int = 0) -> list[tuple[int, int, int, int]]:
    """The fields of a message: where the tag, the value and the end are, and the wire type."""
    found, at = [], begin
    while at < len(data):
        start, (tag, at) = at, _varint(data, at)
        value = at
        if tag & 7 == 0:
            _, at = _varint(data, at)
        elif tag & 7 == 1:
            at += 8
        elif tag & 7 == 2:
            length, value = _varint(data, at)
            at = value + length
        elif tag & 7 == 5:
            at += 4
        else:
            break
        if at > len(data):
            break
        found.append((start, value, at, tag & 7))
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    return value, at


def _encoded(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _protobuf(data: bytes, rng: random.Random) -> bytes:
    """A change to one field, in whatever message within messages, whose lengths are kept right."""
    fields = _fields(data)
    if not fields:
        return _bytes(data, rng)
    start, value, end, kind = rng.choice(fields)
    head = data[start:value]
    if kind == 2:
        content = data[value:end]
        tag = data[start : _varint(data, start)[1]]
        deeper = len(content) > 2 and _fields(content) and rng.random() < 0.9
        if deeper:
            content = _protobuf(content, rng)
        else:
            content = rng.choice((b"", content * 2, _bytes(content, rng), b"\xff\xfe", b"x" * 9999))
        middle = tag + _encoded(len(content)) + content
    elif kind == 0:
        odd = rng.choice(
            (0, 1, -1, 127, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, rng.getrandbits(8))
        )
        middle = head + _encoded(odd)
    else:
        middle = head + rng.randbytes(end - value)
    match rng.randrange(8):
        case 0:
            middle = b""
        case 1:
            middle = data[start:end] + middle
        case 2:
            other = rng.choice(fields)
            middle = data[other[0] : other[2]]
    return data[:start] + middle + data[end:]


def _bytes(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return rng.randbytes(rng.randrange(64))
    at, length = rng.randrange(len(data)), rng.choice((1, 1, 4, 64, 4096))
    match rng.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + rng.randbytes(length) + data[at + length :]
        case 2:
            return data[:at] + data[at + length :]
        case _:
            return data[: at + length] + data[at:]


# --- What is mutated: a seed of each importer that is registered, of bundles, folders and archives.


Seed = Callable[[Path], Path]
"""Writes a trace or bundle into a folder; returns its path."""


def seeds() -> dict[str, list[Seed]]:
    """The seeds by the importer that reads them, as the registry says; a bundle's under "bundle".
    An importer that is registered and has no seed has an empty list."""
    from profiler.importers.importing import choose, importers
    from tests.importers.test_hostile_files import FILES

    found: dict[str, list[Seed]] = {importer.name: [] for importer in importers()}
    for make in (*FILES.values(), *_more()):
        with tempfile.TemporaryDirectory() as folder:
            name = choose([make(Path(folder))], options_of(make)).name
        found.setdefault(name, []).append(make)
    return {**found, "bundle": [_bundle]}


def options_of(make: Seed) -> dict[str, str]:
    """What an importer has to be told to read a seed."""
    return getattr(make, "options", {})


def _more() -> Iterator[Seed]:
    from tests.importers.ascend.test_ascend import generated as ascend_rows
    from tests.importers.kineto.traces import flux
    from tests.importers.rbln.generator import write_sd3
    from tests.importers.serving.test_stage_times import BENCHMARK
    from tests.importers.test_hostile_files import FILES
    from tests.importers.test_other_views import unitrace as unitrace_events
    from tests.importers.test_other_views import write_perfetto

    def ascend(folder: Path) -> Path:
        (folder / "msprof_1.json").write_text(json.dumps(ascend_rows(collectives=True)))
        return folder / "msprof_1.json"

    def fastvideo(folder: Path) -> Path:
        (folder / "bench.json").write_text(json.dumps(BENCHMARK))
        return folder / "bench.json"

    def unitrace(folder: Path) -> Path:
        (folder / "unitrace.json").write_text(json.dumps(unitrace_events()))
        return folder / "unitrace.json"

    def perfetto(folder: Path) -> Path:
        return write_perfetto(folder)

    perfetto.options = {"device": r"GPU queue (\d+)"}  # type: ignore[attr-defined]

    def archive(folder: Path) -> Path:
        (folder / "run").mkdir()
        FILES["kineto"](folder / "run")
        FILES["onnxruntime"](folder)
        (folder / "made.json").rename(folder / "run" / "ort.json")
        return Path(shutil.make_archive(str(folder / "run"), "zip", folder / "run"))

    def rbln(folder: Path) -> Path:
        write_sd3(folder / "rbln", steps=1)
        return folder / "rbln"

    def both(folder: Path) -> Path:
        archive(folder).unlink()
        return folder / "run"

    yield lambda folder: flux().write(folder)
    yield from (rbln, ascend, fastvideo, unitrace)
    if find_spec("perfetto") is not None:
        yield perfetto
    yield archive
    yield both


def _bundle(folder: Path) -> Path:
    from tests.trace.samples import small_bundle

    return small_bundle(folder)


# --- Trying them.


class Hang(BaseException):
    """A case took too long."""


class Finding(Exception):  # noqa: N818  # it is what is looked for
    """What was neither read nor refused in a sentence."""


_SECONDS = 20  # of the processor, so that others' work is no finding; ten times as many in all


@dataclass(frozen=True)
class Given:
    """A seed that has been written: number `number` of an importer, `path` in a folder of its own,
    and what the importer has to be told."""

    importer: str
    number: int
    folder: Path
    path: Path
    options: dict[str, str]


def tried(given: Given, seed: int, *, core: bool = False) -> str:
    """Mutate a copy of a seed and read it as `analyze` does, with `core` into frames alone: "read"
    or "refused". Raises Finding."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "given"
        shutil.copytree(given.folder, folder)
        path = folder / given.path
        done = mutate(path, rng)
        signal.signal(signal.SIGALRM, _hang)
        signal.signal(signal.SIGPROF, _hang)
        signal.setitimer(signal.ITIMER_REAL, 10 * _SECONDS)
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        try:
            bundle = given.importer == "bundle"
            made = (
                path if bundle else import_trace(path, Path(place) / "out", options=given.options)
            )
            with closing(load(made)) as run:
                if not core:
                    to_json(analyze(run))
        except ProfilerError as error:
            if "\n" in str(error) or not str(error):
                raise Finding(f"{done}: no sentence: {error!r}") from error
            return "refused"
        except (Exception, Hang) as error:
            raise Finding(f"{done}: {type(error).__name__}: {error}"[:500]) from error
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
    return "read"


def _hang(*_: object) -> None:
    raise Hang(f"longer than {_SECONDS} s")


def campaign(
    names: list[str], seed: int, seconds: float = 0, count: int = 0, *, core: bool = False
) -> tuple[Counter[str], list[str]]:
    """Try cases in turn, for so many seconds or of so many of each seed: how they ended, and what
    was found, each kind of finding once."""
    ended: Counter[str] = Counter()
    found: dict[str, str] = {}
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as scratch:
        written = list(_written(Path(scratch), names))
        at = 0
        while at < count or (seconds and time.monotonic() < until):
            for given in written:
                case = f"{given.importer} {given.number} seed {seed + at}"
                try:
                    ended[tried(given, seed + at, core=core)] += 1
                except Finding as finding:
                    ended["found"] += 1
                    frames = traceback.extract_tb((finding.__cause__ or finding).__traceback__)
                    ours = [
                        f"{Path(f.filename).name}:{f.lineno}"
                        for f in frames
                        if "profiler" in f.filename
                    ]
                    found.setdefault(
                        f"{given.importer} {' '.join(ours[-2:])}", f"{case}: {finding}"
                    )
            at += 1
    return ended, [f"{place}: {said}" for place, said in found.items()]


def _written(scratch: Path, names: list[str]) -> Iterator[Given]:
    for name, made in seeds().items():
        for number, make in enumerate(made if not names or name in names else ()):
            folder = scratch / f"{name} {number}"
            folder.mkdir()
            path = make(folder).relative_to(folder)
            yield Given(name, number, folder, path, options_of(make))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="importers, and bundle; all if none is given")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--core", action="store_true", help="no analysis: for sanitizers")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    ended, found = campaign(options.names, options.seed, options.seconds, core=options.core)
    print(f"seed {options.seed}: {dict(ended)}")
    print("\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
