"""A folder with files of several recorders: known clocks are found, and nothing counts twice."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis import ReportInput, extent
from profiler.analysis.analyze import analyze
from profiler.analysis.dropped_data import beside
from profiler.analysis.overview import opening_of, summary_of
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.importers.importing import import_all
from profiler.tools.sources import load
from profiler.trace import ClockName, DropKind, DropReason
from profiler.trace.manifest_fields import Apart, LeftOut, RelatedBy, WhyApart
from tests.importers.kineto.jobs import Job
from tests.importers.mixed.runs import CALLS, EPOCH_NS, NODES, Run
from tests.importers.nsys.generated import Kernel, export

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "recorded"
    path.mkdir()
    return path


def imported(folder):
    """The run of a folder, and what its manifest says of its parts, by recorder."""
    run = load(import_trace(folder, folder.parent / "traces"))
    return run, {part.producer: part for part in run.info.parts.parts}


def busy(run, device="cuda:0"):
    return run.commands.filter(pl.col("device") == device)["duration_ns"].sum()


def copies(run):
    """The files that the first screen says to be there twice."""
    of = ReportInput(analyze(run), *extent(run))
    return [
        one.value for one in opening_of(of, summary_of(of)).checks if one.label == "Given twice"
    ]


def test_files_of_one_run_are_one_run(folder):
    """The offset of each recorder's clock is found, each kernel counts once, and what only one of
    the recorders saw is there: operators' shapes, metrics of the GPU, nodes of a session."""
    seen = Run()
    seen.nsys(folder)
    seen.kineto(folder, off_ns=40_000)
    seen.onnxruntime(folder, zone_hours=9)
    run, parts = imported(folder)
    assert busy(run) == seen.busy_ns
    assert [(c["submodule"], c["stage"]) for c in run.calls.iter_rows(named=True)] == [
        *((name, "denoise" if name == "transformer" else "encode") for name in CALLS),
        ("vae_decoder", "decode"),
    ]
    kineto, nsys = parts["kineto"], parts["nsys"]
    assert nsys.related_by is RelatedBy.REFERENCE
    assert (kineto.related_by, kineto.offset_ns) == (RelatedBy.EVENTS, -40_000)
    assert (kineto.pairs, kineto.residual_ns, kineto.worst_ns) == (len(seen.works), 0, 0)
    assert (nsys.twice, kineto.twice) == (len(seen.works), 0)
    session = parts["onnxruntime"]
    assert (session.related_by, session.offset_ns) == (RelatedBy.LOCAL_TIME, -9 * HOUR_NS)
    assert (session.within_ns, session.commands) == (1_000_000, NODES)
    assert run.info.clocks.clock is ClockName.REALTIME
    assert run.info.producer == "mixed"
    assert {"shapes", "metrics", "launches"} <= set(run.info.capabilities)
    assert not run.counters.is_empty()
    assert run.drops == ()
    begins = run.calls["start_ns"].to_list()
    assert begins[:-1] == [EPOCH_NS + start for _, start, _ in seen.ranges()]
    assert begins[-1] == EPOCH_NS + seen.decode_ns


def test_totals_are_those_of_the_single_files(folder, tmp_path):
    """Time by device and submodule, and end to end, are what each file says alone."""
    seen = Run()
    alone = [load(import_trace(seen.kineto(folder), tmp_path / "alone"))]
    alone.append(load(import_trace(seen.onnxruntime(folder), tmp_path / "alone")))
    run, _ = imported(folder)
    together = analyze(run)
    for one in alone:
        single = analyze(one)
        time = dict(single.submodules.select("submodule", "elapsed_ns").rows())
        there = dict(together.submodules.select("submodule", "elapsed_ns").rows())
        assert {name: there[name] for name in time} == time
    last = seen.decode_ns + NODES * 2_000_000
    assert together.accounting.end_to_end_ns == last - seen.ranges()[0][1]


