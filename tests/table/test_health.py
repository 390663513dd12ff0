"""A run that nobody checked, captured or imported long ago, is checked when it is loaded: damage is
seen and undone, its undamaged twin stays as it is, and imports are not checked again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from msgspec import structs

from profiler.analysis.analyze import analyze
from profiler.importers.importing import import_trace
from profiler.run import Run, load_bundle
from profiler.run.health import as_recorded, checked
from profiler.text import Note
from profiler.tools.sources import load
from profiler.trace import (
    ROOT_DEVICE,
    BundleWriter,
    Call,
    CommandBuilder,
    Drop,
    DropReason,
    RunInfo,
    Track,
)
from profiler.trace.events import DropKind
from profiler.trace.manifest_fields import HealthNote, HealthRule
from profiler.trace.runtime_calls import GRAPH, OTHER
from tests.corpus import CORPUS, needs_corpus
from tests.importers.damage import AHEAD_NS, KINDS, Given, taken
from tests.trace.health_rows import healthy, launches_of, no_syncs, rows_of, syncs_at

_NAMES = {GRAPH: "cudaGraphLaunch", OTHER: "cudaMemcpyAsync"}
_CALLS = 5  # of a run, one after another
_UNSEEN = {"negative length"}  # a file of ours has none: it says that a command never ended


def written(folder, given: Given, run_id="run", *, producer="capture", rank="") -> Run:
    """The run of a bundle, as capture writes it, of a recording: each call has the launches of one
    part of the time, and their work."""
    rows, launches, syncs = given
    last = max(int(launches.end.max()), int(syncs.start.max(initial=0)))
    edges = np.linspace(launches.start.min(), last + 1, _CALLS + 1).astype(np.int64)
    with BundleWriter.create(folder, run_id) as bundle:
        for number in range(_CALLS):
            begin, until = edges[number : number + 2].tolist()
            made, place = CommandBuilder(), {}
            for one in np.flatnonzero((launches.start >= begin) & (launches.start < until)):
                name = _NAMES.get(int(launches.kind[one]), "cudaLaunchKernel")
                track = Track(f"{rank}{ROOT_DEVICE}", "CPU thread 1 launches", "host")
                length = int(launches.end[one] - launches.start[one])
                row = made.add(track, name, "", int(launches.start[one]), length)
                place[int(launches.correlation[one])] = row
            for one in range(len(rows)):
                if (source := place.get(int(rows.correlation[one]))) is None:
                    continue
                code = int(rows.kernel[one])
                kind = ("", "compute") if code >= 0 else (" copy", "copy")
                device = f"{rank}{rows.devices[rows.device[one]]}"
                track = Track(device, f"{rows.streams[rows.stream[one]]}{kind[0]}", kind[1])
                name = rows.kernels[code] if code >= 0 else "Memcpy DtoD"
                times = int(rows.start[one]), int(rows.end[one] - rows.start[one])
                made.link(source, made.add(track, f"block.{code}", name, *times, kernel=name))
            for one in np.flatnonzero((syncs.start >= begin) & (syncs.start < until)):
                track = Track(f"{rank}{ROOT_DEVICE}", "CPU thread 1 sync", "sync")
                length = int(syncs.end[one] - syncs.start[one])
                made.add(track, "cudaDeviceSynchronize", "", int(syncs.start[one]), length)
            length = max(until - begin, 1)
            call = Call(number, "net", "run", "", -1, f"{rank}cuda:0", begin, length, True)
            bundle.write_call(call, made.build())
        bundle.write_host((), CommandBuilder().build(), ROOT_DEVICE)
        return load_bundle(bundle.finish(RunInfo(producer=producer)))


def busy_ns(run: Run) -> dict[str, int]:
    """How long each device's streams were busy, by going through what they did in order."""
    found = {}
    work = run.commands.filter(pl.col("category").cast(pl.String) != "host")
    for (device,), rows in work.group_by(pl.col("device").cast(pl.String)):
        if not str(device).endswith(ROOT_DEVICE):
            total, until = 0, -(1 << 62)
            for start, length in rows.sort("start_ns").select("start_ns", "duration_ns").rows():
                total += max(start + length - max(start, until), 0)
                until = max(until, start + length)
            found[str(device)] = total
    return found


def rules(run: Run) -> set[str]:
    return {str(note.rule) for note in run.info.health}


