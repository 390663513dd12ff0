"""What is said of the trace itself."""

from __future__ import annotations

from profiler.analysis.findings.codes import TimedBy
from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, number, texts
from profiler.text import counted, said
from profiler.trace.events import DropKind

__all__ = ["WORDS"]

_RECORD_A_REPLAY = said(
    "Record a replay: profile requests after the engine has captured its graphs."
)


def _incomplete_trace(found: Finding) -> Words:
    given = texts(found)
    where = {"kind": given["worst_kind"], "where": given["worst_in"]}
    if not DropKind(str(found.evidence["worst_kind"])).time_missing:
        return Words(
            title=said(
                "Part of the trace is doubtful or not broken down: {kind} in {where}", **where
            ),
            caveat=said("All sums include its time."),
            recommendation=said("Read the drops at the top of the report."),
        )
    return Words(
        title=said("The trace lacks part of what ran: {kind} in {where}", **where),
        caveat=said("Sums and shares cover what was recorded; idle time may be unrecorded work."),
        recommendation=said(
            "Read the drops at the top of the report. Copy truncated or missing files again. "
            "Where events were dropped, record again with fewer pipeline calls, or with the "
            "operators of fewer calls."
        ),
    )


def _graph_capture(found: Finding) -> Words:
    if "replays" in found.evidence:
        return Words(
            title=said(
                "Graphs were captured in this run: only their {replays} show what serving runs",
                replays=counted(round(number(found, "replays")), "replay"),
            ),
            caveat=said(
                "Calls that warm up for a capture have names of their own; the host's work for the "
                "capture lies between calls and counts in the time of stages and steps."
            ),
            recommendation=_RECORD_A_REPLAY,
        )
    return Words(
        title=said(
            "A graph capture was recorded, not serving: {wall} of the host building graphs",
            wall=texts(found)["wall_ns"],
        ),
        caveat=said(
            "During a capture, launches become nodes of a graph and run nothing: calls have host "
            "time and hardly any kernels. These are not the times of a replay."
        ),
        recommendation=_RECORD_A_REPLAY,
    )


def _tracing_overhead(found: Finding) -> Words:
    given = texts(found)
    if found.evidence.get("timed_by") == TimedBy.DEVICE:
        return _slower_host(given["overhead_share"])
    title = said(
        "Tracing took {share} of the run: do not trust operator times",
        share=given["overhead_share"],
    )
    if number(found, "overhead_share") >= 1:
        title = said(
            "The estimated cost of tracing exceeds the run itself: do not trust operator times"
        )
    return Words(
        title=title,
        caveat=said(
            "Each recorded operator costs about the same, so short ones look longer than they "
            "are, and a device may wait for a host that is busy recording."
        ),
        recommendation=said(
            "Trust the times of calls and steps more than those of operators. Trace fewer calls "
            "(--ops every:4), or leave some untraced (--measure-overhead) and compare the "
            "untraced column."
        ),
    )


def _slower_host(overhead: str) -> Words:
    """Of devices that time their kernels themselves."""
    return Words(
        title=said(
            "Recording operators took {share} of the time in calls: devices wait longer for the "
            "host than without it",
            share=overhead,
        ),
        caveat=said(
            "Each recorded operator costs the host about the same. Where it is late anyway, calls, "
            "steps and waiting are longer by that; times of kernels are their device's own."
        ),
        recommendation=said(
            "Trust the times of kernels, and of calls that the device bounds; of waiting for the "
            "host believe less. Trace fewer calls (--ops every:4), or leave some untraced "
            "(--measure-overhead) and compare the untraced column."
        ),
    )


def _unaccounted_time(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{share} of the run is in no stage, or in several", share=given["residual_share"]
        ),
        caveat=said(
            "Shares of stages are off by as much. The gaps may hold work of the pipeline that no "
            "hook sees."
        ),
        recommendation=said(
            "Look at the timeline between the stages. Give own submodules and host work to "
            "profile(submodules=…), or record overlapping pipeline calls one after the other."
        ),
    )


def _uncaptured_modules(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{share} of the modules' time is in no captured call: {names}",
            share=given["uncaptured_share"],
            names=given["uncaptured"],
        ),
        caveat=said(
            "That time counts as host work between the calls. It was measured in the first "
            "pipeline call and in those whose operators are traced."
        ),
        recommendation=said("Name what is missing with profiler.submodule(), and record again."),
    )


WORDS: RuleWords = {
    "graph_capture": _graph_capture,
    "incomplete_trace": _incomplete_trace,
    "tracing_overhead": _tracing_overhead,
    "unaccounted_time": _unaccounted_time,
    "uncaptured_modules": _uncaptured_modules,
}
