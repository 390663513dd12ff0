"""The HTML page of two runs, and the report of two ONNX graphs.

    write_two_runs(comparison, Path("diff.html"), gates)
    print_report(Console(highlight=False), graphs_report(pair, top=15))

The page uses the scripts of the page of one run, without figures and their library: some
hundred kB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from profiler.analysis.document import (
    HOST,
    PAGE,
    ROLE_COLOURS,
    SURFACE,
    TOP,
    Fact,
    Part,
    Report,
    Section,
    Summary,
    submodule_colours,
)
from profiler.analysis.table_text import columns_of, pattern, renamed, table
from profiler.compare.align import aligned_calls
from profiler.compare.compare import Comparison, Gate
from profiler.compare.operations import GraphPair, by_place
from profiler.compare.report import two_runs_report, waterfall_steps
from profiler.compare.side_by_side import FIVE_RUNS, ONE_RUN, one_run_each
from profiler.compare.tables import PAIRED_CALLS, Step
from profiler.compare.text import difference_text, reason_text
from profiler.compare.tree import Timeline
from profiler.files import write_atomically
from profiler.report.charts.style import FONT
from profiler.report.html.library import (
    Top,
    contents,
    definitions,
    document,
    embedded,
    filled,
    modules,
    pairs,
    script_hash,
    script_of,
    style_sheet,
    template,
)
from profiler.report.html.page import Body, body_of
from profiler.report.html.tables import described, waterfall_html
from profiler.report.language import page_messages, spoken, titled
from profiler.run.columns import FLOAT64, INT64, LAYER, STRING, Column, col
from profiler.text import said, size

# --- The report of two ONNX graphs: nodes by type, role and layer, sizes, FLOPs.


_FLOPS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
_ITSELF = "(the model itself)"
_GRAPH_COLUMNS = (
    col("type", LAYER, "what the nodes are"),
    col("role", LAYER, "what they are for"),
    col("module", STRING, "their layer, that of equal blocks once", label="layer"),
    col("base_nodes", INT64, "nodes of base", label="base"),
    col("new_nodes", INT64, "nodes of new", label="new"),
    col("base_mflops", FLOAT64, "FLOPs of base", label="base MFLOPs", importance=2),
    col("new_mflops", FLOAT64, "FLOPs of new", label="new MFLOPs", importance=2),
    Column("changed", pl.List(STRING), "", "types whose number differs", label="nodes"),
)
_COUNTS = ("base_nodes", "new_nodes")


def graphs_report(pair: GraphPair, *, top: int = TOP) -> Report:
    """Report how two graphs differ, with `top` rows in each table except roles."""
    base, new = pair.base, pair.new
    facts = [
        Fact("base", base.path),
        Fact("new", new.path),
        Fact("FLOPs for", ", ".join(f"{name} {text}" for name, text in base.inputs.items())),
    ]
    if base.unknown or new.unknown:
        unknown = f"{base.unknown} nodes of base and {new.unknown} of new"
        facts.append(Fact("FLOPs unknown", f"{unknown}: no formula, or no shapes"))
    parts = tuple(part for part in _parts(pair, top) if part.shows_something)
    return Report(Summary(_headline(pair), facts=tuple(facts)), (Section("graphs", parts=parts),))


def _headline(pair: GraphPair) -> str:
    base, new = pair.base, pair.new
    return (
        f"{pair.submodule}: {len(base.nodes):,} → {len(new.nodes):,} nodes, "
        f"{size(base.file_bytes)} → {size(new.file_bytes)} on disk, "
        f"weights {size(base.weight_bytes)} → {size(new.weight_bytes)}, "
        f"{_flops(base.flops)} → {_flops(new.flops)}"
    )


def _flops(number: int) -> str:
    for prefix, factor in _FLOPS:
        if number >= factor:
            return f"{number / factor:.3g}\N{NO-BREAK SPACE}{prefix}FLOPs"
    return f"{number}\N{NO-BREAK SPACE}FLOPs"


def _parts(pair: GraphPair, top: int) -> Iterator[Part]:
    frames = pair.base.nodes, pair.new.nodes
    types = by_place(*frames, "type")
    differing = types.filter(pl.col("base_nodes") != pl.col("new_nodes"))
    title = f"Nodes by type, {len(differing)} of {len(types)} differ"
    yield _part(title, _most_different(differing), ("type", *_COUNTS), top)
    roles = _with_flops(by_place(*frames, "role"))
    other = roles.filter(pl.col("base_nodes") != pl.col("new_nodes"))
    title = f"Nodes by role, {len(other)} of {len(roles)} differ"
    columns = ("role", *_COUNTS, "base_mflops", "new_mflops")
    yield _part(title, _most_different(roles), columns, len(roles))
    yield _layers(*frames, top)


def _layers(base: pl.DataFrame, new: pl.DataFrame, top: int) -> Part:
    """The layers whose nodes differ, and how."""
    named = pl.when(pl.col("module") == "").then(pl.lit(_ITSELF)).otherwise(pl.col("module"))
    base, new = (side.with_columns(module=pattern(named)) for side in (base, new))
    layers = by_place(base, new, "module")
    changed = pl.Series([_changed(row) for row in layers.to_dicts()], dtype=pl.List(STRING))
    rows = layers.with_columns(changed=changed).filter(pl.col("changed").list.len() > 0)
    title = f"Layers, {len(rows)} of {len(layers)} differ"
    return _part(title, _most_different(rows), ("module", *_COUNTS, "changed"), top)


def _part(title: str, rows: pl.DataFrame, columns: tuple[str, ...], shown: int) -> Part:
    key = columns[0]
    return Part(
        title, table=table(f"nodes_by_{key}", key, columns, _GRAPH_COLUMNS, rows, shown=shown)
    )


def _with_flops(rows: pl.DataFrame) -> pl.DataFrame:
    sides = ("base", "new")
    return rows.with_columns(
        **{f"{side}_mflops": pl.col(f"{side}_flops").cast(FLOAT64) / 1e6 for side in sides}
    )


def _most_different(rows: pl.DataFrame) -> pl.DataFrame:
    apart = (pl.col("new_nodes") - pl.col("base_nodes")).abs()
    return rows.sort(apart, descending=True, maintain_order=True)


def _changed(row: Mapping[str, Any]) -> list[str]:
    """List the node types whose number differs, largest difference first: `"Softmax 4 → 0"`,
    `"MatMul 8 → 6"`."""
    base, new = (
        Counter({entry["type"]: entry["nodes"] for entry in row[f"{side}_types"] or ()})
        for side in ("base", "new")
    )
    names = sorted({*base, *new}, key=lambda name: (-abs(new[name] - base[name]), name))
    return [
        f"{name.rpartition('.')[2]} {base[name]} → {new[name]}"
        for name in names
        if base[name] != new[name]
    ]


# --- The timelines of two runs below each other, as JSON for the scripts.


_MOST = 4000  # calls per side in a page; above, it shows only the work
_PAIR_COLUMNS = (
    "submodule",
    "stage",
    renamed(PAIRED_CALLS, "step", kind="step"),
    renamed(PAIRED_CALLS, "base_ns", label="baseline"),
    renamed(PAIRED_CALLS, "new_ns", label="new"),
    renamed(PAIRED_CALLS, "difference_ns", label="difference"),
)


def timelines_json(base: Timeline, new: Timeline) -> dict[str, Any]:
    """Return calls and intervals of both sides by column, in ns from the start of each; names are
    indices of `names`. `at` of a call is its start when calls are aligned, `other` the aligned call
    of the other side, -1 for none."""
    pairs = aligned_calls(base, new)
    names: dict[str, int] = {}

    def coded(values: pl.Series) -> list[int]:
        return [-1 if name is None else names.setdefault(str(name), len(names)) for name in values]

    sides = []
    for timeline, own, other in ((base, "base", "new"), (new, "new", "base")):
        placed = pairs.drop_nulls(f"{own}_call").sort(f"{own}_call")
        held = len(timeline.calls) <= _MOST
        calls = timeline.calls if held else timeline.calls.clear()
        sides.append(
            {
                "run": timeline.run_id,
                "pipeline": timeline.pipeline,
                "span": timeline.span_ns,
                "calls": {
                    "start": calls["start_ns"].to_list(),
                    "duration": calls["elapsed_ns"].to_list(),
                    "step": calls["step"].to_list(),
                    "submodule": coded(calls["submodule"]),
                    "stage": coded(calls["stage"]),
                    "at": placed["at_ns"].to_list() if held else [],
                    "other": placed[f"{other}_call"].fill_null(-1).to_list() if held else [],
                },
                "stretches": {
                    "start": timeline.stretches["start_ns"].to_list(),
                    "duration": timeline.stretches["duration_ns"].to_list(),
                    "call": timeline.stretches["call"].to_list() if held else [],
                    "device": coded(timeline.stretches["device"]),
                    "role": coded(timeline.stretches["role"]),
                },
            }
        )
    ends = pairs.select(pl.col("at_ns") + pl.max_horizontal("base_ns", "new_ns")).to_series()
    return {
        "sides": sides,
        "names": [*names],
        "aligned": ends.max() or 0,
        "columns": described(columns_of(_PAIR_COLUMNS, PAIRED_CALLS)),
    }


# --- Two sides as one HTML file: self-contained, offline, safe to open whatever the traces say.


_SCRIPTS = modules("two_runs.js")
_STEPS = 9  # of the waterfall on the first screen


def write_two_runs(
    comparison: Comparison, path: Path, gates: Sequence[Gate] = (), language: str = "auto"
) -> None:
    """Write the page of a comparison to `path`. Raises OutputError if that is not possible."""
    page = two_runs_page(comparison, gates, language)
    write_atomically(path, page.encode("utf-8", "replace"), sync=True)


def two_runs_page(
    comparison: Comparison, gates: Sequence[Gate] = (), language: str = "auto"
) -> str:
    """The whole page as text; it opens in `language` (`en`, `ko`), with `auto` in its reader's."""
    report = two_runs_report(comparison, gates)
    body, sentence = body_of(report), report.summary.headline
    script = script_of(_SCRIPTS)
    page = filled(
        "two_runs.html",
        headline=spoken(sentence),
        sides=_sides(report),
        once=_once(comparison),
        dimmed=" once" if one_run_each(comparison) else "",
        verdicts=_verdicts(report.verdicts),
        waterfall=_waterfall(comparison),
        reasons=_reasons(comparison),
        sections=body.sections,
        data=embedded(_data(comparison, body, language)),
        script=script,
    )
    style = style_sheet("report.css", "first_screen.css", "two_runs.css")
    top = Top(
        contents([("summary", said("Summary")), *((one.key, one.title) for one in report.sections)])
    )
    return document(top, page, titled(sentence), style, [script_hash(script.encode())])


