"""Rules about devices that wait: for the host, for data, for each other."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from profiler.analysis.findings.finding import Finding, Where
from profiler.analysis.findings.measures import (
    MATERIAL,
    as_percent,
    calls_of,
    is_accelerator,
    share,
    times,
    total_ns,
)
from profiler.analysis.findings.waiting_words import (
    FIND_OUT,
    KEEP_THERE,
    SLOWER,
    SLOWER_WITH_STACKS,
    WAITED_FOR,
)
from profiler.analysis.result import Analysis
from profiler.messages import said

__all__ = [
    "host_between_steps",
    "host_bound",
    "idle_device",
    "idle_gaps",
    "scheduler_sync",
    "transfers_exposed",
]

_HOST_WAIT = 0.10  # of the device's span: a device whose host keeps up waits for a few per cent
_GAPS = 0.05  # of the device's span
_BETWEEN = 0.05  # of the steps' time
_EXPOSED = 0.05  # of the device's span
_HIDDEN = 0.5  # of the transfers: more is as good as it gets without double buffering
_SYNC_STEPS = 0.5  # of the steps: what waits in fewer is not the loop's habit
_SYNC_WAIT = 0.02  # of the device's span
_BUSY_DEVICE = 0.5  # of the run
_IDLE_DEVICE = 0.1  # of the run
_IN_CALLS = ("host_ns", "queued_ns")
_SYNC = r"(?i)synchronize|^(cuda|hip)Memcpy(WithStream)?$|^aten::(item|_local_scalar_dense)$"


def host_bound(analysis: Analysis) -> tuple[Finding, ...]:
    """A device waits for the host to launch its next command, within calls. Silent where clocks of
    devices are not aligned: when the host had called is not known on its clock."""
    if _unaligned(analysis):
        return ()
    total = total_ns(analysis)
    found = []
    for row in _accelerators(analysis).to_dicts():
        wait, device = row["host_ns"], row["device"]
        if share(wait, row["span_ns"]) < _HOST_WAIT or share(wait, total) < 2 * MATERIAL:
            continue
        stacks = bool(analysis.run.settings.get("with_stack"))
        evidence: dict[str, int | float | str] = {
            "host_wait_ns": wait,
            "host_wait_share": share(wait, row["span_ns"]),
            **_launches(analysis, device),
        }
        if stacks:
            evidence["recorded"] = said("with Python stacks")
        found.append(
            Finding(
                rule="host_bound",
                title=said(
                    "{device} waits for the host in its calls for {share} of the time",
                    device=device,
                    share=as_percent(share(wait, row["span_ns"])),
                ),
                evidence=evidence,
                hazard=SLOWER_WITH_STACKS if stacks else SLOWER,
                remedy=said(
                    "Launch less: CUDA graphs or torch.compile(mode='reduce-overhead'), larger "
                    "batches, fused nodes. Record once with call spans only to see how much is "
                    "left."
                ),
                where=calls_of(analysis, _longest_wait(analysis, device), device=device),
                cost_ns=wait,
            )
        )
    return tuple(found)


def idle_gaps(analysis: Analysis) -> tuple[Finding, ...]:
    """A device stands still for over 100 µs at a time, and why it waits most. Silent where clocks
    of devices are not aligned: how far apart their calls were is not known."""
    if _unaligned(analysis):
        return ()
    total = total_ns(analysis)
    found = []
    for row in _accelerators(analysis).to_dicts():
        gaps, length = row["long_gaps"], row["long_gap_ns"]
        if share(length, row["span_ns"]) < _GAPS or share(length, total) < 2 * MATERIAL:
            continue
        largest = max(WAITED_FOR, key=lambda name: row[name])
        most, remedy = WAITED_FOR[largest]
        longest = _longest_wait(analysis, row["device"]) if largest in _IN_CALLS else None
        where = calls_of(analysis, longest, device=row["device"]) if longest else None
        found.append(
            Finding(
                rule="idle_gaps",
                title=said(
                    "{device} stands still for over 100 µs {times}, {share} of its time: it "
                    "waits most for {most}",
                    device=row["device"],
                    times=times(gaps),
                    share=as_percent(share(length, row["span_ns"])),
                    most=most,
                ),
                evidence={
                    "gaps": gaps,
                    "gap_ns": length,
                    "gap_share": share(length, row["span_ns"]),
                    "mean_gap_ns": length // max(gaps, 1),
                    "waits_most_for": most,
                    "waits_most_ns": row[largest],
                },
                hazard=said(
                    "What it waits most for is of all its waiting, shorter gaps included. A "
                    "gap that other requests fill costs nothing."
                ),
                remedy=remedy,
                where=where or Where(device=row["device"]),
                cost_ns=length,
            )
        )
    return tuple(found)


def host_between_steps(analysis: Analysis) -> Finding | None:
    """Between the calls of the steps the host (scheduler, guidance, callbacks) takes its time.
    Silent where clocks of devices are not aligned: where steps end is not known."""
    steps = analysis.steps
    if steps.is_empty() or _unaligned(analysis):
        return None
    between = int((steps["host_ns"] + steps["idle_ns"]).sum())
    duration = int(steps["duration_ns"].sum())
    device = _denoiser_device(analysis)
    if device is None:
        return None
    waits = _accelerators(analysis).filter(pl.col("device") == device)
    if len(waits):  # the host may run ahead: it costs only what its device waits
        between = min(between, int(waits["between_ns"].sum()))
    if share(between, duration) < _BETWEEN or share(between, total_ns(analysis)) < 2 * MATERIAL:
        return None
    longest, longest_ns = _longest_host_work(analysis)
    host_work = int(steps["host_ns"].sum())
    return Finding(
        rule="host_between_steps",
        title=said(
            "{share} of the steps' time lies between calls",
            share=as_percent(share(between, duration)),
        ),
        evidence={
            "between_ns": between,
            "between_share": share(between, duration),
            "host_work_ns": host_work,
            "not_recorded_ns": int(steps["idle_ns"].sum()),
            "longest_host_work": longest,
            "longest_host_work_ns": longest_ns,
        },
        hazard=said(
            "What is not recorded may be callbacks, progress bars or other threads. Part of "
            "the host work may be arithmetic that has to run somewhere."
        ),
        remedy=(KEEP_THERE if host_work >= between / 2 else FIND_OUT),
        where=Where(device=device),
        cost_ns=between,
    )


def scheduler_sync(analysis: Analysis) -> Finding | None:
    """The host waits for its device between the calls of most steps. Silent where clocks of devices
    are not aligned."""
    steps, waits = len(analysis.steps), _accelerators(analysis)
    if waits.is_empty() or _unaligned(analysis):
        return None
    often = pl.col("calls") > 1 + _SYNC_STEPS * steps  # what is in no step counts as one
    of_steps = pl.col("submodule").is_null() & often
    named = pl.col("layer").str.contains(_SYNC) | pl.col("op_types").str.contains(_SYNC)
    rows = analysis.operators.filter(of_steps & named).sort("wall_union_ns", descending=True)
    longest = waits.sort(pl.col("host_ns") + pl.col("between_ns")).row(-1, named=True)
    wait = longest["host_ns"] + longest["between_ns"]
    if rows.is_empty() or share(wait, longest["span_ns"]) < _SYNC_WAIT:
        return None
    return Finding(
        rule="scheduler_sync",
        title=said(
            "The host waits for {device} between the calls of most steps", device=longest["device"]
        ),
        evidence={
            "operation": rows["layer"][0],
            "waits": int(rows["commands"].sum()),
            "host_ns": int(rows["wall_union_ns"].sum()),
            "device_wait_ns": wait,
            "device_wait_share": share(wait, longest["span_ns"]),
        },
        hazard=said(
            "While the host waits it launches nothing, so the device stands still behind every "
            "wait. The wait itself is the device's work, not lost time."
        ),
        remedy=said(
            "Find what synchronizes (timesteps compared on the device, .item(), .cpu(), "
            "nonzero() in the scheduler or a callback) and keep those values on the host."
        ),
        where=Where(layer=rows["layer"][0], device=longest["device"]),
        cost_ns=longest["between_ns"],
    )


def transfers_exposed(analysis: Analysis) -> tuple[Finding, ...]:
    """A device waits for transfers that nothing hides."""
    total = total_ns(analysis)
    found = []
    for row in analysis.idle.to_dicts():
        wait, hidden = row["data_ns"], row["overlap"]
        if hidden is None or hidden >= _HIDDEN:
            continue
        if share(wait, row["span_ns"]) < _EXPOSED or share(wait, total) < MATERIAL:
            continue
        found.append(
            Finding(
                rule="transfers_exposed",
                title=said(
                    "{device} waits for transfers for {share} of its time",
                    device=row["device"],
                    share=as_percent(share(wait, row["span_ns"])),
                ),
                evidence={
                    "data_wait_ns": wait,
                    "data_wait_share": share(wait, row["span_ns"]),
                    "transfer_ns": row["transfer_ns"],
                    "hidden_share": hidden,
                },
                hazard=said(
                    "Transfers ahead of need take memory for a second buffer; from pageable "
                    "memory they do not overlap at all."
                ),
                remedy=said(
                    "Pin host memory and copy on a stream of its own ahead of need; keep "
                    "weights resident instead of offloading; leave tensors on the device "
                    "between submodules."
                ),
                where=Where(device=row["device"]),
                cost_ns=wait,
            )
        )
    return tuple(found)


def idle_device(analysis: Analysis) -> Finding | None:
    """One device works for most of the run, another one like it hardly ever. Silent where clocks of
    devices are not aligned: how long the run took is not known."""
    if _unaligned(analysis):
        return None
    wall = analysis.accounting.wall_ns or total_ns(analysis)
    used = {
        row["device"]: (share(row["calls_ns"], wall), row["calls_ns"])
        for row in analysis.devices.filter(pl.col("calls") > 0).to_dicts()
        if not _shares_cores(analysis.run.devices, row["device"])
    }
    if len(used) < 2:
        return None
    busiest, least = max(used, key=lambda n: used[n]), min(used, key=lambda n: used[n])
    alike = busiest.partition(":")[0] == least.partition(":")[0]
    if not alike or used[busiest][0] < _BUSY_DEVICE or used[least][0] > _IDLE_DEVICE:
        return None
    return Finding(
        rule="idle_device",
        title=said(
            "Calls on {least} take {share} of the run, those on {busiest} {share_2}",
            least=least,
            share=as_percent(used[least][0]),
            busiest=busiest,
            share_2=as_percent(used[busiest][0]),
        ),
        evidence={
            "devices": len(used),
            "idle_device_calls_ns": used[least][1],
            "idle_device_share": used[least][0],
            "busy_device": busiest,
            "busy_device_share": used[busiest][0],
        },
        hazard=said(
            "A placement that was chosen for memory is no mistake; work that is divided over "
            "devices pays for transfers."
        ),
        remedy=said(
            "Run the branches of guidance or several requests on both devices, or encode the "
            "next request there meanwhile; profile-sd3 predict compares placements."
        ),
        where=Where(device=least),
    )


def _accelerators(analysis: Analysis) -> pl.DataFrame:
    rows = analysis.idle if len(analysis.calls) else analysis.idle.clear()
    return rows.filter(pl.Series([is_accelerator(d) for d in rows["device"]], dtype=pl.Boolean))


def _unaligned(analysis: Analysis) -> bool:
    """Whether nothing relates the clock of some device to that of another."""
    return any(loss.kind == "unaligned_clock" for loss in analysis.losses)


def _launches(analysis: Analysis, device: str) -> dict[str, int]:
    """How many commands the device got, and how long one took."""
    rows = analysis.roofline_roles.filter(pl.col("device") == device)
    commands, busy = int(rows["commands"].sum()), int(rows["busy_ns"].sum())
    return {"commands": commands, "mean_command_ns": busy // commands} if commands else {}


def _longest_wait(analysis: Analysis, device: str) -> str | None:
    """The submodule in whose calls the device waited longest."""
    rows = (
        analysis.roofline_roles.filter(pl.col("device") == device)
        .drop_nulls("submodule")
        .group_by("submodule")
        .agg(pl.col("wait_ns").sum())
        .sort("wait_ns", "submodule")
    )
    return str(rows["submodule"][-1]) if len(rows) else None


def _longest_host_work(analysis: Analysis) -> tuple[str, int]:
    """What of no call the host spent most time on in at least half of the steps."""
    often = pl.col("calls") >= 0.5 * max(len(analysis.steps), 1)
    rows = analysis.operators.filter("host", pl.col("submodule").is_null(), often)
    rows = rows.sort("wall_union_ns")
    return (
        (str(rows["layer"][-1]), int(rows["wall_union_ns"][-1])) if len(rows) else (said("none"), 0)
    )


def _denoiser_device(analysis: Analysis) -> str | None:
    rows = analysis.calls.filter(pl.col("step") >= 0)
    return str(rows["device"][0]) if len(rows) else None


def _shares_cores(devices: Mapping[str, Mapping[str, object]], device: str) -> bool:
    known = devices.get(device)
    return isinstance(known, Mapping) and "shared with" in str(known.get("description", ""))
