"""The bundle: never overwritten, complete under its names, rebuilt after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.errors import InputError, OutputError
from profiler.files import write_atomically
from profiler.trace import (
    HOST_NAME,
    MANIFEST_NAME,
    MERGED_NAME,
    NO_STEP,
    ROOT_DEVICE,
    BundleWriter,
    Call,
    RunInfo,
    call_files,
    find_bundles,
    merge_bundle,
    read_manifest,
    read_trace,
)
from tests.runs import told
from tests.trace.samples import small_bundle, small_calls, small_host, two_commands
from tests.trace.wire import whole_length

_REPOSITORY = Path(__file__).parents[2]
_KILLED = """
import os, signal, sys
from pathlib import Path
from profiler.trace.bundle import BundleWriter
from tests.trace.samples import small_calls

bundle = BundleWriter.create(Path(sys.argv[1]), "killed")
for call, commands, counters in small_calls()[:3]:
    bundle.write_call(call, commands, counters)
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # written, not yet renamed
bundle.write_call(*small_calls()[3])
"""


def _whole_files(directory: Path) -> list[Path]:
    return [directory / HOST_NAME, *call_files(directory)]


def test_merged_is_the_concatenation(tmp_path: Path) -> None:
    """merged.pb is host.pb, then the call files in order, byte for byte."""
    bundle = small_bundle(tmp_path)
    names = [path.name for path in call_files(bundle)]
    assert names == [call.file_name for call, *_ in small_calls()]
    data = b"".join(path.read_bytes() for path in _whole_files(bundle))
    assert (bundle / MERGED_NAME).read_bytes() == data


def test_manifest_knows_every_file(tmp_path: Path) -> None:
    """Calls, names, sizes and numbers of commands in the manifest are those of the files."""
    bundle = small_bundle(tmp_path)
    manifest = read_manifest(bundle / MANIFEST_NAME)
    assert [entry.call for entry in manifest.calls] == [call for call, *_ in small_calls()]
    for entry, (_, commands, _) in zip(manifest.calls, small_calls(), strict=True):
        assert (bundle / entry.file).stat().st_size == entry.bytes
        assert entry.commands == len(commands)
    assert {name: (bundle / name).stat().st_size for name in manifest.files} == manifest.files
    assert set(manifest.files) == {HOST_NAME, MERGED_NAME}


@pytest.mark.parametrize(
    ("sync", "in_the_run", "when_it_ends"),
    [("never", False, False), ("finish", False, True), ("always", True, True)],
)
def test_what_is_forced_to_the_disk(tmp_path, monkeypatch, sync, in_the_run, when_it_ends) -> None:
    """When a run ends its files and their names are on the disk; each call's at once where that is
    asked for."""
    forced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda handle: forced.add(os.fstat(handle).st_ino))
    with BundleWriter.create(tmp_path, "run", sync=sync) as bundle:
        for call, commands, counters in small_calls():
            path = bundle.write_call(call, commands, counters)
            assert (path.stat().st_ino in forced) == in_the_run
        bundle.write_host(*small_host(), ROOT_DEVICE)
        folder = bundle.finish(RunInfo(producer="capture"))
    on_disk = {path.name for path in (folder, *folder.iterdir()) if path.stat().st_ino in forced}
    written = {"run", MANIFEST_NAME, MERGED_NAME, *(path.name for path in _whole_files(folder))}
    assert on_disk == (written if when_it_ends else set())


_FEW_FILES = """
import resource, sys
from dataclasses import replace
from pathlib import Path
from profiler.trace.events import ROOT_DEVICE
from profiler.trace.bundle import BundleWriter
from profiler.trace.manifest import RunInfo
from tests.trace.samples import small_calls, small_host

call, commands, counters = small_calls()[0]
spans, host = small_host()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with BundleWriter.create(Path(sys.argv[1]), "run") as bundle:
    for index in range(200):
        bundle.write_call(replace(call, index=index), commands, counters)
        bundle.add_host(host, ROOT_DEVICE)
    bundle.write_host(spans, host, ROOT_DEVICE)
    bundle.finish(RunInfo(producer="capture"))
