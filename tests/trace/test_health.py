"""Rules that tell a damaged recording: columns in, notes and corrected times out."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.trace.health import _Check, check
from profiler.trace.manifest_fields import HealthAction, HealthNote, HealthRule
from profiler.trace.runtime_calls import GRAPH, KERNEL, NO_END, OTHER, host_calls, last_begun
from tests.trace.health_rows import (
    BEGIN,
    healthy,
    launches_of,
    no_syncs,
    rows_of,
    syncs_at,
    with_rows,
)

MS = 1_000_000
SEEDS = range(12)


def one_stream(kernels=20, length=400_000, gap=1_000):
    """Kernels of one kind one behind the other, launched ahead of the device."""
    start = BEGIN + 50_000 + np.arange(kernels, dtype=np.int64) * (length + gap)
    numbers = np.arange(1, kernels + 1)
    rows = rows_of(start, np.full(kernels, length), numbers)
    return rows, launches_of(BEGIN + np.arange(kernels) * 10_000, numbers)


def with_a_graph():
    """The same, where launch 6 is that of a graph with four kernels."""
    rows, launches = one_stream()
    rows.correlation[5:9] = 6
    kept = [*range(6), *range(9, 20)]
    kind = np.full(len(kept), KERNEL)
    kind[5] = GRAPH
    return rows, launches_of(launches.start[kept], launches.correlation[kept], kind=kind)


def rules(checked):
    """The rules of its notes."""
    return [note.rule for note in checked.notes]


def damage(checked):
    """The rules of its notes that are damage."""
    return [rule for rule in rules(checked) if rule.damage]


def test_a_kernel_that_runs_past_the_next_is_as_long_as_its_peers():
    rows, launches = one_stream()
    rows.end[4] += 3_400 * MS
    checked = check(rows, launches, no_syncs())
    (note,) = checked.notes
    assert note.rule is HealthRule.OVERRUN
    assert note.action is HealthAction.SHORTENED
    assert (note.device, note.stream, note.count, note.total) == ("cuda:0", "stream 0", 1, 20)
    assert (note.worst, note.worst_ns, note.usual_ns) == ("kernel_0", 3_400 * MS + 400_000, 400_000)
    assert note.excess_ns == 3_400 * MS
    assert checked.end[4] - checked.start[4] == 400_000
    assert checked.kept.all()
    assert checked.changed


def test_without_peers_it_ends_where_the_next_begins():
    rows, launches = one_stream()
    kernel = np.zeros(20, dtype=np.int64)
    kernel[4] = 1
    rows = replace(rows, kernel=kernel)
    rows.end[4] += 3_400 * MS
    checked = check(rows, launches, no_syncs())
    assert checked.end[4] == rows.start[5]


def test_branches_of_a_graph_may_overlap():
    """The unit is the launch: rows of one launch on one stream are its branches."""
    rows, launches = with_a_graph()
    rows.end[5:8] += 13_000
    assert check(rows, launches, no_syncs()).notes == ()


def test_a_graph_does_not_hide_a_kernel_far_beyond_its_peers():
    rows, launches = with_a_graph()
    rows.end[6] += 1_600 * MS
    checked = check(rows, launches, no_syncs())
    assert damage(checked) == [HealthRule.OVERRUN]
    assert checked.end[6] - checked.start[6] == 400_000


def test_small_overlaps_are_what_healthy_recordings_have():
    rows, launches = one_stream(2000)
    rows.end[7] += 13_400
    checked = check(rows, launches, no_syncs())
    assert checked.notes == ()
    assert (checked.end == rows.end).all()


def test_many_overlaps_have_one_cause_and_are_only_noted():
    """Dependent launches overlap on purpose; a length that is too long by a factor has no cure."""
    rows, launches = one_stream()
    rows.end[::2] += 150_000
    checked = check(rows, launches, no_syncs())
    (note,) = checked.notes
    assert (note.rule, note.action) == (HealthRule.OVERRUN, HealthAction.NOTED)
    assert (checked.end == rows.end).all()
    assert not checked.changed


def test_what_may_overlap_is_not_checked():
    rows, launches = one_stream()
    rows.end[4] += 3_400 * MS
    rows.exempt[4] = True
    assert damage(check(rows, launches, no_syncs())) == []


def test_launches_without_work_between_others_lost_it():
    rows, launches = one_stream()
    checked = check(with_rows(rows, [0, 1, 2, 5, 9, 19]), launches, no_syncs())
    (note,) = checked.notes
    assert (note.rule, note.device, note.count, note.total) == (
        *(HealthRule.LOST, "cuda:0"),
        *(14, 20),
    )
    assert note.share == pytest.approx(0.7)


def test_launches_ahead_of_all_work_are_of_a_time_without_devices():
    """Nobody knows whether these kernels are lost or devices were not recorded yet; if other work
    was recorded before them, they are lost."""
    start = np.arange(8) * 100_000
    launches = launches_of(start, np.arange(1, 9))
    rows = rows_of(start[3:] + 8_000, 50_000, np.arange(4, 9))
    (note,) = check(rows, launches, no_syncs()).notes
    assert (note.rule, note.count, note.rule.damage) == ("late", 3, False)
    before = rows_of(np.append(start[3:] + 8_000, -50_000), 5_000, np.append(np.arange(4, 9), -1))
    (note,) = check(before, launches, no_syncs()).notes
    assert (note.rule, note.count, note.rule.damage) == ("lost_work", 3, True)


def test_launches_and_work_without_numbers_in_common_are_not_judged():
    """Nothing says which work is whose: it is that of devices alone, and none is lost."""
    rows = rows_of(np.arange(3) * 100_000, 50_000, np.full(3, -1))
    (note,) = check(rows, launches_of(np.arange(3) * 100_000, [1, 2, 3]), no_syncs()).notes
    assert (note.rule, note.count, note.rule.damage) == ("device_only", 3, False)


def test_a_process_may_lose_all_its_work():
    """Two processes launch by turns, and of one of them nothing is recorded."""
    start = np.arange(20) * 100_000
    process = np.arange(20) % 2
    launches = launches_of(start, np.arange(1, 21), process=process)
    own = process == 0
    rows = rows_of(
        start[own] + 8_000, 50_000, np.arange(1, 21)[own], process=np.zeros(10, dtype=np.int64)
    )
    notes = check(rows, launches, no_syncs()).notes
    assert [(one.rule, one.count, one.total) for one in notes] == [
        ("lost_work", 9, 10),
        ("cut", 1, 10),
    ]


def test_launches_behind_the_last_that_ran_were_cut():
    rows, launches = one_stream()
    checked = check(with_rows(rows, np.arange(15)), launches, no_syncs())
    (note,) = checked.notes
    assert (note.rule, note.count) == (HealthRule.CUT, 5)
    assert not note.rule.damage


@pytest.mark.parametrize("exempt", ["captured", "copy"])
def test_captured_launches_and_copies_need_no_work(exempt):
    rows, launches = one_stream()
    lost = np.arange(20) == 7
    launches = replace(
        launches,
        captured=lost if exempt == "captured" else launches.captured,
        kind=np.where(lost, OTHER, KERNEL) if exempt == "copy" else launches.kind,
    )
    assert check(with_rows(rows, ~lost), launches, no_syncs()).notes == ()


def test_a_runtime_call_around_its_drivers_is_one_launch():
    rows, launches = one_stream()
    twice = np.repeat(np.arange(20), 2)
    start = launches.start[twice] + np.tile([0, 500], 20)
    length = np.tile([4_000, 2_000], 20)
    launches = launches_of(start, launches.correlation[twice], length=length)
    assert check(rows, launches, no_syncs()).notes == ()
    (note,) = check(with_rows(rows, np.arange(20) != 3), launches, no_syncs()).notes
    assert (note.count, note.total) == (1, 20)


def test_work_below_the_first_launch_number_was_launched_before():
    rows, launches = one_stream()
    kept = launches_of(launches.start[6:], launches.correlation[6:])
    (note,) = check(rows, kept, no_syncs()).notes
    assert (note.rule, note.count, note.excess_ns) == (HealthRule.BEFORE, 6, 6 * 400_000)
    assert note.share == pytest.approx(0.3)


def test_launches_alone_are_times_of_the_host():
    rows, launches = one_stream()
    none = with_rows(rows, np.zeros(20, dtype=np.bool_))
    (note,) = check(none, launches, no_syncs(), "NVIDIA A100").notes
    assert (note.rule, note.count, note.worst) == (HealthRule.HOST_ONLY, 20, "NVIDIA A100")
    assert check(none, launches_of([], []), no_syncs()).notes == ()


def test_a_clock_that_runs_ahead_is_shifted_by_the_least_violation():
    rows, launches = one_stream()
    rows.start[:] -= 3 * MS
    rows.end[:] -= 3 * MS
    checked = check(rows, launches, no_syncs())
    (note,) = checked.notes
    assert (note.rule, note.action) == (HealthRule.CLOCK, HealthAction.SHIFTED)
    assert abs(note.excess_ns - 3 * MS) <= 50_000
    assert (checked.start - rows.start == note.excess_ns).all()
    assert (checked.end - checked.start == 400_000).all()


def test_a_row_that_strayed_is_set_aside_and_moves_no_other():
    rows, launches = one_stream()
    rows.start[9] -= 30 * MS
    rows.end[9] -= 30 * MS
    checked = check(rows, launches, no_syncs())
    (note,) = checked.notes
    assert (note.rule, note.action, note.count) == (HealthRule.CLOCK, HealthAction.SET_ASIDE, 1)
    assert np.flatnonzero(~checked.kept).tolist() == [9]
    assert (checked.start == rows.start).all()


@pytest.mark.parametrize(
    ("rule", "start", "end"),
    [
        (HealthRule.NO_TIME, 0, 0),
        (HealthRule.NEGATIVE, BEGIN + 2_055_000, BEGIN + 2_054_000),
        (HealthRule.UNFINISHED, BEGIN + 2_055_000, NO_END),
        (HealthRule.TWICE, BEGIN + 50_000 + 4 * 401_000, BEGIN + 450_000 + 4 * 401_000),
    ],
)
def test_rows_that_cannot_be_are_set_aside(rule, start, end):
    rows, launches = one_stream()
    rows.start[5], rows.end[5] = start, end
    rows.correlation[5] = 5 if rule is HealthRule.TWICE else 6
    launches = launches_of(launches.start, np.where(np.arange(20) == 5, 5, launches.correlation))
    launches = launches_of(
        launches.start[[*range(5), *range(6, 20)]], [*range(1, 6), *range(7, 21)]
    )
    checked = check(rows, launches, no_syncs())
    assert damage(checked) == [rule]
    assert int((~checked.kept).sum()) == 1


def test_a_start_of_0_is_legal_if_times_are_relative():
    rows, launches = one_stream()
    rows = replace(rows, start=rows.start - rows.start[0], end=rows.end - rows.start[0])
    assert check(rows, launches_of(launches.start - BEGIN - 10**6, launches.correlation),
                 no_syncs()).notes == ()  # fmt: skip


def test_a_length_of_0_is_legal():
    rows, launches = one_stream()
    rows.end[3:6] = rows.start[3:6]
    assert check(rows, launches, no_syncs()).notes == ()


def merged(skew):
    """Two ranks whose launch numbers are the same, each on its own device."""
    rows, launches = one_stream()
    both = np.tile(np.arange(20), 2)
    moved = np.repeat([0, skew], 20)
    rows = with_rows(rows, both)
    second = np.repeat([0, 1], 20)
    rows = replace(
        rows,
        start=rows.start + moved,
        end=rows.end + moved,
        device=second,
        stream=second,
        devices=("cuda:0", "cuda:1"),
        streams=("stream 7", "stream 7"),
    )
    launches = launches_of(launches.start[both] + moved, launches.correlation[both], process=second)
    end = rows.end.reshape(2, 20).max(axis=1) + 1_000
    syncs = syncs_at(launches.end.reshape(2, 20).max(axis=1) + 1_000, end)
    return rows, launches, replace(syncs, process=np.array([0, 1]))


@pytest.mark.parametrize("skew", [37_000, 900_000, 10**9])
def test_ranks_that_share_launch_numbers_are_told_apart(skew):
    checked = check(*merged(skew))
    (note,) = checked.notes
    assert (note.rule, note.action) == (HealthRule.SHARED_NUMBERS, HealthAction.REKEYED)
    assert (note.count, note.total) == (20, 2)
    assert checked.process.tolist() == [0] * 20 + [1] * 20


@pytest.mark.parametrize("wrong", ["launched before", "overlong"])
def test_ranks_are_told_apart_beside_other_damage(wrong):
    """Work that was launched before the recording, or one row that outlives a synchronization,
    contradicts no process."""
    rows, launches, syncs = merged(37_000)
    if wrong == "overlong":
        rows.end[25] += 1_600 * MS
    else:
        launches = launches_of(
            np.delete(launches.start, np.r_[0:5, 20:25]),
            np.delete(launches.correlation, np.r_[0:5, 20:25]),
            process=np.repeat([0, 1], 15),
        )
    checked = check(rows, launches, syncs)
    assert checked.notes[0].action is HealthAction.REKEYED
    assert checked.process.tolist() == [0] * 20 + [1] * 20
    assert HealthRule.DEVICE_ONLY not in rules(checked)


def test_processes_that_are_known_may_share_launch_numbers():
    rows, launches, syncs = merged(37_000)
    assert check(replace(rows, process=rows.device), launches, syncs).notes == ()


def test_a_launch_number_used_again_is_noted():
    rows, launches = one_stream()
    launches = launches_of(launches.start, [*range(1, 20), 19])
    assert HealthRule.REUSED_NUMBERS in rules(check(rows, launches, no_syncs()))


def test_numbers_of_several_queues_may_mix():
    """Every other launch is of a queue whose numbers are a thousand higher."""
    rows, launches = one_stream(40)
    number = launches.correlation + np.arange(40) % 2 * 1_000
    mixed = check(
        replace(rows, correlation=number), launches_of(launches.start, number), no_syncs()
    )
    assert HealthRule.OUT_OF_ORDER not in rules(mixed)


@pytest.mark.parametrize(("moved", "noted"), [(20, 1), (1, 0), (0, 0)])
def test_a_clock_that_is_set_back_is_noted(moved, noted):
    """Host and device an hour back from the middle on; one launch alone has a wrong time."""
    rows, launches = one_stream(40)
    back = np.where(np.arange(40) >= 40 - moved, 3_600_000 * MS, 0)
    rows = replace(rows, start=rows.start - back, end=rows.end - back)
    launches = replace(launches, start=launches.start - back, end=launches.end - back)
    notes = check(rows, launches, no_syncs()).notes
    found = [one for one in notes if one.rule is HealthRule.OUT_OF_ORDER]
    assert [(one.device, one.total) for one in found] == [("cuda:0", 40)] * noted


def test_launches_of_one_number_that_overlap_are_of_two_processes():
    """Two ranks under one process, 3 µs apart: no launch lies within the other, as a driver's call
    does within the runtime's."""
    rows, launches = one_stream()
    start = np.append(launches.start, launches.start + 3_000)
    twice = launches_of(start, np.append(launches.correlation, launches.correlation), length=5_000)
    (note,) = [
        one for one in check(rows, twice, no_syncs()).notes if one.rule is HealthRule.REUSED_NUMBERS
    ]
    assert (note.count, note.total, note.share) == (20, 40, 0.5)


