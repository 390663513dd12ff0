"""A comparison in the terminal, as Markdown and as JSON."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from profiler.compare import Compared, check_gate, columns_report
from profiler.compare.compare import Gate
from profiler.compare.report import comparison_report, two_runs_report
from profiler.compare.side_by_side import brief_report
from profiler.compare.tables import TABLES
from profiler.compare.text import diff_document, gate_text, headline
from profiler.files import json_text
from profiler.report import print_report
from profiler.report.files import markdown
from profiler.run.columns import column_item
from tests.analysis.comparison.small import BASE, SLOWER, compared, steps_run
from tests.runs import make_info


def _text(comparison, gates=(), width=140, **options):
    console = Console(width=width, record=True, file=io.StringIO())
    print_report(console, comparison_report(comparison, gates, **options))
    return console.export_text()


@pytest.fixture(scope="module")
def slower():
    return compared(steps_run(BASE), steps_run(SLOWER))


def test_the_headline_is_the_whole_and_the_step(slower):
    """Times before and after, and the verdict."""
    text = headline(slower).replace("\N{NO-BREAK SPACE}", " ")
    assert "step +22.2 %, slower (90 ns → 110 ns)" in text
    assert "end to end +10.9 %, measured once" in text


def test_sections(slower):
    """Times, roles and modules; the role that did not change stands below the one that did."""
    lines = [" ".join(line.split()) for line in _text(slower).splitlines()]
    assert any(line.startswith("denoise.step 90 ns 110 ns +22.2 %") for line in lines)
    mlp = next(i for i, line in enumerate(lines) if line.startswith("transformer mlp 70 ns 90 ns"))
    norm = next(i for i, line in enumerate(lines) if line.startswith("transformer norm 20 ns"))
    assert mlp < norm
    assert any(line.startswith("transformer mlp blocks.0.ff") for line in lines)
    assert any("one run a side" in line for line in lines)


def test_what_is_only_in_one_side():
    """Blocks that only the new run has are one row."""
    parts = (("blocks.1.ff.a", "mlp"), ("blocks.2.ff.a", "mlp"))
    base = (("blocks.0.ff.a", "mlp"), ("blocks.0.ff.b", "mlp"))
    found = compared(steps_run(BASE, parts=base), steps_run(BASE, parts=(base[0], parts[1])))
    lines = [" ".join(line.split()) for line in _text(found).splitlines()]
    at = lines.index("Only in new, by time")
    assert lines[at + 2].startswith("transformer mlp blocks.*.ff.a")


def test_which_blocks_each_side_has():
    """`blocks.*.ff` of both sides, and block 1 of the new run alone, are told apart."""
    two = (("blocks.0.ff", "mlp"), ("blocks.1.ff", "mlp"))
    base = (("blocks.0.ff", "mlp"), ("blocks.0.ff", "mlp"))
    lines = [
        " ".join(line.split())
        for line in _text(
            compared(steps_run(BASE, parts=base), steps_run(BASE, parts=two))
        ).splitlines()
    ]
    at = lines.index("Only in new, by time")
    assert lines[at + 1].startswith("what blocks time")
    assert lines[at + 2].startswith("transformer mlp blocks.*.ff 1; base 0")


def test_settings_that_differ_stand_beside_the_sides():
    """With other work times differ for no other reason: of five settings the first four are named
    in every form of the report, and the rest counted; the file's name is none."""
    values = {"width": (512, 256), "a": (1, 2), "b": (1, 2), "c": (1, 2), "d": (1, 2)}
    names = {"source": ("one.json", "other.json")}
    runs = [
        steps_run(steps, info=make_info(settings={k: v[at] for k, v in (values | names).items()}))
        for at, steps in enumerate((BASE, SLOWER))
    ]
    found = compared(*runs)
    expected = "width 512 → 256, a 1 → 2, b 1 → 2, c 1 → 2 and 1 more"
    columns = columns_report("main", [Compared("x", found), Compared("y", found)])
    for report, label in (
        (brief_report(found), "settings"),
        (two_runs_report(found), "settings"),
        (comparison_report(found), "settings"),
        (columns, "settings of x"),
    ):
        facts = {str(fact.label): str(fact.value) for fact in report.summary.facts}
        assert facts[label] == expected
    same = {str(fact.label) for fact in brief_report(compared(runs[0], runs[0])).summary.facts}
    assert same == {"base", "new"}


