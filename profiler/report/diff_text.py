"""A comparison in the terminal and as Markdown.

    print_diff(Console(highlight=False), comparison, gates, top=15)

Both show the same: what was compared, metrics from the whole to single modules, and what is only
in one side. Differences that exceed noise are bold in the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

import polars as pl
from rich.console import Console
from rich.text import Text

from profiler.analysis.comparison.codes import Resampled, Side, Verdict
from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.comparison.gate import Gate
from profiler.messages import joined, said
from profiler.report.patterns import pattern
from profiler.report.sentences.worded import label, labels, worded
from profiler.report.terminal.layout import Drawn, clean, table, texts
from profiler.report.units import counted, duration, of_all
from profiler.resampling import CONFIDENCE

__all__ = [
    "CALLED",
    "change_text",
    "escaped",
    "gate_line",
    "headline",
    "markdown",
    "of_whole",
    "print_diff",
    "row_name",
    "side_line",
    "with_blocks_together",
]

_NO_BREAK = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
_WHOLE = ("end_to_end", "stage", "step", "submodule", "branch", "busy")
CALLED = (Verdict.SLOWER.value, Verdict.FASTER.value)
_PROMPTS = ("prompt", "negative_prompt")  # an encoder does the same for both
_NAMED = 3  # runs of a side that are named
_RATIO = 3.0  # from here on a change reads better as a factor
_SPECIAL = re.compile(r"([\\`*_|<>\[\]&~$#])")
_LINKED = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)  # GitHub makes links of these
_LINE_BEGIN = re.compile(r"^(\s*[0-9]*)([-+.)=])(?=\s|=|$)")  # of a list, a heading
_NOBODY = "@<!-- -->"  # GitHub would tell whoever is called so
_DIGITS = 9  # of a number in a path
_NUMBER = re.compile(r"(?<![0-9A-Za-z])[0-9]+(?![0-9A-Za-z])", re.ASCII)
_Section = tuple[str, list[Drawn], list[int]]  # title, columns, rows that exceed noise


def print_diff(
    console: Console, comparison: Comparison, gates: Sequence[Gate] = (), *, top: int = 15
) -> None:
    """Print the comparison, the `top` roles and modules, and the gates."""
    for line in wrap(clean(headline(comparison)), console.width):
        console.print(Text(line.replace(_NO_BREAK, " "), style="bold"))
    for line in _lines(comparison):
        for part in wrap(clean(line), console.width, subsequent_indent="  "):
            console.print(Text(part.replace(_NO_BREAK, " "), style="dim"))
    for title, columns, called in _sections(comparison, top):
        console.print()
        console.print(Text(title, style="bold"))
        console.print(table(columns, console.width, strong=called))
    if gates:
        console.print()
    for gate in gates:
        style = "bold red" if gate.failed else ""
        console.print(Text(clean(gate_line(gate)).replace(_NO_BREAK, " "), style=style))


def markdown(comparison: Comparison, gates: Sequence[Gate] = (), *, top: int = 15) -> str:
    """The same as Markdown with tables, for a pull request; ends with a newline."""
    lines = [f"**{escaped(headline(comparison))}**", ""]
    lines += [f"- {escaped(gate_line(gate))}" for gate in gates]
    lines += [f"- {escaped(line)}" for line in _lines(comparison)]
    for title, columns, _ in _sections(comparison, top):
        rule = (("---:" if column.right else "---") for column in columns)
        rows = zip(*(column.cells for column in columns), strict=True)
        lines += ["", f"### {escaped(title)}", "", _row(column.header for column in columns)]
        lines += ["|" + "|".join(rule) + "|", *map(_row, rows)]
    return "\n".join(lines).replace(_NO_BREAK, " ") + "\n"


def _row(cells: Iterator[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"


def escaped(text: str) -> str:
    """Text for a cell or a line of Markdown: no markup, link or mention of anybody's."""
    plain = _LINKED.sub(r"\\", _SPECIAL.sub(r"\\\1", clean(text)))
    return _LINE_BEGIN.sub(r"\1\\\2", plain).replace("@", _NOBODY)