def test_nothing_outlives_a_synchronization():
    """The last kernel of a recording has no next one, but the host waited for it."""
    rows, launches = one_stream()
    returned = int(rows.end[-1]) + 5_000
    rows.end[-1] += 2_000 * MS
    syncs = syncs_at([int(launches.end[-1]) + 1_000], [returned])
    checked = check(rows, launches, syncs)
    (note,) = [note for note in checked.notes if note.rule.damage]
    assert (note.rule, note.action) == (HealthRule.OUTLIVED, HealthAction.SHORTENED)
    assert checked.end[-1] - checked.start[-1] == 400_000


def test_far_beyond_its_peers_alone_changes_nothing():
    rows, launches = one_stream()
    rows.end[-1] += 2_000 * MS
    checked = check(rows, launches, no_syncs())
    assert rules(checked) == [HealthRule.BEYOND_PEERS]
    assert not checked.changed


@pytest.mark.parametrize("place", [8, 19])
def test_only_the_last_of_a_stream_may_be_too_long_unseen(place):
    """Behind any other the next one starts when it has ended, which shows that it took so long."""
    rows, launches = one_stream()
    longer = np.where(np.arange(20) == place, 2_000 * MS, 0)
    later = np.cumsum(np.append(0, longer[:-1]))
    rows = replace(rows, start=rows.start + later, end=rows.end + later + longer)
    (note,) = [one for one in check(rows, launches, no_syncs()).notes if one.rule == "beyond_peers"]
    total = 20 * 400_000
    assert note.share == pytest.approx(2_000.4 * MS / (total - 400_000) if place == 19 else 0)


