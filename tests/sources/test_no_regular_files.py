"""Pipes and devices where files are expected: no command waits for them, or reads without end."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from profiler import files
from profiler.errors import InputError
from profiler.files import opened, read_file
from profiler.graph import export
from profiler.importers import import_trace
from profiler.pipelines import model_folder
from profiler.trace.bundle import JOURNAL_NAME
from tests.importers.kineto.traces import flux
from tests.importers.test_hostile_files import FILES

NAMES = (
    *("manifest.json", "host.pb", "CALL", "merged.pb", "summary.json", "report.html"),
    *("device_profiles.json", "other.json", "other.csv", JOURNAL_NAME),
)
MADE = {"pipe": os.mkfifo, "zero": lambda path: path.symlink_to("/dev/zero")}


@pytest.fixture(autouse=True)
def _in_time(monkeypatch):
    """No command takes longer than this; a pipe as a report is given up at once."""
    monkeypatch.setattr(files, "_READER_S", 0.05)
    signal.setitimer(signal.ITIMER_REAL, 60)
    before = signal.signal(signal.SIGALRM, _too_long)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _too_long(_number, _frame):
    raise AssertionError("waits for a file that is none")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    return import_trace(flux().write(folder), folder / "traces")


def _with(bundle, name, make, folder):
    copy = folder / "run"
    shutil.copytree(bundle, copy)
    calls = sorted(copy.glob("0*.pb"))
    place = calls[0] if name == "CALL" else copy / name
    place.unlink(missing_ok=True)
    make(place)
    return copy


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "pipe") for name in NAMES), *((name, "zero") for name in ("manifest.json", "CALL"))],
)
def test_in_a_bundle(bundle, tmp_path, cli, name, kind):
    """Each command ends with what it can do without the file, or in a sentence."""
    commands = (
        ("analyze", "RUN"),
        ("diff", "RUN", bundle),
        ("merge", "RUN"),
        ("share", "RUN", "--out", tmp_path / "shared.zip"),
        ("fleet", "add", tmp_path / "fleet", "RUN"),
    )
    for number, command in enumerate(commands):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = _with(bundle, name, MADE[kind], folder)
        code, _, err = cli(*(run if part == "RUN" else part for part in command))
        assert code in (0, 2), (command, err)
        assert "Traceback" not in err


@pytest.mark.parametrize("kind", MADE)
def test_in_a_folder_of_traces(tmp_path, cli, kind):
    """A folder is searched, and what is no file in it does not count."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    flux().write(folder, "trace.json")
    for name in ("a.json", "b.json.gz", "c.sqlite", "d.csv", "e.xplane.pb", "f.zip", "g.yaml"):
        MADE[kind](folder / name)
    code, out, err = cli("analyze", folder, "--no-html")
    assert code == 0, err
    assert "transformer" in out


@pytest.mark.parametrize("name", ["calls.parquet", "commands.parquet", "args.parquet", "run.json"])
@pytest.mark.parametrize("kind", MADE)
def test_in_a_parquet_folder(bundle, tmp_path, cli, name, kind):
    """One sentence, exit code 2."""
    folder = tmp_path / "parquet"
    assert cli("analyze", bundle, "--no-html", "--parquet", folder)[0] == 0
    (folder / name).unlink()
    MADE[kind](folder / name)
    for command in (("analyze", folder, "--no-html"), ("diff", folder, bundle)):
        code, _, err = cli(*command)
        assert code == 2, err
        assert "Traceback" not in err


@pytest.mark.parametrize("beside", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", MADE)
def test_beside_a_database(tmp_path, cli, beside, kind):
    """What SQLite would recover a database from is not opened: the tables are read as they are."""
    path = FILES["nsys"](tmp_path)
    assert path.read_bytes()[:6] == b"SQLite"
    MADE[kind](path.with_name(path.name + beside))
    code, out, err = cli("analyze", path, "--no-html")
    assert (code, err) == (0, "")
    assert "GPU" in out


def test_what_is_opened_is_what_is_read(tmp_path):
    """The size is that of the opened file, which may grow; nothing else is a file."""
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    with opened(path) as file, path.open("ab") as more:
        more.write(b"678")
        more.flush()
        assert file.read(5) == b"12345"
    assert read_file(path, 8) == b"12345678"
    with pytest.raises(OSError, match="larger than 7 bytes"):
        read_file(path, 7)
    with pytest.raises(IsADirectoryError):
        opened(tmp_path)
    with pytest.raises(OSError, match="no regular file"):
        opened(Path("/dev/zero"))


_OPENING = re.compile(r"\.open\(\"rb|\.read_(bytes|text)\(|(?<![\w.])open\(|gzip\.open\(")
_OUR_OWN = {  # files of the package, and what a user types
    "analysis/device_profiles.py",
    "cli/commands/mcp.py",
    "cli/commands/query.py",
    "cli/commands/record.py",
    "cli/main.py",
    "cli/terminal.py",
    "importers/xplane_planes.py",
    "kineto/perfetto_file.py",
    "report/html/library.py",
    "report/language.py",
    "tools/perfetto_ui.py",
    "trace/schema.py",
}


def test_nothing_else_opens_what_others_wrote():
    """One function does, in `profiler/files.py`."""
    root = Path(files.__file__).parent
    readers = ("analysis", "cli", "compare", "fleet", "importers", "kineto", "ort_profiles")
    sources = [
        path
        for part in (*readers, "prediction", "report", "run", "tools", "trace")
        for path in sorted((root / part).rglob("*.py"))
    ]
    found = {
        str(path.relative_to(root)) for path in sources if _OPENING.search(path.read_text("utf-8"))
    }
    assert found <= _OUR_OWN


@pytest.mark.parametrize("kind", MADE)
def test_in_a_model_folder(tmp_path, kind):
    """What a downloaded model says of itself is read as a trace is."""
    place = tmp_path / "model_index.json"
    MADE[kind](place)
    for read in (model_folder.read_json, export.read_json):
        with pytest.raises(InputError, match="no regular file"):
            read(place)


OPENS = re.compile(
    r"\.read_(text|bytes)\(|\bsqlite3\.connect\(|\bos\.open\(.*O_RDONLY|[^.\w]open\("
)
ELSEWHERE = {
    "files.py": "the function that opens every input",
    "importers/sqlite_file.py": "a database by the descriptor of an open file",
    "cli/commands/query.py": "a query that the user names, perhaps a pipe",
    "cli/commands/record.py": "our own journal, and the terminal",
    "cli/terminal.py": "/dev/null",
    "graph/optimize/files.py": "what our own process wrote of its error",
    **dict.fromkeys(
        [
            "analysis/device_profiles.py",
            "cli/commands/mcp.py",
            "cli/main.py",
            "graph/netron.py",
            "importers/xplane_planes.py",
            "kineto/perfetto_file.py",
            "plugins.py",
            "report/html/library.py",
            "report/language.py",
            "tools/perfetto_ui.py",
            "trace/schema.py",
        ],
        "what packages bring",
    ),
}


def test_all_else_is_opened_by_one_function():
    """`capture` reads what belongs to the program that it runs in."""
    root = Path(files.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if OPENS.search(path.read_text(encoding="utf-8"))
    }
    assert {name for name in found if not name.startswith("capture/")} == set(ELSEWHERE)