"""


@pytest.mark.skipif(os.name == "nt", reason="needs a limit of open files")
def test_a_process_that_may_open_64_files(tmp_path: Path) -> None:
    """A run of 200 calls, whose host work is written as it goes, keeps no file open for each."""
    command = [sys.executable, "-c", _FEW_FILES, str(tmp_path)]
    subprocess.run(command, cwd=_REPOSITORY, check=True)
    assert len(read_manifest(tmp_path / "run" / MANIFEST_NAME).calls) == 200


def test_nothing_but_the_bundle_is_left(tmp_path: Path) -> None:
    """No temporary file stays beside the finished ones."""
    bundle = small_bundle(tmp_path)
    found = {path.name for path in bundle.iterdir()}
    assert found == {*(path.name for path in _whole_files(bundle)), MERGED_NAME, MANIFEST_NAME}


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    """A second run of the same name gets a folder of its own, and the first stays as it was."""
    first = small_bundle(tmp_path)
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    (tmp_path / "small-2").touch()
    assert small_bundle(tmp_path).name == "small-3"
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before


def test_abandoned_before_anything_was_written(tmp_path: Path) -> None:
    """An error before the first file leaves no empty folder."""
    with pytest.raises(RuntimeError), BundleWriter.create(tmp_path, "run"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_abandoned_after_the_first_call(tmp_path: Path) -> None:
    """An error later keeps the calls that are complete."""
    bundle = BundleWriter.create(tmp_path, "run")
    bundle.write_call(*small_calls()[0])
    with pytest.raises(RuntimeError), bundle:
        raise RuntimeError
    assert read_trace(call_files(tmp_path / "run")[0]).calls == (small_calls()[0][0],)


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in the place of the folder is said in one sentence with the recommendation."""
    (tmp_path / "traces").touch()
    with pytest.raises(
        OutputError, match=r"cannot write .*traces .*: .*give another folder"
    ) as caught:
        BundleWriter.create(tmp_path / "traces", "run")
    assert "\n" not in str(caught.value)


def test_file_that_cannot_be_written(tmp_path: Path) -> None:
    """What cannot be written or renamed is an OutputError, and its place stays as it was."""
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        write_atomically(target, b"data")
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(OutputError, match="cannot write"):
        write_atomically(tmp_path / "nowhere" / "other", b"data")


def test_odd_submodule_names_stay_in_the_folder(tmp_path: Path) -> None:
    """A submodule's name from a foreign trace cannot lead out of the bundle."""
    call = Call(3, "../../x y/\n", "decode", "", NO_STEP, "cpu:0", 0, 10, ops_traced=False)
    with BundleWriter.create(tmp_path / "traces", "run") as bundle:
        path = bundle.write_call(call, two_commands())
    assert path.parent == tmp_path / "traces" / "run"
    assert path.name == "003_.._.._x_y__.decode.pb"


def test_a_call_with_a_long_name_is_kept(tmp_path: Path) -> None:
    """A name longer than a file's may be is cut in the file's name, and whole in the trace."""
    name = "층" * 1000
    call = Call(3, name, "encode", name, NO_STEP, "cpu:0", 0, 10, ops_traced=False)
    with BundleWriter.create(tmp_path, "run") as bundle:
        path = bundle.write_call(call, two_commands())
    assert path.name == f"003_{'층' * 33}.{'층' * 33}.pb"
    (read,) = read_trace(path).calls
    assert (read.submodule, read.branch) == (name, name)


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """A killed process leaves every finished call readable; merge rebuilds the rest and says
    what is lost."""
    command = [sys.executable, "-c", _KILLED, str(tmp_path)]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    bundle = tmp_path / "killed"
    assert [read_trace(path).calls[0].index for path in call_files(bundle)] == [0, 1, 2]
    with pytest.raises(InputError, match=f"profile-sd3 merge {bundle}"):
        find_bundles(tmp_path)
    merged = merge_bundle(bundle)
    assert merged.read_bytes() == b"".join(path.read_bytes() for path in call_files(bundle))
    manifest = read_manifest(bundle / MANIFEST_NAME)
    assert manifest.info.producer == "merge"
    assert [entry.call for entry in manifest.calls] == [call for call, *_ in small_calls()[:3]]
    (drop,) = manifest.info.drops
    assert (drop.kind, drop.where) == ("missing_file", HOST_NAME)
    assert find_bundles(tmp_path) == [bundle]


def test_rebuilt_manifest_equals_the_first(tmp_path: Path) -> None:
    """Rebuilt from whole files, calls, sizes and files are what the run had written."""
    bundle = small_bundle(tmp_path)
    first = read_manifest(bundle / MANIFEST_NAME)
    merged = (bundle / MERGED_NAME).read_bytes()
    (bundle / MANIFEST_NAME).unlink()
    (bundle / MERGED_NAME).unlink()
    assert merge_bundle(bundle) == bundle / MERGED_NAME
    again = read_manifest(bundle / MANIFEST_NAME)
    assert (again.calls, again.files, again.info.drops) == (first.calls, first.files, ())
    assert (bundle / MERGED_NAME).read_bytes() == merged


