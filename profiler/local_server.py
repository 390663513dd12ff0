"""A server only for this machine's browsers, at an unpredictable address.

    class Handler(LocalHandler):
        def answer(self, path: str) -> None: ...

    server = LocalServer(Handler, port=0)
    print(server.root)          # http://127.0.0.1:40123/8sPq…
    server.serve_forever()      # until an hour passes without a request

Other users of the machine can reach 127.0.0.1, too, so the first segment of each path is random. A
request must name this machine, once, so other sites cannot reach it under a name of theirs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

HOST = "127.0.0.1"
IDLE_S = 3600.0
_NAMES = frozenset({HOST, "localhost"})
_EVERY_ANSWER = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


class LocalServer(ThreadingHTTPServer):
    """Serves at `root`, an address without a slash at its end. Ends after `IDLE_S` without a
    request, by `clock`, and then is `idle`. Raises OSError if the port is taken; port 0 is any free
    one."""

    daemon_threads = True
    block_on_close = False  # a browser keeps connections open
    allow_reuse_address = True

    def __init__(
        self,
        handler: type[LocalHandler],
        port: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.segment = secrets.token_urlsafe(16)
        self.idle = False
        self._clock = clock
        self.last_request = clock()
        super().__init__((HOST, port), handler)
        self.root = f"http://{HOST}:{self.server_port}/{self.segment}"

    def serve_forever(self, poll_interval: float = 0.2) -> None:
        """Answer requests until `shutdown` is called in another thread."""
        super().serve_forever(poll_interval)

    def note_request(self) -> None:
        """Restart the idle time."""
        self.last_request = self._clock()

    def service_actions(self) -> None:
        """End the server once there has been no request for long; called between requests."""
        if not self.idle and self._clock() - self.last_request > IDLE_S:
            self.idle = True
            Thread(target=self.shutdown, daemon=True).start()  # `shutdown` waits for this very loop

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore closed connections: browsers close them at any time."""


class LocalHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD requests by `answer(path)`, which gets the path after the random
    segment."""

    server: LocalServer
    protocol_version = "HTTP/1.1"
    server_version = "profile-sd3"
    sys_version = ""
    timeout = 60  # s, for a connection without a request

    def answer(self, path: str) -> None:
        """Answer a request for `path`, which starts with a slash."""
        raise NotImplementedError

    def do_GET(self) -> None:  # the base's name
        path = self.path.partition("?")[0]
        segment, slash, rest = path.removeprefix("/").partition("/")
        if not self._names_us():
            self.send_error(HTTPStatus.FORBIDDEN, "Not a name of this machine")
        elif not (slash and secrets.compare_digest(segment.encode(), self.server.segment.encode())):
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self.server.note_request()
            self.answer(f"/{rest}")
            self.server.note_request()  # a large file may have taken its time

    def do_HEAD(self) -> None:  # the base's name
        self.do_GET()

    def head(self, size: int, kind: str, **more: str) -> bool:
        """Send the head of an answer; returns whether a body must follow."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        for name, value in (_EVERY_ANSWER | more).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        return self.command != "HEAD"

    def _names_us(self) -> bool:
        """Whether the request names this machine, once. Any port will do: a tunnel may have
        another."""
        names = self.headers.get_all("Host") or []
        return len(names) == 1 and names[0].strip().partition(":")[0].lower() in _NAMES

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Log nothing for requests."""