def test_lengths_that_are_all_too_long_shorten_no_kernel():
    """By a fifth, of kernels of one name and many sizes: the large ones overlap by the most, and
    are as long as they were. One that is too long by nearly all of its length is not."""
    length = np.where(np.arange(200) % 25 == 24, 8 * MS, 100_000)
    begin = BEGIN + 50_000 + np.append(0, np.cumsum(length + 1_000))[:-1]
    numbers = np.arange(1, 201)
    launches = launches_of(BEGIN + np.arange(200) * 200, numbers)
    rows = rows_of(begin, length * 6 // 5, numbers)
    checked = check(rows, launches, no_syncs())
    (note,) = [one for one in checked.notes if one.rule is HealthRule.OVERRUN]
    assert (note.action, checked.changed) == (HealthAction.NOTED, False)
    rows.end[100] += 1_600 * MS
    checked = check(rows, launches, no_syncs())
    assert np.flatnonzero(checked.recorded >= 0).tolist() == [100]


def test_collectives_wait_for_others():
    rows, launches = one_stream()
    rows.end[-1] += 2_000 * MS
    rows = replace(rows, kernels=("ncclDevKernel_SendRecv",))
    assert check(rows, launches, no_syncs()).notes == ()


def test_two_recordings_an_hour_apart():
    rows, launches = one_stream()
    hour = 3_600_000_000_000
    late = np.where(np.arange(20) >= 10, hour, 0)
    rows = replace(rows, start=rows.start + late, end=rows.end + late)
    launches = launches_of(launches.start + late, launches.correlation)
    (note,) = check(rows, launches, no_syncs()).notes
    assert note.rule is HealthRule.GAP
    assert note.excess_ns == pytest.approx(hour, rel=0.01)


def test_a_clock_that_drifts_is_noted():
    kernels = 2000
    launched = BEGIN + np.arange(kernels, dtype=np.int64) * 50_000
    numbers = np.arange(1, kernels + 1)
    late = (np.arange(kernels) * 50_000 * 130e-6).astype(np.int64)
    rows = rows_of(launched + 6_000 + late, np.full(kernels, 20_000), numbers)
    assert check(rows, launches_of(launched, numbers), no_syncs()).notes == ()  # 100 ms
    launched = BEGIN + np.arange(kernels, dtype=np.int64) * 160_000
    late = np.minimum(np.arange(kernels) * 160_000 * 130e-6, 14_000).astype(np.int64)
    late[kernels // 3 :] = 5_000_000
    rows = rows_of(launched + 6_000 + late, np.full(kernels, 20_000), numbers)
    (note,) = check(rows, launches_of(launched, numbers), no_syncs()).notes
    assert note.rule is HealthRule.DRIFT
    assert note.share == pytest.approx(130e-6, rel=0.1)


def drifting(rate, begin_ns, kernels=3000):
    """Kernels 200 µs apart on a clock that runs so much faster, and 6 µs behind their launch when
    it agrees with the host's."""
    launched = BEGIN + np.arange(kernels, dtype=np.int64) * 200_000
    start = launched + 6_000 + ((launched - BEGIN - begin_ns) * rate).astype(np.int64)
    numbers = np.arange(1, kernels + 1)
    return rows_of(start, np.full(kernels, 20_000), numbers), launches_of(launched, numbers)


@pytest.mark.parametrize("rate", [1e-3, -1e-3, 4e-4])
def test_no_single_shift_is_right_for_a_clock_that_drifts(rate):
    """Half of the kernels begin before their launch; after the shift none does, and the note is
    of a drift, after which nobody knows what the device waited for."""
    rows, launches = drifting(rate, 300_000_000)
    found = check(rows, launches, no_syncs())
    (note,) = found.notes
    assert (note.rule, note.action, note.unrelated) == ("drift", "shifted", True)
    assert note.share == pytest.approx(rate, rel=0.05)
    assert (found.start >= launches.start).all()


def test_a_queue_that_fills_is_no_drift():
    """Kernels take a little longer than their launches are apart."""
    launched = BEGIN + np.arange(3000, dtype=np.int64) * 200_000
    start = BEGIN + 6_000 + np.arange(3000, dtype=np.int64) * 202_000
    numbers = np.arange(1, 3001)
    rows = rows_of(start, np.full(3000, 201_000), numbers)
    assert check(rows, launches_of(launched, numbers), no_syncs()).notes == ()


def test_a_late_clock_is_noted_and_shortens_nothing():
    """Each of ten synchronizations returns 30 µs before the end of what it waited for."""
    launched = BEGIN + np.arange(10, dtype=np.int64) * 1_000_000
    numbers = np.arange(1, 11)
    rows = rows_of(launched + 36_000, np.full(10, 500_000), numbers)
    found = check(
        rows, launches_of(launched, numbers), syncs_at(launched + 9_000, rows.end - 30_000)
    )
    (note,) = found.notes
    assert (note.rule, note.action) == ("outlived_synchronization", "noted")
    assert (found.end == rows.end).all()


def test_a_kernel_far_too_long_is_found_though_the_next_begins_with_it():
    start = BEGIN + np.arange(20, dtype=np.int64) * 100_000
    start[10] = start[11]
    length = np.full(20, 40_000)
    length[10] = 1_600_000_000
    rows = rows_of(start, length, np.arange(1, 21))
    found = check(rows, launches_of(start - 8_000, np.arange(1, 21)), no_syncs())
    assert [note.action for note in found.notes] == ["shortened"]
    assert found.end[10] - found.start[10] == 40_000


def test_a_number_used_again_is_of_the_launch_before_its_work():
    """Ten numbers, used twice, a second apart: no work waits for a second."""
    launched = BEGIN + np.append(np.arange(10), np.arange(10) + 1000) * 1_000_000
    numbers = np.append(np.arange(1, 11), np.arange(1, 11))
    rows = rows_of(launched + 8_000, np.full(20, 100_000), numbers)
    checks = _Check(rows, launches_of(launched, numbers), no_syncs())
    checks.checked()
    assert checks.launch.tolist() == list(range(20))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=30),
    st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 60)), max_size=30),
)
def test_the_call_that_had_begun_last_launched(calls, works):
    """Against a search call by call; calls of equal numbers do not overlap."""
    calls = [one for at, one in enumerate(calls) if one not in calls[:at]]
    keys, start = np.array(calls, dtype=np.int64).reshape(-1, 2).T
    asked, at = np.array(works, dtype=np.int64).reshape(-1, 2).T
    truth = []
    for key, time in works:
        own = sorted((begin, row) for row, (one, begin) in enumerate(calls) if one == key)
        begun = [row for begin, row in own if begin <= time]
        truth.append(begun[-1] if begun else own[0][1] if own else -1)
    assert last_begun(keys, start, start + 1, asked, at).tolist() == truth


