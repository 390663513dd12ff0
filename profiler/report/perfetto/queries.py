"""Ready SQL for the Perfetto UI: what is asked of a run first, in PerfettoSQL.

A call is a slice with arguments `call.…`, a command one with `command.…`; the track below a device
is a queue of it. Times of the UI are nanoseconds, these answers are in milliseconds.

The trace holds what was recorded: of a call when it was asked for and when it returned, not its
tile on the device's axis, which follows from all launches of the run. So answers about calls are
called the caller's; operators, tracks and gaps are of commands, which are on the device's axis.
What waits on a CPU is no operator.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MARK", "QUERIES", "Query"]

MARK = "-- profile-sd3: "
"""How each query begins, then its title: so that those of an older version are known again."""


@dataclass(frozen=True, slots=True)
class Query:
    """One ready query: its `title`, the `question` it answers, and its SQL without the title.
    `general` ones answer for traces of every producer."""

    title: str
    question: str
    sql: str
    general: bool = False

    @property
    def text(self) -> str:
        """The SQL as the UI shows it, its title ahead as a comment."""
        return f"{MARK}{self.title}\n{self.sql}"


_CALLS = """\
SELECT s.id, s.ts, s.dur,
       extract_arg(s.arg_set_id, 'call.submodule') AS submodule,
       extract_arg(s.arg_set_id, 'call.stage') AS stage,
       extract_arg(s.arg_set_id, 'call.branch') AS branch,
       extract_arg(s.arg_set_id, 'call.step') AS step,
       extract_arg(s.arg_set_id, 'call.device') AS device
FROM slice s JOIN track t ON t.id = s.track_id
WHERE t.name = 'Calls' AND extract_arg(s.arg_set_id, 'call.submodule') IS NOT NULL"""


def _of_calls(select: str) -> str:
    indented = _CALLS.replace("\n", "\n  ")
    return f"WITH calls AS (\n  {indented}\n)\n{select}"


QUERIES: tuple[Query, ...] = (
    Query(
        "submodules",
        "Calls of each submodule, how long their caller waited for them, and its share; "
        "of devices that work behind the host, analyze tells the time.",
        _of_calls(
            """\
SELECT submodule, stage, device, count(*) AS calls,
       round(sum(dur) / 1e6, 3) AS caller_ms,
       round(100.0 * sum(dur) / sum(sum(dur)) OVER (), 1) AS percent,
       round(min(dur) / 1e6, 3) AS min_ms, round(max(dur) / 1e6, 3) AS max_ms
FROM calls GROUP BY submodule, stage, device ORDER BY sum(dur) DESC"""
        ),
    ),
    Query(
        "steps",
        "How long callers waited for the submodules of each denoising step, how far from the mean; "
        "of devices that work behind the host, analyze tells the time.",
        _of_calls(
            """\
SELECT step, group_concat(DISTINCT submodule) AS submodules, count(*) AS calls,
       round(sum(dur) / 1e6, 3) AS caller_ms,
       round(100.0 * sum(dur) / avg(sum(dur)) OVER () - 100, 1) AS percent_from_mean
FROM calls WHERE stage = 'denoise' GROUP BY step ORDER BY step"""
        ),
    ),
    Query(
        "operators",
        "Which layers take the most time, over all calls and steps.",
        """\
SELECT extract_arg(s.arg_set_id, 'command.layer') AS layer,
       group_concat(DISTINCT extract_arg(s.arg_set_id, 'command.op_type')) AS op_types,
       count(*) AS commands, round(sum(s.dur) / 1e6, 3) AS ms,
       round(100.0 * sum(s.dur) / sum(sum(s.dur)) OVER (), 1) AS percent
FROM slice s JOIN track t ON t.id = s.track_id LEFT JOIN track d ON d.id = t.parent_id
WHERE s.dur >= 0 AND s.category != 'host'
  AND NOT (s.category = 'sync' AND d.name GLOB 'cpu*')
  AND extract_arg(s.arg_set_id, 'command.layer') IS NOT NULL
GROUP BY layer ORDER BY sum(s.dur) DESC LIMIT 100""",
    ),
    Query(
        "operation types",
        "Which kinds of operation take the time, on which device.",
        """\
SELECT d.name AS device, extract_arg(s.arg_set_id, 'command.op_type') AS op_type,
       count(*) AS commands, round(sum(s.dur) / 1e6, 3) AS ms,
       round(avg(s.dur) / 1e3, 1) AS mean_us, round(max(s.dur) / 1e3, 1) AS max_us