@pytest.mark.parametrize("rebuild", [True, False])
def test_cut_file_does_not_spoil_the_merged_one(tmp_path: Path, *, rebuild: bool) -> None:
    """Of a call file that is cut, the whole packets are merged, so what follows stays readable."""
    bundle = small_bundle(tmp_path)
    cut = call_files(bundle)[2]
    cut.write_bytes(cut.read_bytes()[:-3])
    if rebuild:
        (bundle / MANIFEST_NAME).unlink()
    merged = merge_bundle(bundle)
    trace = read_trace(merged)
    assert len(trace.calls) == len(small_calls())
    lost = [drop for drop in trace.drops if drop.kind == "truncated_file"]
    assert lost == []
    missing = cut.stat().st_size - whole_length(cut.read_bytes())
    sizes = [path.stat().st_size for path in _whole_files(bundle)]
    assert merged.stat().st_size == sum(sizes) - missing


def test_rebuild_says_which_files_are_lost(tmp_path: Path) -> None:
    """An empty file, a cut one and one that is gone are named with what is missing of them."""
    bundle = small_bundle(tmp_path)
    files = call_files(bundle)
    (bundle / MANIFEST_NAME).unlink()
    files[0].write_bytes(b"")
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-3])
    merge_bundle(bundle)
    manifest = read_manifest(bundle / MANIFEST_NAME)
    assert [entry.call.index for entry in manifest.calls] == [2, 3, 4]
    drops = {(drop.kind, drop.where) for drop in manifest.info.drops}
    assert drops >= {
        ("truncated_file", files[0].name),
        ("truncated_file", files[2].name),
        ("missing_file", "call 0, 1"),
    }
    (gap,) = [drop for drop in manifest.info.drops if drop.kind == "missing_file"]
    assert (gap.count, told(gap)) == (
        2,
        "the files of these calls are missing or cannot be read: copy them again (calls 0, 1)",
    )


def test_merge_refuses_what_is_no_run(tmp_path: Path) -> None:
    """A file, an empty folder, and a folder with foreign traces are refused with the reason."""
    file = tmp_path / "file"
    file.touch()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    host = small_bundle(tmp_path) / HOST_NAME
    (foreign / "000_other.pb").write_bytes(host.read_bytes())
    for path, reason in (
        (file, "is not a folder"),
        (tmp_path, "holds no call files"),
        (foreign, "holds no call"),
    ):
        with pytest.raises(InputError, match=reason):
            merge_bundle(path)


def test_newest_bundle_comes_first(tmp_path: Path) -> None:
    """Bundles of a folder come newest first, by the age of their manifests; others are ignored."""
    names = ["b", "a", "c"]
    for age, name in enumerate(names):
        manifest = small_bundle(tmp_path, name) / MANIFEST_NAME
        os.utime(manifest, ns=(0, 10**18 - age))
    (tmp_path / "not a bundle").mkdir()
    assert [bundle.name for bundle in find_bundles(tmp_path)] == names
    assert find_bundles(tmp_path / "c") == [tmp_path / "c"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "does not exist"),
        (Path.touch, "is a file"),
        (Path.mkdir, "no bundle in"),
        (lambda path: path.symlink_to(path), "does not exist|cannot read"),
    ],
)
def test_places_without_a_bundle(tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    """Each kind of wrong place is refused with the recommendation."""
    place = tmp_path / "place"
    make(place)
    with pytest.raises(InputError, match=reason):
        find_bundles(place)


def test_info_is_kept(tmp_path: Path) -> None:
    """What the producer knows of the run stands in the manifest, and survives a merge."""
    with BundleWriter.create(tmp_path, "run") as bundle:
        bundle.write_call(*small_calls()[0])
        directory = bundle.finish(RunInfo(producer="kineto", model="SD3"))
    merge_bundle(directory)
    assert read_manifest(directory / MANIFEST_NAME).info == RunInfo(producer="kineto", model="SD3")


def test_merge_says_which_files_are_gone(tmp_path: Path) -> None:
    """Without a call file the merged one is smaller, and the manifest says why until it is back."""
    bundle = small_bundle(tmp_path)
    gone = call_files(bundle)[1]
    data = gone.read_bytes()
    gone.unlink()
    merge_bundle(bundle)
    (drop,) = read_manifest(bundle / MANIFEST_NAME).info.drops
    assert (drop.kind, drop.where) == ("missing_file", gone.name)
    gone.write_bytes(data)
    merge_bundle(bundle)
    assert read_manifest(bundle / MANIFEST_NAME).info.drops == ()
