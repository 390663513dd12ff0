"""The section on memory says why a run has no allocations, and how to get them."""

import dataclasses

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.report import catalogue
from profiler.run import COUNTERS, schema
from profiler.text import in_language
from tests.report.rendered import printed, report_of
from tests.runs import EPOCH, make_call, make_info, make_run

ASKED = "`--memory` or memory=True records it"


def analysis(producer="capture", asked=False, counter=None):
    """Of one call, with a counter of that name or none; `asked`: for allocations, None: of what
    does not tell of any."""
    recording = {} if asked is None else {"recording": {"profile_memory": asked}}
    run = make_run([make_call(0, "vae", 0, 100)], info=make_info(producer, **recording))
    rows = [] if counter is None else [(0, "cuda:0", counter, "bytes", EPOCH + 10, 1000.0)]
    counters = pl.DataFrame(rows, schema=schema(COUNTERS), orient="row")
    return analyze(dataclasses.replace(run, counters=counters))


def said_of_memory(of):
    parts = [part for one in report_of(of).sections if one.key == "memory" for part in one.parts]
    return [note for part in parts for note in part.notes]


def test_nobody_asked_for_allocations():
    """One line, in either language, in the terminal too, and no table."""
    (note,) = said_of_memory(analysis())
    assert ASKED in note
    assert "--memory" in in_language(note, catalogue("ko"))
    assert in_language(note, catalogue("ko")) != note
    assert ASKED in " ".join(printed(analysis()).split())


def test_beside_what_other_runtimes_count():
    """Arenas of ONNX Runtime are there, what torch allocates is not."""
    notes = said_of_memory(analysis(counter="vae arena in use"))
    assert any(ASKED in note for note in notes)


def test_a_trace_of_torch_profiler_is_recorded_with_another_option():
    """An imported one."""
    (note,) = said_of_memory(analysis("import"))
    assert note.endswith("profile_memory=True records it.")


@pytest.mark.parametrize(
    "options",
    [{"asked": None}, {"asked": True}, {"asked": False, "counter": "torch allocated"}],
)
def test_nothing_is_said_where_it_does_not_apply(options):
    """Runtimes that tell of no allocations, runs that were asked for them or have them anyway."""
    assert not any("was not recorded" in note for note in said_of_memory(analysis(**options)))
