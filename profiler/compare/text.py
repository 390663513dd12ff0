"""Comparison text: sentences about changes, and the JSON document of a diff.

`docs/json.md` describes every key of the JSON document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from profiler.analysis.table_text import Sentences, add_sentences, label, pattern, worded_note
from profiler.compare.compare import Compared, Comparison, Gate
from profiler.compare.tables import (
    ComparisonNote,
    DifferenceReason,
    Level,
    RunTrait,
    Side,
    Step,
    TreeNode,
    Verdict,
)
from profiler.text import Note, Said, counted, duration, joined, said
from profiler.trace.bootstrap import CONFIDENCE, RESAMPLES, SEED
from profiler.trace.documents import document_text, envelope

# --- What two sides did at one shape, as text: how fast, and by which kernels.


_NAME = 34  # characters of a kernel beside the other side's
_ENDS = 8  # last characters kept: kernels of a kind differ there
_SAME = 0.01  # relative difference of execution counts


def rates(row: Mapping[str, Any]) -> str | None:
    """Format the rates of both sides: `"617 → 466"`, in TFLOP/s; None if neither is known."""
    base, new = row["base_teraflops_per_s"], row["new_teraflops_per_s"]
    if base is None and new is None:
        return None
    return f"{_rate(base)} → {_rate(new)}"


def why(row: Mapping[str, Any]) -> Said | str:
    """Say how often it ran, if that differs, and by which kernels, or by the same one."""
    base, new = row["base_executions"], row["new_executions"]
    ran = ""
    if base and new is not None and abs(new - base) > _SAME * base:
        ran = said("{base} → {new} times, ", base=f"{base:,.4g}", new=f"{new:,.4g}")
    left, right = row["base_kernel"], row["new_kernel"]
    if left is None and right is None:
        return ran.rstrip(", ")
    if left == right:
        return said("{ran}same kernel: {name}", ran=ran, name=_short(left, 2 * _NAME))
    names = [
        said("no kernel's name") if name is None else _short(name, _NAME) for name in (left, right)
    ]
    return said("{ran}{left} → {right}", ran=ran, left=names[0], right=names[1])


def kernels_text(kernels: Sequence[str | None]) -> Said | str | None:
    """List each run's kernel, or say that all have the same; None if none is known."""
    if not any(kernels):
        return None
    first = kernels[0]
    if first is not None and len({*kernels}) == 1:
        return said("{ran}same kernel: {name}", ran="", name=_short(first, 2 * _NAME))
    return " → ".join("-" if one is None else _short(one, _NAME) for one in kernels)


def reason_text(note: Note) -> Said:
    """Return a reason (`codes.DifferenceReason`) as a sentence with shortened kernel names."""
    values = {
        name: _short(value, _NAME) if name.endswith("_kernel") and isinstance(value, str) else value
        for name, value in note.values.items()
    }
    return worded_note(Note.of(note.code, **values))