@pytest.mark.parametrize("kind", ["rocprofv3", "nsys"])
def test_a_clock_of_its_own_is_related_by_common_work(folder, kind):
    """A recorder that knows no time of the day is laid onto one that does by the kernels that both
    have; to the nanosecond, where both have the device's times."""
    seen = Run()
    seen.kineto(folder)
    if kind == "nsys":
        seen.nsys(folder, utc=False, ranges=False)
        offset = EPOCH_NS - 5_000_000
    else:
        seen.rocprofv3(folder, since_ns=77_000_000_000)
        offset = EPOCH_NS - 77_000_000_000
    run, parts = imported(folder)
    other = parts[kind]
    assert (other.related_by, other.offset_ns, other.residual_ns) == (RelatedBy.EVENTS, offset, 0)
    assert (other.pairs, other.twice) == (len(seen.works), len(seen.works))
    assert busy(run) == seen.busy_ns
    assert run.calls["submodule"].cast(pl.String).to_list() == list(CALLS)


def test_what_one_recorder_missed_is_taken_from_the_other(folder):
    """Of a recorder that saw some of the kernels these count, and the others' rest."""
    seen = Run()
    seen.nsys(folder)
    seen.kineto(folder, some=slice(0, 20))
    run, parts = imported(folder)
    assert busy(run) == seen.busy_ns
    assert (parts["nsys"].twice, parts["kineto"].twice) == (20, 0)
    work = run.commands.filter(pl.col("device") == "cuda:0")
    assert len(work) == len(seen.works)
    launches = run.commands.filter(pl.col("category") == "host")
    assert len(launches) == len(seen.works)


def test_work_belongs_to_the_session_that_launched_it(folder):
    """Kernels that Nsight Systems saw without a range around them are those of the runs of ONNX
    Runtime's session during which they were launched, with their launches; these are calls on the
    GPU then, and nothing is left of the call of the whole process."""
    seen = Run(slow=20)
    seen.nsys(folder, ranges=False)
    seen.session(folder)
    run, parts = imported(folder)
    assert busy(run) == seen.busy_ns
    assert parts["onnxruntime"].calls == len(CALLS)
    calls = run.calls.select(pl.col("submodule", "device").cast(pl.String)).rows()
    assert calls == [("unet", "cuda:0")] * len(CALLS)
    work = run.commands.filter(pl.col("device") == "cuda:0")
    assert work.group_by("call").len().sort("call")["len"].to_list() == [6] * len(CALLS)
    assert len(run.flows) == len(seen.works)
    assert {name: one.device for name, one in run.info.submodules.items()} == {"unet": "cuda:0"}


def test_options_are_those_of_the_importers(folder):
    """Each importer gets those that it has; what none has is refused, as elsewhere."""
    seen = Run()
    seen.nsys(folder)
    seen.onnxruntime(folder)
    run = load(folder, import_options={"submodules": "transformer"})
    names = run.calls["submodule"].cast(pl.String).to_list()
    assert names == ["transformer"] * 4 + ["vae_decoder"]
    run.close()
    with pytest.raises(InputError, match="has no option speed"):
        load(folder, import_options={"speed": "9"})


def test_files_below_the_folder_are_of_it(folder):
    """Recorders that wrote into folders of their own; what is hidden, and captures of graphs, are
    not looked at."""
    seen = Run()
    for name in ("nsys", "torch", "capture_traces", ".cache"):
        (folder / name).mkdir()
    seen.nsys(folder / "nsys")
    seen.kineto(folder / "torch")
    Run(seed=3).kineto(folder / "capture_traces")
    Run(seed=3).kineto(folder / ".cache")
    run, parts = imported(folder)
    assert set(parts) == {"nsys", "kineto"}
    assert busy(run) == seen.busy_ns