def test_the_drivers_call_is_part_of_the_runtimes():
    keys, start, end = np.array([[7, 7, 7], [10, 12, 40], [20, 18, 50]])
    found = last_begun(keys, start, end, np.array([7, 7]), np.array([30, 60]))
    assert found.tolist() == [0, 2]


def test_work_whose_launch_is_lost_amid_others_is_counted():
    """A third of the launches is lost, of the middle: these rows are neither carried over nor
    without a number. Kernels that never have a launch are those of calls that nobody records."""
    rows, launches = one_stream(30)
    kept = [*range(10), *range(20, 30)]
    launches = launches_of(launches.start[kept], launches.correlation[kept])
    (note,) = check(rows, launches, no_syncs()).notes
    assert (note.rule, note.count, note.total) == (HealthRule.UNLAUNCHED, 10, 30)
    kernel = np.isin(np.arange(30), kept, invert=True).astype(np.int64)
    assert check(replace(rows, kernel=kernel), launches, no_syncs()).notes == ()


@pytest.mark.parametrize(("every", "aside"), [(10, 0), (2, 50), (1, 100)])
def test_a_clock_of_whole_microseconds_may_tell_no_length_of_some_kernels_not_of_most(every, aside):
    rows, launches = one_stream(100)
    rows.end[::every] = rows.start[::every]
    checked = check(rows, launches, no_syncs())
    assert int((~checked.kept).sum()) == aside
    noted = ["no_length"] * bool(aside) + ["host_only"] * (aside == 100)
    assert [str(note.rule) for note in checked.notes] == noted