def _data(comparison: Comparison, body: Body, language: str) -> dict[str, Any]:
    """The data of the page's scripts as JSON values."""
    two = timelines_json(*comparison.timelines) if comparison.timelines else None
    names = comparison.metrics["submodule"].drop_nulls().unique().to_list()
    names += [name for side in comparison.timelines or () for name in side.calls["submodule"]]
    return {
        "palette": {
            "submodules": pairs(submodule_colours(names)),
            "roles": pairs(ROLE_COLOURS),
            "page": pairs(PAGE),
            **pairs({"surface": SURFACE, "host": HOST}),
        },
        "tables_shown": body.tables,
        "two": two,
        "timeline": {"span": max((side["span"] for side in two["sides"]), default=1) if two else 1},
        "font": FONT,
        "run": "two-runs",
        "messages": page_messages(map(template, _SCRIPTS), [body.tables, two]),
        "language": language,
    }


def _sides(report: Report) -> str:
    """What each side is made of."""
    rows = ((fact.label, fact.value) for fact in report.summary.facts)
    return f'<dl class="sides">{definitions(rows)}</dl>'


def _once(comparison: Comparison) -> str:
    """If each side is one run: a hint that noise is unknown, and how to record more; the rest of
    the first screen is dimmed."""
    if not one_run_each(comparison):
        return ""
    return f'<p class="hint-once">{spoken(ONE_RUN)} {spoken(FIVE_RUNS)}</p>'