def headline(comparison: Comparison) -> str:
    """`"denoise.step 2.1 % slower (68.4 ms → 69.8 ms), end_to_end within noise"`."""
    parts = []
    for name in ("end_to_end", "denoise.step"):
        rows = comparison.metrics.filter(pl.col("metric") == name)
        for row in rows.iter_rows(named=True):
            if row["base_ns"] is None or row["new_ns"] is None:
                continue
            change = f" {change_text(row['change'])}," if row["change"] is not None else ""
            part = said(
                "{metric}{change} {verdict} ({base} → {new})",
                metric=name,
                change=change,
                verdict=label(Verdict(row["verdict"])),
                base=duration(row["base_ns"]),
                new=duration(row["new_ns"]),
            )
            parts.append(part)
    if parts:
        return joined("; ", parts)
    called = comparison.metrics.filter(pl.col("verdict").is_in(CALLED))
    return said(
        "{differences} beyond noise in {metrics} metrics",
        differences=counted(len(called), "difference"),
        metrics=len(comparison.metrics),
    )


def gate_line(gate: Gate) -> str:
    """`"FAILED: denoise.step +7.2 % (+5.1 to +9.0 %), more than +5.0 %"`."""
    found = f"{gate.metric} {change_text(gate.change)} ({_range(gate.low, gate.high, gate.change)})"
    limit = change_text(gate.limit)
    if gate.failed:
        return f"FAILED: {found}, slower by more than {limit}"
    if gate.change > gate.limit:
        return f"passed: {found}, more than {limit} but {label(gate.verdict)}"
    return f"passed: {found}, at most {limit}"


def _lines(comparison: Comparison) -> Iterator[str]:
    """What was compared."""
    for side in Side:
        yield f"{side}: {side_line(comparison, side)}"
    yield from map(worded, comparison.notes)


def side_line(comparison: Comparison, side: str) -> str:
    """What a side is made of: `"1 run (20270115-080000), 1 pipeline call, 28 steps, 36 calls"`."""
    runs = comparison.runs.filter(pl.col("side") == side)
    named = ", ".join(runs["run_id"].head(_NAMED))
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    pipelines, steps, calls = (int(runs[n].sum()) for n in ("pipelines", "steps", "calls"))
    return (
        f"{counted(len(runs), 'run')} ({named}{more}), {counted(pipelines, 'pipeline call')}, "
        f"{counted(steps, 'step')}, {counted(calls, 'call')}"
    )


def _sections(comparison: Comparison, top: int) -> Iterator[_Section]:
    metrics = comparison.metrics
    both = metrics.filter(~pl.col("verdict").is_in([side.alone.value for side in Side]))
    whole = both.filter(of_whole())
    if len(whole):
        yield _section(f"Times, and {CONFIDENCE:.0%} intervals of the change", whole, "metric")
    steps = both.filter(pl.col("step").is_not_null() & pl.col("verdict").is_in(CALLED))
    roles = both.filter(pl.col("level") == "role")
    for noun, rows in (
        ("Single steps beyond noise", steps),
        ("Roles", roles),
        ("Modules", with_blocks_together(both)),
    ):
        shown = _largest(rows, top)
        if len(shown):
            yield _section(f"{noun}, {of_all(len(shown), len(rows))} by difference", shown, "what")
    for side in Side:
        rows = _alone(metrics, side)
        shown = rows.sort("ns", descending=True, maintain_order=True).head(top)
        if len(shown):
            yield (
                f"Only in {side}, {of_all(len(shown), len(rows))} by time",
                _alone_columns(shown),
                [],
            )


def of_whole() -> pl.Expr:
    """Whether a metric is of the whole, a stage, a submodule or a branch that does its own work."""
    of_prompt = pl.col("branch").is_in(_PROMPTS).fill_null(value=False)
    return pl.col("level").is_in(_WHOLE) & pl.col("step").is_null() & ~of_prompt


def _largest(rows: pl.DataFrame, top: int) -> pl.DataFrame:
    """The rows that differ most, those beyond noise first."""
    order = (pl.col("verdict").is_in(CALLED), pl.col("difference_ns").abs())
    return rows.sort(order, descending=True, maintain_order=True).head(top)


