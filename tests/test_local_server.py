"""The server behind `view` and `graph view`: unguessable, for this machine, not for ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from profiler.local_server import HOST, IDLE_S, LocalHandler, LocalServer


class _Handler(LocalHandler):
    def answer(self, path: str) -> None:
        body = path.encode()
        if self.head(len(body), "text/plain"):
            self.wfile.write(body)


@contextmanager
def _serving(server: LocalServer) -> Iterator[Thread]:
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield thread
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _asked(server: LocalServer, path: str, *headers: str) -> bytes:
    """The whole answer to a request with these headers."""
    lines = [f"GET {path} HTTP/1.1", *headers, "Connection: close", "", ""]
    with socket.create_connection((HOST, server.server_port), timeout=10) as connection:
        connection.sendall("\r\n".join(lines).encode())
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def _status(server: LocalServer, path: str, *headers: str) -> int:
    return int(_asked(server, path, *headers).split()[1])


def test_only_who_knows_the_first_segment_gets_an_answer():
    """It is random, of 128 bits, and another one for each server."""
    with LocalServer(_Handler) as server, LocalServer(_Handler) as other, _serving(server):
        assert len(server.segment) >= 22
        assert server.segment != other.segment
        assert _asked(server, f"/{server.segment}/a/b?c", "Host: localhost").endswith(b"\r\n/a/b")
        missing = ("/", "/a", f"/{server.segment}", f"/{other.segment}/a", "//a", "/\xe9/a")
        for path in (*missing, f"/{server.segment[:-1]}/a", f"/x/{server.segment}/a"):
            assert _status(server, path, "Host: localhost") == 404, path


@pytest.mark.parametrize(
    "hosts",
    [
        (),
        ("Host: evil.example",),
        ("Host: 127.0.0.1", "Host: evil.example"),
        ("Host: evil.example", "Host: 127.0.0.1"),
        ("Host: 127.0.0.1", "Host: 127.0.0.1"),
        ("Host: 127.0.0.1, evil.example",),
        ("Host: 127.0.0.1.evil.example",),
    ],
)
def test_a_request_names_this_machine_once(hosts):
    """None, another name, and two names, in whatever order, are refused."""
    with LocalServer(_Handler) as server, _serving(server):
        assert _status(server, f"/{server.segment}/a", *hosts) == 403
        assert _status(server, f"/{server.segment}/a", "Host: localhost:1") == 200


def test_other_sites_may_not_use_answers():
    """Every answer says so."""
    with LocalServer(_Handler) as server, _serving(server):
        head = _asked(server, f"/{server.segment}/a", "Host: 127.0.0.1").lower()
    assert b"cross-origin-resource-policy: same-origin" in head
    assert b"access-control-allow-origin" not in head


def test_it_ends_after_an_hour_without_requests():
    """By an injected clock: a request starts the hour again, one that is refused does not."""
    now = [0.0]
    with LocalServer(_Handler, clock=lambda: now[0]) as server:
        with _serving(server) as thread:
            now[0] = IDLE_S - 1
            assert _status(server, f"/{server.segment}/a", "Host: localhost") == 200
            now[0] += IDLE_S - 1
            assert _status(server, "/guess/a", "Host: localhost") == 404
            thread.join(0.1)
            assert thread.is_alive()
            now[0] += 2
            thread.join(10)
            assert not thread.is_alive()
        assert server.idle
