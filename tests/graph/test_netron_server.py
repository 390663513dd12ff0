"""The server behind `graph view`: one model, Netron's pages, this machine alone."""

from __future__ import annotations

import http.client
import importlib.util
import threading

import pytest

from profiler.graph.netron import NetronServer
from tests.command_line import refused
from tests.graph.models import external_model

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("netron") is None, reason="netron is missing: install its extra"
)


@pytest.fixture
def server(tmp_path):
    """A model with external data, under a name that HTML and addresses must escape, served."""
    path = external_model(tmp_path).rename(tmp_path / 'a "<b>&%41 ?#.onnx')
    (tmp_path / "secret.txt").write_text("not for Netron")
    with NetronServer(path) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server, path
        server.shutdown()
        thread.join()


def get(server, path, host=""):
    """Status, headers and content of a request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    place = server.url.split("/", 3)[3]
    path = f"/{place}{path.removeprefix('/')}"
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{server.port}"})
    response = connection.getresponse()
    found = response.status, dict(response.getheaders()), response.read()
    connection.close()
    return found


def test_page_names_the_model_escaped(server):
    """The name of a file never becomes markup, and its address leads to its bytes."""
    status, headers, content = get(server[0], "/")
    assert status == 200
    assert b'content="a &quot;&lt;b&gt;&amp;%41 ?#.onnx"' in content
    assert b"<b>&" not in content
    address = content.decode().split('<meta name="file" content="')[1].split('"')[0]
    assert get(server[0], address)[2] == server[1].read_bytes()
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_external_data_is_served_and_nothing_else(server):
    """Netron gets the weights that the model refers to; other files of the folder, and paths that
    lead out of Netron's, are not there."""
    assert len(get(server[0], "/data/w.data")[2]) == 512
    outside = ("/data/secret.txt", "/../server.py", "/%2e%2e/server.py", "/server.py", "/data//etc")
    assert [get(server[0], path)[0] for path in outside] == [404] * 5


def test_other_hosts_names_are_refused(server):
    """A page of another site whose name leads to 127.0.0.1 gets nothing."""
    assert get(server[0], "/", "evil.example")[0] == 403
    assert get(server[0], "/", f"localhost:{server[0].port}")[0] == 200


@pytest.mark.parametrize("taken", [True, False])
def test_view_says_what_stops_it(cli, server, monkeypatch, taken):
    """A port that is taken, and Netron missing, are one sentence each and exit code 2."""
    if taken:
        arguments, sentence = ("--port", server[0].port), "cannot serve at port"
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        arguments, sentence = (), "`pip install 'netron>=9.0'`"
    refused(cli("graph", "view", server[1], "--no-browser", *arguments), sentence)
