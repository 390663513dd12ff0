"""The traces of a job's ranks as one run: clocks, collectives, stragglers, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from profiler.analysis import ReportInput, extent, headline
from profiler.analysis.analyze import analyze
from profiler.analysis.devices import device_facts
from profiler.analysis.overview import opening_of, summary_of
from profiler.analysis.stages import submodules_part
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.report import timeline_of
from profiler.text import duration, percent
from profiler.tools.sources import load
from profiler.trace import DropKind
from profiler.trace.manifest_fields import MatchedBy
from tests.corpus import CORPUS, needs_corpus
from tests.importers.kineto.jobs import ALL_REDUCE, BYTES, HIDDEN_NS, ROUND_NS, TRANSFER_NS, Job
from tests.importers.kineto.traces import Trace
from tests.report.reader import plain

_NEAR_NS = 1000  # by how much an offset may differ: a written µs, and what is rounded of it


def _loaded(job, folder):
    return load(import_trace(job.write(folder / "job"), folder / "traces"))


@pytest.mark.parametrize("told", ["sequence", "group", ""])
def test_offsets_of_clocks_are_found(tmp_path, told):
    """Whatever tells which collectives are the same, times of all ranks are those of the first."""
    job = Job(told=told)
    run = _loaded(job, tmp_path)
    ranks = run.info.job.ranks
    assert [one.offset_ns for one in ranks] == pytest.approx(
        [-offset for offset in job.offsets_ns], abs=_NEAR_NS
    )
    assert [one.pairs for one in ranks] == [0, 12, 12, 12]
    assert [one.aligned for one in ranks] == [None, True, True, True]
    assert max(one.residual_ns for one in ranks[1:]) <= _NEAR_NS
    assert all(one.drift_ppm == 0 for one in ranks)
    ways = {"sequence": MatchedBy.SEQUENCE, "group": MatchedBy.GROUP_ORDER}
    assert run.info.job.matched_by is ways.get(told, MatchedBy.STREAM_ORDER)
    begins = run.commands.filter(pl.col("category") == "collective").sort("rank", "start_ns")
    true = [job.true_begin_ns(number, rank) for rank in range(4) for number in range(12)]
    assert begins["start_ns"].to_list() == pytest.approx(true, abs=_NEAR_NS)


def test_drifts_of_clocks_are_found(tmp_path):
    """A clock that runs away by 2 ms while it records is laid back onto the others'."""
    job = Job(drifts=(0.0, 20e-6, 0.0, -5e-6), rounds=200, jitter_ns=2_000)
    run = _loaded(job, tmp_path)
    ranks = run.info.job.ranks
    assert [one.drift_ppm for one in ranks] == pytest.approx([0, -20, 0, 5], abs=0.2)
    assert ranks[2].drift_ppm == 0.0
    begins = run.commands.filter(pl.col("category") == "collective").sort("rank", "start_ns")
    true = [job.true_begin_ns(number, rank) for rank in range(4) for number in range(200)]
    assert begins["start_ns"].to_list() == pytest.approx(true, abs=2 * job.jitter_ns + _NEAR_NS)


def test_a_clock_that_drifts_beyond_what_clocks_do_is_put_right_and_noted(tmp_path):
    """300 µs a second over two seconds: clocks keep within 30. The twin's are as good as any."""
    job = Job(drifts=(0.0, 300e-6, 0.0, -5e-6), rounds=200, jitter_ns=2_000)
    run = _loaded(job, tmp_path)
    (note,) = run.info.health
    assert (note.rule, note.device, note.count, note.action) == ("drift", "rank1", 200, "shifted")
    assert note.share * 1e6 == pytest.approx(-300, abs=1)
    begins = run.commands.filter(pl.col("category") == "collective").sort("rank", "start_ns")
    true = [job.true_begin_ns(number, rank) for rank in range(4) for number in range(200)]
    assert begins["start_ns"].to_list() == pytest.approx(true, abs=2 * job.jitter_ns + _NEAR_NS)
    sentence = analyze(run).tables()["health"]["sentence"].item()
    assert sentence.replace("\N{NO-BREAK SPACE}", " ") == (
        "The clock of rank1 gains or loses 300 µs a second against the job's: put right by 200 "
        "collectives."
    )