@pytest.mark.parametrize(
    ("every", "kernels", "noted"), [(1, 60, 60), (2, 60, 30), (3, 90, 30), (30, 60, 0), (1, 12, 0)]
)
def test_kernels_that_take_less_than_any_kernel_have_a_wrong_unit(every, kernels, noted):
    """The lengths of all kernels, or of some, are divided by 1,000; if few are, it may be so."""
    rows, launches = one_stream(kernels)
    rows.end[::every] = rows.start[::every] + (rows.end - rows.start)[::every] // 1_000
    found = [one for one in check(rows, launches, no_syncs()).notes if one.rule == "too_short"]
    assert [(one.count, one.total) for one in found] == [(noted, kernels)] * bool(noted)
    assert all(one.usual_ns < 500 and one.share == noted / kernels for one in found)


def test_many_rows_far_longer_than_their_peers_are_shortened_though_many_overlap():
    """Eleven of eighty kernels 50 ms long: more than rows that overlap for one cause, but no cause
    makes a kernel that others of its kind are not."""
    rows, launches = one_stream(80)
    twin = rows.end.copy()
    rows.end[::8] += 50 * MS
    rows.end[5] += 50 * MS
    checked = check(rows, launches, no_syncs())
    assert [str(note.action) for note in checked.notes if note.rule == "overrun"] == ["shortened"]
    assert np.abs(checked.end - twin).max() <= 1_000 + int((rows.start[1:] - twin[:-1]).max())


@pytest.mark.parametrize(("ppm", "ahead", "rule"), [(-1_000, 0, "drift"), (0, -100_000, "clock")])
def test_a_clock_that_loses_is_ahead_at_one_moment_a_steady_one_always(ppm, ahead, rule):
    """Forty prompt kernels in 200 ms, too few for a slope: shifted either way, and of a clock that
    loses 1,000 µs a second it is said that this is right at one moment only."""
    launched = BEGIN + np.arange(40, dtype=np.int64) * 5 * MS
    start = launched + 8_000 + ahead + (launched - BEGIN) * ppm // 1_000_000
    rows = rows_of(start, np.full(40, 100_000), np.arange(1, 41))
    (note,) = check(rows, launches_of(launched, np.arange(1, 41)), no_syncs()).notes
    assert (str(note.rule), str(note.action), note.unrelated) == (rule, "shifted", rule == "drift")


def test_a_number_that_many_rows_have_is_wrong_and_no_row_is_a_second_one():
    """All kernels have the number of the first launch."""
    rows, launches = one_stream(30)
    checked = check(replace(rows, correlation=np.ones(30, dtype=np.int64)), launches, no_syncs())
    assert checked.kept.all()
    assert "twice" not in [str(note.rule) for note in checked.notes]


@pytest.mark.parametrize("device", [BEGIN, 0])
def test_times_that_no_device_has_fit_into_a_manifest(device):
    """All kernels at a time that the host is far from, or at 0."""
    rows, launches = one_stream(30)
    launches = replace(launches, start=launches.start + (1 << 60), end=launches.end + (1 << 60))
    rows = replace(rows, start=rows.start * 0 + device, end=rows.start * 0 + device + 1_000)
    for note in check(rows, launches, no_syncs()).notes:
        assert msgspec.json.decode(msgspec.json.encode(note), type=HealthNote) == note


def test_kernels_of_no_length_are_set_aside_on_a_clock_of_ns():
    """A tenth of them, at odd ns; where all times are whole µs they are legal."""
    rows, launches = one_stream(100)
    for shift, expected in ((7, [HealthRule.NO_LENGTH]), (0, [])):
        moved = replace(rows, start=rows.start + shift, end=rows.end + shift)
        moved.end[::10] = moved.start[::10]
        checked = check(moved, launches, no_syncs())
        assert damage(checked) == expected
        assert int((~checked.kept).sum()) == 10 * bool(expected)


@pytest.mark.parametrize(
    ("late", "gap", "noted"), [(0, 200_000, 0), (3 * MS, 200_000, 1), (3 * MS, 10_000, 0)]
)
def test_a_device_that_is_idle_and_begins_nothing_soon_may_have_a_late_clock(late, gap, noted):
    """Forty kernels, each launched once the one before it has ended; with short gaps a full queue
    explains as much."""
    launched = BEGIN + np.arange(40) * (100_000 + gap)
    rows = rows_of(launched + 8_000 + late, np.full(40, 100_000), np.arange(1, 41))
    found = check(rows, launches_of(launched, np.arange(1, 41)), no_syncs()).notes
    assert [(note.rule, note.unrelated) for note in found] == [
        (HealthRule.LATE_CLOCK, True)
    ] * noted


