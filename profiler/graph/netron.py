"""Serve Netron's pages and one model to this machine's browsers only.

    with NetronServer(model) as server:
        print(server.url)
        server.serve_forever()

The pages are those of the package `netron`. Its own server would insert the file name unescaped,
and the page would contact other hosts to count its users. This one serves Netron's own files, the
model and its external data, and forbids the page every other host.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import time
from collections.abc import Callable
from html import escape
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, unquote

from profiler.errors import InputError, install_command
from profiler.files import opened, size_of, writable
from profiler.graph.model import data_faults, external_files, read_graph
from profiler.local_server import LocalHandler, LocalServer

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'self' blob: data:; style-src 'self' 'unsafe-inline'; frame-src 'none'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_PIECE = 1 << 20  # bytes


class NetronServer:
    """Serves the model in a file at `url`. Use as a context, or `close` it. Ends after an hour
    without a request, and then is `idle`.

    Raises InputError if `netron` is not installed, the file is no ONNX model, or the port is taken;
    port 0 takes a free one.
    """

    def __init__(
        self, model: Path, port: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        pages = _pages()
        files = {_quoted(model.name): model} | _data_files(model)
        page = (pages / "index.html").read_text(encoding="utf-8")
        try:
            self._server = _Server(_Handler, port, clock)
        except OSError as error:
            reason = error.strerror or str(error)
            advice = "give another --port, or leave it out to take a free one"
            raise InputError(f"cannot serve at port {port} ({reason}): {advice}") from error
        self._server.pages, self._server.files = pages, files
        self._server.index = _index(page, model)
        self.port = self._server.server_port
        self.url = f"{self._server.root}/"

    @property
    def idle(self) -> bool:
        """Whether it has ended because there was no request for long."""
        return self._server.idle

    def serve_forever(self) -> None:
        """Answer requests until `shutdown` is called in another thread."""
        self._server.serve_forever(poll_interval=0.2)

    def shutdown(self) -> None:
        """Make `serve_forever` return."""
        self._server.shutdown()

    def close(self) -> None:
        """Release the port."""
        self._server.server_close()

    def __enter__(self) -> NetronServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pages() -> Path:
    """The folder of Netron's pages."""
    found = importlib.util.find_spec("netron")
    if found is None or found.origin is None:
        raise InputError(f"graph view needs Netron: install it with `{install_command('netron')}`")
    return Path(found.origin).parent


def _data_files(model: Path) -> dict[str, Path]:
    """The external data files by address, if all are complete and inside the model's folder."""
    graph = read_graph(model)
    if data_faults(graph):  # Netron shows the graph nevertheless
        return {}
    folder = model.parent.absolute()
    return {_quoted(path.relative_to(folder).as_posix()): path for path in external_files(graph)}


def _quoted(name: str) -> str:
    """Quote a file name as part of an address, even if it is not UTF-8."""
    return quote(os.fsencode(name))


def _index(page: str, model: Path) -> str:
    """Return Netron's page with the address of the model to open.

    Without a date it does not block the view with an update, and as version 0.0.0, Netron's own
    value for an unpackaged copy, it reports nothing to its makers.
    """
    page = re.sub(r'<meta name="(date|version)" content="[^"]*">\n?', "", page)
    models = {
        "type": "Python",
        "version": "0.0.0",
        "file": f"/data/{_quoted(model.name)}",  # Netron adds its own folder in front
        "name": writable(model.name),
        "identifier": writable(model.name),
    }
    tags = [f'<meta name="{name}" content="{escape(text)}">' for name, text in models.items()]
    return page.replace("<title>", "\n".join([*tags, "<title>"]), 1)


class _Server(LocalServer):
    pages: Path
    files: dict[str, Path]
    index: str


class _Handler(LocalHandler):
    server: _Server

    def answer(self, path: str) -> None:
        if path in {"/", "/index.html"}:
            page = self.server.index.encode()
            if self._head(len(page), _TYPES[".html"]):
                self.wfile.write(page)
        elif path.startswith("/data/"):
            file = self.server.files.get(path.removeprefix("/data/"))
            self._send_file(file, "application/octet-stream")
        else:
            name = unquote(path.removeprefix("/"))
            plain = re.fullmatch(r"[A-Za-z0-9._-]+", name) is not None
            page_file = self.server.pages / name if plain else None
            self._send_file(page_file, _TYPES.get(Path(name).suffix, ""))

    def _send_file(self, path: Path | None, kind: str) -> None:
        if path is None or not kind or not path.is_file():
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with opened(path) as file:
            if self._head(size_of(file), kind):
                shutil.copyfileobj(file, self.wfile, _PIECE)

    def _head(self, size: int, kind: str) -> bool:
        cookie = "consent=0; SameSite=Strict"  # no consent needed
        return self.head(size, kind, **{"Content-Security-Policy": _POLICY, "Set-Cookie": cookie})