def test_a_short_job_does_not_tell_a_drift(tmp_path):
    """20 collectives within 200 ms: what looks like a drift may be chance."""
    job = Job(drifts=(0.0, 300e-6, 0.0, -5e-6), rounds=20, jitter_ns=2_000)
    assert _loaded(job, tmp_path).info.health == ()


def test_time_between_two_recordings_is_left_out_of_all_ranks_alike(tmp_path):
    """Six rounds, then six an hour later: the ranks stay on one clock behind the gap, though each
    of them recorded a gap of its own length."""
    job = Job()
    for rank, path in enumerate(job.write(tmp_path / "job")):
        document = json.loads(path.read_text())
        later = job.clock_us(rank, 6 * ROUND_NS - 200_000)
        for event in document["traceEvents"]:
            event["ts"] += 3_600e6 if event.get("ts", 0) >= later else 0
        path.write_text(json.dumps(document))
    run = load(import_trace(tmp_path / "job", tmp_path / "traces"))
    left_out = [note for note in run.info.health if note.action == "left_out"]
    assert [note.device for note in left_out] == ["rank0", "rank1", "rank2", "rank3"]
    assert len({note.excess_ns for note in left_out}) == 1
    begins = run.commands.filter(pl.col("category") == "collective").sort("rank", "start_ns")
    true = np.array([[job.true_begin_ns(n, rank) for n in range(12)] for rank in range(4)])
    apart = begins["start_ns"].to_numpy().reshape(4, 12) - true
    assert apart[:, :6] == pytest.approx(0, abs=_NEAR_NS)
    assert np.ptp(apart[:, 6:]) <= 2 * _NEAR_NS  # all of them moved by the same


def test_lost_collectives_shift_no_clock(tmp_path):
    """A rank whose recording began two rounds later is matched with the rounds that it has."""
    job = Job(told="group", skipped={1: (0, 1)})
    run = _loaded(job, tmp_path)
    assert run.info.job.ranks[1].offset_ns == pytest.approx(-300_000, abs=_NEAR_NS)
    assert run.info.job.ranks[1].pairs == 10


@pytest.mark.parametrize("lost", [(0, 1), (9, 10, 11)])
def test_time_in_which_a_rank_was_not_recorded_is_not_idle(tmp_path, lost):
    """A rank whose recording begins later, or ends earlier, than that of the others is as idle as
    they are in the rounds that it has; what it did in the other ones nobody knows."""
    job = Job(offsets_ns=(0, 0, 0, 0), skipped={1: lost})
    run = _loaded(job, tmp_path)
    devices = {row["device"]: row for row in analyze(run).devices.rows(named=True)}
    whole, part = devices["rank0/cuda:0"], devices["rank1/cuda:1"]
    assert part["busy_ns"] == whole["busy_ns"] * (12 - len(lost)) // 12
    missing = 1 - part["utilization"] - part["idle_share"]
    assert missing == pytest.approx(len(lost) * ROUND_NS / whole["span_ns"])
    assert part["idle_share"] == pytest.approx(whole["idle_share"] * (1 - missing), abs=0.01)
    assert whole["utilization"] + whole["idle_share"] == pytest.approx(1)


