"""The column that tells rows of one name on several devices apart."""

import pytest

from profiler.analysis.analyze import analyze
from tests.report.rendered import report_of
from tests.runs import Command, make_call, make_run


@pytest.mark.parametrize(("names", "stays"), [(("mm", "mm"), True), (("mm", "add"), False)])
def test_the_device_stays_where_rows_of_one_kernel_are_of_several(names, stays):
    """The same kernel on two devices needs the column however narrow the terminal is; two kernels
    are told apart by their names, and the column may go."""
    calls = [make_call(n, "t", 0, 100, device=f"cuda:{n}") for n in range(2)]
    commands = [
        Command(n, f"cuda:{n}", "stream 7", "compute", name, 0, 50, kernel=name)
        for n, name in enumerate(names)
    ]
    report = report_of(analyze(make_run(calls, commands)))
    part, *_ = next(section.parts for section in report.sections if section.key == "kernels")
    (column,) = [one for one in part.table.columns if one.name == "device"]
    assert (column.importance == 0) == stays


@pytest.mark.parametrize("devices", [1, 2])
def test_the_device_of_a_gap_stays_where_gaps_are_of_several(devices):
    """Gaps of two devices need the column however narrow the page is; those of one do not."""
    calls = [make_call(n, "t", 0, 100, device=f"cuda:{n}") for n in range(devices)]
    commands = [
        Command(n, f"cuda:{n}", "stream 7", "compute", "mm", start, 20)
        for n in range(devices)
        for start in (0, 60)
    ]
    (view,) = [
        part.table
        for section in report_of(analyze(make_run(calls, commands))).sections
        for part in section.parts
        if part.table is not None and part.table.key == "gaps"
    ]
    assert view.frame["device"].n_unique() == devices
    (column,) = [one for one in view.columns if one.name == "device"]
    assert (column.importance == 0) == (devices > 1)