FROM slice s JOIN track t ON t.id = s.track_id JOIN track d ON d.id = t.parent_id
WHERE s.dur >= 0 AND s.category != 'host'
  AND NOT (s.category = 'sync' AND d.name GLOB 'cpu*')
  AND extract_arg(s.arg_set_id, 'command.op_type') IS NOT NULL
GROUP BY device, op_type ORDER BY sum(s.dur) DESC""",
    ),
    Query(
        "split operators",
        "Which layers run as several commands, and how evenly these share the work.",
        """\
SELECT extract_arg(s.arg_set_id, 'command.layer') AS layer,
       1 + max(extract_arg(s.arg_set_id, 'command.command_index')) AS commands_of_a_call,
       round(sum(s.dur) / 1e6, 3) AS ms, round(max(s.dur) / avg(s.dur), 2) AS longest_over_mean
FROM slice s JOIN track t ON t.id = s.track_id LEFT JOIN track d ON d.id = t.parent_id
WHERE s.dur >= 0 AND s.category != 'host'
  AND NOT (s.category = 'sync' AND d.name GLOB 'cpu*')
  AND extract_arg(s.arg_set_id, 'command.layer') IS NOT NULL
GROUP BY layer HAVING commands_of_a_call > 1 ORDER BY sum(s.dur) DESC LIMIT 100""",
    ),
    Query(
        "longest commands",
        "The single longest commands; in the timeline's own tab, an id leads to its slice.",
        """\
SELECT s.id, s.name AS layer, extract_arg(s.arg_set_id, 'command.op_type') AS op_type,
       d.name AS device, t.name AS track, round(s.dur / 1e6, 3) AS ms
FROM slice s JOIN track t ON t.id = s.track_id LEFT JOIN track d ON d.id = t.parent_id
WHERE extract_arg(s.arg_set_id, 'command.layer') IS NOT NULL
ORDER BY s.dur DESC LIMIT 50""",
    ),
    Query(
        "tracks",
        "What each track of each device did: slices, their time, and the longest.",
        """\
SELECT d.name AS device, t.name AS track, count(*) AS slices,
       round(sum(s.dur) / 1e6, 3) AS ms, round(max(s.dur) / 1e6, 3) AS longest_ms
FROM slice s JOIN track t ON t.id = s.track_id LEFT JOIN track d ON d.id = t.parent_id
WHERE s.depth = 0 AND s.dur >= 0 GROUP BY device, track ORDER BY sum(s.dur) DESC""",
        general=True,
    ),
    Query(
        "gaps",
        "The longest times in which a track did nothing between two of its commands.",
        """\
WITH ends AS (
  SELECT s.id, s.track_id, s.ts, s.name,
         max(s.ts + s.dur) OVER (
           PARTITION BY s.track_id ORDER BY s.ts, s.id
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS idle_since
  FROM slice s WHERE s.depth = 0 AND s.dur >= 0
)
SELECT e.id, d.name AS device, t.name AS track, e.name AS until,
       round((e.ts - e.idle_since) / 1e6, 3) AS idle_ms
FROM ends e JOIN track t ON t.id = e.track_id LEFT JOIN track d ON d.id = t.parent_id
WHERE e.ts > e.idle_since ORDER BY e.ts - e.idle_since DESC LIMIT 50""",
        general=True,
    ),
    Query(
        "flows",
        "Which tracks wait for which; the lag is from the source's end to the target's begin.",
        """\
SELECT a.name AS source, b.name AS target, count(*) AS flows,
       round(avg(y.ts - x.ts - x.dur) / 1e3, 1) AS mean_lag_us
FROM flow f JOIN slice x ON x.id = f.slice_out JOIN slice y ON y.id = f.slice_in
JOIN track a ON a.id = x.track_id JOIN track b ON b.id = y.track_id
GROUP BY source, target ORDER BY flows DESC""",
        general=True,
    ),
    Query(
        "counters",
        "The least, the mean and the peak of every counter.",
        """\
SELECT d.name AS device, t.name AS counter, count(*) AS samples,
       min(c.value) AS least, round(avg(c.value), 1) AS mean_of_samples, max(c.value) AS peak
FROM counter c JOIN track t ON t.id = c.track_id LEFT JOIN track d ON d.id = t.parent_id
GROUP BY device, counter ORDER BY device, counter""",
        general=True,
    ),
    Query(
        "drops",
        "What Perfetto could not read of the trace; no row is good news.",
        """\
SELECT name, severity, value, description FROM stats
WHERE severity IN ('error', 'data_loss') AND value > 0""",
        general=True,
    ),
)