def test_a_row_that_begins_after_its_synchronization_is_set_aside():
    """One of forty, ten seconds late; the others hold, so that it is not the clock."""
    rows, launches = one_stream(40)
    rows.start[20] += 10_000 * MS
    rows.end[20] += 10_000 * MS
    returned = int(rows.end[39]) + 5_000
    checked = check(rows, launches, syncs_at([int(launches.end[-1]) + 1_000], [returned]))
    assert [(note.rule, note.action, note.count) for note in checked.notes if note.rule.damage] == [
        (HealthRule.OUTLIVED, HealthAction.SET_ASIDE, 1)
    ]
    assert np.flatnonzero(~checked.kept).tolist() == [20]


def test_a_launch_of_one_kernel_runs_it_once():
    """Two recorders, one of which is 1 µs late: one of each pair is kept."""
    rows, launches = one_stream()
    twice = with_rows(rows, np.repeat(np.arange(20), 2))
    twice.start[1::2] += 1_000
    twice.end[1::2] += 1_000
    checked = check(twice, launches, no_syncs())
    assert damage(checked) == [HealthRule.TWICE]
    assert np.flatnonzero(checked.kept).tolist() == list(range(0, 40, 2))


def test_kernels_of_several_launches_do_not_begin_together_on_a_stream():
    """One of twenty begins with the next one: its length is not its own."""
    rows, launches = one_stream()
    rows.start[9], rows.end[9] = rows.start[10], rows.end[10]
    (note,) = check(rows, launches, no_syncs()).notes
    assert (note.rule, note.count, note.excess_ns) == (HealthRule.OVERRUN, 1, 400_000)


def test_launch_numbers_that_are_off_by_one_are_no_clock_that_runs_ahead():
    """Each kernel has the number of the next launch, up to 20 ms later: no shift explains that."""
    launched = BEGIN + np.cumsum(np.random.default_rng(0).integers(20_000, 20 * MS, 400))
    rows = rows_of(launched[:-1] + 8_000, np.full(399, 10_000), np.arange(2, 401))
    checked = check(rows, launches_of(launched, np.arange(1, 401)), no_syncs())
    notes = [note for note in checked.notes if note.rule is HealthRule.CLOCK]
    assert [note.action for note in notes] == [HealthAction.SET_ASIDE]


def test_a_time_beyond_64_bits_in_all_is_counted():
    rows, launches = one_stream(200)
    rows.end[::10] += 1 << 60
    notes = check(rows, launches, no_syncs()).notes
    assert all(0 <= note.excess_ns < 1 << 53 for note in notes)


def test_what_is_recorded_twice_has_its_launches_once():
    """All events of a process again, under another number: nothing of that is lost."""
    rows, launches = one_stream()
    twice = with_rows(rows, np.repeat(np.arange(20), 2))
    again = [*range(20), *range(20)]
    launches = launches_of(
        launches.start[again], launches.correlation[again], process=np.repeat((0, 1), 20)
    )
    assert damage(check(twice, launches, no_syncs())) == [HealthRule.TWICE]


def test_replays_of_a_graph_run_the_same_kernels():
    """Six replays of 40 kernels; the third lost 7 of them, the last was cut."""
    launched = BEGIN + np.arange(6, dtype=np.int64) * 10_000_000
    replay = np.repeat(np.arange(6), 40)
    start = launched[replay] + 8_000 + np.tile(np.arange(40), 6) * 60_000
    rows = rows_of(start, np.full(240, 50_000), replay + 1, kernel=np.tile(np.arange(40) % 8, 6))
    launches = launches_of(launched, np.arange(1, 7), kind=[GRAPH] * 6)
    kept = np.ones(240, dtype=np.bool_)
    kept[220:] = False
    assert check(with_rows(rows, kept), launches, no_syncs()).notes == ()
    kept[90:97] = False
    (note,) = check(with_rows(rows, kept), launches, no_syncs()).notes
    assert (note.rule, note.count, note.total) == ("incomplete_replays", 7, 40)


@pytest.mark.parametrize(("times", "actions"), [(4, []), (400, ["shortened"])])
def test_dependent_launches_may_start_before_the_work_ahead_of_them_ends(times, actions):
    """One kernel of forty runs on for a few hundred µs beside its successor; of a length that no
    other has it is damage all the same."""
    start = BEGIN + np.arange(40, dtype=np.int64) * 200_000
    length = np.full(40, 90_000)
    length[7] *= times
    rows = rows_of(start, length, np.arange(1, 41))
    launches = launches_of(start - 8_000, np.arange(1, 41), dependent=True)
    notes = check(rows, launches, no_syncs()).notes
    assert [str(one.action) for one in notes if one.rule == "overrun"] == actions


def test_calls_of_a_runtime_by_their_names():
    names = (
        *("cudaLaunchKernel", "cuLaunchKernelEx", "hipExtModuleLaunchKernel", "cudaGraphLaunch"),
        *("cudaLaunchHostFunc", "cudaMemcpyAsync", "cudaStreamBeginCapture"),
        *("cudaStreamEndCapture", "cudaDeviceSynchronize", "cudaStreamSynchronize"),
    )
    name = np.array([0, 6, 0, 1, 7, 2, 3, 4, 5, 8, 9])
    start = np.arange(len(name)) * 10
    zero = np.zeros(len(name), dtype=np.int64)
    number = np.where(np.isin(name, [6, 7]), 0, np.arange(len(name)) + 1)
    thread = zero.copy()
    thread[5] = 1
    launches, syncs = host_calls(names, name, start, start + 5, zero, thread, number)
    kernel = [KERNEL, KERNEL, KERNEL, KERNEL, GRAPH, OTHER, OTHER, OTHER, OTHER]
    assert launches.kind.tolist() == kernel
    assert launches.captured.tolist() == [False, True, True, *(False,) * 6]
    assert syncs.start.tolist() == [90]


# --- Damage done to generated healthy recordings, whose true times are known.


