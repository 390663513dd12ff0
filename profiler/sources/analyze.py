"""`profiler.analyze`: from a path or a run to an `Analysis`, for scripts and notebooks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from profiler.analysis.analyze import analyze as analyze_run
from profiler.analysis.memory.sizes import sizes_by_device
from profiler.analysis.result import Analysis
from profiler.analysis.roofline.device_profiles import find_profiles, read_profiles
from profiler.analysis.selection import Selection
from profiler.options import name_list
from profiler.run.run import Run
from profiler.sources.load import load_found
from profiler.sources.resolve import as_paths, resolve

__all__ = ["analyze"]

_Names = str | Iterable[str]


def analyze(
    source: Run | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    stage: _Names = (),
    submodule: _Names = (),
    device: _Names = (),
    step: int | str | Iterable[int | str] = (),
    device_profile: str | os.PathLike[str] | None = None,
    device_memory: int | str | Mapping[str, int | str] = MappingProxyType({}),
    import_options: Mapping[str, object] = MappingProxyType({}),
) -> Analysis:
    """Analyze a run: one that is loaded, or the one that `load(source)` would load.

    `stage`, `submodule`, `device` and `step` (7, "0-3,7", "last") limit the tables to what they
    name, as the options of `profile-sd3 analyze` do: several in a list, or with commas.
    `device_profile` is a file that `benchmark-device` wrote; without it the one in or beside the
    bundle counts, if there is one. `device_memory` is the memory of all devices or by device, for
    the head-room: bytes or a text ("16GiB"). `import_options` are for the importer, where `source`
    is another profiler's. Raises InputError, in one sentence, where the run cannot be read or does
    not have what is named.
    """
    profiles = read_profiles(Path(device_profile)) if device_profile is not None else ()
    if isinstance(source, Run):
        run = source
    else:
        (found,) = resolve([as_paths(source)], import_options)
        run = load_found(found)
        profiles = profiles or find_profiles(found.newest.path)
    selection = Selection(*map(name_list, (stage, submodule, device, step)))
    return analyze_run(run, selection, profiles, sizes_by_device(device_memory))