def with_blocks_together(both: pl.DataFrame) -> pl.DataFrame:
    """Modules, those of equal blocks taken together where they are."""
    together = both.filter(pl.col("level") == "modules")
    single = both.filter(pl.col("level") == "module")
    folded = single.with_columns(module=pattern(pl.col("module")))
    keys = ["submodule", "role", "module"]
    known = folded.join(together, on=keys, how="semi")["metric"]
    return pl.concat([together, single.filter(~pl.col("metric").is_in(known.to_list()))])


def _alone(metrics: pl.DataFrame, side: Side) -> pl.DataFrame:
    """What only one side has: `what` and `ns`, modules of equal blocks as one, and of what
    the other side lacks as a whole nothing but itself."""
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
    return sums.with_columns(
        blocks=pl.Series([blocks.get(what, "") for what in sums["what"]], dtype=pl.String)
    )


def _alone_columns(rows: pl.DataFrame) -> list[Drawn]:
    found = [texts("what", rows["what"], shrink=30)]
    if (rows["blocks"] != "").any():
        found.append(texts("blocks", rows["blocks"]))
    return [*found, _times("time", rows["ns"])]


def _blocks(metrics: pl.DataFrame, side: Side) -> dict[str, str]:
    """By what they are of, which equal blocks only one side has where the other has some, too:
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
        what: _told_apart(own, paths[1][what], side.other)
        for what, own in paths[0].items()
        if what in paths[1]
    }


def _told_apart(own: list[list[int]], others: list[list[int]], other: str) -> str:
    """The numbers at the place in the paths where they differ."""
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


def row_name(row: dict[str, object]) -> str:
    """What a row is of, shorter than its metric: `transformer mlp blocks.*.ff`."""
    if row["role"] is None:
        return str(row["metric"])
    parts = (row["submodule"], row["role"], row["module"])
    return " ".join(str(part) for part in parts if part)


def _section(title: str, rows: pl.DataFrame, name: str) -> _Section:
    named = rows["metric"] if name == "metric" else map(row_name, rows.iter_rows(named=True))
    ranges = [
        "-" if low is None else _range(low, high, change)
        for low, high, change in rows.select("low", "high", "change").iter_rows()
    ]
    counts = [
        "-" if unit is None else f"{base} and {new} {label(Resampled(unit))}"
        for unit, base, new in rows.select("resampled", "base_count", "new_count").iter_rows()
    ]
    changes = ["-" if change is None else change_text(change) for change in rows["change"]]
    called = [at for at, verdict in enumerate(rows["verdict"]) if verdict in CALLED]
    columns = [
        texts(name if name == "metric" else "what", named, shrink=30),
        _times("base", rows["base_ns"]),
        _times("new", rows["new_ns"]),
        Drawn("change", tuple(changes)),
        Drawn("interval", tuple(ranges), rank=2),
        texts("verdict", labels(rows["verdict"], Verdict)),
        texts("resampled", counts, rank=3),
        texts("calls", rows["calls"], rank=4),
    ]
    return title, columns, called


def _times(header: str, values: pl.Series) -> Drawn:
    """Times, each in its own unit."""
    cells = ("-" if ns is None else duration(ns).replace(_NO_BREAK, " ") for ns in values)
    return Drawn(header, tuple(cells))


def change_text(change: float) -> str:
    """`"+3.1 %"`; a factor where it is large: `"4.20 times"`."""
    if change + 1 >= _RATIO:
        return f"{change + 1:,.2f}{_NO_BREAK}times"
    return f"{_signed(change)}{_NO_BREAK}%"


def _range(low: float, high: float, change: float) -> str:
    """The interval of a change, in its unit."""
    if change + 1 >= _RATIO:
        return f"{low + 1:,.2f} to {high + 1:,.2f}{_NO_BREAK}times"
    return f"{_signed(low)} to {_signed(high)}{_NO_BREAK}%"


def _signed(change: float) -> str:
    text = f"{abs(change) * 100:,.1f}"
    return text if text == "0.0" else f"{'+' if change > 0 else _MINUS}{text}"