@pytest.mark.parametrize("seed", range(4))
def test_healthy_runs_stay_as_they_are(tmp_path, seed):
    run = written(tmp_path, Given(*healthy(seed, 400)))
    assert checked(run) is run


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in _UNSEEN])
@pytest.mark.parametrize("seed", range(2))
def test_damage_is_seen_and_undone(tmp_path, kind, seed):
    """What is set aside cannot be undone; a clock's offset is known to 25 µs."""
    given = Given(*healthy(seed, 400))
    damaged = KINDS[kind](given, np.random.default_rng(seed))
    twin = written(tmp_path, given, "twin")
    found = checked(written(tmp_path, damaged.given, "damaged"))
    if damaged.unseen:
        return
    assert rules(found) & set(damaged.rules), damaged.rules
    if kind != "start 0":
        for device, was in busy_ns(twin).items():
            assert busy_ns(found)[device] == pytest.approx(was, rel=0.01, abs=25_000)


def test_a_shortened_command_has_both_lengths(tmp_path):
    """Kernels of 10 µs, one behind another; one is said to take 5 ms."""
    given = _row_of_kernels()
    end = given.rows.end.copy()
    end[40] += 5_000_000
    run = checked(written(tmp_path, given._replace(rows=replace(given.rows, end=end))))
    (note,) = run.info.health
    assert (note.rule, note.action, note.count) == (HealthRule.OVERRUN, "shortened", 1)
    assert (note.device, note.stream, note.worst) == ("cuda:0", "stream 0", "kernel_0")
    (one,) = run.info.shortened
    assert (one.duration_ns, one.recorded_ns) == (10_000, 5_010_000)
    again = as_recorded(run).commands.filter(pl.col("recorded_ns").is_not_null())
    assert again["duration_ns"].to_list() == [5_010_000]
    assert analyze(run).tables()["shortened"]["recorded_ns"].to_list() == [5_010_000]


def _row_of_kernels(step=20_000, length=10_000, number=100):
    start = 1_000_000_000_000 + np.arange(number) * step
    rows = rows_of(start + 9_000, np.full(number, length), np.arange(number) + 1)
    return Given(rows, launches_of(start, np.arange(number) + 1), no_syncs())


def test_a_clock_that_runs_ahead_is_shifted_with_all_it_tells(tmp_path):
    """Each kernel starts 9 µs after its launch; 100 µs ahead, they are shifted by 8 + 91 µs. All
    commands stay, launched by what launched them, in order of call and start."""
    given = _row_of_kernels()
    rows = given.rows
    early = replace(rows, start=rows.start - AHEAD_NS, end=rows.end - AHEAD_NS)
    run = checked(written(tmp_path, given._replace(rows=early)))
    assert [(note.rule, note.action) for note in run.info.health] == [("clock", "shifted")]
    commands = run.commands.with_row_index("row")
    assert len(commands) == 200
    pairs = run.flows.join(commands.cast({"row": pl.Int64}), left_on="source", right_on="row")
    pairs = pairs.join(commands.cast({"row": pl.Int64}), left_on="target", right_on="row")
    assert set(pairs["start_ns_right"] - pairs["start_ns"]) == {8_000}
    assert commands.select("call", "start_ns").equals(
        commands.select("call", "start_ns").sort("call", "start_ns")
    )


def test_commands_without_a_time_are_set_aside(tmp_path):
    """All kernels of one call, and one of another; that call is in no median."""
    given = _row_of_kernels()
    start, end = given.rows.start.copy(), given.rows.end.copy()
    gone = [*range(20), 50]
    start[gone] = 0
    end[gone] = 10_000
    run = checked(written(tmp_path, given._replace(rows=replace(given.rows, start=start, end=end))))
    (note,) = run.info.health
    assert (note.rule, note.action, note.count, note.total) == ("no_time", "set_aside", 21, 100)
    assert len(run.commands) == 200 - 21
    assert len(run.flows) == 100 - 21
    assert run.info.workless == (0,)


def test_work_that_outlives_a_synchronization_is_shortened(tmp_path):
    """The last kernel has no later one on its stream; the host waited for it."""
    given = _row_of_kernels()
    end = given.rows.end.copy()
    returned = int(end[-1]) + 5_000
    end[-1] += 3_000_000
    waited = syncs_at([int(given.launches.end[-1]) + 100], [returned])
    twin = written(tmp_path, Given(given.rows, given.launches, waited), "twin")
    assert checked(twin) is twin
    damaged = Given(replace(given.rows, end=end), given.launches, waited)
    found = checked(written(tmp_path, damaged, "damaged"))
    assert [(note.rule, note.action) for note in found.info.health] == [
        ("outlived_synchronization", "shortened")
    ]
    assert busy_ns(found) == busy_ns(twin)


def test_a_unit_of_lengths_that_is_wrong_is_noted(tmp_path):
    """Kernels of 10 µs, written as 10 ns."""
    twin = written(tmp_path, _row_of_kernels(), "twin")
    assert checked(twin) is twin
    found = checked(written(tmp_path, _row_of_kernels(length=10), "damaged"))
    assert rules(found) == {"too_short"}


