"""Findings of several devices or ranks that say the same."""

from profiler.analysis import Finding, WaitCause, Where, words
from profiler.analysis.findings import once_for_all_devices, once_for_all_ranks
from profiler.analysis.result import Recorded


def _idle(device, cost, gaps, share, cause=WaitCause.COPY):
    evidence = {"gaps": gaps, "gap_share": share, "cause": cause}
    return Finding("idle_gaps", evidence, Where(device=device), cost)


def test_devices_that_wait_for_the_same_are_one_finding():
    """Of three devices with one cause the one that is idle longest stands for all, with their names
    and ranges; another cause, and another kind of device, stay by themselves."""
    alike = (_idle("tpu:0", 90, 9, 0.9), _idle("tpu:1", 95, 7, 0.95), _idle("tpu:2", 80, 8, 0.8))
    others = (_idle("tpu:3", 70, 3, 0.7, WaitCause.HOST), _idle("cuda:0", 60, 4, 0.6))
    found = once_for_all_devices([*alike, *others])
    assert [one.where.device for one in found] == ["tpu:1", "tpu:3", "cuda:0"]
    together, *alone = found
    assert alone == [*others]
    assert together.cost_ns == 95
    assert together.evidence == {
        **alike[1].evidence,
        "on_devices": ("tpu:0", "tpu:1", "tpu:2"),
        "least_gaps": 7,
        "most_gaps": 9,
        "least_gap_share": 0.8,
        "most_gap_share": 0.95,
    }
    assert words(together).title == (
        "tpu:0, tpu:1 and tpu:2 are each idle for more than 100 µs 7 to 9 times, 80 % to 95 % of "
        "the time in all; mainly waiting for copies"
    )


def test_many_devices_are_counted():
    """Of eight the first and the last are named; one share for all is said once."""
    evidence = {"host_wait_ns": 5, "host_wait_share": 0.5}
    rows = [Finding("host_bound", evidence, Where(device=f"cuda:{n}"), 5) for n in range(8)]
    (found,) = once_for_all_devices(rows)
    assert words(found).title == (
        "8 devices (cuda:0, …, cuda:7) each wait for the host to launch work for 50 % of the time"
    )


def test_a_wait_for_data_loaders_is_no_wait_for_launches():
    """Their recommendations differ, so both are said."""
    loading = {"host_wait_share": 0.5, "data_loader_ns": 3}
    rows = [
        Finding("host_bound", loading, Where(device="cuda:0"), 5),
        Finding("host_bound", {"host_wait_share": 0.5}, Where(device="cuda:1"), 5),
    ]
    assert once_for_all_devices(rows) == rows


def test_ranks_are_counted_and_devices_of_one_rank_are_not():
    """What two ranks have is said once, of the worse one, whatever else the list holds."""
    rows = [
        Finding("data_movement", {}, Where("t", device="rank0/cuda:0"), 5),
        Finding("data_movement", {}, Where("t", device="rank1/cuda:1"), 7),
        Finding("data_movement", {}, Where("t", device="cuda:0"), 6),
    ]
    found = once_for_all_ranks(rows)
    assert [(one.where.device, one.evidence) for one in found] == [
        ("rank1/cuda:1", {"ranks": 2}),
        ("cuda:0", {}),
    ]


def test_ranks_are_not_sent_to_a_prediction_that_refuses_them():
    """`predict --untraced` replays one host: it is advised for one rank alone."""
    evidence = {"host_wait_share": 0.5, "recorded": Recorded.OPERATORS}
    of_one = words(Finding("host_bound", evidence, Where(device="cuda:0"), 5)).recommendation
    of_two = words(
        Finding("host_bound", evidence | {"ranks": 2}, Where(device="rank1/cuda:1"), 5)
    ).recommendation
    assert "predict --untraced" in of_one
    assert "predict" not in of_two
    assert "Launch less" in of_two