def test_a_run_against_itself_is_noted(slower):
    """It differs in nothing, which tells nothing."""
    run = steps_run(BASE)
    assert f"{run.run_id} is on both sides" in " ".join(_text(compared(run, run)).split())
    assert "is on both sides" not in " ".join(_text(slower).split())


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_fits_the_terminal(slower, width):
    """No line is wider than the terminal from 60 characters on."""
    text = _text(slower, width=width)
    assert max(map(len, text.splitlines())) <= max(width, 60)


def test_without_roles_and_modules(slower):
    """`--top 0` leaves the times."""
    text = _text(slower, top=0)
    assert "Roles" not in text
    assert "Times" in text


def test_gate_lines(slower):
    """Failed, passed, and passed because noise explains it."""
    failed, passed = (check_gate(slower, "denoise.step", limit) for limit in (0.05, 0.5))
    assert gate_text(failed).startswith("denoise.step +22.2")
    assert "slower by more than +5.0" in gate_text(failed)
    noise = Gate("denoise.step", 0.05, 0.08, -0.02, 0.15, "within noise", failed=False)
    assert "more than +5.0\N{NO-BREAK SPACE}% but within noise" in gate_text(noise)
    first, *others = _text(slower, [passed, failed]).splitlines()[-2:]
    assert first.startswith("passed: denoise.step +22.2")
    assert others[0].startswith("FAILED: denoise.step +22.2")


def test_markdown_has_tables_of_even_rows(slower):
    """Every row of a table has as many cells as its head; names are no markup."""
    text = markdown(comparison_report(slower, [check_gate(slower, "denoise.step", 0.05)]))
    assert text.startswith("**")
    assert "- FAILED: denoise.step" in text
    assert "blocks.0.ff" in text
    assert "### Roles, by difference" in text
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    for table in tables:
        assert len({line.count("|") for line in table.splitlines() if line[:1] == "|"}) == 1
    starred = markdown(comparison_report(compared(*[steps_run(BASE, parts=_two())] * 2)))
    assert r"blocks.\*.ff" in starred


def _two():
    return (("blocks.0.ff", "mlp"), ("blocks.1.ff", "mlp"))


def test_json_has_every_column(slower):
    """The document is plain JSON whose tables have the declared columns."""
    gates = [check_gate(slower, "denoise.step", 0.05)]
    document = json.loads(json_text(diff_document(slower, gates)))
    assert document["gates"][0]["failed"] is True
    assert document["level"] == "module"
    assert all(document[name] for name in ("runs", "metrics", "waterfall"))
    for name, columns in TABLES.items():
        for each in document[name]:
            assert [*each] == [column.name for column in columns]


def test_hostile_names_do_not_steer_the_terminal():
    """Control characters of layers and submodules go."""
    parts = (("blocks.0.\x1b[31mff", "mlp"), ("blocks.0.ff|", "mlp"))
    found = compared(*[steps_run(BASE, parts=parts)] * 2)
    assert "\x1b" not in _text(found)
    assert "\x1b" not in markdown(comparison_report(found))


def test_the_page_documents_every_column():
    """`docs/diff.md` has the columns as they are declared; those of several tables once, and their
    names in each."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "diff.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    for table, columns in TABLES.items():
        for column in columns:
            assert f"`{column.name}`" in sections[table]
            assert column_item(column) in page.splitlines()


def test_of_a_side_without_operators_one_row_is_shown():
    """Not every role and module of what only the other side traced."""
    untraced = steps_run(BASE, untraced=range(len(BASE)))
    lines = [
        " ".join(line.split()) for line in _text(compared(steps_run(BASE), untraced)).splitlines()
    ]
    at = lines.index("Only in base, by time")
    assert lines[at + 2].startswith("submodule.transformer.busy")