def test_exposed_communication_and_waits_are_exact(tmp_path):
    """Of each collective all but what compute hides is exposed, and what the others wait for the
    straggler is what its compute takes longer; sums over 12 rounds."""
    job = Job(offsets_ns=(0, 0, 0, 0))
    made = analyze(_loaded(job, tmp_path))
    late, rounds = job.launch_delay_ns, job.rounds
    table = made.ranks
    assert table["rank"].to_list() == [0, 1, 2, 3]
    waits = [late * rounds, late * rounds, 0, late * rounds]
    assert table["waited_ns"].to_list() == waits
    exposed = (TRANSFER_NS - HIDDEN_NS) * rounds
    assert table["exposed_ns"].to_list() == [exposed + wait for wait in waits]
    assert table["collective_ns"].to_list() == [TRANSFER_NS * rounds + wait for wait in waits]
    assert table["last"].to_list() == [0, 0, 12, 0]
    assert table["launch_delay_ns"].to_list() == [0, 0, late * rounds, 0]
    (row,) = made.collectives.to_dicts()
    assert (row["kind"], row["size"], row["message_bytes"]) == ("all_reduce", 4, BYTES)
    assert (row["commands"], row["transfer_ns"]) == (48, TRANSFER_NS)
    assert row["bus_gigabytes_per_s"] == pytest.approx(BYTES * 2 * 3 / 4 / TRANSFER_NS)
    assert row["exposed_ns"] == sum(table["exposed_ns"])
    assert made.collective_arrivals["last_rank"].to_list() == [2] * 12


@pytest.mark.parametrize(("dtype", "elements"), [("Posit", BYTES), ("Float", -1)])
def test_a_message_of_unknown_size_has_no_bytes_and_no_rate(tmp_path, dtype, elements):
    """Neither 0 nor a negative number, where nobody knows the type or no count was written."""
    made = analyze(_loaded(Job(rounds=3, dtype=dtype, elements=elements), tmp_path))
    (row,) = made.collectives.to_dicts()
    assert (row["message_bytes"], row["bus_gigabytes_per_s"]) == (None, None)
    assert row["transfer_ns"] == pytest.approx(TRANSFER_NS, abs=_NEAR_NS)


def test_the_straggler_is_named(tmp_path):
    """The finding names the rank that others wait for, however far its clock is off; ranks that
    take turns, and one that is late by next to nothing, are none. So does the headline, which says
    of how many if others were not given; of four collectives if others wait for 1 % of the run."""
    first = analyze(_loaded(Job(), tmp_path / "a"))
    found = first.findings
    (straggler,) = [one for one in found if one.rule == "straggler"]
    assert straggler.evidence["rank"] == 2
    assert straggler.evidence["last_share"] == 1.0
    assert straggler.where.device == "rank2/cuda:2"
    assert straggler.cost_ns == pytest.approx(12 * 1_500_000, abs=12 * _NEAR_NS)
    waits = first.ranks.sort("waited_ns")["waited_ns"]
    text = headline(first, 0)
    longer = f"by at least {duration(waits[1] - waits[0])} in 12 collectives"
    assert f"; rank 2 is the slowest, {longer}" in text
    some = headline(analyze(_loaded(Job(world_size=16), tmp_path / "some")), 0)
    assert ", 4 of 16 ranks: " in some
    assert f"; rank 2 is the slowest of the 4 given, {longer}" in some
    few = headline(analyze(_loaded(Job(rounds=4), tmp_path / "few")), 0)
    assert "; rank 2 is the slowest, by at least " in few
    assert " in 4 collectives" in few
    short = Job(rounds=4, launch_delay_ns=20_000)
    assert "slowest" not in headline(analyze(_loaded(short, tmp_path / "short")), 0)
    for name, job in {"b": Job(launch_delay_ns=5_000), "c": Job(rounds=4)}.items():
        made = analyze(_loaded(job, tmp_path / name))
        assert not [one for one in made.findings if one.rule == "straggler"]


