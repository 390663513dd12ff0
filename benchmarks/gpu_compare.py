"""What reports say of the H200's traces beside what its events said, as tables in Markdown.

    python benchmarks/gpu_compare.py [FOLDER]

FOLDER (tests/evidence/h200) holds traces of `gpu_record.py`, cut by `gpu_cut.py`, and `truth.json`
of `gpu_summary.py`. No GPU is needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
import msgspec

import profiler
from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.prediction.predict import predict
from profiler.prediction.scenario import Scenario
from tests.evidence.recorded import FOLDER, PREDICTED, SIZES, TIMED, by_events, predicted_size

RATES = {  # by what was timed alone: the trace and the label of its shape
    "attention_2x24x4429x64": ("sd35-eager", "attention B2 H24 S4429 D64 bf16"),
    "attention_2x24x4096x64": ("sd35-eager", "attention B2 H24 S4096 D64 bf16"),
    "attention_1x24x4608x128": ("flux-eager", "attention B1 H24 S4608 D128 bf16"),
    "linear_4608x3072x12288": ("flux-eager", "addmm 4608×3072×12288 bf16"),
}


def truth(folder: Path = FOLDER) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((folder / "truth.json").read_bytes())
    return found


def run_of(name: str, folder: Path = FOLDER) -> Any:
    """The run of a trace; a replay of graphs with the trace in which they were captured."""
    capture = folder / f"{name.removesuffix('graphs')}capture.json.gz"
    options = {"capture": capture} if name.endswith("-graphs") and capture.is_file() else {}
    return profiler.load(folder / f"{name}.json.gz", import_options=options)


def elapsed(name: str, folder: Path = FOLDER) -> Iterator[tuple[str, int, int, float, float]]:
    """By submodule: its calls here and by events, their elapsed time here and by events in ms."""
    model, stage = TIMED[name]
    calls = analyze(run_of(name, folder)).calls.to_pandas()
    ours = calls.groupby(calls["submodule"].astype(str))["elapsed_ns"].agg(["size", "sum"])
    marked: dict[str, list[float]] = {}
    for submodule, begin, end in truth(folder)[model][stage]["calls"]:
        marked.setdefault(submodule, []).append(end - begin)
    for submodule, times in marked.items():
        known = submodule in ours.index
        count, total = (int(ours["size"][submodule]), ours["sum"][submodule]) if known else (0, 0)
        yield submodule, count, len(times), total / 1e6, sum(times)


def predictions(
    name: str, folder: Path = FOLDER
) -> Iterator[tuple[str, float | str, float | str, list[float]]]:
    """By stage: predicted as recorded, and with what the run took untraced, in ms; what it took."""
    model = truth(folder)[TIMED[name][0]]
    run = run_of(name, folder)
    analysis = analyze(run)
    untraced = round(model["eager"]["span_ms"][1] * 1e6)
    for stage, asked in PREDICTED[name].items():
        found = []
        for more in ({}, {"untraced_ns": untraced}):
            try:
                found.append(predict(run, analysis, Scenario(**asked, **more)).request.ns / 1e6)
            except InputError as error:
                found.append(str(error)[:60])
        yield stage, found[0], found[1], model[stage]["span_ms"]


def sizes(folder: Path = FOLDER) -> Iterator[tuple[str, str, Any, dict[str, float], Any]]:
    """Trace and stage of another size: the prediction with the host as fast as it was then, what
    submodules took by events, and the request."""
    for (name, stage), size in SIZES.items():
        took = truth(folder)[TIMED[name][0]][stage]
        events = by_events(took)
        encoders = sum(ms for call, ms in events.items() if call.startswith("text"))
        run = run_of(name, folder)
        found = predicted_size(run, analyze(run), size, encoders)
        yield name, stage, found, events, took["span_ms"]


def rates(folder: Path = FOLDER) -> Iterator[tuple[str, str, float, float]]:
    """Trace and shape: TFLOP/s in the trace, and of the operation alone by events."""
    alone = truth(folder)["sd35"]["peaks"]
    for timed, (name, label) in RATES.items():
        shapes = analyze(run_of(name, folder)).shapes.to_pandas()
        row = shapes[shapes["label"].astype(str) == label].iloc[0]
        yield name, label, row["teraflops_per_s"], alone[timed]["tflops"]


def _table(*head: str) -> None:
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")


def _print_sizes(folder: Path) -> None:
    head = ("trace", "asked", "predicted, ms", "interval", "took, ms", "apart")
    _table(*head, "denoiser, ms", "decoder, ms")
    for name, stage, found, events, (low, middle, high) in sizes(folder):
        request = found.request
        parts = {part.name: part.after_ns / 1e6 for part in found.submodules}
        of = [f"{parts[one]:.1f} of {events[one]:.1f}" for one in ("transformer", "vae")]
        within = f"{request.low / 1e6:.0f} to {request.high / 1e6:.0f}"
        cells = (name, stage, f"{request.ns / 1e6:.1f}", within)
        apart = f"{request.ns / 1e6 / middle - 1:+.1%}"
        print(f"| {' | '.join(cells)} | {middle} ({low} to {high}) | {apart} | {' | '.join(of)} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder = parser.parse_args().folder
    _table("trace", "submodule", "calls", "elapsed, ms", "by events, ms", "apart")
    for name in TIMED:
        for submodule, count, marked, ours, events in elapsed(name, folder):
            apart = f"{ours / events - 1:+.1%}"
            cells = (name, submodule, f"{count} of {marked}", f"{ours:.2f}", f"{events:.2f}", apart)
            print(f"| {' | '.join(cells)} |")
    _table("trace", "asked", "as recorded, ms", "with --untraced, ms", "took, ms", "apart")
    for name in PREDICTED:
        for stage, recorded, untraced, took in predictions(name, folder):
            cells = [x if isinstance(x, str) else f"{x:.1f}" for x in (recorded, untraced)]
            apart = "" if isinstance(untraced, str) else f"{untraced / took[1] - 1:+.1%}"
            low, middle, high = took
            print(
                f"| {name} | {stage} | {' | '.join(cells)} | {middle} ({low} to {high}) | {apart} |"
            )
    _print_sizes(folder)
    _table(
        "machine", "level", "call, ms", "stated", "seen", "untraced by report, ms", "untraced, ms"
    )
    for one in truth(folder)["costs"]["stated"]:
        least, most = one["untraced_ms"]
        low, middle, high = one["without_ms"]
        cells = (one["machine"], one["level"], one["call_ms"], f"{one['stated']:.1%}")
        cells += (f"{one['seen']:.1%}", f"{least} to {most}", f"{middle} ({low} to {high})")
        print(f"| {' | '.join(map(str, cells))} |")
    _table("trace", "shape", "TFLOP/s in the trace", "alone, by events")
    for name, label, ours, events in rates(folder):
        print(f"| {name} | {label} | {ours:.0f} | {events:.0f} |")


if __name__ == "__main__":
    main()
