"""The device work of a run as a replay needs it: what was launched when, on which stream.

Between two pieces of work that both wait in a stream's queue a device takes a moment (1.4 to 1.6 us
on an H200 that is being recorded, 0.7 within a CUDA graph, next to nothing on an MI300X). It is
measured on those that had been launched long before the work ahead of them ended.

Work whose launch was not recorded follows what ran before it on its stream, as far behind it as it
was. What was not recorded at all (`RunTiles.unrecorded_on`) is such work on each stream of its
device.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.run.device_timeline import Launches, Times, device_work, streams_of
from profiler.run.run import Run

__all__ = ["NEVER", "Works", "works_of"]

NEVER = np.iinfo(np.int64).min // 4
_SURELY = 20_000  # ns that work was launched and due ahead of the end of what is before it
_FEW = 20  # gaps between queued work: fewer tell nothing
_USUAL = 50_000  # ns between queued work: longer, it waited for something else


class Works(Struct, frozen=True, eq=False):
    """w pieces of device work, stream by stream in order of begin; int64 [w] each.

    `row` is its command, -1 for time that nobody recorded, `call` the row of its call, -1 for none.
    `launch` is when it was launched, NEVER where that is not known, and `latency` how long it takes
    from there; `behind` is how long it begins after the work before it, were it launched early: as
    it did where its launch is not known, else what is usual on its stream. `moment` is the host's
    time to which it belongs: its launch, or a later one of work before it on its stream; NEVER for
    what was launched before the recording began. `heads` are where streams begin, [s + 1] with the
    end.
    """

    row: Times
    call: Times
    stream: Times
    start: Times
    length: Times
    launch: Times
    latency: Times
    behind: Times
    moment: Times
    heads: Times

    @property
    def end(self) -> Times:
        """When each ended."""
        found: Times = self.start + self.length
        return found

    def last_launched(self, moments: Times) -> Times:
        """The last work of each stream that was launched before each moment, int64 [v, s]; -1 for
        none."""
        found = np.full((len(moments), len(self.heads) - 1), -1)
        for number, (first, last) in enumerate(zip(self.heads[:-1], self.heads[1:], strict=True)):
            place = np.searchsorted(self.moment[first:last], moments, side="left")
            found[:, number] = np.where(place > 0, first + place - 1, -1)
        return found


def works_of(run: Run, launches: Launches) -> Works | None:
    """The work on those devices for which launches are known; None where there is none."""
    rows, device = _rows(run, launches)
    if not len(rows):
        return None
    stream = np.unique(streams_of(run.commands, rows), return_inverse=True)[1].astype(np.int64)
    found = {
        "row": rows,
        "stream": stream,
        "start": launches.start[rows],
        "length": launches.end[rows] - launches.start[rows],
        "latency": _latencies(run, device),
    }
    found = _with_unrecorded(found, run, device)
    order = np.lexsort((found["start"], found["stream"]))
    rows, stream, start, length, latency = (column[order] for column in found.values())
    source = np.where(rows >= 0, launches.source[rows], -1)
    launch = np.where(source >= 0, np.minimum(launches.start[source], start), NEVER)
    heads = np.searchsorted(stream, np.arange(int(stream[-1]) + 2))
    parts = np.split(launch, heads[1:-1])
    before = np.append(NEVER, (start + length)[:-1])
    before[heads[:-1]] = start[heads[:-1]]
    return Works(
        row=rows,
        call=_calls(run, rows),
        stream=stream,
        start=start,
        length=length,
        launch=launch,
        latency=latency,
        behind=np.where(
            source < 0,
            np.maximum(start - before, 0),
            _between(stream, launch, latency, start, before),
        ),
        moment=np.concatenate([np.maximum.accumulate(part) for part in parts]),
        heads=heads,
    )


def _between(stream: Times, launch: Times, latency: Times, start: Times, before: Times) -> Times:
    """How long each begins after `before`, the end of the work ahead of it, were it in the queue:
    on each stream the mean of those that surely were, of first ones of a launch and of others (of
    the same graph) apart; 0 where fewer than `_FEW` tell."""
    known = launch > NEVER
    follows = np.append(False, (launch[1:] == launch[:-1]) & (stream[1:] == stream[:-1])) & known
    queued = known & (launch + latency + _SURELY < before) & (start >= before)
    usual = start - before < _USUAL
    found = np.zeros(len(stream), dtype=np.int64)
    for number in range(int(stream[-1]) + 1):
        for kind in (follows, ~follows):
            here = (stream == number) & kind
            gaps = (start - before)[here & queued & usual]
            if len(gaps) >= _FEW:
                found[here] = round(float(gaps.mean()))
    return found


def _rows(run: Run, launches: Launches) -> tuple[Times, pl.Series]:
    """The rows of that work, and the device of each."""
    category = run.commands["category"].to_physical().to_numpy()
    rows = np.flatnonzero(device_work(category) & (launches.end > launches.start))
    device = run.commands["device"].gather(rows).cast(pl.String)
    known = device.gather(np.flatnonzero(launches.source[rows] >= 0)).unique()
    kept = np.flatnonzero(device.is_in(known.implode()).to_numpy())
    return rows[kept], device.gather(kept)


def _latencies(run: Run, device: pl.Series) -> Times:
    """The latency of the device of each work."""
    named = run.tiles.devices.select("device", "latency_ns")
    found = device.to_frame("device").join(named, on="device", how="left", maintain_order="left")
    return found["latency_ns"].fill_null(0).to_numpy()


def _with_unrecorded(found: dict[str, Times], run: Run, device: pl.Series) -> dict[str, Times]:
    """The columns with the time that was not recorded."""
    for name, lost in run.tiles.unrecorded_on.items():
        here = np.unique(found["stream"][: len(device)][(device == name).to_numpy()])
        more: dict[str, Times] = {
            "row": np.full(len(lost) * len(here), -1),
            "stream": np.repeat(here, len(lost)),
            "start": np.tile(lost.start, len(here)),
            "length": np.tile(lost.end - lost.start, len(here)),
            "latency": np.zeros(len(lost) * len(here), dtype=np.int64),
        }
        found = {key: np.append(column, more[key]) for key, column in found.items()}
    return found


def _calls(run: Run, rows: Times) -> Times:
    """The call of each command as its row in the run's calls, -1 for none."""
    numbers = np.append(run.commands["call"].to_numpy(), -1)[rows].astype(np.int64)
    calls = run.calls["call"].to_numpy()
    if not len(calls):
        return np.full(len(rows), -1)
    place = np.minimum(np.searchsorted(calls, numbers), len(calls) - 1)
    found: Times = np.where((numbers >= 0) & (calls[place] == numbers), place, -1)
    return found
