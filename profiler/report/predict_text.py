"""A prediction in the terminal.

print_prediction(Console(highlight=False), prediction)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from profiler.analysis.prediction.placement import BestPlacement
from profiler.analysis.prediction.precision import precision
from profiler.analysis.prediction.result import Part, Prediction
from profiler.analysis.prediction.simulation import Simulation
from profiler.report.predict_document import PERCENTILES
from profiler.report.terminal.layout import Drawn, clean, percents, table, texts, times
from profiler.report.units import counted, duration, percent
from profiler.resampling import CONFIDENCE

__all__ = ["headline", "print_prediction"]

_NO_BREAK = "\N{NO-BREAK SPACE}"
_NO_STAGE = "outside"
_AS_PLACED, _BEST = "as placed", "best placement"


def print_prediction(console: Console, prediction: Prediction) -> None:
    """Print what was measured, what is predicted, its parts, and what it rests on."""
    _wrapped(console, headline(prediction), "bold")
    for line in _lines(prediction):
        _wrapped(console, line, "dim")
    total = Part("end to end", prediction.measured.ns, prediction.request.ns)
    for title, parts in (("stage", prediction.stages), ("submodule", prediction.submodules)):
        _section(console, f"By {title}", _parts(title, [*parts, total]), [len(parts)])
    shown = _shown(prediction)
    if shown:
        _section(console, *_simulated(shown))
        _section(console, "Devices", _devices(shown))
    if prediction.best is not None:
        _section(console, "Best placement found", _placement(prediction.best))
        _wrapped(console, _searched(prediction.best), "dim")
    for title, sentences in (
        ("What it assumes", prediction.assumes),
        ("What is not known", prediction.unknown),
    ):
        if sentences:
            console.print()
            console.print(Text(title, style="bold"))
        for sentence in sentences:
            _wrapped(console, f"- {sentence}", "")


def headline(prediction: Prediction) -> str:
    """`"1.76 s → 286 ms, 95 % interval 271 ms to 301 ms (4 steps, guidance off)"`."""
    before, request = prediction.measured.ns, prediction.request
    text = f"{duration(before)} → {duration(request.ns)}"
    if request.low is None or request.high is None:
        text += ", no interval"
    else:
        ends = f"{duration(request.low)} to {duration(request.high)}"
        text += f", {percent(CONFIDENCE)} interval {ends}"
    asked = ", ".join(_asked(prediction))
    return f"{text} ({asked or 'nothing changed'})"


def _asked(prediction: Prediction) -> Iterator[str]:
    """The scenario in words."""
    scenario = prediction.scenario
    if scenario.steps is not None:
        yield counted(scenario.steps, "step")
    if not scenario.guidance:
        yield "guidance off"
    if scenario.drop:
        yield f"without {', '.join(scenario.drop)}"
    for submodule, device in scenario.place.items():
        yield f"{submodule} on {device}"
    if scenario.precision is not None:
        yield precision(scenario.precision)
    if scenario.concurrency is not None:
        yield f"{counted(scenario.concurrency, 'request')} at once"


def _lines(prediction: Prediction) -> Iterator[str]:
    """What was measured, and what the interval is made of."""
    measured, request = prediction.measured, prediction.request
    count = len(measured.pipelines)
    calls = f"the mean of {count} pipeline calls" if count > 1 else "one pipeline call"
    line = f"measured {duration(measured.recorded_ns)} end to end, {calls} of {prediction.run_id}"
    line += f" with {counted(measured.steps, 'step')}"
    if measured.calibrated:
        line += f"; {duration(measured.ns)} without the cost of tracing"
    elif count > 1:
        line += f"; {duration(measured.low_ns)} to {duration(measured.high_ns)}"
    yield line
    if request.resampled:
        drawn = f"drawing from the measured {request.resampled}"
        yield f"the interval is that of a single request, by {drawn}"
    elif request.low is not None:
        yield "the interval has the bounds of what was estimated; nothing was measured twice"
    if prediction.too_large:
        yield (
            f"as placed: does not fit into memory, as {prediction.too_large}; its times are as if "
            "it did"
        )


def _parts(title: str, parts: Sequence[Part]) -> list[Drawn]:
    before, after = [round(p.before_ns) for p in parts], [round(p.after_ns) for p in parts]
    change = [p.after_ns / p.before_ns - 1 if p.before_ns else None for p in parts]
    return [
        texts(title, [p.name or _NO_STAGE for p in parts]),
        times("measured", before),
        times("predicted", after),
        percents("change", change, rank=1),
        percents("share", [_share(p.after_ns, parts[-1].after_ns) for p in parts], rank=2),
    ]


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _shown(prediction: Prediction) -> dict[str, Simulation]:
    """What was simulated, by the name of its placement."""
    best = prediction.best.simulation if prediction.best is not None else None
    both = {_AS_PLACED: prediction.simulation, _BEST: best}
    return {name: one for name, one in both.items() if one is not None}


def _simulated(shown: Mapping[str, Simulation]) -> tuple[str, list[Drawn]]:
    found = list(shown.values())
    title = f"{counted(found[0].concurrency, 'request')} at once, in order of the "
    return title + found[0].order, [
        texts("placement", list(shown)),
        Drawn("requests/s", tuple(f"{one.throughput:.3g}" for one in found)),
        Drawn(f"{100 * CONFIDENCE:.0f} % interval", tuple(_interval(one) for one in found)),
        *(times(f"p{p}", [one.latency(p) for one in found]) for p in PERCENTILES),
        texts("busiest", [one.bottleneck for one in found], rank=1),
    ]


def _interval(simulation: Simulation) -> str:
    """`"0.71 to 0.84"`, in requests/s; a dash where nothing was measured more than once."""
    if simulation.low is None or simulation.high is None:
        return "-"
    return f"{simulation.low:.3g} to {simulation.high:.3g}"


def _devices(shown: Mapping[str, Simulation]) -> list[Drawn]:
    """Of each device its utilization in each placement, and the wait for it as placed."""
    placed, best = shown.get(_AS_PLACED), shown.get(_BEST)
    names = list(dict.fromkeys(name for one in shown.values() for name in one.utilization))
    waits = (placed or shown[_BEST]).queue_wait_ns
    columns = [texts("device", names)]
    if placed is not None:
        columns.append(percents("utilized", [placed.utilization.get(name) for name in names]))
    columns.append(times("queue wait", [round(waits[n]) if n in waits else None for n in names]))
    if best is not None:
        columns.append(percents("best utilized", [best.utilization.get(name) for name in names]))
    return columns


def _placement(best: BestPlacement) -> list[Drawn]:
    return [
        texts("submodule", best.placement.keys()),
        texts("device", best.placement.values()),
    ]


def _searched(best: BestPlacement) -> str:
    what = f"of {counted(best.possible, 'placement')} {best.considered:,} were considered"
    if not best.exhaustive:
        return f"{what} and {best.simulated:,} simulated: not all"
    ruled_out = ", the others ruled out by a bound" if best.simulated < best.considered else ""
    return f"{what} and {best.simulated:,} simulated{ruled_out}: none is more than 1 % better"


def _section(
    console: Console, title: str, columns: list[Drawn], strong: Sequence[int] = ()
) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    console.print(table(columns, console.width, strong=strong))


def _wrapped(console: Console, line: str, style: str) -> None:
    for part in wrap(clean(line), console.width, subsequent_indent="  "):
        console.print(Text(part.replace(_NO_BREAK, " "), style=style))
