"""Archives of the files of one run: what they say is what their folder says."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from profiler.errors import InputError
from profiler.importers import import_trace, recognised
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus
from tests.importers.nsys.generated import Call, Kernel, export

HOWS = ("zip", "tar", "tgz")
SAMPLES = {  # what lies in a folder, below which the archive is made
    "nsys": ("nsys/flameox_nsight-2025.5.2.sqlite",),
    "onnxruntime": ("ort/ucb_resnet_inference_gemmini.json.gz",),
    "rocprofv3": tuple(
        f"rocprofv3/ruv_decode/decode_{what}_trace.csv.gz" for what in ("kernel", "hip_api")
    ),
    "tensorrt": ("tensorrt/resnet_fp16_a100.profile.json", "tensorrt/resnet_fp16_a100.graph.json"),
    "kineto": tuple(f"torch_multirank/trace_filter/sampled_rank-{rank}.json.gz" for rank in (0, 1)),
    "mixed": ("nsys/mock.sqlite", "hta/event_sync_trace.json.gz"),
}


def packed(path: Path, how: str, members: dict[str, bytes], links=()) -> Path:
    """Write an archive with these members, and links of these names to a file outside."""
    if how == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
            for name in links:
                entry = zipfile.ZipInfo(name)
                entry.external_attr = (stat.S_IFLNK | 0o777) << 16
                archive.writestr(entry, "/etc/passwd")
        return path
    with tarfile.open(path, "w:gz" if how == "tgz" else "w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for name in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(entry)
    return path


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def told(run):
    """What of a run does not name the file that it was in."""
    return run.commands, run.calls, [(one.kind, one.count, one.unit) for one in run.drops]


@needs_corpus
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_an_archive_says_what_its_folder_says(tmp_path, scratch, sample, how):
    """Of every importer, beside a README and what a Mac packs; nothing stays in a temporary
    folder, and nobody reads its name in the manifest."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    members = {"__MACOSX/recorded/._x": b"\0", "recorded/README": b"a run\n"}
    (folder / "README").write_bytes(b"a run\n")
    for name in SAMPLES[sample]:
        data = (CORPUS / name).read_bytes()
        (folder / Path(name).name).write_bytes(data)
        members[f"recorded/{Path(name).name}"] = data
    archive = packed(tmp_path / f"recorded.{how}", how, members, links=["recorded/link.json"])
    mine, theirs = (
        load(import_trace(path, tmp_path / "traces", path.name.replace(".", "_")))
        for path in (archive, folder)
    )
    assert all(a.equals(b) for a, b in zip(told(mine)[:2], told(theirs)[:2], strict=True))
    assert told(mine)[2] == told(theirs)[2]
    assert mine.info.pipeline == theirs.info.pipeline
    assert not list(scratch.iterdir())
    manifest = next((tmp_path / "traces").glob(f"recorded_{how}/manifest.json")).read_text()
    assert str(scratch) not in manifest


def test_a_file_alone_is_itself(tmp_path, scratch):
    """An archive of one file has that file's name and run, and takes its importer's options."""
    path = export(tmp_path, [Call(0, 2, 1), Kernel(5, 25, 1)])
    archive = packed(tmp_path / "any.zip", "zip", {"x/made.sqlite": path.read_bytes()})
    run = load(import_trace(archive, tmp_path / "traces"))
    assert (run.info.producer, run.info.pipeline) == ("nsys", "made")
    assert run.info.recording.source == "any.zip"
    assert run.info.command_line[-1] == str(archive)
    with pytest.raises(InputError, match=r"any\.zip: x/made\.sqlite|no NVTX range 'dit'") as error:
        import_trace(archive, tmp_path, options={"submodules": "dit"})
    assert str(scratch) not in str(error.value)
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("name", ["../out.sqlite", "/tmp/out.sqlite", "a/../../out.sqlite"])
@pytest.mark.parametrize("how", HOWS)
def test_names_that_lead_elsewhere_are_refused(tmp_path, scratch, how, name):
    """Nothing is written outside of the temporary folder, and nothing stays in it."""
    data = export(tmp_path, [Call(0, 2, 1), Kernel(5, 25, 1)]).read_bytes()
    archive = packed(tmp_path / f"evil.{how}", how, {name: data})
    before = {*tmp_path.rglob("*")}
    with pytest.raises(InputError, match="leads out of a folder"):
        import_trace(archive, tmp_path / "traces")
    assert {*tmp_path.rglob("*")} == before


@pytest.mark.parametrize("how", HOWS)
def test_what_is_unpacked_is_bounded(tmp_path, scratch, how):
    """A trace beside a member of zeros, far larger than the archive: one sentence, nothing
    stays."""
    data = export(tmp_path, [Call(0, 2, 1), Kernel(5, 25, 1)]).read_bytes()
    members = {"a.sqlite": data, "b.bin": bytes(24 << 20)}
    archive = packed(tmp_path / f"bomb.{how}", how, members)
    if how == "tar":  # not packed: as large as what it holds
        assert import_trace(archive, tmp_path / "traces").is_dir()
        return
    with pytest.raises(InputError, match="unpacks to more than"):
        import_trace(archive, tmp_path / "traces")
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("how", HOWS)
def test_too_many_files(tmp_path, how):
    """An archive of a thousand files and more is none of one run."""
    archive = packed(tmp_path / f"many.{how}", how, {f"{at}.txt": b"x" for at in range(1001)})
    with pytest.raises(InputError, match="more than 1,000 files"):
        recognised([archive])


def test_one_name_for_two_files(tmp_path, scratch):
    """The second is not written over the first."""
    data = export(tmp_path, [Call(0, 2, 1), Kernel(5, 25, 1)]).read_bytes()
    path = tmp_path / "twice.tar"
    with tarfile.open(path, "w") as archive:
        for _ in range(2):
            entry = tarfile.TarInfo("made.sqlite")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    with pytest.raises(InputError, match="cannot unpack"):
        import_trace(path, tmp_path / "traces")
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("how", HOWS)
def test_cut_archives(tmp_path, how):
    """Half of an archive, at any place: a sentence, or the files that are whole."""
    data = export(tmp_path, [Call(0, 2, 1), Kernel(5, 25, 1)]).read_bytes()
    whole = packed(tmp_path / f"whole.{how}", how, {"a.sqlite": data, "b.txt": os.urandom(4096)})
    content = whole.read_bytes()
    for number in range(16):
        path = tmp_path / f"cut{number}.{how}"
        path.write_bytes(content[: len(content) * number // 16])
        with suppress(InputError):
            import_trace(path, tmp_path / f"traces{number}")
