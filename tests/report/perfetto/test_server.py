"""What `view` serves, and to whom: the UI, one trace, two pages, this machine only."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Thread

import pytest

from profiler.errors import InputError
from profiler.tools.perfetto_ui import (
    MARK,
    QUERIES,
    ServedTrace,
    TraceServer,
    queries_page,
    served_bundle,
    served_file,
    start_page,
    ui_address,
)
from profiler.trace import MERGED_NAME, call_files, encode_call, read_trace
from profiler.trace.bundle import host_file
from tests.trace.samples import small_bundle, small_calls


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    """A folder as the UI's, and beside it a file that nobody may read."""
    folder = tmp_path / "ui"
    (folder / "v1").mkdir(parents=True)
    (folder / "index.html").write_text("<p>the UI</p>")
    (folder / "v1" / "bundle.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


@contextmanager
def _serving(ui: Path, trace: ServedTrace) -> Iterator[TraceServer]:
    with TraceServer(ui, trace, port=0) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _ask(
    server: TraceServer, path: str, host: str = "", method: str = "GET"
) -> tuple[HTTPResponse, bytes]:
    place, _, segment = server.root.removeprefix("http://").partition("/")
    connection = HTTPConnection(place)
    connection.request(method, f"/{segment}{path}", headers={"Host": host or place})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_the_trace_byte_for_byte(ui: Path, tmp_path: Path) -> None:
    """merged.pb of a bundle comes as it is, under the run's name, also asked for by HEAD; where it
    is gone, the files of the run one after another are the same."""
    bundle = small_bundle(tmp_path)
    expected = (bundle / MERGED_NAME).read_bytes()
    for _ in range(2):
        with served_bundle(bundle) as trace, _serving(ui, trace) as server:
            answer, body = _ask(server, "/trace/small.pb")
            assert (answer.status, body) == (200, expected)
            answer, body = _ask(server, "/trace/small.pb", method="HEAD")
            assert (answer.headers["Content-Length"], body) == (str(len(expected)), b"")
            assert _ask(server, "/localtrace")[1] == expected
        (bundle / MERGED_NAME).unlink(missing_ok=True)
    assert b"".join(f.read_bytes() for f in (*host_file(bundle), *call_files(bundle))) == expected


def test_only_what_is_in_the_table(ui: Path, tmp_path: Path) -> None:
    """The UI's files are there; no path leads out of its folder or to other files of the run."""
    with served_bundle(small_bundle(tmp_path)) as trace, _serving(ui, trace) as server:
        assert _ask(server, "/")[1] == _ask(server, "/index.html")[1] == b"<p>the UI</p>"
        answer, body = _ask(server, "/v1/bundle.js?v=1")
        assert (answer.headers["Content-Type"], body) == ("text/javascript", b"1")
        outside = ("/../secret.txt", "/%2e%2e/secret.txt", "/v1/../../secret.txt", "//secret.txt")
        for path in (*outside, "/manifest.json", "/trace/../manifest.json", "/v1", "/v1/"):
            assert _ask(server, path)[0].status == 404, path
        assert _ask(server, "/start", method="POST")[0].status == 501


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "["])
def test_other_host_names_are_refused(ui: Path, tmp_path: Path, host: str) -> None:
    """A page that points its own name at 127.0.0.1 gets nothing; a tunnel's port is no matter."""
    with served_bundle(small_bundle(tmp_path)) as trace, _serving(ui, trace) as server:
        assert _ask(server, "/trace/small.pb", host)[0].status == 403
        assert _ask(server, "/trace/small.pb", "localhost:1234")[0].status == 200


def test_no_other_origin_is_allowed(ui: Path, tmp_path: Path) -> None:
    """No answer carries a permission for other sites, and pages may reach none."""
    with served_bundle(small_bundle(tmp_path)) as trace, _serving(ui, trace) as server:
        for path in ("/", "/start", "/queries", "/trace/small.pb"):
            headers = _ask(server, path)[0].headers
            assert "Access-Control-Allow-Origin" not in headers
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "default-src 'self'" in _ask(server, "/")[0].headers["Content-Security-Policy"]


def test_a_taken_port_is_one_sentence(ui: Path, tmp_path: Path) -> None:
    """The second server on a port says so, and how to go on."""
    with served_bundle(small_bundle(tmp_path)) as trace, TraceServer(ui, trace, port=0) as first:
        port = first.server_port
        with pytest.raises(InputError, match=rf"port {port} .*give another with --port"):
            TraceServer(ui, trace, port)


def test_a_gz_is_served_as_it_is(tmp_path: Path) -> None:
    """The UI unpacks .gz itself; whose trace it is shows in what it holds."""
    packed = tmp_path / "a.pb.gz"
    packed.write_bytes(gzip.compress(encode_call(*small_calls()[0])))
    with served_file(packed) as trace:
        assert (trace.files, trace.name, trace.ours) == ((packed,), "a.pb.gz", True)


@pytest.mark.parametrize("compress", ["deflate", "zstd"])
def test_packed_traces(tmp_path: Path, compress: str) -> None:
    """Deflate stays, which every UI reads; Zstandard, which it skips without a word, is unpacked
    for as long as it is served."""
    if compress == "zstd":
        pytest.importorskip("zstandard", reason="needs the zstd extra")
    call, commands, counters = small_calls()[0]
    packed = tmp_path / "packed.pb"
    packed.write_bytes(encode_call(call, commands, counters, compress=compress))
    with served_file(packed) as trace:
        (file,) = trace.files
        assert (file == packed) is (compress == "deflate")
        assert b"zstd" not in file.read_bytes()
        assert read_trace(file).calls[0] == read_trace(packed).calls[0]
        assert len(read_trace(file).slices) == len(commands)
    assert packed.is_file()
    assert file.is_file() is (compress == "deflate")


def test_what_is_no_trace(tmp_path: Path) -> None:
    """Text, nothing, and a damaged .gz are each one sentence with what to do."""
    cases = {
        "notes.txt": (b"hello", "is not a Perfetto trace"),
        "empty.pb": (b"", "is empty"),
        "cut.pb.gz": (b"\x1f\x8b\x08", "is no whole .gz file"),
    }
    for name, (data, sentence) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=sentence), served_file(tmp_path / name):
            pass


def test_the_pages_carry_the_ready_queries() -> None:
    """The start page holds all of them with their marks, the other one links each; a trace of
    another producer gets those that any trace answers."""
    for ours in (True, False):
        fitting = [query for query in QUERIES if ours or query.general]
        text = start_page("http://127.0.0.1:1/trace/a.pb", ours=ours)
        data = json.loads(text.split('type="application/json">')[1].split("</script>")[0])
        assert data["queries"] == [query.text for query in fitting]
        assert all(query.startswith(MARK) for query in data["queries"])
        page = queries_page("http://127.0.0.1:1/trace/a.pb", "a.pb", ours=ours)
        assert page.count("Open with the answer") == len(fitting)


def test_names_are_no_markup() -> None:
    """A trace whose name is a script is shown, not run, and cannot leave the address."""
    page = queries_page("http://127.0.0.1:1/trace/a", "<script>x</script>", ours=True)
    assert "<script>x" not in page
    assert "&startupCommands=" in ui_address("a&b=c")
    assert "a%26b%3Dc" in ui_address("a&b=c")