def test_a_clock_that_is_too_rough_lends_nothing(folder):
    """Of calls of 1.5 ms whose begin is known to the millisecond nobody knows which launched what:
    the call of the process keeps it."""
    seen = Run()
    seen.nsys(folder, ranges=False)
    seen.session(folder)
    run, _ = imported(folder)
    assert busy(run) == seen.busy_ns
    work = run.commands.filter(pl.col("device") == "cuda:0")
    called = run.calls["submodule"].cast(pl.String).to_list()
    assert {called[number] for number in work["call"]} == {"run"}
    kinds = {drop.detail.code for drop in run.drops if drop.kind is DropKind.UNALIGNED_CLOCK}
    assert kinds == {DropReason.BEGIN_BY_NAME}


def test_work_under_other_names_counts_once(folder):
    """Recorders that name kernels differently saw the same ones where nearly all begin together."""
    seen = Run()
    seen.kineto(folder)
    seen.nsys(folder, says=lambda name: f"kernel {len(name)}", ranges=False)
    run, parts = imported(folder)
    assert busy(run) == seen.busy_ns
    assert parts["kineto"].related_by is RelatedBy.EPOCH
    assert parts["nsys"].twice + parts["kineto"].twice == len(seen.works)


def test_processes_that_do_the_same_count_each(folder):
    """Two files of one recorder are two processes, though these ran the same kernels within 2 µs
    of each other; the copy of a file is none, and the first screen says so."""
    seen = Run()
    seen.kineto(folder, "first.json")
    seen.kineto(folder, "second.json", off_ns=2_000)
    run = load(folder)
    assert busy(run) == 2 * seen.busy_ns
    assert copies(run) == []
    run.close()
    seen.kineto(folder, "second.json")
    run = load(folder)
    assert busy(run) == seen.busy_ns
    assert copies(run) == ["second.json"]
    run.close()


def test_another_run_is_a_run_of_its_own(folder, cli):
    """Files of the same script, a minute later, make a bundle of their own, and a sentence says
    why; with nothing but a clock of its own and other work, too."""
    seen = Run()
    seen.nsys(folder)
    seen.later(60_000_000_000).kineto(folder, "second.json", some=slice(0, 30))
    other = Run(seed=3)
    other.rocprofv3(folder, "third_results.json", some=slice(0, 20))
    out = folder.parent / "traces"
    code, text, error = cli("import", folder, "--out", out)
    assert code == 0
    names = ["recorded", "recorded-second", "recorded-third_results"]
    assert sorted(text.split()) == [str(out / name) for name in names]
    first, second, third = (load(out / name) for name in names)
    assert busy(first) == seen.busy_ns
    assert busy(second) == sum(work.end - work.start for work in seen.works[:30])
    assert busy(third, "rocm:0") == sum(work.end - work.start for work in other.works[:20])
    assert first.info.parts.apart == (
        Apart(files=("second.json",), producer="kineto", why=WhyApart.ANOTHER_TIME),
        Apart(files=("third_results.json",), producer="rocprofv3", why=WhyApart.UNRELATED),
    )
    assert first.drops == ()
    assert "second.json: recorded at another time than report.sqlite" in error
    assert "third_results.json: neither a clock nor three events in common" in error
    code, text, error = cli("analyze", folder, "--no-html")
    assert code == 0
    assert "second.json: recorded at another time" in text + error


def test_work_that_repeats_evenly_tells_no_offset(folder):
    """Some of many equal kernels fit at many places, so they are a timeline of their own."""
    seen = Run(even=True)
    seen.rocprofv3(folder)
    seen.kineto(folder, some=slice(12, 24))
    bundles = import_all(folder, folder.parent / "traces")
    assert len(bundles) == 2


def test_a_session_without_a_time_in_its_name(folder):
    """Nothing relates it: it is left out, with a sentence, and imported as a run of its own."""
    seen = Run()
    seen.kineto(folder)
    seen.onnxruntime(folder, named=False)
    first, second = (load(path) for path in import_all(folder, folder.parent / "traces"))
    apart = Apart(files=("vae_decoder.json",), producer="onnxruntime", why=WhyApart.UNRELATED)
    assert first.info.parts.apart == (apart,)
    assert second.calls["submodule"].cast(pl.String).to_list() == ["vae_decoder"]


