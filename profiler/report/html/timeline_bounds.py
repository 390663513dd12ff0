"""What the commands of the page's timeline are bound by."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.roofline.codes import Bound
from profiler.run.intervals import rows_of_calls, text_codes

__all__ = ["bound_codes"]

_KEYS = ("submodule", "layer", "device")
_MOST = 1 << 24  # combinations of the keys that a table of a byte each may have


def bound_codes(
    commands: pl.DataFrame, calls: pl.DataFrame, bounds: pl.DataFrame | None
) -> npt.NDArray[np.int64]:
    """The place in `Bound` of what the operator of each command is bound by, -1 where that is not
    known: int64 [commands]. `bounds` is the table `roofline`."""
    unknown = np.full(len(commands), -1, dtype=np.int64)
    if bounds is None or bounds.is_empty():
        return unknown
    rows = rows_of_calls(commands["call"], calls["call"])
    of_call, submodules = text_codes(calls["submodule"])
    layer, layers = text_codes(commands["layer"])
    device, devices = text_codes(commands["device"])
    submodule = np.append(of_call, len(submodules))[rows]  # -1 is that of no call
    names = (submodules, layers, devices)
    size = (len(submodules) + 1, len(layers) + 1, len(devices) + 1)
    if np.prod(size) > _MOST:
        return unknown
    table = np.full(size, -1, dtype=np.int8)
    places = [{name: place for place, name in enumerate(each)} for each in names]
    known = {str(bound): code for code, bound in enumerate(Bound)}
    for *key, bound in bounds.select(*_KEYS, "bound").iter_rows():
        at = [place.get(name) for place, name in zip(places, key, strict=True)]
        if bound in known and None not in at:
            table[tuple(at)] = known[bound]
    codes: npt.NDArray[np.int64] = table[submodule, layer, device].astype(np.int64)
    return codes
