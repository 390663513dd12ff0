"""Object stores through fsspec: a file is created once, and never replaced.

`memory://` always; a real S3 server nightly, from an environment that has moto and s3fs
(`docs/nightly.md`).
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from profiler.errors import InputError, OutputError
from profiler.fleet import Dataset, compact, make_dataset
from profiler.fleet.dataset import remove, selected
from profiler.fleet.storage import RemoteStorage, open_storage, snapshot
from tests.command_line import run_command
from tests.fleet.bundles import write_bundles
from tests.fleet.simulated import addition, filled

fsspec = pytest.importorskip("fsspec", reason="needs the fleet extra: fsspec")


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_through_fsspec(tmp_path, scheme):
    """Through fsspec a data set is what it is in a folder."""
    place = f"{scheme}://{tmp_path}/data"
    check_store(open_storage(place), place)


def check_store(storage, place):
    """What every storage must do."""
    assert storage.is_empty()
    make_dataset(storage)
    assert not storage.is_empty()
    assert storage.create("generations/x.json", b"1")
    assert not storage.create("generations/x.json", b"2")
    assert storage.read("generations/x.json") == b"1"
    with pytest.raises(FileNotFoundError):
        storage.read("generations/none.json")
    with pytest.raises(FileNotFoundError):
        storage.size("generations/none.json")
    storage.remove(["generations/x.json", "generations/none.json"])
    assert storage.names("generations") == []
    filled(storage, [addition(number) for number in range(4)], batch=2)
    remove(storage, selected(storage, ["run2"]))
    for _ in range(2):
        compact(storage, grace_s=0)
        assert Dataset(place).runs()["run_id"].to_list() == ["run0", "run1", "run3"]
        assert len(Dataset(place).history("denoise.step")) == 3


class _AnswerError(Exception):
    """What botocore raises: the answer of the server."""

    def __init__(self, code):
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class _Store:
    """A store that answers each PUT as it is told, `lost`: it is done, and the answer is lost."""

    def __init__(self, *answers):
        self.answers, self.files = [*answers], {}

    def pipe_file(self, path, value, mode="overwrite"):
        answer = self.answers.pop(0) if self.answers else ""
        if answer not in ("", "lost"):
            raise _AnswerError(answer)
        if path in self.files:
            raise _AnswerError("PreconditionFailed")
        self.files[path] = value
        if answer == "lost":  # the client sends it again, and meets it
            raise _AnswerError("PreconditionFailed")

    def cat_file(self, path):
        return self.files[path]

    def size(self, path):
        return len(self.files[path])


def test_a_lost_answer_is_no_defeat():
    """Where a PUT is done and its answer lost, the client's second one fails: what is there is
    nevertheless ours. What another has written is not."""
    storage = RemoteStorage(_Store("lost"), "bucket", "s3://bucket")
    assert storage.create("a", b"ours")
    assert not storage.create("a", b"hers")
    assert storage.read("a") == b"ours"


def test_a_conflict_is_tried_again():
    """409 says that another request goes on, not that it has won; one that stays is an error."""
    conflict = "ConditionalRequestConflict"
    storage = RemoteStorage(_Store(conflict, conflict), "bucket", "s3://bucket")
    assert storage.create("a", b"ours")
    storage = RemoteStorage(_Store(*[conflict] * 9), "bucket", "s3://bucket")
    with pytest.raises(OutputError, match="others write it, too"):
        storage.create("a", b"ours")


def test_denied_is_said():
    """Other answers are errors, which say what to check."""
    storage = RemoteStorage(_Store("AccessDenied"), "bucket", "s3://bucket")
    with pytest.raises(OutputError, match="AccessDenied"):
        storage.create("a", b"ours")


def test_a_compaction_whose_end_nobody_knows_loses_nothing(monkeypatch):
    """The generation is there, but the store answers with an error: its files stay."""
    place = "memory://compaction-of-unknown-end/data"
    storage = filled(open_storage(place), [addition(number) for number in range(4)], batch=2)
    import profiler.fleet.add as module

    commit = module._commit

    def broken(storage, generation):
        commit(storage, generation)
        raise OutputError("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_commit", broken)
        with pytest.raises(OutputError, match="broke"):
            compact(storage)
    assert len(Dataset(place).history("denoise.step")) == 4
    assert snapshot(storage).generation.number == 1


def test_a_store_that_cannot_create_is_refused(monkeypatch):
    """An fsspec file system of old, which would write over what is there, is not used."""
    memory = fsspec.filesystem("memory")

    def pipe_file(self, path, value, **kwargs):
        raise AssertionError

    monkeypatch.setattr(type(memory), "pipe_file", pipe_file)
    with pytest.raises(InputError, match="update it"):
        open_storage("memory://old/data")


READY = all(importlib.util.find_spec(name) for name in ("moto", "s3fs", "flask"))


@pytest.fixture(scope="module")
def s3():
    """The address of a bucket on an S3 server of this machine."""
    code = (
        "from moto.server import ThreadedMotoServer; import sys\n"
        "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\n"
        "server.start(); print(*server.get_host_and_port(), flush=True); sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as server:
        host, port = server.stdout.readline().split()
        settings = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            fsspec.filesystem("s3").mkdir("fleets")
            yield "s3://fleets"
        server.stdin.close()
        server.wait(10)


def on_s3(test):
    """A test that runs nightly, where there is a server."""
    missing = pytest.mark.skipif(not READY, reason="needs moto[server] and s3fs: docs/nightly.md")
    return pytest.mark.nightly(missing(pytest.mark.filterwarnings("ignore")(test)))


@on_s3
def test_s3_is_a_store(s3):
    """On S3 a data set is what it is in a folder."""
    check_store(open_storage(f"{s3}/whole"), f"{s3}/whole")


@on_s3
def test_of_many_who_create_one_file_on_s3_one_succeeds(s3):
    """Sixteen clients at once create one name: one is told that it has, and its file is there."""
    storage = open_storage(f"{s3}/race")
    for number in range(10):
        name = f"generations/{number:08d}.json"
        with ThreadPoolExecutor(16) as pool:
            made = [*pool.map(lambda who: storage.create(name, b"%d" % who), range(16))]  # noqa: B023
        assert made.count(True) == 1
        assert storage.read(name) == b"%d" % made.index(True)


@on_s3
def test_large_files_on_s3(s3):
    """A file that the client sends in parts (above 50 MiB) is whole, and created once, too."""
    storage = open_storage(f"{s3}/large")
    data = bytes(60 << 20)
    assert storage.create("runs/large.parquet", data)
    assert not storage.create("runs/large.parquet", data[:-1] + b"x")
    assert storage.size("runs/large.parquet") == len(data)


@on_s3
def test_the_commands_on_s3(s3, tmp_path):
    """`add` (also from two processes), `compact`, `remove` and `query` on S3 give what they give in
    a folder."""
    write_bundles(tmp_path / "traces", 12)
    place, folder = f"{s3}/commands", str(tmp_path / "fleet")
    for data in (place, folder):
        more = ("--workers", "2") if data == place else ()
        assert run_command("fleet", "add", data, tmp_path / "traces", *more) == 0
        assert run_command("fleet", "add", data, tmp_path / "traces" / "run003") == 0
        assert run_command("fleet", "compact", data) == 0
        assert run_command("fleet", "remove", data, "run002") == 0
        sql = "select count(*) from runs join metrics using (run)"
        assert run_command("fleet", "query", data, sql) == 0
    on_s3, here = (Dataset(data).runs().drop("added_ns") for data in (place, folder))
    assert on_s3.equals(here)
    assert Dataset(place).names() == Dataset(folder).names()
