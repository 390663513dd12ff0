"""Whether programs as users write them are recorded as they are, at the price that is stated.

    python benchmarks/programs.py [--rounds 3] [--processor] [--ops all] [--folder F] [NAME ...]

Each program of `tests/programs` runs as a process of its own, without us and with us (`--ops`), in
turn. Outputs are equal if the exit code and what it prints are (but of programs that print times or
sizes). Calls and labels are held against `PROGRAMS`, what each program's text leads one to expect.
What its calls took is what the program sees: a stop watch around the calls that `PROGRAMS` names,
from the call to its return, first use included; with `--processor`, for busy machines, in its
thread's processor time. The true share is 1 - untraced / traced of a round; the stated interval
holds it or not. What is printed is a table in Markdown, of which docs/capture.md has the sum.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import checkout

from profiler.run.load import load_bundle
from profiler.trace import MERGED_NAME
from profiler.trace.bundle import WORK_NAME, merge_bundle
from tests.capture.switched_on import Ended, Environment, drops, labels

WATCH = """
import atexit, sys, time
_watched = [0]
def _end(begin, result):
    _watched[0] += time.{clock}() - begin
    return result
atexit.register(lambda: print("watched", _watched[0], file=sys.stderr))
"""
RANKS = """
import runpy, sys
sys.argv = ["run", "--standalone", "--nproc-per-node", "2", "program.py"]
runpy.run_module("torch.distributed.run", run_name="__main__")
"""


@dataclass(frozen=True)
class Program:
    """What a program calls, `calls` by label, and the functions by which it does; `prints` False if
    what it prints differs from run to run."""

    calls: str
    watched: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    prints: bool = True
    launcher: str = ""
    needs: str = ""


PROGRAMS = {
    "first_call": Program("1 net run", ("net",)),
    "first_pipe": Program("2 unet denoise cond", ("pipe",), prints=False),
    "hand_written_loop": Program(
        "1 text_encoder encode prompt, 1 text_encoder encode negative_prompt, "
        "5 unet denoise batched, 1 vae decode",
        ("text_encoder", "unet", "vae.decode"),
    ),
    "in_a_thread": Program("2 net run", ("net",)),
    "killed_while_it_runs": Program("3 work"),
    "many_calls": Program(
        "60 text_encoder encode prompt, 180 transformer denoise cond, 60 vae encode",
        ("pipe",),
        ("40", "20"),
        prints=False,
    ),
    "own_profiler_schedule": Program("9 net run", ("net",)),
    "pool_workers": Program("7 encoder", ("session.run",)),
    "rank_with_helper": Program("4 encoder", ("session.run",)),
    "refused_run": Program("2 encoder", ("session.run",)),
    "two_pipelines": Program(
        "7 unet denoise cond, 4 unet@refiner denoise cond, 2 unet@pipe denoise cond", ("pipe",)
    ),
    "two_ranks": Program("8 transformer denoise cond", launcher=RANKS),
    "vision_language": Program(
        "2 llava encode, 4 llava run, 1 vae encode, 1 vae decode, 1 t5 encode, 3 t5 run",
        ("llava.get_image_features", "llava.generate", "vae.encode", "vae.decode", "t5.generate"),
    ),
    "rbln_torch_device": Program("1 net run", ("net",), ("rows",)),
    "rbln_pipeline": Program(
        "1 text_encoder encode prompt, 1 text_encoder_2 encode prompt, "
        "1 text_encoder_3 encode prompt, 1 text_encoder encode negative_prompt, "
        "1 text_encoder_2 encode negative_prompt, 1 text_encoder_3 encode negative_prompt, "
        "2 transformer denoise batched, 1 vae decode",
        ("image",),
        ("here",),
        needs="optimum.rbln",
    ),
}
FAKES = checkout.ROOT / "tests" / "capture" / "rbln" / "alone"


class Watched(ast.NodeTransformer):
    """Puts the stop watch around calls of the named functions, in the frame that makes them."""

    def __init__(self, names: tuple[str, ...], clock: str) -> None:
        self.names, self.clock = names, clock

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) not in self.names:
            return node
        begin = ast.parse(f"time.{self.clock}()", mode="eval").body
        end = ast.Name("_end", ast.Load())
        return ast.copy_location(ast.Call(end, [begin, node], []), node)


def with_watch(text: str, names: tuple[str, ...], clock: str) -> str:
    """The program with a stop watch around its calls of `names`."""
    tree = ast.fix_missing_locations(Watched(names, clock).visit(ast.parse(text)))
    return WATCH.format(clock=clock) + ast.unparse(tree)


def recorded(bundles: list[Path]) -> tuple[str, list[str]]:
    """The calls of all bundles by label, as `Program` has them, and what the drops are."""
    found: Counter[str] = Counter()
    dropped = []
    for bundle in bundles:
        if not (bundle / MERGED_NAME).exists():  # of a killed process
            merge_bundle(bundle)
            shutil.rmtree(bundle / WORK_NAME, ignore_errors=True)
        found.update(" ".join(filter(None, label[:3])) for label in labels(bundle))
        dropped += [kind for kind, _ in drops(bundle)]
    return ", ".join(f"{count} {label}" for label, count in found.items()), dropped


def seconds(ended: Ended) -> float | None:
    """What the stop watches of its processes showed."""
    found = re.findall(r"^watched (\d+)$", ended.err, re.MULTILINE)
    return sum(map(int, found)) / 1e9 if any(map(int, found)) else None


def price(ended: Ended, plain_s: float | None) -> tuple[float, float, float] | None:
    """Least and greatest stated share, and the true one; None if one of these is not known."""
    traced_s = seconds(ended)
    if len(ended.bundles) != 1 or not plain_s or not traced_s:
        return None
    overhead = load_bundle(ended.bundle).info.overhead
    if overhead is None or not overhead.untraced_high_ns or not overhead.traced_ns:
        return None
    low, high = (
        1 - ns / overhead.traced_ns for ns in (overhead.untraced_high_ns, overhead.untraced_low_ns)
    )
    return low, high, 1 - plain_s / traced_s


def runs(name: str, options: argparse.Namespace) -> list[tuple[Ended, Ended]]:
    """Pairs of its processes without us and with us."""
    program = PROGRAMS[name]
    text = (options.folder / f"{name}.py").read_text(encoding="utf-8")
    text = with_watch(text, program.watched, options.clock) if program.watched else text
    pairs = []
    for _ in range(options.rounds):
        work = Path(tempfile.mkdtemp(dir=options.environment.folder)) / "work"
        work.mkdir()
        scripts = options.environment.at(work)
        (work / "program.py").write_text(text, encoding="utf-8")
        settings: dict[str, str] = {}
        if program.needs:
            found = Path(str(find_spec(program.needs).origin)).parents[2]
            settings = {"PYTHONPATH": f"{FAKES}:{found}"}
        started = program.launcher or text
        plain = scripts.run(started, *program.arguments, RBLN_PROFILER=None, **settings)
        settings["RBLN_PROFILER_CONFIG"] = json.dumps({"ops": options.ops})
        pairs.append((plain, scripts.run(started, *program.arguments, **settings)))
    return pairs


def row(name: str, options: argparse.Namespace) -> list[str]:
    """The cells of a program."""
    program, pairs = PROGRAMS[name], runs(name, options)
    equal = all(
        plain.code == ours.code and (plain.out == ours.out or not program.prints)
        for plain, ours in pairs
    )
    calls, dropped = zip(*(recorded(ours.bundles) for _, ours in pairs), strict=True)
    wrong = sorted(
        {
            found
            for found in calls
            if Counter(found.split(", ")) != Counter(program.calls.split(", "))
        }
    )
    counted = [sum(int(part.split()[0]) for part in found.split(", ") if part) for found in calls]
    expected = sum(int(part.split()[0]) for part in program.calls.split(", ") if part)
    told = sorted({kind for kinds in dropped for kind in kinds})
    prices = [found for plain, ours in pairs if (found := price(ours, seconds(plain)))]
    stated = true = "-"
    if prices:
        low, high, real = (100 * statistics.median(column) for column in zip(*prices, strict=True))
        held = sum(low <= real <= high for low, high, real in prices)
        stated, true = f"{low:.0f} to {high:.0f} %", f"{real:.0f} %, {held} of {len(prices)}"
    outputs = ("yes" if program.prints else "exit code") if equal else "**no**"
    return [
        f"`{' '.join((name, *program.arguments))}`",
        outputs,
        f"{'/'.join(map(str, sorted(set(counted))))} of {expected}",
        f"**{'; '.join(wrong)}**" if wrong else program.calls,
        ", ".join(told) or "none",
        stated,
        true,
    ]


HEADER = ("program", "outputs equal", "calls", "labels", "drops", "cost stated", "true, held")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--ops", default="all")
    parser.add_argument("--folder", type=Path, default=checkout.ROOT / "tests" / "programs")
    options = parser.parse_args()
    options.clock = "thread_time_ns" if options.processor else "perf_counter_ns"
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    with tempfile.TemporaryDirectory() as folder:
        options.environment = Environment(Path(folder))
        for name in options.names or PROGRAMS:
            missing = PROGRAMS[name].needs and not (
                find_spec(PROGRAMS[name].needs.partition(".")[0])
                and find_spec(PROGRAMS[name].needs)
            )
            if not missing and (options.folder / f"{name}.py").exists():
                print(f"| {' | '.join(row(name, options))} |", flush=True)


if __name__ == "__main__":
    main()
