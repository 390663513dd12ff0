"""How traces of torch.profiler come: older recorders, archives, and events that cannot be."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile

import polars as pl
import pytest

from profiler.errors import InputError
from profiler.importers import import_trace, recognised
from profiler.kineto.trace_file import read_kineto
from profiler.tools.sources import load
from profiler.trace import DropKind
from profiler.trace.manifest_fields import HealthRule
from tests.corpus import CORPUS, needs_corpus

from .traces import Trace, calls, flux

NAME = "worker0.pt.trace.json"
_OLD = {"cpu_op": "Operator", "user_annotation": "Operator", "cuda_runtime": "Runtime"}
_OLD |= {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset"}


def steps():
    """Two profiler steps of a kernel and a copy each."""
    trace = Trace()
    for step in range(2):
        begin = 100 * step
        trace.event("user_annotation", f"ProfilerStep#{step}", begin, 90)
        external = trace.op("aten::mm", begin + 10, 20)
        trace.kernel("gemm", begin + 40, 30, launched=begin + 12, external=external)
        copy = {"cat": "gpu_memcpy", "bytes": 64}
        trace.kernel("Memcpy DtoH", begin + 75, 5, launched=begin + 35, **copy)
    return trace


def packed(content, how, name=NAME):
    """An archive of one trace, of a file beside it, and of one whose name leads elsewhere."""
    members = {"details.json": b'[{"file": "x"}]', f"../../{name}": content, "/etc/readme": b"x"}
    out = io.BytesIO()
    if how == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in members.items():
                archive.writestr(member, data)
        return out.getvalue()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for member, data in members.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(out.getvalue()) if how == "tgz" else out.getvalue()


@pytest.mark.parametrize("inner", ["plain", "gzip"])
@pytest.mark.parametrize("how", ["zip", "tar", "tgz"])
def test_a_trace_in_an_archive_is_the_trace(tmp_path, how, inner):
    """Zip, tar and tar.gz, of a plain or a gzipped member: the same calls, and nothing unpacked
    beside the bundle, whatever members are called."""
    text = json.dumps(flux().document()).encode()
    content = gzip.compress(text) if inner == "gzip" else text
    folder = tmp_path / "given" / "deeper"
    folder.mkdir(parents=True)
    path = folder / f"trace.{how}"
    path.write_bytes(packed(content, how, NAME + ".gz" if inner == "gzip" else NAME))
    run = load(import_trace(path, tmp_path / "traces"))
    expected = load(import_trace(flux().write(tmp_path), tmp_path / "plain"))
    assert calls(run) == calls(expected)
    assert not list(tmp_path.rglob(f"{NAME}*"))


def test_an_archive_of_several_traces_is_their_folder(tmp_path):
    """Two that do not say of which rank they are: refused as their folder is; the reader of a
    single trace names them."""
    text = json.dumps(flux().document()).encode()
    path = tmp_path / "both.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("rank0.json", text)
        archive.writestr("rank1.json", text)
    with pytest.raises(InputError, match=r"holds 2 traces \(rank0\.json, rank1\.json\)"):
        read_kineto(path)
    folder = tmp_path / "both"
    folder.mkdir()
    for name in ("rank0.json", "rank1.json"):
        (folder / name).write_bytes(text)
    mine, theirs = (
        load(import_trace(one, tmp_path / "out", f"r{at}")) for at, one in enumerate((path, folder))
    )
    assert calls(mine) == calls(theirs)


@pytest.mark.parametrize("how", ["zip", "tar"])
def test_other_archives_are_no_traces(tmp_path, how):
    """An archive without a trace is recognised by nobody; a cut one ends in a sentence."""
    path = tmp_path / f"x.{how}"
    path.write_bytes(packed(b"{}", how))
    assert recognised([path]) is None
    path.write_bytes(packed(json.dumps(flux().document()).encode(), how)[:300])
    with pytest.raises(InputError):
        import_trace(path, tmp_path / "traces")


@pytest.mark.parametrize("how", ["zip", "tgz"])
def test_what_an_archive_unpacks_to_is_bounded(tmp_path, how):
    """A member larger than the limit is not read to its end."""
    path = tmp_path / f"bomb.{how}"
    path.write_bytes(packed(b'{"traceEvents": [' + b" " * 4_000_000, how))
    with pytest.raises(InputError, match="larger than the limit of 1,000,000 bytes"):
        read_kineto(path, limit=1_000_000)


def test_categories_of_older_recorders_are_those_of_today(tmp_path):
    """PyTorch 1.8's names, and thread ids as text: the same calls and commands."""
    trace = steps()
    for event in trace.events:
        event["cat"] = _OLD[event["cat"]]
        event["tid"] = str(event["tid"])
    folders = tmp_path / "old", tmp_path / "new"
    for folder in folders:
        folder.mkdir()
    old, new = trace.imported(folders[0]), steps().imported(folders[1])
    columns = ("call", "device", "track", "category", "op_type", "start_ns", "duration_ns")
    assert old.commands.select(columns).equals(new.commands.select(columns))
    assert old.calls["iteration"].to_list() == [0, 1]


def test_events_that_cannot_have_run_are_dropped_and_counted(tmp_path):
    """A negative duration is a drop with its reason; others stay. A kernel of a negative duration,
    and what has no time, is set aside by the check of the recording."""
    trace = steps()
    trace.kernel("backwards", 50, -3, launched=15)
    trace.op("aten::backwards", 50, -3)
    trace.event("cpu_op", "aten::nowhen", 0, 5)
    del trace.events[-1]["ts"]
    run = trace.imported(tmp_path)
    (drop,) = run.drops
    assert (drop.kind, drop.count, drop.unit) == (DropKind.DROPPED_EVENTS, 1, "events")
    assert drop.detail.code == "never_ran"
    counted = [(note.rule, note.count) for note in run.info.health]
    assert {(HealthRule.NEGATIVE, 1), (HealthRule.NO_TIME, 1)} <= {*counted}
    kernels = run.commands.filter(pl.col("device") == "cuda:0")
    assert len(kernels) == 4


def test_events_that_overlap_on_a_thread_and_a_stream_are_all_there(tmp_path):
    """Ranges that cross instead of nesting, and kernels at the same time on one stream."""
    trace = steps()
    trace.op("aten::a", 5, 20)
    trace.op("aten::b", 15, 60)
    trace.kernel("one", 45, 30, launched=16)
    trace.kernel("two", 50, 30, launched=17)
    run = trace.imported(tmp_path)
    kernels = run.commands.filter(pl.col("category") == "compute")
    assert sorted(kernels["duration_ns"].to_list()) == [30_000] * 4
    assert run.tiles.calls["busy_ns"][0] == 40_000


def test_a_trace_without_device_properties_has_devices_without_hardware(tmp_path):
    """The device that kernels name is there; what nobody told of it is empty."""
    run = steps().imported(tmp_path)
    assert run.info.devices["cuda:0"].hardware == ""


@needs_corpus
def test_old_traces_name_their_devices_otherwise():
    """torch 1.8 wrote `computeProperties`."""
    run = load(CORPUS / "wild" / "kineto_tb_gpu_metrics.json.gz")
    assert run.info.devices["cuda:0"].hardware == "Tesla V100-DGXS-32GB"