def test_what_is_no_trace_is_named(folder):
    """A README, a picture, a report in its producer's own container: the run has what can be read,
    and says what was not."""
    seen = Run()
    seen.nsys(folder)
    (folder / "README.md").write_text("how it was recorded\n")
    (folder / "report.nsys-rep").write_bytes(b"\x01\x02")
    (folder / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    run, parts = imported(folder)
    assert busy(run) == seen.busy_ns
    assert list(parts) == ["nsys"]
    assert run.info.parts.left_out == (
        LeftOut(file="README.md", what="a text"),
        LeftOut(file="report.nsys-rep", what="a report of Nsight Systems, whose format is its own"),
        LeftOut(file="shot.png", what="a picture"),
    )


def test_files_beyond_the_limit_are_named(folder):
    """A folder is looked into as far as its 256th file, and the run says what comes after that."""
    seen = Run()
    seen.nsys(folder)
    for number in range(257):
        (folder / f"z{number:03}.txt").write_text("a note\n")
    run, _ = imported(folder)
    assert busy(run) == seen.busy_ns
    first = LeftOut(file="z255.txt and 1 more", what="beyond the first 256 files")
    assert run.info.parts.left_out[0] == first
    assert f"not read: {first.file} ({first.what})" in next(beside(run.info))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "the pointer to"),
        ("<!DOCTYPE html><html></html>", "a web page"),
        ("", "empty"),
    ],
)
def test_what_is_there_instead_of_a_rank_is_named(tmp_path, cli, text, what):
    """The folder of a job whose second rank's file holds no trace."""
    _, second = Job(offsets_ns=(0, 300_000), rounds=4, straggler=1).write(tmp_path / "job")
    second.write_text(text)
    code, *texts = cli("analyze", tmp_path / "job", "--no-html")
    shown = " ".join(" ".join(texts).split())
    assert (code, "1 of 2 ranks" in shown) == (0, True)
    assert f"not read: {second.name} ({what}" in shown


def test_a_damaged_file_is_a_drop_of_the_others_run(folder):
    """What of a folder cannot be read is missing, and says why."""
    seen = Run()
    seen.nsys(folder)
    (folder / "broken.json").write_text('{"schemaVersion": 1, "traceEvents": [')
    run, _ = imported(folder)
    assert busy(run) == seen.busy_ns
    (drop,) = run.drops
    assert (drop.kind, drop.where) == (DropKind.DROPPED_EVENTS, "broken.json")


def test_ranks_of_a_job_beside_a_recorder_of_the_machine(folder):
    """Ranks stay one job with a column `rank`; of what Nsight Systems saw of their GPUs, nothing is
    left but what no rank recorded."""
    job = Job(offsets_ns=(0, 0), straggler=1)
    for rank in range(2):
        job.trace(rank).write(folder, f"rank{rank}.json")
    ranks = load(import_trace(folder, folder.parent / "alone"))
    rows, base = [], ranks.calls["start_ns"].min()
    for row in ranks.commands.filter(pl.col("category") != "host").iter_rows(named=True):
        gpu = int(row["device"].rpartition(":")[2])
        begin = row["start_ns"] - base
        rows.append(Kernel(begin, begin + row["duration_ns"], 0, row["kernel"], gpu))
    rows.append(Kernel(5_000, 6_000, 0, "void alone()", 0))
    export(folder, rows, utc=base)
    run, parts = imported(folder)
    assert parts["nsys"].twice == len(rows) - 1
    for device in ("rank0/cuda:0", "rank1/cuda:1"):
        more = 1_000 if device == "rank0/cuda:0" else 0
        assert busy(run, device) == busy(ranks, device) + more
    assert run.info.job is not None
    assert run.info.job.collectives == ranks.info.job.collectives
    assert set(run.commands["rank"].to_list()) >= {0, 1}
