"""`analyze`: one run → everything its reports show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from profiler.analysis.assembly import assembled
from profiler.analysis.findings.tables import found
from profiler.analysis.inputs import Inputs
from profiler.analysis.registry import tables
from profiler.analysis.replay.shared_gains import replay_gains
from profiler.analysis.result import Analysis
from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.analysis.selection import Selection
from profiler.analysis.waiting.tables import device_works, timeline_of
from profiler.run.run import Run

__all__ = ["analyze"]


def analyze(
    run: Run,
    selection: Selection = Selection(),
    measured: Sequence[DeviceProfile] = (),
    device_memory: Mapping[str, int] = MappingProxyType({}),
) -> Analysis:
    """Analyze `run`, its tables limited to `selection`.

    The accounting and the stages stay those of the whole run. `measured` are the profiles of its
    devices, where there are any beside the published ones; `device_memory` is bytes of memory by
    device, "" for all others. Raises InputError where the selection
    names what the run does not have.
    """
    inputs = Inputs(run, selection, measured, device_memory)
    device_works(inputs)  # first, for what it is made of takes most memory
    analysis = assembled(inputs, [table.name for table in tables()], found(inputs))
    inputs.forget(device_works, timeline_of, replay_gains)
    return analysis