def _rate(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"


def _short(name: str, room: int) -> str:
    """Shorten a kernel's name in the middle, without common namespaces."""
    bare = name.replace("(anonymous namespace)::", "").replace("at::native::", "")
    if len(bare) <= room:
        return bare
    return f"{bare[: room - _ENDS - 1]}…{bare[-_ENDS:]}"


# --- A comparison as one JSON document; `docs/json.md` describes every key.


_FRAMES = ("tree", "waterfall", "shapes", "kernels", "nodes")
_METHOD: dict[str, Any] = {"confidence": CONFIDENCE, "resamples": RESAMPLES, "seed": SEED}


def diff_document(comparison: Comparison, gates: Sequence[Gate] = ()) -> dict[str, Any]:
    """The comparison as plain values: mappings, lists, text, numbers, booleans, None."""
    return {**_METHOD, **_found(comparison, gates)}


def columns_to_json(base: str, columns: Sequence[Compared]) -> str:
    """Return the comparisons with the `base` side as JSON text: of one new side the document of
    `diff`, of several a list by name. Ends with a newline and has no NaN, no Infinity."""
    found = [_found(each.comparison, each.gates) for each in columns]
    if len(columns) == 1:
        return document_text({**envelope("diff"), **_METHOD, **found[0]})
    named = [{"name": each.name, **own} for each, own in zip(columns, found, strict=True)]
    several = {"base": base, "comparisons": named}
    return document_text({**envelope("diffs"), **_METHOD, **several})


def _found(comparison: Comparison, gates: Sequence[Gate]) -> dict[str, Any]:
    return {
        "runs": comparison.runs.to_dicts(),
        "level": comparison.level.value,
        "corrected": [*comparison.corrected],
        "notes": [str(worded_note(note)) for note in comparison.notes],
        "note_codes": [note.as_json() for note in comparison.notes],
        "gates": [asdict(gate) for gate in gates],
        "metrics": comparison.metrics.to_dicts(),
        "reasons": [note.as_json() for note in comparison.reasons],
        **{name: getattr(comparison, name).to_dicts() for name in _FRAMES},
    }


# --- Sentences on how runs differ: changes, the whole comparison, its sides, its gates.


CALLED = (Verdict.SLOWER.value, Verdict.FASTER.value)
"""The verdicts of changes that exceed noise."""

_NO_BREAK = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
_NAMED = 3  # runs of a side that are named
_SETTINGS = 4  # differing settings that are named
_RATIO = 3.0  # larger changes are written as a factor


def headline(comparison: Comparison) -> str:
    """`"end to end within noise (2.10 s → 2.11 s); step +2.1 %, slower (68.4 ms → 69.8 ms)"`."""
    parts = []
    for metric, name in (("end_to_end", said("end to end")), ("denoise.step", said("step"))):
        rows = comparison.metrics.filter(pl.col("metric") == metric)
        for row in rows.iter_rows(named=True):
            if row["base_ns"] is None or row["new_ns"] is None:
                continue
            change = f" {change_text(row['change'])}," if row["change"] is not None else ""
            verdict = label(Verdict(row["verdict"]))
            times = {side.value: duration(row[f"{side}_ns"]) for side in Side}
            template = "{metric}{change} {verdict} ({base} → {new})"
            parts.append(said(template, metric=name, change=change, verdict=verdict, **times))
    if parts:
        return joined("; ", parts)
    called = comparison.metrics.filter(pl.col("verdict").is_in(CALLED))
    return said(
        "{differences} beyond noise in {metrics} metrics",
        differences=counted(len(called), "difference"),
        metrics=len(comparison.metrics),
    )


def side_text(comparison: Comparison, side: str) -> str:
    """Describe a side: `"1 run (20270115-080000), 1 pipeline call, 28 steps, 36 calls"`."""
    runs = comparison.runs.filter(pl.col("side") == side)
    named = ", ".join(runs["run_id"].head(_NAMED))
    left = len(runs) - _NAMED
    nouns = {"pipelines": "pipeline call", "steps": "step", "calls": "submodule call"}
    totals = {noun: int(runs[name].sum()) for name, noun in nouns.items()}
    counts = [counted(number, noun) for noun, number in totals.items() if number]
    more = said(" and {others} more", others=left) if left > 0 else ""
    known = {"runs": counted(len(runs), "run"), "named": named, "more": more}
    return said("{runs} ({named}{more}), {counts}", **known, counts=joined(", ", counts))


def settings_text(comparison: Comparison) -> Said | None:
    """List the settings that differ between the sides: `"resolution 384×384 → 256×256"`."""
    pairs = _settings_pairs(comparison)
    if not pairs:
        return None
    named, left = joined(", ", map(worded_note, pairs[:_SETTINGS])), len(pairs) - _SETTINGS
    return said("{named} and {others} more", named=named, others=left) if left > 0 else named


def notes_beside(comparison: Comparison) -> list[Note]:
    """The notes of a comparison except what `settings_text` already says in full."""
    few = len(_settings_pairs(comparison)) <= _SETTINGS
    return [
        note
        for note in comparison.notes
        if not (few and note.code is ComparisonNote.SETTINGS_DIFFER)
    ]


def _settings_pairs(comparison: Comparison) -> tuple[Note, ...]:
    for note in comparison.notes:
        if note.code is ComparisonNote.SETTINGS_DIFFER and isinstance(note.values["pairs"], tuple):
            return tuple(pair for pair in note.values["pairs"] if isinstance(pair, Note))
    return ()


def sample_text(comparison: Comparison) -> Said:
    """Name the unit of the times of modules, shapes and kernels: `"per step, else per pipeline
    call"`, where "else" is for work outside steps."""
    if int(comparison.runs["steps"].sum()):
        return said("per step, else per pipeline call")
    calls = int(comparison.runs["pipelines"].sum())
    return said("per pipeline call") if calls else said("per call")


def sample_line(comparison: Comparison) -> Said:
    """Say in a sentence what the tables' times are: medians or means, per step or per call."""
    return said(
        "roles and modules: medians {sample}; shapes, nodes and kernels: means",
        sample=sample_text(comparison),
    )


def gate_words(gate: Gate) -> str:
    """The result of a gate: `"FAILED"` or `"passed"`."""
    return "FAILED" if gate.failed else "passed"


def gate_text(gate: Gate) -> str:
    """`"denoise.step +7.2 % (+5.1 to +9.0 %), slower by more than +5.0 %"`."""
    found = interval_text(gate.low, gate.high, gate.change)
    text = f"{gate.metric} {change_text(gate.change)} ({found})"
    limit = change_text(gate.limit)
    if gate.failed:
        return f"{text}, slower by more than {limit}"
    if gate.change > gate.limit:
        return f"{text}, more than {limit} but {label(gate.verdict)}"
    return f"{text}, at most {limit}"


def row_name(row: Mapping[str, Any]) -> str:
    """The short name of a row: `transformer mlp blocks.*.ff`."""
    if row["role"] is None:
        return str(row["metric"])
    parts = (row["submodule"], row["role"], row["module"])
    return " ".join(str(part) for part in parts if part)


def change_text(change: float) -> str:
    """Format a change: `"+3.1 %"`; as a factor if it is large: `"4.20 times"`."""
    if change + 1 >= _RATIO:
        return f"{change + 1:,.2f}{_NO_BREAK}times"
    return f"{_signed(change)}{_NO_BREAK}%"


def difference_text(ns: int) -> str:
    """`"+1.29 ms"`."""
    return f"{'+' if ns > 0 else ''}{duration(ns)}"


def interval_text(low: float, high: float, change: float) -> str:
    """Format the interval of a change, in the change's unit."""
    if change + 1 >= _RATIO:
        return f"{low + 1:,.2f} to {high + 1:,.2f}{_NO_BREAK}times"
    return f"{_signed(low)} to {_signed(high)}{_NO_BREAK}%"


def _signed(change: float) -> str:
    text = f"{abs(change) * 100:,.1f}"
    return text if text == "0.0" else f"{'+' if change > 0 else _MINUS}{text}"


# --- Which rows of a comparison are shown together: the whole, modules, what one side lacks.


_WHOLE = ("end_to_end", "stage", "step", "submodule", "branch", "busy")
_PROMPTS = ("prompt", "negative_prompt")  # an encoder does the same for both
_DIGITS = 9  # of a number in a path
_NUMBER = re.compile(r"(?<![0-9A-Za-z])[0-9]+(?![0-9A-Za-z])", re.ASCII)


def of_whole() -> pl.Expr:
    """Select metrics of the whole, a stage, a submodule or a branch that does its own work."""
    of_prompt = pl.col("branch").is_in(_PROMPTS).fill_null(value=False)
    return pl.col("level").is_in(_WHOLE) & pl.col("step").is_null() & ~of_prompt


def largest(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by difference, largest first, with those beyond noise before all others."""
    order = (pl.col("verdict").is_in(CALLED), pl.col("difference_ns").abs())
    return rows.sort(order, descending=True, maintain_order=True)


def with_blocks_together(rows: pl.DataFrame, apart: pl.Expr | None = None) -> pl.DataFrame:
    """The rows of modules, with equal blocks merged except for the rows that stay `apart`."""
    together = rows.filter(pl.col("level") == "modules")
    single = rows.filter(pl.col("level") == "module")
    folded = single.with_columns(module=pattern(pl.col("module")))
    keys = ["submodule", "role", "module"]
    known = folded.join(together, on=keys, how="semi")["metric"].to_list()
    alone = ~pl.col("metric").is_in(known)
    return pl.concat([together, single.filter(alone if apart is None else alone | apart)])


def parts_of(metrics: pl.DataFrame, beyond_noise: pl.Expr) -> dict[str, pl.DataFrame]:
    """Single steps beyond noise, roles and modules, by the section that shows them."""
    return {
        "steps": metrics.filter(pl.col("step").is_not_null() & beyond_noise),
        "roles": metrics.filter(pl.col("level") == "role"),
        "modules": with_blocks_together(metrics),
    }


def only_in(metrics: pl.DataFrame, side: Side) -> pl.DataFrame:
    """Return what only one side has, longest first: `what` and `ns`. Modules of equal blocks are
    one row with their numbers in `blocks`; if the other side lacks a whole submodule, its parts are
    left out."""
    rows = metrics.filter((pl.col("verdict") == side.alone.value) & pl.col("step").is_null())
    for whole in ("submodule", "busy"):
        lacking = rows.filter(pl.col("level") == whole)["submodule"].to_list()
        inside = pl.col("submodule").is_in(lacking) & ~pl.col("level").is_in(("submodule", whole))
        rows = rows.filter(~inside.fill_null(value=False))
    folded = rows.with_columns(module=pattern(pl.col("module")))
    names = [row_name(row) for row in folded.iter_rows(named=True)]
    named = folded.with_columns(what=pl.Series(names, dtype=pl.String))
    sums = named.group_by("what", maintain_order=True).agg(ns=pl.col(f"{side}_ns").sum())
    blocks = _blocks(metrics, side)
    found = sums.with_columns(
        blocks=pl.Series([blocks.get(what) for what in sums["what"]], dtype=pl.String)
    )
    return found.sort("ns", descending=True, maintain_order=True)


def _blocks(metrics: pl.DataFrame, side: Side) -> dict[str, str]:
    """The numbers of equal blocks that only this side has, beside the other side's, by row name:
    `"4, 5; base 0 to 3"`."""
    rows = metrics.filter((pl.col("level") == "module") & pl.col("step").is_null())
    folded = rows.with_columns(path=pl.col("module"), module=pattern(pl.col("module")))
    paths: tuple[dict[str, list[list[int]]], dict[str, list[list[int]]]] = ({}, {})
    for row in folded.iter_rows(named=True):
        of_other = row["verdict"] != side.alone.value
        numbers = [int(number[-_DIGITS:]) for number in _NUMBER.findall(row["path"] or "")]
        if numbers:
            paths[of_other].setdefault(row_name(row), []).append(numbers)
    return {
        what: _distinguished(own, paths[1][what], side.other)
        for what, own in paths[0].items()
        if what in paths[1]
    }


def _distinguished(own: list[list[int]], others: list[list[int]], other: str) -> str:
    """List the block numbers of both sides, where their paths first differ."""
    places = zip(zip(*own, strict=False), zip(*others, strict=False), strict=False)
    columns = [({*mine}, {*theirs}) for mine, theirs in places]
    mine, theirs = next((pair for pair in columns if pair[0] - pair[1]), columns[0])
    return f"{_listed(mine)}; {other} {_listed(theirs)}"


def _listed(numbers: Iterable[int]) -> str:
    """`"0 to 3, 5"`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


# --- Sentences of codes whose own words do not suffice.


SENTENCES: Sentences = {
    Level: {Level.NODE: "ONNX node", Level.SORT: "kind of work"},
    Step: {Step.IDLE: "not executing", Step.BETWEEN: "between calls"},
    TreeNode: {TreeNode.IDLE: "not executing"},
    RunTrait: {RunTrait.CPU: "CPU"},
    DifferenceReason: {
        DifferenceReason.OTHER_KERNEL: "{what}{rates}: {time_ratio} times as long{at}, with "
        "another kernel ({base_kernel} → {new_kernel})",
        DifferenceReason.SAME_KERNEL: "{what}{rates}: {time_ratio} times as long{at}, with the "
        "same kernel ({base_kernel})",
        DifferenceReason.UNNAMED_KERNEL: "{what}{rates}: {time_ratio} times as long{at}",
        DifferenceReason.MORE_EXECUTIONS: "{what}{rates}: executed more often, {base_executions} → "
        "{new_executions} times",
        DifferenceReason.FEWER_EXECUTIONS: "{what}{rates}: executed less often, {base_executions} "
        "→ {new_executions} times",
        DifferenceReason.RATES: " ({base} → {new} TFLOP/s)",
        DifferenceReason.TOKENS: " at {tokens} tokens",
        DifferenceReason.KERNEL: "{what}: {time_ratio} times as long",
        DifferenceReason.MORE_GAPS: "{submodule}: more gaps, nothing executes for {new_ns} "
        "({base_ns} in the baseline)",
        DifferenceReason.FEWER_GAPS: "{submodule}: fewer gaps, nothing executes for {new_ns} "
        "({base_ns} in the baseline)",
        DifferenceReason.MORE_BETWEEN: "more time between calls: {base_ns} → {new_ns}",
        DifferenceReason.LESS_BETWEEN: "less time between calls: {base_ns} → {new_ns}",
    },
    ComparisonNote: {
        ComparisonNote.SAME_RUN: "{runs} is on both sides: a run that is compared with itself "
        "differs in nothing; give another",
        ComparisonNote.DAMAGED: "{run} ({side}) is a damaged recording ({damage}): do not compare "
        "its times",
        ComparisonNote.ONE_RUN_EACH: "one run a side: intervals know how its steps or pipeline "
        "calls scatter, not how runs do; record {fewest} or more of each side",
        ComparisonNote.ONE_RUN: "one {side} run: it is taken to scatter as the runs of the other "
        "side do",
        ComparisonNote.FEW_RUNS: "{runs} runs hardly tell noise from difference: record {fewest} "
        "or more a side",
        ComparisonNote.CORRECTED: "corrected to untraced calls: {submodules}",
        ComparisonNote.COST_WITHIN_NOISE: "as traced, for what tracing costs is within noise in "
        "some of the runs: {submodules}",
        ComparisonNote.TRACED_ON_ONE_SIDE: "operators were traced in {side} only, which makes its "
        "calls longer: {submodules}",
        ComparisonNote.AS_TRACED: "as traced, with what tracing operators cost on both sides: "
        "{submodules}",
        ComparisonNote.ASYNCHRONOUS: "calls of {submodules} return before their device is done in "
        "{side}: compare busy times and roles",
        ComparisonNote.OTHER_TRAIT: "not the same {what}: {left} → {right}",
        ComparisonNote.SHAPES_DIFFER: "shapes differ: {pairs}",
        ComparisonNote.OTHER_SPEED: "the device ran at another speed: {shapes} shapes that both "
        "ran with the same kernel take {time_ratio} times as long (median; {base_ns} → {new_ns} of "
        "a pipeline call)",
        ComparisonNote.OTHER_LOADING: "devices waited for the DataLoader in their longest gaps: "
        "{base_ns} → {new_ns} of a pipeline call",
        ComparisonNote.SETTINGS_DIFFER: "settings differ: {pairs}",
        ComparisonNote.VERSIONS_DIFFER: "versions differ: {pairs}",
        ComparisonNote.COMPARED_BY: "compared by {level}: {why}",
        ComparisonNote.COMPARED_BY_FINEST: "compared by {level}",
        ComparisonNote.NOT_IN: "no {level} in {side}",
        ComparisonNote.NEITHER: "no {level} on either side",
        ComparisonNote.NONE_IN_COMMON: "no {level} in common",
        ComparisonNote.FEW_IN_COMMON: "the same {level} in {base_share} of base and {new_share} of "
        "new",
        ComparisonNote.PAIRED: "{left} of base is compared with {right} of new",
        ComparisonNote.IN_ORDER: "no submodule is on both sides: {left} of base are compared with "
        "{right} of new, which are called in the same order",
        ComparisonNote.TOGETHER: "no submodule is on both sides: {left} of base together are "
        "compared with {right} of new together",
        ComparisonNote.CHANGED_VALUE: "{name} {left} → {right}",
    },
}
add_sentences(SENTENCES)
