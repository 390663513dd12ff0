"""Netron's pages and one model, served to this machine's browsers alone.

    with NetronServer(model) as server:
        print(server.url)
        server.serve_forever()

The pages are those of the package `netron`; its own server would name the file in the page as it
is, and the page would ask other hosts for leave to count its users. This one answers on 127.0.0.1
only, to requests that are meant for it, serves Netron's own files, the model and its external data,
and forbids the page every other host.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from profiler.errors import InputError, install_command
from profiler.graph.model import data_faults, external_files, read_graph

_HOST = "127.0.0.1"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".svg": "image/svg+xml",
}
_POLICY = "default-src 'self' blob: data:; style-src 'self' 'unsafe-inline'; frame-src 'none'"
_PIECE = 1 << 20  # bytes


class NetronServer:
    """Serves the model in a file; `url` is what to open. Use as a context, or `close` it.

    Raises InputError if `netron` is not installed, the file is no ONNX model, or the port is
    taken; port 0 takes a free one.
    """

    def __init__(self, model: Path, port: int = 0) -> None:
        pages = _pages()
        files = {quote(model.name): model} | _data_files(model)
        index = _index((pages / "index.html").read_text(encoding="utf-8"), model)

        class Handler(_Handler):
            pass

        Handler.pages, Handler.files, Handler.index = pages, files, index
        try:
            self._server = _Server((_HOST, port), Handler)
        except OSError as error:
            reason = error.strerror or str(error)
            advice = "give another --port, or leave it out to take a free one"
            raise InputError(f"cannot serve at port {port} ({reason}): {advice}") from error
        self.port = int(self._server.server_address[1])
        Handler.hosts = f"{_HOST}:{self.port}", f"localhost:{self.port}"
        self.url = f"http://{_HOST}:{self.port}/"

    def serve_forever(self) -> None:
        """Answer requests until `shutdown` is called in another thread."""
        self._server.serve_forever(poll_interval=0.2)

    def shutdown(self) -> None:
        """Have `serve_forever` return."""
        self._server.shutdown()

    def close(self) -> None:
        """Give the port back."""
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
    """The files of external data that are whole and inside the model's folder, by address."""
    graph = read_graph(model)
    if data_faults(graph):  # Netron shows the graph all the same
        return {}
    folder = model.parent.absolute()
    return {quote(path.relative_to(folder).as_posix()): path for path in external_files(graph)}


def _index(page: str, model: Path) -> str:
    """Netron's page, told which model to open.

    Without its date it does not bar the way with an update, and as version 0.0.0, which is its own
    name for a copy that nobody packaged, it reports nothing to its makers.
    """
    page = re.sub(r'<meta name="(date|version)" content="[^"]*">\n?', "", page)
    told = {
        "type": "Python",
        "version": "0.0.0",
        "file": f"/data/{quote(model.name)}",
        "name": model.name,
        "identifier": model.name,
    }
    tags = [f'<meta name="{name}" content="{escape(text)}">' for name, text in told.items()]
    return page.replace("<title>", "\n".join([*tags, "<title>"]), 1)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    pages: Path
    files: dict[str, Path]
    index: str
    hosts: tuple[str, ...]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if self.headers.get("Host") not in self.hosts:
            self._refuse(HTTPStatus.FORBIDDEN)  # another site's name that leads here
        elif path in {"/", "/index.html"}:
            self._answer(self.index.encode(), _TYPES[".html"])
        elif path.startswith("/data/"):
            self._send_file(self.files.get(path.removeprefix("/data/")), "application/octet-stream")
        else:
            name = unquote(path.removeprefix("/"))
            plain = re.fullmatch(r"[A-Za-z0-9._-]+", name) is not None
            page = self.pages / name if plain else None
            self._send_file(page, _TYPES.get(Path(name).suffix, ""))

    def _send_file(self, path: Path | None, kind: str) -> None:
        if path is None or not kind or not path.is_file():
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        with path.open("rb") as file:
            self._headers(path.stat().st_size, kind)
            if self.command != "HEAD":
                shutil.copyfileobj(file, self.wfile, _PIECE)

    def _answer(self, content: bytes, kind: str) -> None:
        self._headers(len(content), kind)
        if self.command != "HEAD":
            self.wfile.write(content)

    def _headers(self, size: int, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Set-Cookie", "consent=0; SameSite=Strict")  # nothing to consent to
        self.end_headers()

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Requests are no news."""
