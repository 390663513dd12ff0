"""The module tree of the page: unfolding, searching, and choosing a module everywhere."""

from __future__ import annotations

import pytest

from tests.browser.report_page import chips, opened, page_of, values
from tests.runs import Command, make_call, make_info, make_run, make_span

pytestmark = pytest.mark.browser

_TREE = '[data-table="module_tree"]'


def _run():
    """Two steps of three equal blocks and one of another class, after an encoder whose modules are
    called like the transformer."""
    calls = [make_call(0, "text_encoder", 0, 100, stage="encode", device="cuda:0")]
    commands = [
        Command(0, "cuda:0", "stream 7", "compute", "transformer.fc", 10, 80, "aten::addmm")
    ]
    for step in range(2):
        begin = 200 + 1000 * step
        calls.append(
            make_call(step + 1, "transformer", begin, begin + 900, step=step, device="cuda:0")
        )
        for block in range(4):
            for number, (part, op_type) in enumerate((("attn", "aten::mm"), ("ff", "aten::add"))):
                layer = f"blocks.{block}.{part}"
                start = begin + 200 * block + 100 * number
                commands.append(
                    Command(
                        *(step + 1, "cuda:0", "stream 7", "compute", layer, start, 90, op_type),
                        step=step,
                    )
                )
    modules = {f"blocks.{number}": "Double" if number < 3 else "Single" for number in range(4)}
    info = make_info(
        pipeline="Pipe", submodules={"transformer": {"device": "cuda:0", "modules": modules}}
    )
    spans = [make_span("pipeline", "Pipe", 0, 2200), make_span("stage", "encode", 0, 200)]
    return make_run(calls, commands, [*spans, make_span("stage", "denoise", 200, 2200)], info=info)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return page_of(_run(), tmp_path_factory.mktemp("modules"))


@pytest.fixture
def report(chromium, path):
    with opened(chromium, path) as report:
        yield report
        assert report.said == []


def _labels(report):
    cells = report.page.locator(f"{_TREE} tbody td:first-child .node")
    return [text.strip() for text in cells.all_inner_texts()]


def _focused(report):
    return report.page.evaluate(
        """() => { const row = document.activeElement.closest("tr");
          return [row.querySelector(".node").textContent, row.getAttribute("aria-level"),
            row.getAttribute("aria-expanded")]; }"""
    )


def test_a_node_chooses_its_module_everywhere(report):
    """Three equal blocks of four: twelve commands match, and the operators shown are theirs."""
    report.page.locator(f"{_TREE} .node", has_text="3 × Double").click()
    assert chips(report) == ["submodule transformer", "module blocks.[0-2]"]
    flags = "report.choice.matches.commands.reduce((sum, flag) => sum + flag, 0)"
    assert report.page.evaluate(flags.replace("report.", "profileReport.")) == 12
    shown = values(report, "operators", "layer", "commands")
    assert {row["layer"].rpartition(".")[2] for row in shown} == {"attn", "ff"}
    assert sum(row["commands"] for row in shown) == 12
    assert "module=blocks.%5B0-2%5D" in report.page.url or "module=blocks.[0-2]" in report.page.url
    report.page.locator(f"{_TREE} .node", has_text="3 × Double").click()
    assert chips(report) == []


def test_the_tree_is_walked_by_keys(report):
    """Arrows unfold, fold and walk, as in a tree grid; Enter chooses, and the focus stays."""
    report.page.locator(f"{_TREE} button", has_text="Collapse all").click()
    assert _labels(report) == ["Pipe", "encode", "text_encoder", "denoise", "transformer"]
    report.page.locator(f"{_TREE} tbody tr").first.focus()
    report.page.keyboard.press("End")
    assert _focused(report) == ["transformer", "3", "false"]
    report.page.keyboard.press("ArrowRight")
    assert _focused(report) == ["transformer", "3", "true"]
    report.page.keyboard.press("ArrowRight")
    assert _focused(report)[:2] == ["3 × Double", "4"]
    report.page.keyboard.press("Enter")
    assert _focused(report)[0] == "3 × Double"
    selected = report.page.locator(f"{_TREE} tr[aria-selected=true] .node").all_inner_texts()
    assert selected == ["3 × Double"]
    report.page.keyboard.press("ArrowLeft")
    assert _focused(report)[0] == "transformer"
    assert report.page.locator(f"{_TREE} table").get_attribute("role") == "treegrid"


def test_search_shows_what_is_around(report):
    """What is found stands with the nodes that it lies in, whether these were open or not."""
    report.page.locator(f"{_TREE} input").fill("aten::add")
    found = _labels(report)
    assert found.count("aten::add") == 2
    assert {"transformer", "3 × Double", "ff"} <= {*found}
    assert "attn" not in found


def test_operators_of_a_submodule_are_its_own(report):
    """A finding leads to the operators of `transformer`, not to modules of that name elsewhere."""
    report.page.evaluate("profileReport.tables.operators.find('transformer', 'submodule')")
    shown = report.page.locator('[data-table="operators"] tbody tr').all_inner_texts()
    assert shown
    assert not any("text_encoder" in row for row in shown)