def _verdicts(verdicts: Sequence[Fact]) -> str:
    """Return the results of the gates; a failed one stands out."""
    return "".join(
        f'<p class="notice{" drops" if fact.alert else ""}"><strong>{spoken(fact.label)}</strong> '
        f"{spoken(fact.value)}</p>"
        for fact in verdicts
    )


def _waterfall(comparison: Comparison) -> str:
    whole = comparison.waterfall.filter(pl.col("level") == Step.END_TO_END.value)
    if whole.is_empty():
        return f'<p class="help">{spoken(said("No end-to-end time is known on both sides."))}</p>'
    steps = waterfall_steps(comparison.waterfall, _STEPS)
    return waterfall_html(whole["base_ns"][0], whole["new_ns"][0], steps)


def _reasons(comparison: Comparison) -> str:
    """Return the largest differences with their causes, or why there are none."""
    if not comparison.reasons:
        compared = (comparison.shapes, comparison.kernels)
        shared = any(len(frame.drop_nulls("difference_ns")) for frame in compared)
        return f'<p class="help">{spoken(_NO_REASON if shared else _NOTHING_SHARED)}</p>'
    items = []
    for note in comparison.reasons:
        difference = int(str(note.values["difference_ns"]))
        style = "slower" if difference > 0 else "faster"
        items.append(
            f'<li><b class="{style}">{difference_text(difference)}</b>'
            f"<span>{spoken(reason_text(note))}</span></li>"
        )
    return f'<ul class="reasons">{"".join(items)}</ul>'


_NO_REASON = said("No shape, kernel or gap makes 2 % of the end-to-end time.")
_NOTHING_SHARED = said(
    "The sides have no shape and no kernel in common: the module tree says where they differ."
)
