"""The module tree as a section and as a figure: rows, widths, and names that stay text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import profiler
from profiler.analysis import ReportInput, extent, module_tree
from profiler.analysis.analyze import analyze
from profiler.analysis.module_tree import nodes_of
from profiler.errors import InputError
from profiler.report import build_report, table_json
from profiler.report.html.tables import icicle_json
from tests.report.hostile import HOSTILE, hostile_analysis, hostile_run
from tests.report.rendered import printed
from tests.runs import Command, make_call, make_run, make_span, tiny_run

_SAMPLES = Path(__file__).parents[2] / "sample_traces"


def _view(run):
    report = build_report(ReportInput(analyze(run), *extent(run)))
    (part,) = next(one for one in report.sections if one.key == "modules").parts
    return part.table


@pytest.mark.parametrize("name", ["icicle", "module_tree"])
def test_an_icicle_has_a_rectangle_for_each_node(name):
    """As wide as the node's time, below the one that it is in, with an id of its own."""
    analysis = analyze(tiny_run())
    (icicle,) = analysis.figure(name, theme="dark").data
    tree = analysis.module_tree
    assert list(icicle["values"]) == tree["elapsed_ns"].to_list()
    assert [int(one or -1) for one in icicle.parents] == tree["parent"].to_list()
    assert len({*icicle.ids}) == len(tree)


@pytest.mark.parametrize("sample", ["tiny_two_devices", "sd35_mi300x"])
def test_an_icicle_has_the_rectangles_of_the_page(sample):
    """Each rectangle that the page's icicle draws is one of the figure's, but for those of waiting:
    the same node, as wide, in the same parent."""
    analysis = profiler.analyze(_SAMPLES / sample)
    (figure,) = analysis.figure("icicle").data
    page = icicle_json(analysis)
    of_figure = dict(
        zip(figure.ids, zip(figure["values"], figure.parents, strict=True), strict=True)
    )
    kept = nodes_of(analysis, 600).filter(pl.col("elapsed_ns") > 0)
    ids = [str(node) for node in kept["node"]]
    kinds = page["codes"]["kind"]
    rows = [
        row for row, kind in enumerate(kinds) if kind not in ("waiting", "no_call", "no_operator")
    ]
    for node, row in zip(ids, rows, strict=True):
        wide, parent = of_figure[node]
        assert wide == page["values"]["elapsed_ns"][row]
        above = page["parent"][row]
        assert (ids[rows.index(above)] if above >= 0 else "") == parent


def test_there_is_no_figure_of_another_name():
    """Those that there are are named."""
    with pytest.raises(InputError, match=r"no figure 'none': there is .*icicle"):
        profiler.analyze(tiny_run()).figure("none")


def test_names_in_an_icicle_stay_text():
    """plotly reads HTML in labels."""
    (icicle,) = analyze(hostile_run()).figure("icicle").data
    texts = [*icicle.labels, *icicle.customdata]
    assert not any("<" in text.replace("<br>", "") for text in texts)


def test_a_page_gets_the_tree_and_paper_its_large_nodes():
    """Depth and name of every node for the page, without what its label says; indented rows of one
    per cent and more elsewhere."""
    view = _view(tiny_run())
    document = table_json(view)
    assert document["nested"] is True
    assert len(document["values"]["depth"]) == len(document["values"]["label"])
    assert document["values"]["depth"][:3] == [0, 1, 2]
    assert document["keys"] == {}
    assert (view.paper["share"] >= 0.01).all()
    indents = view.paper["label"].str.extract(r"^(\u00a0*)").str.len_chars()
    assert indents.to_list() == (2 * (view.paper["depth"] - 1)).to_list()
    assert "Module tree" in printed(analyze(tiny_run()), 120)


def test_the_longest_nodes_are_held_with_what_they_are_in():
    """A page that holds fewer nodes holds no node without its parent."""
    tree = analyze(tiny_run()).module_tree
    for held in range(1, len(tree) + 1):
        kept = module_tree.longest(tree, held)
        assert len(kept) == held
        assert {*kept["parent"]} - {-1} <= {*kept["node"]}
        assert (
            kept["elapsed_ns"].min()
            >= tree.filter(~pl.col("node").is_in(kept["node"].implode()))["elapsed_ns"].max()
            if held < len(tree)
            else True
        )


@pytest.mark.parametrize(("begin", "base"), [(0, "of the sum"), (100, "share")])
def test_shares_of_a_tree_longer_than_the_run_are_of_its_sum(begin, base):
    """Two calls of 100 ns on two devices: one after the other their shares are of the run, at once
    of 200 ns, twice the run, and the column says so."""
    calls = [
        make_call(n, name, at, at + 100, device=f"cuda:{n}")
        for n, (name, at) in enumerate((("a", 0), ("b", begin)))
    ]
    commands = [
        Command(0, "cuda:0", "s", "compute", "k", 0, 90, "k"),
        Command(1, "cuda:1", "s", "compute", "k", begin, 60, "k"),
    ]
    spans = [make_span("pipeline", "P", 0, begin + 100)]
    view = _view(make_run(calls, commands, [*spans, make_span("stage", "denoise", 0, begin + 100)]))
    (column,) = [one for one in view.columns if one.name == "share"]
    assert column.label == base
    held = dict(view.frame.select("label", "share").rows())
    assert (held["a"], held["b"]) == (100 / 200, 100 / 200)


@pytest.mark.parametrize(("unknown", "noted"), [(60, True), (2, False)])
def test_rates_say_of_what_time_they_are(unknown, noted):
    """A product of 65,536 FLOPs takes 100 ns: the rate of its submodule is of these, although the
    kernel beside it, of which nobody knows any, takes time, too."""
    work = (("aten::mm", 0, 100), ("own", 100, unknown))
    commands = [Command(0, "cuda:0", "s", "compute", *one, one[0]) for one in work]
    run = make_run([make_call(0, "t", 0, 200, device="cuda:0")], commands)
    shapes = pl.Series(["in: bfloat16[64,32] bfloat16[32,16]", None], dtype=pl.Categorical)
    run = replace(run, commands=run.commands.with_columns(shapes=shapes))
    report = build_report(ReportInput(analyze(run), *extent(run)))
    (part,) = next(one for one in report.sections if one.key == "modules").parts
    (row,) = part.table.frame.filter(pl.col("label") == "t").to_dicts()
    assert row["teraflops_per_s"] == pytest.approx(2 * 64 * 32 * 16 / 100 / 1e3)
    text = " ".join(part.notes).replace("\N{NO-BREAK SPACE}", " ")
    assert (f"of t 100 ns of {100 + unknown} ns." in text) == noted


def test_names_of_modules_are_text_in_the_page():
    """What a trace calls a module reaches the page as JSON alone."""
    view = next(
        part.table
        for section in build_report(ReportInput(hostile_analysis(), 0, 1)).sections
        for part in section.parts
        if part.table is not None and part.table.key == "module_tree"
    )
    assert any(name in HOSTILE for name in view.frame["label"])