def test_ranks_stay_apart(tmp_path):
    """Calls and commands have their rank, devices its name; end to end is that of the job, and each
    rank's work has the module and the step of its own calls."""
    run = _loaded(Job(devices=1), tmp_path)
    assert sorted(set(run.calls["device"].cast(pl.String))) == [f"rank{n}/cuda:0" for n in range(4)]
    assert run.calls.group_by("rank").len().sort("rank").rows() == [(n, 12) for n in range(4)]
    of_call = run.commands.join(run.calls.select("call", own="rank"), on="call")
    assert (of_call["rank"] == of_call["own"]).all()
    assert len(of_call) == len(run.commands)
    made = analyze(run)
    length = 11 * ROUND_NS + 4_000_000 + 1_500_000 + TRANSFER_NS
    assert made.accounting.end_to_end_ns == pytest.approx(length, rel=0.02)
    assert abs(made.accounting.residual_share) < 0.01
    assert made.devices.filter(pl.col("busy_ns") > 0)["rank"].to_list() == [0, 1, 2, 3]
    lanes = [(lane["device"], str(lane["track"])) for lane in timeline_of(run).document["lanes"]]
    for rank in range(4):
        of_rank = [track for device, track in lanes if device == f"rank{rank}/cuda:0"]
        assert of_rank == ["Calls", "stream 7", "stream 20 collectives"]


def test_imbalance_between_ranks_leaves_collectives_out(tmp_path):
    """The straggler's computing is what is uneven, not what the others wait in collectives."""
    (row,) = analyze(_loaded(Job(), tmp_path)).rank_imbalance.to_dicts()
    assert (row["submodule"], row["ranks"], row["slowest_rank"]) == ("forward", 4, 2)
    assert row["above_mean_ns"] == pytest.approx(12 * 1_500_000 * 3 / 4, abs=20_000)


def test_ranks_without_collectives_in_common_have_timelines_of_their_own(tmp_path):
    """Two collectives relate no clocks: a drop says so, and no rank is called late. By clocks that
    are days apart a job takes no days."""
    days = 24 * 3600 * 10**9
    run = _loaded(Job(rounds=2, offsets_ns=(0, 300_000, days, -days)), tmp_path)
    drops = [drop for drop in run.drops if drop.kind is DropKind.UNALIGNED_CLOCK]
    assert [drop.where for drop in drops] == ["rank1/cpu:0", "rank2/cpu:0", "rank3/cpu:0"]
    assert [one.aligned for one in run.info.job.ranks] == [None, False, False, False]
    made = analyze(run)
    assert made.collective_arrivals.is_empty()
    assert made.accounting.end_to_end_ns < 40_000_000
    assert made.ranks["waited_ns"].to_list() == [None] * 4
    assert made.ranks["launch_delay_ns"].to_list() == [0] * 4


def test_two_ranks_of_a_submodule_are_counted(tmp_path):
    """Names of two ranks' devices would be cut in their middle, and so read as one of them."""
    made = analyze(_loaded(Job(offsets_ns=(0, 0)), tmp_path))
    of = ReportInput(made, *extent(made.inputs.run))
    view = opening_of(of, summary_of(of)).submodules
    assert view.frame["device"].to_list() == ["2 × cuda"]


def test_ranks_that_were_not_given_are_a_drop(tmp_path):
    """Four of eight ranks are a run; what is missing is named and counted."""
    run = _loaded(Job(world_size=8), tmp_path)
    (drop,) = run.drops
    assert (drop.kind, drop.count, drop.unit) == (DropKind.MISSING_RANK, 4, "ranks")
    assert drop.kind.has_missing_time


def test_a_folder_and_folders_of_ranks_are_one_run(tmp_path):
    """The folder of all traces, or a folder for each, is recognised; other files in it are left."""
    paths = Job().write(tmp_path / "job")
    (tmp_path / "job" / "notes.json").write_text("{}")
    assert load(tmp_path / "job").calls["rank"].n_unique() == 4
    folders = []
    for rank, path in enumerate(paths):
        folder = tmp_path / f"worker{rank}"
        folder.mkdir()
        folders.append(folder)
        path.rename(folder / path.name)
    assert load(folders).calls["rank"].n_unique() == 4
    assert load(folders[1]).calls["rank"].unique().to_list() == [1]


