"""Files that appear whole, whatever else is in their folder and whoever writes there."""

from __future__ import annotations

import ast
import errno
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from profiler import files
from profiler.errors import OutputError
from profiler.files import appearing, scratch_folder, write_atomically, write_small
from profiler.trace.writer import begin_file, finish_file

_PACKAGE = Path(__file__).parents[1] / "profiler"
_WRITERS = [write_atomically, write_small]


@pytest.mark.parametrize("write", _WRITERS)
def test_a_planted_link_is_not_written_through(tmp_path, write):
    """A link under the name that temporary files used to have leads nowhere, and stays."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    (tmp_path / ".report.html.part").symlink_to(precious)
    write(tmp_path / "report.html", b"page")
    assert precious.read_bytes() == b"mine"
    assert (tmp_path / "report.html").read_bytes() == b"page"
    assert (tmp_path / ".report.html.part").is_symlink()


@pytest.mark.parametrize("write", _WRITERS)
def test_a_name_that_was_guessed_is_refused(tmp_path, write, monkeypatch):
    """Even a link under the very temporary name is not followed: the name must be new."""
    monkeypatch.setattr(files, "_part_of", lambda path: path.with_name(".guessed.part"))
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    (tmp_path / ".guessed.part").symlink_to(precious)
    with pytest.raises(OutputError, match="File exists"):
        write(tmp_path / "report.html", b"page")
    assert precious.read_bytes() == b"mine"


def test_a_link_under_the_name_of_a_growing_file_is_refused(tmp_path):
    """`host.pb` grows under a name that is known: a link there is an error, and not followed."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    (tmp_path / ".host.pb.part").symlink_to(precious)
    for begin in (begin_file, finish_file):
        with pytest.raises(OutputError, match=r"host\.pb"):
            begin(tmp_path / "host.pb", [b"events"], 0)
    assert precious.read_bytes() == b"mine"


def test_a_growing_file_keeps_what_was_begun(tmp_path):
    """What stands behind the bytes that were begun, as after a full disk, is written over."""
    begun = begin_file(tmp_path / "host.pb", [b"first "], 0)
    (tmp_path / ".host.pb.part").write_bytes(b"first rest of a failed write")
    size = finish_file(tmp_path / "host.pb", [b"last"], begun, sync=True)
    assert (tmp_path / "host.pb").read_bytes() == b"first last"
    assert size == 10
    assert [path.name for path in tmp_path.iterdir()] == ["host.pb"]


