"""trace_processor gives the answers that the cases of tests/trace/conformance expect of us.

With PERFETTO_REFRESH=1 in the environment the answers are written there instead.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.browser.perfetto_ui import PerfettoUi
from tests.trace.conformance.cases import TEXTS, encoded

pytestmark = pytest.mark.browser

_QUERIES = {
    "slices": """
        select s.id, s.ts, s.dur, s.name, s.category, s.depth, s.parent_id, t.name as track_name,
               s.track_id, h.name as thread_name, h.tid,
               coalesce(p.name, q.name) as process_name, coalesce(p.pid, q.pid) as pid
        from slice s join track t on s.track_id = t.id
        left join thread_track tt on tt.id = t.id left join thread h on h.utid = tt.utid
        left join process p on p.upid = h.upid
        left join process_track pt on pt.id = t.id left join process q on q.upid = pt.upid
        order by s.id""",
    "args": """
        select s.id as slice_id, a.key, a.display_value as value
        from slice s join args a on a.arg_set_id = s.arg_set_id order by s.id, a.key""",
    "flows": "select slice_out, slice_in from flow order by slice_out, slice_in",
    "counters": """
        select c.ts, c.value, t.name as track_name from counter c join track t on c.track_id = t.id
        order by c.ts, t.id, c.id""",
    "stats": """
        select name, value from stats where severity in ('error', 'data_loss') and value > 0""",
}


def _as_text(answers: dict[str, list[dict[str, Any]]]) -> str:
    """A row a line."""
    lists = []
    for name, rows in answers.items():
        lines = [f"\n  {json.dumps(row, ensure_ascii=False)}" for row in rows]
        lists.append(f' "{name}": [{",".join(lines)}]')
    return "{\n" + ",\n".join(lists) + "\n}\n"


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_answers(perfetto: PerfettoUi, text: Path) -> None:
    """Slices, arguments, flows, counters and error statistics are those of `.expected.json`."""
    trace, expected = text.with_suffix(".pb"), text.with_suffix(".expected.json")
    refresh = os.environ.get("PERFETTO_REFRESH") == "1"
    if refresh:
        trace.write_bytes(encoded(text))
    answers = {name: perfetto.query(trace, sql) for name, sql in _QUERIES.items()}
    if refresh:
        expected.write_text(_as_text(answers), encoding="utf-8")
    assert answers == json.loads(expected.read_text(encoding="utf-8"))