def damaged(kind, rows, seed):
    """The recording with damage of a kind, and which rows are damaged."""
    random = np.random.default_rng(seed)
    kernels = np.flatnonzero(rows.kernel >= 0)
    rows = with_rows(rows, np.arange(len(rows)))
    if kind == "one":
        hit = random.choice(kernels[: len(kernels) // 2], 1)
        rows.end[hit] += 1_600 * MS
    elif kind == "some":
        hit = random.choice(kernels[:-100], max(round(0.0014 * len(rows)), 1), replace=False)
        rows.end[hit] += 50 * MS
    elif kind == "zero":
        hit = random.choice(kernels, len(rows) // 10, replace=False)
        rows.start[hit] = rows.end[hit] = 0
    elif kind == "negative":
        hit = random.choice(kernels, 1)
        rows.end[hit] = rows.start[hit] - 1_000
    elif kind == "twice":
        hit = random.choice(kernels, len(rows) // 20, replace=False)
        rows = with_rows(rows, np.sort(np.concatenate((np.arange(len(rows)), hit))))
    else:
        hit = kernels
        rows.start[:] -= 100_000
        rows.end[:] -= 100_000
    return rows, hit


@pytest.mark.parametrize("seed", SEEDS)
def test_healthy_recordings_raise_no_alarm(seed):
    rows, launches, syncs = healthy(seed)
    checked = check(rows, launches, syncs)
    assert checked.notes == ()
    assert (checked.start == rows.start).all()
    assert (checked.end == rows.end).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("one", HealthRule.OVERRUN),
        ("some", HealthRule.OVERRUN),
        ("zero", HealthRule.NO_TIME),
        ("negative", HealthRule.NEGATIVE),
        ("twice", HealthRule.TWICE),
        ("clock", HealthRule.CLOCK),
    ],
)
def test_damage_is_seen_and_undone(kind, rule, seed):
    """Device time, first start and last end are those of the healthy recording within 1 %, where
    no row was lost."""
    rows, launches, syncs = healthy(seed)
    broken, hit = damaged(kind, rows, 1000 + seed)
    checked = check(broken, launches, syncs)
    assert rule in damage(checked)
    kept = checked.kept
    time = int((checked.end - checked.start)[kept].sum())
    true = int((rows.end - rows.start).sum())
    if kind in ("zero", "negative"):
        assert int((~kept).sum()) == len(hit)
        true -= int((rows.end - rows.start)[hit].sum())
    assert time == pytest.approx(true, rel=0.01)
    span = int(rows.end.max() - rows.start.min())
    assert int(checked.end[kept].max()) == pytest.approx(int(rows.end.max()), abs=0.01 * span)
    if kind == "clock":
        assert abs(int(checked.start[0] - rows.start[0])) <= 25_000


def test_one_early_row_is_set_aside_and_the_clock_left_as_it_is():
    """The other kernels start as soon after their launch as in a healthy recording."""
    number = np.arange(1, 401)
    launches = launches_of(BEGIN + number * 50_000, number)
    start = launches.start + 8_000
    start[200] -= 5 * MS
    rows = rows_of(start, np.full(400, 20_000), number, stream=number == 201)
    checked = check(rows, launches, no_syncs())
    (note,) = checked.notes
    assert (note.rule, note.action, note.count) == (HealthRule.CLOCK, HealthAction.SET_ASIDE, 1)
    kept = checked.kept
    assert int((~kept).sum()) == 1
    assert (checked.start[kept] == rows.start[kept]).all()


@pytest.mark.parametrize("shifted", [True, False])
def test_a_clock_ahead_of_a_queue_that_is_hardly_ever_empty_is_shifted(shifted):
    """Of 500 kernels that are queued at a time the first three start within 100 µs of their launch:
    0.6 % begin before it, and all are right. As many that were moved one by one are wrong."""
    number = np.arange(10_000)
    burst, place = number // 500, number % 500
    launched = BEGIN + burst * 30 * MS + place * 5_000
    start = BEGIN + burst * 30 * MS + 9_000 + place * 40_000
    moved = np.full(10_000, 100_000)
    if not shifted:
        moved = np.where(place < 3, np.random.default_rng(1).integers(100_000, 9 * MS, 10_000), 0)
    rows = rows_of(start - moved, np.full(10_000, 40_000), number + 1)
    checked = check(rows, launches_of(launched, number + 1), no_syncs())
    (note,) = checked.notes
    action = HealthAction.SHIFTED if shifted else HealthAction.SET_ASIDE
    assert (note.rule, note.action, note.count) == (HealthRule.CLOCK, action, 60)
    kept = start[checked.kept]
    assert int(np.abs(checked.start[checked.kept] - kept).max()) <= (2_000 if shifted else 0)


def test_launches_ahead_of_a_copy_that_ran_lost_their_work():
    """On the only stream of a process what runs later shows that nothing waits any more."""
    rows, launches = one_stream()
    kind = np.where(np.arange(20) == 19, OTHER, KERNEL)
    launches = launches_of(launches.start, launches.correlation, kind=kind)
    rows = replace(rows, kernel=np.where(np.arange(20) == 19, -1, 0))
    ran = with_rows(rows, (np.arange(20) < 15) | (np.arange(20) == 19))
    (note,) = check(ran, launches, no_syncs()).notes
    assert (note.rule, note.count) == (HealthRule.LOST, 4)


@pytest.mark.parametrize("away_ns", [-200_000 * MS, 86_400_000 * MS])
def test_work_far_from_all_launches_has_no_possible_time(away_ns):
    """Two kernels a day later, or minutes before, are no second recording: no launch is there, and
    most of their device's work is here. They are set aside, and what is left is as it was."""
    rows, launches = one_stream()
    chosen = np.isin(np.arange(20), (4, 11))
    moved = np.where(chosen, away_ns, 0)
    far = replace(rows, start=rows.start + moved, end=rows.end + moved)
    checked = check(far, launches, no_syncs())
    (note,) = [one for one in checked.notes if one.rule is HealthRule.NO_TIME]
    assert (note.count, note.action) == (2, HealthAction.SET_ASIDE)
    assert note.worst_ns == pytest.approx(abs(away_ns), rel=0.01)
    assert checked.kept.tolist() == (~chosen).tolist()
    assert HealthRule.GAP not in rules(checked)
    shifted = replace(rows, start=rows.start + away_ns, end=rows.end + away_ns)
    assert check(shifted, launches, no_syncs()).kept.all()  # then it is the device's clock


def test_a_device_an_hour_late_leaves_the_other_as_it_is():
    """What one of two devices did is an hour behind its launches, some of which were not recorded:
    all of that is set aside."""
    rows, launches = one_stream(40)
    device = np.arange(40) % 2
    rows = replace(rows, device=device, stream=device, devices=("cuda:0", "cuda:1"))
    rows = replace(rows, streams=("stream 7", "stream 7"))
    launched = np.arange(40) != 3
    launches = launches_of(launches.start[launched], launches.correlation[launched])
    late = np.where(device == 1, 3_600_000 * MS, 0)
    checked = check(
        replace(rows, start=rows.start + late, end=rows.end + late), launches, no_syncs()
    )
    (note,) = [one for one in checked.notes if one.rule is HealthRule.NO_TIME]
    assert (note.device, note.count, note.action) == ("cuda:1", 20, HealthAction.SET_ASIDE)
    assert checked.kept.tolist() == (device == 0).tolist()
    assert HealthRule.GAP not in rules(checked)


@pytest.mark.parametrize("first", [1, 2**31 - 20, 2**32 - 20])
def test_launch_numbers_of_32_bits_begin_again(first):
    """They do after days; the work of the first five launches, which are not recorded, was
    launched before the recording, as it is with other numbers."""
    rows, launches = one_stream(40)
    numbers = (first + np.arange(40)) % 2**32
    numbers += numbers < first  # 0 is none
    recorded = np.arange(40) > 4
    launches = launches_of(launches.start[recorded], numbers[recorded])
    checked = check(replace(rows, correlation=numbers), launches, no_syncs())
    assert [(one.rule, one.count) for one in checked.notes] == [(HealthRule.BEFORE, 5)]


def test_launches_ahead_of_a_synchronization_that_returned_lost_their_work():
    """Otherwise they had not run when the recording ended."""
    rows, launches = one_stream()
    ran = with_rows(rows, np.arange(20) < 15)
    assert rules(check(ran, launches, no_syncs())) == [HealthRule.CUT]
    later = syncs_at([int(launches.start[-1]) + MS], [int(rows.end[-1]) + MS])
    assert rules(check(ran, launches, later)) == [HealthRule.LOST]


def test_a_long_kernel_that_overlaps_a_little_keeps_its_length():
    """It ends where the next begins, although others of its kernel are shorter."""
    rows, launches = one_stream()
    rows.end[4] += 2 * MS
    rows.start[5:] += 2 * MS - 150_000
    rows.end[5:] += 2 * MS - 150_000
    checked = check(rows, launches, no_syncs())
    assert checked.end[4] == rows.start[5]


@pytest.mark.parametrize(
    ("each", "gap_ns", "numbers", "noted"),
    [
        (2, 4 * MS, 800, 1),
        (2, 4 * MS, 4, 0),
        (100, MS // 4, 1600, 0),  # of them a recorder that leaves 99 of 100 out would keep 16
    ],
)
def test_calls_of_the_runtime_go_on_while_nothing_is_recorded(each, gap_ns, numbers, noted):
    """Launches each 10 µs, of `each` calls one, then nothing for a while: a program that made no
    calls then has the next number behind it, one whose file lacks them a far higher one."""
    launched = BEGIN + np.arange(200, dtype=np.int64) * 10_000
    launched[100:] += gap_ns
    number = np.arange(200) * each + 1
    number[100:] += numbers
    rows = rows_of(launched + 8_000, np.full(200, 5_000), number)
    launches = launches_of(launched, number, length=3_000)
    notes = check(rows, launches, no_syncs()).notes
    found = [(str(note.rule), note.count, note.excess_ns) for note in notes]
    assert found == [("missing_part", 801, 4 * MS + 7_000)] * noted


@pytest.mark.parametrize(("times", "noted"), [(1, 0), (1_000, 1)])
def test_launches_that_take_a_thousand_times_too_long(times, noted):
    """All calls of the host in ns, read as µs; one of many that waits for room in the queue is no
    reason."""
    rows, launches = one_stream(100)
    launches.end[:] = launches.start + 5_000 * times
    launches.end[7] += 3 * MS
    notes = check(rows, launches, no_syncs()).notes
    assert [str(note.rule) for note in notes if note.rule.damage] == ["too_long"] * noted


def _scaled(rows):
    rows.end[:] = rows.start + (rows.end - rows.start) // 10


def _late(rows):
    rows.start[:] += 400_000
    rows.end[:] += 400_000


def _losing(rows):
    late = np.linspace(0, 2_000, len(rows.start)).astype(np.int64)
    rows.start[:] += late
    rows.end[:] += late


def _nearly_right(rows):
    rows.end[7] += 900


def _elsewhere(rows):
    rows.device[7] = 1


@pytest.mark.parametrize("damaged", [_scaled, _late, _losing, _nearly_right, _elsewhere])
def test_what_is_possible_is_not_seen(damaged):
    """What docs/cannot-answer.md says of damage: lengths that are all a tenth, a clock that is 0.4
    ms late or loses 2 µs, a length that is 0.9 µs too long, a row of another device."""
    rows, launches = one_stream(60)
    rows = replace(rows, devices=("cuda:0", "cuda:1"))
    damaged(rows)
    assert check(rows, launches, no_syncs()).notes == ()


def test_a_clock_that_is_set_forward_is_not_seen():
    """What docs/cannot-answer.md says: host and device 5 ms forward from the middle on."""
    rows, launches = one_stream(60)
    for times in (rows.start, rows.end, launches.start, launches.end):
        times[30:] += 5 * MS
    assert check(rows, launches, no_syncs()).notes == ()


def test_lost_kernels_of_a_graph_that_ran_once_are_not_seen():
    """Nothing says how many it has: docs/cannot-answer.md."""
    rows = rows_of(BEGIN + 8_000 + np.arange(40) * 60_000, np.full(40, 50_000), np.ones(40))
    launches = launches_of([BEGIN], [1], kind=[GRAPH])
    kept = np.delete(np.arange(40), [11, 12])
    assert check(with_rows(rows, kept), launches, no_syncs()).notes == ()