def test_a_link_at_the_target_is_replaced(tmp_path):
    """An output that is a link to a file becomes a file; what it led to stays as it was."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    (tmp_path / "out.json").symlink_to(precious)
    write_atomically(tmp_path / "out.json", b"{}")
    assert not (tmp_path / "out.json").is_symlink()
    assert precious.read_bytes() == b"mine"


def test_two_writers_never_tear_each_other(tmp_path):
    """Of two writers at once, every reader sees the whole output of one of them."""
    path, size, rounds = tmp_path / "out", 200_000, 40
    write_atomically(path, b"a" * size)

    def write(letter: bytes) -> None:
        for _ in range(rounds):
            write_atomically(path, (letter * 1000 for _ in range(size // 1000)))

    writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b")]
    for writer in writers:
        writer.start()
    seen = [path.read_bytes()]
    while any(writer.is_alive() for writer in writers):
        seen.append(path.read_bytes())
    assert {len(data) for data in seen} == {size}
    assert all(len(set(data)) == 1 for data in seen)
    assert [found.name for found in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("write", _WRITERS)
@pytest.mark.parametrize("sign", ["x", "층"])
def test_names_of_255_bytes(tmp_path, write, sign):
    """The longest name that a file can have is written; a longer one is one clear sentence."""
    name = sign * (255 // len(sign.encode()))
    write(tmp_path / name, b"data")
    assert (tmp_path / name).read_bytes() == b"data"
    with pytest.raises(OutputError, match="File name too long"):
        write(tmp_path / (sign * 256), b"data")
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("write", _WRITERS)
def test_a_folder_at_the_name_stays(tmp_path, write):
    """A name that is a folder's is refused, and nothing is left beside it."""
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*out \(Is a directory\)"):
        write(tmp_path / "out", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("write", _WRITERS)
def test_a_folder_that_may_not_be_written(tmp_path, write, monkeypatch):
    """Where the system refuses to make a file, the sentence says so."""

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(files.os, "open", refuse)
    with pytest.raises(OutputError, match=r"Permission denied\): give a folder you may write to"):
        write(tmp_path / "out", b"data")


def test_a_full_disk_leaves_nothing(tmp_path):
    """Where the disk is full, the sentence says so, what was there stays, the rest is removed."""
    target = tmp_path / "out"
    target.write_bytes(b"before")

    def chunks():
        yield b"some"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OutputError, match="make room there"):
        write_atomically(target, chunks())
    assert target.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_fails_is_removed(tmp_path, error):
    """Whatever ends the block, no half file stays, and the error is the block's own."""

    def fail(file):
        file.write(b"half")
        raise error

    with pytest.raises(error), appearing(tmp_path / "out") as file:
        fail(file)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_link(tmp_path):
    """A folder that is reached through a link is written to."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link" / "out", b"data")
    assert (tmp_path / "real" / "out").read_bytes() == b"data"


def test_shared_permissions_follow_the_umask(tmp_path, monkeypatch):
    """A file that is to be shared has what the umask leaves, as any new file."""
    monkeypatch.setenv(files.SHARED, "1")
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "one", b"")
        write_small(tmp_path / "two", b"")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {0o640}


def test_a_pipe_stays_a_pipe(tmp_path):
    """A named pipe is written to, and is there afterwards."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"data")
    reader.join()
    assert found == [b"data"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_devices_stay(tmp_path):
    """/dev/null swallows and stays; a link to it, too; /dev/full is a full disk."""
    write_atomically(Path("/dev/null"), b"data")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    (tmp_path / "null").symlink_to("/dev/null")
    write_atomically(tmp_path / "null", b"data")
    assert (tmp_path / "null").is_symlink()
    with pytest.raises(OutputError, match="make room there"):
        write_atomically(Path("/dev/full"), b"data")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("piped", [True, False])
def test_stdout_by_its_name(tmp_path, name, piped):
    """/dev/stdout is what stdout is: a pipe, or a file behind what it has already."""
    program = (
        "from pathlib import Path; from profiler.files import write_atomically; "
        f"print('before', flush=True); write_atomically(Path({name!r}), b'data\\n'); print('after')"
    )
    command = [sys.executable, "-c", program]
    if piped:
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        log = tmp_path / "log"
        log.write_text("first\n")
        with log.open("a") as file:
            subprocess.run(command, stdout=file, check=True)
        output = log.read_text().removeprefix("first\n")
    assert output == "before\ndata\nafter\n"


def test_a_scratch_folder_goes(tmp_path):
    """A folder for several files lies beside the target, has a short name, and goes in the end."""
    target = tmp_path / "made" / ("x" * 255)
    with scratch_folder(target) as folder:
        assert folder.parent == target.parent
        (folder / "model").write_bytes(b"data")
        (folder / "model").replace(target)
    assert [path.name for path in target.parent.iterdir()] == [target.name]


_WRITE_MODES = frozenset("wax+")
_OWN_FOLDERS = {  # what writes elsewhere, and why a name that is known does no harm there
    "capture/process.py": "appends to the journal that `record` made",
    "capture/torch/operators.py": "into a temporary folder",
    "capture/torch/profiler_session.py": "into the work folder of the run",
    "cli/commands/fleet.py": "appends to the step summary that GitHub made for the step",
    "cli/main.py": "the null device, where the reader of standard output has gone",
    "cli/terminal.py": "the null device, where standard error is closed",
    "files.py": "is the writer",
    "graph/export_models.py": "into a new folder of its own",
    "graph/model.py": "into a scratch folder",
    "graph/optimize/files.py": "into a scratch folder",
    "graph/optimize/runner.py": "into a scratch folder",
    "graph/tiny_model.py": "into a new folder of its own",
    "importers/archive.py": "into a temporary folder",
    "importers/sqlite_file.py": "into a temporary folder",
    "pipelines/benchmark.py": "into a temporary folder",
    "tools/perfetto_ui.py": "into a temporary folder",
    "tools/share.py": "into a temporary folder",
    "trace/bundle.py": "appends, locked, through the run",
    "trace/writer.py": "grows through the run",
}
_MAY_WRITE = re.compile(r"\b(open|fdopen|save|write_\w+)\s*\(")


def _writes(node: ast.AST) -> bool:
    """Whether a call opens for writing, or has a library write to a path."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
    if name in ("write_text", "write_bytes"):
        return isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) != "terminal"
    if name in ("write_csv", "write_parquet", "save") and node.args:
        return ast.unparse(node.args[0]) not in ("file", "run")
    if name not in ("open", "fdopen"):
        return False
    words = [
        argument.value
        for argument in (*node.args, *(k.value for k in node.keywords))
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
    flags = "O_WRONLY" in ast.unparse(node) or "O_RDWR" in ast.unparse(node)
    return flags or any(0 < len(w) < 4 and _WRITE_MODES & {*w} for w in words)


def test_nothing_else_opens_files_for_writing():
    """Every output goes through `profiler.files`; what does not is named here, with the reason."""
    texts = {path: path.read_text(encoding="utf-8") for path in _PACKAGE.rglob("*.py")}
    found = {
        str(path.relative_to(_PACKAGE))
        for path, text in texts.items()
        if _MAY_WRITE.search(text) and any(_writes(node) for node in ast.walk(ast.parse(text)))
    }
    assert found == {*_OWN_FOLDERS}