def test_traces_of_no_one_job_are_refused(tmp_path):
    """A rank that is there twice, one of another job, and a trace that tells no rank: one sentence
    that names the files."""
    first, second, *_ = Job().write(tmp_path / "job")
    foreign = Job(world_size=16).trace(3).write(tmp_path, "foreign.json")
    twice = Job().trace(0).write(tmp_path, "twice.json")
    plain = Trace()
    plain.kernel("gemm", 10, 5, launched=1)
    alone = plain.write(tmp_path, "alone.json")
    for paths, words in (
        ((first, second, foreign), "is of a job of 16 ranks"),
        ((first, twice), "are both of rank 0"),
        ((first, alone), "does not say of which rank it is"),
    ):
        with pytest.raises(InputError, match=words):
            import_trace(paths, tmp_path / "traces")
    with pytest.raises(InputError, match="is for one trace, and 2 are given"):
        import_trace((first, second), tmp_path / "traces", options={"capture": str(alone)})


def test_one_rank_tells_its_rank_and_collectives(tmp_path):
    """A trace alone is rank 3 of 4 on its own clock, with its rates and without any straggler."""
    made = analyze(load(Job().trace(3).write(tmp_path)))
    run = made.inputs.run
    assert run.calls["rank"].unique().to_list() == [3]
    assert run.commands["rank"].unique().to_list() == [3]
    assert run.commands["device"].unique().cast(pl.String).sort().to_list() == ["cpu:0", "cuda:3"]
    (row,) = made.collectives.to_dicts()
    assert (row["waited_ns"], row["transfer_ns"]) == (None, None)
    took = TRANSFER_NS + 1_500_000
    assert row["bus_gigabytes_per_s"] == pytest.approx(BYTES * 2 * 3 / 4 / took)
    names = ("rank", "compared", "launch_delay_ns", "offset_ns")
    assert made.ranks.select(names).rows() == [(3, 0, 0, None)]
    assert " for 12 iterations, 1 of 4 ranks: " in headline(made, 0)


def test_the_slowest_rank_is_the_one_that_waits_least(tmp_path):
    """Rank 3 is late by 1.6 ms with rank 2 just before it, eleven times; once rank 0 is later, by
    1.4 ms, which is more than rank 3 is behind rank 2 in all. The headline names rank 3."""
    job = Job(offsets_ns=(0, 0, 0, 0), straggler=-1)
    begins, late = job.begin_ns, {2: 1_500_000, 3: 1_600_000}
    job.begin_ns = lambda number, rank: (
        begins(number, rank) + (3_000_000 if (number, rank) == (5, 0) else late.get(rank, 0))
    )
    made = analyze(_loaded(job, tmp_path))
    assert made.ranks["launch_delay_ns"].to_list() == [1_400_000, 0, 0, 1_100_000]
    assert made.ranks["waited_ns"].to_list()[2:] == [2_600_000, 1_400_000]
    slowest = "rank 3 is the slowest, by at least 1.20 ms in 12 collectives"
    assert slowest in headline(made, 0).replace("\N{NO-BREAK SPACE}", " ")
    assert "straggler" not in {one.rule for one in made.findings}


def test_copies_hide_no_communication(tmp_path):
    """A collective of 100 µs beside a copy of 60 and a kernel of 30: 70 are exposed, of 130 µs."""
    trace = Trace()
    trace.kernel("gemm", 10, 60, launched=5)
    trace.kernel(ALL_REDUCE, 40, 100, stream=20, launched=6)
    trace.kernel("Memcpy DtoD (Device -> Device)", 70, 60, stream=21, launched=7, cat="gpu_memcpy")
    made = analyze(load(trace.write(tmp_path)))
    assert made.idle["exposed_ns"].to_list() == made.collectives["exposed_ns"].to_list() == [70_000]


