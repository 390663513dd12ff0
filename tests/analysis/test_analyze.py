"""The whole analysis: what it says of the run, and that files and values agree."""

from profiler.analysis.analyze import analyze
from profiler.tools.sources import load
from profiler.trace import Drop, DropKind
from tests.runs import Command, make_call, make_run, tiny_run, why, write_tiny_bundle


def test_summary_says_what_ran():
    """Names, time of day, counts."""
    run = analyze(tiny_run()).run
    assert (run.run_id, run.model, run.producer) == ("tiny", "tiny-sd3", "capture")
    assert run.started == "2027-01-15T08:00:00+00:00"
    assert (run.calls, run.traced_calls, run.commands) == (4, 4, 12)
    assert run.overhead.hooks_ns == 4


def test_clock_that_counts_from_boot_is_no_time_of_day():
    """A foreign trace starts seconds after 1970."""
    run = make_run([make_call(0, "t", 0, 10)])
    shifted = run.calls.with_columns(start_ns=run.calls["start_ns"] % 1_000_000)
    object.__setattr__(run, "calls", shifted)
    assert analyze(run).run.started == ""


def test_drops_are_passed_on():
    """What was lost is part of every result."""
    drop = Drop(DropKind.DROPPED_EVENTS, "transformer", 3, "events", why("ring buffer full"))
    assert analyze(tiny_run(drops=(drop,))).drops == (drop,)


def test_bundle_gives_what_its_values_give(tmp_path):
    """Written, merged and read back, the tiny run has the same tables."""
    expected = analyze(tiny_run())
    found = analyze(load(write_tiny_bundle(tmp_path)))
    assert found.accounting == expected.accounting
    for name, frame in expected.tables().items():
        assert found.tables()[name].equals(frame), name


def test_merged_trace_gives_what_the_bundle_gives(tmp_path):
    """The call files one after another hold the same run."""
    bundle = write_tiny_bundle(tmp_path)
    merged, whole = analyze(load(bundle / "merged.pb")), analyze(load(bundle))
    assert merged.accounting == whole.accounting
    assert merged.operators.equals(whole.operators)


def test_run_of_nothing():
    """No call and no command: empty tables, no error."""
    analysis = analyze(make_run())
    assert all(frame.is_empty() for frame in analysis.tables().values())


def test_commands_of_no_known_call_are_work_of_no_call():
    """A command of call 9 in a run without call 9 does not land in another call."""
    analysis = analyze(
        make_run([make_call(0, "t", 0, 10)], [Command(9, "rbln:0", "C", "compute", "mlp", 0, 5)])
    )
    assert analysis.calls["commands"].to_list() == [0]
    assert analysis.operators["submodule"].to_list() == [None]