def test_calls_that_lost_all_their_work_are_in_no_median(tmp_path):
    """The recorder's buffers were full during the second call: capture counted its launches, and
    kept none of their work."""
    given = _row_of_kernels()
    second = (given.rows.correlation > 20) & (given.rows.correlation <= 40)
    run = written(tmp_path, given, "twin")
    empty = written(tmp_path, given._replace(rows=taken(given.rows, ~second)), "damaged")
    assert checked(empty) is empty  # a call may do nothing
    detail = Note.of(DropReason.BUFFERS_FULL)
    lost = Drop(DropKind.DROPPED_EVENTS, "net", 20, "events", detail)
    found = checked(replace(empty, drops=(lost,)))
    (note,) = found.info.health
    assert (note.rule, note.count, note.total, note.calls) == ("lost_work", 20, 100, 1)
    assert found.info.workless == (1,)
    whole = replace(run, drops=(replace(lost, count=1),))
    assert checked(whole) is whole  # each call has work


def test_ranks_are_checked_apart(tmp_path):
    """A device of a rank has the rank's name in front."""
    given = _row_of_kernels()
    end = given.rows.end.copy()
    end[40] += 5_000_000
    damaged = given._replace(rows=replace(given.rows, end=end))
    run = checked(written(tmp_path, damaged, rank="rank3/"))
    assert [note.device for note in run.info.health] == ["rank3/cuda:0"]


def test_work_of_no_known_launch_may_overlap(tmp_path):
    """It may be of a graph, whose branches run side by side."""
    run = written(tmp_path, _row_of_kernels(length=30_000))
    assert rules(checked(run)) == {"overrun"}
    unlaunched = replace(run, flows=run.flows.clear())
    assert checked(unlaunched) is unlaunched


@pytest.mark.parametrize(("device", "track"), [("cpu:0", "stream 0"), ("cuda:0", "layers")])
def test_only_streams_run_one_command_after_another(tmp_path, device, track):
    run = written(tmp_path, _row_of_kernels(length=30_000))
    of_work = pl.col("category").cast(pl.String) == "compute"
    moved = run.commands.with_columns(
        pl.when(of_work).then(pl.lit(value)).otherwise(pl.col(name)).cast(pl.Categorical)
        .alias(name)
        for name, value in {"device": device, "track": track}.items()
    )  # fmt: skip
    other = replace(run, commands=moved.cast(dict(run.commands.schema)))
    assert checked(other) is other


def test_a_run_is_checked_once(tmp_path):
    """Notes in the manifest say that it was."""
    run = written(tmp_path, _row_of_kernels(length=30_000))
    note = HealthNote(rule=HealthRule.BEFORE, count=1)
    known = replace(run, info=structs.replace(run.info, health=(note,)))
    assert checked(known) is known
    once = checked(run)
    assert checked(once) is once


def test_loading_checks(tmp_path):
    written(tmp_path, _row_of_kernels(length=30_000))
    assert rules(load(tmp_path / "run")) == {"overrun"}


@needs_corpus
@pytest.mark.parametrize(
    "name",
    [
        "torch/sd35_mi300x.json.gz",
        "torch_pairs/Qwen_Qwen1.5-0.5B-Chat__h100.json.gz",
        "wild/kineto_autograd_api_2021.pt.trace.json.gz",
        "nsys/mfu_2gpu_before.sqlite",
        "rocprofv3/908_results.json.gz",
        "xplane/jax_conv_minimal_08.xplane.pb",
    ],
)
def test_imports_of_healthy_recordings_have_nothing_to_find(tmp_path, name):
    """Whatever their own check noted, as if an older version had imported them."""
    run = load_bundle(import_trace([CORPUS / name], out=tmp_path))
    older = replace(run, info=structs.replace(run.info, health=()))
    assert checked(older) is older


@pytest.mark.parametrize("start", [(1 << 62) + 1, -(1 << 62) - 1])
def test_times_that_do_not_fit_are_not_compared(tmp_path, start):
    run = written(tmp_path, _row_of_kernels(length=30_000))
    row = pl.int_range(pl.len())
    of_work = pl.col("category").cast(pl.String) == "compute"
    far = pl.when(of_work & (row == row.filter(of_work).min())).then(start)
    odd = run.commands.with_columns(start_ns=far.otherwise("start_ns"))
    broken = replace(run, commands=odd)
    assert checked(broken) is broken


def test_a_run_whose_launches_take_no_time_is_left_alone(tmp_path):
    """Made-up runs count in ns: kernels of 10 ns are no sign of a wrong unit there."""
    given = _row_of_kernels(length=10)
    brief = replace(given.launches, end=given.launches.start + 20)
    run = written(tmp_path, given._replace(launches=brief))
    assert checked(run) is run