@needs_corpus
def test_shared_ranks_agree_with_their_truth():
    """The two thinned ranks: busy, not recorded, and exposed time of each as an independent script
    has them alone (gpu.md), shares of one end-to-end time in every line, and how far the ends of
    their four collectives are apart, aligned."""
    with_close = load(CORPUS / "torch_multirank" / "trace_filter")
    made = analyze(with_close)
    assert made.ranks["exposed_ns"].to_list() == [336_983_000, 303_523_000]
    assert made.idle["exposed_ns"].to_list() == [336_983_000, 303_523_000]
    devices = made.devices.filter(pl.col("busy_ns") > 0)
    assert devices["busy_ns"].to_list() == [547_656_000, 580_050_000]
    assert devices["unrecorded_ns"].to_list() == [298_522_000, 262_397_000]
    total = made.accounting.end_to_end_ns
    busy_of = devices["utilization"].to_list()
    assert busy_of == [547_656_000 / total, 580_050_000 / total]
    said_of = {fact.label: f"{fact.value}, {fact.note}" for fact in device_facts(made)}
    for row in devices.rows(named=True):
        busy, idle = row["utilization"], row["idle_share"]
        text = said_of[row["device"]]
        lost = f"recording gaps {percent(1 - busy - idle)}"
        assert f"busy {percent(busy)}, {lost}, idle {percent(idle)}: " in text
    given = ReportInput(made, *extent(made.inputs.run))
    checks = {one.label: one for one in opening_of(given, summary_of(given)).checks}
    assert plain(checks["Not recorded"].value) == "205 ms of the run"
    assert checks["Not recorded"].note.startswith("on all devices, not in idle ")
    text = headline(made, 0)
    whole = duration(total + made.accounting.unrecorded_ns)
    assert (whole, text.partition(" for ")[0]) == (
        "1.23\N{NO-BREAK SPACE}s",
        f"{duration(total)} recorded of {whole}",
    )
    computing = [percent(length / total) for length in (210_320_000, 271_973_000)]
    communicating = [percent(length / total) for length in (303_523_000, 336_983_000)]
    assert (
        f", 2 of 128 ranks: 2 GPUs compute {' to '.join(computing)}, "
        f"only communicate {' to '.join(communicating)} and wait for the host "
    ) in text
    slowest = "rank 1 is the slowest of the 2 given, by at least 27.1 ms in 4 collectives"
    assert plain(text).endswith(f"; {slowest}")
    assert made.ranks["exposed_share"].to_list() == [336_983_000 / total, 303_523_000 / total]
    own = made.calls.group_by("submodule").agg(own_ns=pl.col("busy_ns").sum())
    both = made.submodules.join(own, on="submodule")
    assert both["busy_ns"].to_list() == both["own_ns"].to_list()  # of both ranks, as elapsed is
    assert "Elapsed is 0 if all" in " ".join(submodules_part(made).notes)
    (first, second) = with_close.info.job.ranks
    assert (second.pairs, second.left_out, second.offset_ns) == (4, 6, 23_500)
    apart = made.collective_arrivals["end_skew_ns"].sort().to_list()
    assert apart == [31_500, 31_500, 165_500, 355_500]
    assert first.aligned is None
    with_close.close()


def test_what_holds_on_many_ranks_is_said_once(tmp_path):
    """Of sixteen ranks that wait alike one finding a rule says so, with their number; the header
    names twelve devices, the first sentence the ranks."""
    offsets = tuple(10_000 * rank for rank in range(16))
    made = analyze(_loaded(Job(offsets_ns=offsets, straggler=11), tmp_path))
    rules = [one.rule for one in made.findings]
    assert len(rules) == len(set(rules))
    (idle,) = [one for one in made.findings if one.rule == "idle_gaps"]
    assert idle.evidence["ranks"] == 16
    (straggler,) = [one for one in made.findings if one.rule == "straggler"]
    assert straggler.evidence["rank"] == 11
    summary = summary_of(ReportInput(made, *extent(made.inputs.run)))
    assert " for 12 iterations, 16 ranks: 16 GPUs compute " in summary.headline
    assert "and 20 more" in " ".join(summary.subject)
