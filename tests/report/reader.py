"""Ten questions that somebody with thirty seconds has about a run, and what answers them.

`answers(analysis)` has for each question the words that must be read in what a report shows first:
40 lines of a terminal, the first screen of a page. They are made of the analysis alone.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping

import polars as pl

from profiler.analysis import Analysis, Bound, change, profiling_overhead
from profiler.analysis.flop_shapes import Family
from profiler.analysis.health import is_sound
from profiler.prediction.ladder import ladder_of_analysis
from profiler.prediction.ladder_section import outcome_text
from profiler.text import duration, percent
from profiler.trace.events import device_kind

__all__ = ["QUESTIONS", "answers", "in_columns", "plain", "words"]


def plain(text: str) -> str:
    """The text with single blanks, so that a line break or a unit makes no difference."""
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())


def in_columns(text: str) -> str:
    """The terminal's text with each action of the ladder before its outcome, as a reader of columns
    takes them, not line by line."""
    lines, found = text.splitlines(), list[str]()
    while lines:
        start = lines[0].find("  → ") + 2
        taken = [lines.pop(0)]
        if re.match(r" *\d+  ", taken[0]) and start > len(taken[0].split()[0]) + 4:
            while lines and lines[0].startswith("   "):
                taken.append(lines.pop(0))
            taken = [line[:start] for line in taken] + [line[start:] for line in taken]
        found += taken
    return "\n".join(found)


def words(text: str) -> str:
    """What HTML says, without its elements."""
    apart = re.sub(r"</(p|li|dt|dd|div|h2|summary|bdi)>", " ", text)
    return plain(html.unescape(re.sub(r"<[^>]+>", "", apart)))


def answers(analysis: Analysis) -> dict[str, tuple[str, ...]]:
    """What must be read for each question; nothing where the run cannot tell."""
    return {
        question: tuple(plain(text) for text in answer(analysis))
        for question, answer in QUESTIONS.items()
    }


def _how_long(analysis: Analysis) -> Iterator[str]:
    yield duration(analysis.accounting.end_to_end_ns)


def _which_submodule(analysis: Analysis) -> Iterator[str]:
    rows = analysis.submodules.sort("elapsed_ns", descending=True)
    yield rows["submodule"][0]


def _idle_and_why(analysis: Analysis) -> Iterator[str]:
    told = pl.col("launch_ns").gt(0) | pl.col("unknown_cause_ns").eq(0)
    waits = dict(analysis.idle.filter(told).select("device", "launch_ns").iter_rows())
    total = analysis.accounting.wall_ns or analysis.accounting.end_to_end_ns
    for device, share in analysis.devices.select("device", "idle_share").iter_rows():
        if share is not None:
            yield device
            yield f"busy {percent(1 - share)}, idle {percent(share)}"
            if device in waits:
                cause = "between operators" if device_kind(device) == "cpu" else "launch-bound"
                yield f"{cause} {percent(waits[device] / total)}"


def _largest_product(analysis: Analysis) -> Iterator[str]:
    products = analysis.shapes.filter(
        (pl.col("family") == Family.MATMUL) & pl.col("shapes").is_not_null()
    )
    if len(products):
        first = products.sort("total_ns", descending=True, maintain_order=True).row(0, named=True)
        yield first["label"]
        rate = "bandwidth_of_peak" if first["bound"] == Bound.MEMORY else "flops_of_peak"
        if first["bound"] in (Bound.MEMORY, Bound.COMPUTE) and first[rate] is not None:
            yield f"{first[rate] * 100:.1f}"


def _what_first(analysis: Analysis) -> Iterator[str]:
    ladder = ladder_of_analysis(analysis)
    if ladder is not None and ladder.rungs:
        first = ladder.rungs[0]
        yield plain(outcome_text(ladder, first.alone)).split(" → ")[0]
        yield plain(outcome_text(ladder, first.alone)).partition(" → ")[2]
        yield str(first.change.action)
        return
    gaining = [finding for finding in analysis.findings if finding.cost_ns]
    if gaining:
        yield duration(gaining[0].cost_ns or 0)
        yield change(gaining[0])


def _trust(analysis: Analysis) -> Iterator[str]:
    number = len(analysis.drops)
    if number or is_sound(analysis.inputs.run.info.health):
        kinds = [drop.kind for drop in analysis.drops]
        worst = sorted(kinds, key=lambda kind: not kind.has_missing_time)[:1]
        yield worst[0].value.replace("_", " ") if worst else "lost no events"
    fired = {finding.rule for finding in analysis.findings}
    if profiling_overhead.unaccounted_time.__name__ not in fired and analysis.accounting.possible:
        yield f"unaccounted {percent(analysis.accounting.residual_share)}"


def _on_what(analysis: Analysis) -> Iterator[str]:
    for name, device in analysis.run.devices.items():
        yield name
        yield device.hardware or ""


def _step(analysis: Analysis) -> Iterator[str]:
    if analysis.step_summary.count:
        median = duration(analysis.step_summary.median_ns)
        yield median if len(analysis.steps) == 1 else f"median {median}"


def _cost_of_tracing(analysis: Analysis) -> Iterator[str]:
    overhead = analysis.run.overhead
    yield "rofiling overhead"
    if overhead.share is None:
        yield "not "
    elif None in (overhead.untraced_low_ns, overhead.untraced_high_ns) or (
        overhead.untraced_high_ns - overhead.untraced_low_ns <= overhead.traced_ns / 10
    ):
        yield percent(overhead.share)
    else:  # one figure would say more than is known
        low = 1 - overhead.untraced_high_ns / overhead.traced_ns
        high = 1 - overhead.untraced_low_ns / overhead.traced_ns
        yield f"{percent(low)} to {percent(high)}" if low > 0 else f"up to {percent(high)}"


def _how_to_go_on(_analysis: Analysis) -> Iterator[str]:
    yield from ("--full", "--section ", "--list-sections")


QUESTIONS: Mapping[str, Callable[[Analysis], Iterator[str]]] = {
    "How long did it take?": _how_long,
    "Which submodule took it?": _which_submodule,
    "Is the device idle, and why?": _idle_and_why,
    "What is the largest matrix product, and how good is it?": _largest_product,
    "What do I do first, and what do I gain?": _what_first,
    "Can I trust it?": _trust,
    "On what did it run?": _on_what,
    "How long is a step?": _step,
    "What did tracing cost?": _cost_of_tracing,
    "How do I go on?": _how_to_go_on,
}
