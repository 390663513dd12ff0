"""False alarms and delay of change points: ours, a plain threshold, Apache Otava, on histories
whose truth is known.

    python benchmarks/change_points.py [--histories 56] [--steps 1000] [--otava PYTHON]
                                       [--otava-histories 6] [--family 1 5 20]

Each generated history has 30 runs, then 30 more, appended one by one (12 kinds by 56 histories by
30 runs: 20,160 appended runs). Kinds: no change, or two modes 8 % apart (70/30), at 1, 3, 10 %
noise; a drift of 0.1 or 0.3 % a run at the same. An appended run is a false alarm where the gate's
test says that the newest runs are outside their history, or the history shows a change that it did
not show before. Delay: runs from a step of 5 % at 2 % noise until the first alarm. `threshold`
alarms where a run is 5 % above the median of the 30 before it. Otava pins its own NumPy: PYTHON is
that of an environment which has `apache-otava`; it is given its defaults, and an alarm of it is a
change point that it did not have a run before. It is given fewer histories, since it takes longer.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Iterator

import checkout  # noqa: F401  (finds the project)
import numpy as np

from profiler.fleet.change_points import change_points
from profiler.fleet.history import newest

HISTORY, APPENDED, LATER = 30, 30, 12
MODES = np.log1p(0.08)
KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "no change": lambda _, n: np.zeros(n),
    "two modes": lambda generator, n: MODES * (generator.random(n) < 0.3),
    "drift 0.1 %": lambda _, n: 0.001 * np.arange(n),
    "drift 0.3 %": lambda _, n: 0.003 * np.arange(n),
}
NOISES = (0.01, 0.03, 0.1)
OTAVA = """
import json, sys, time
from otava.series import AnalysisOptions, Metric, Series
def points(values):
    n = len(values)
    series = Series("t", None, list(range(n)), {"m": Metric()}, {"m": values}, {})
    return [c.index for c in series.analyze(AnalysisOptions()).change_points["m"]]
answer, begin = [], time.process_time()
for values, first in json.load(sys.stdin):
    known, alarms = points(values[:first]), []
    for n in range(first + 1, len(values) + 1):
        now = points(values[:n])
        alarms.append(any(all(abs(at - old) > 3 for old in known) for at in now))
        known += now
    answer.append(alarms)
json.dump([answer, time.process_time() - begin], sys.stdout)
"""


def histories(kind: str, noise: float, count: int) -> Iterator[np.ndarray]:
    generator = np.random.default_rng([*kind.encode(), int(1000 * noise)])
    for _ in range(count):
        n = HISTORY + APPENDED
        yield 1e8 * np.exp(KINDS[kind](generator, n) + generator.normal(0, noise, n))


def steps(count: int) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(7)
    for _ in range(count):
        values = 1e8 * np.exp(generator.normal(0, 0.02, HISTORY + LATER))
        values[HISTORY:] *= 1.05
        yield values


def ours(values: np.ndarray, family: int = 1) -> list[bool]:
    known = [change.at for change in change_points(values[:HISTORY]).changes]
    alarms = []
    for n in range(HISTORY + 1, len(values) + 1):
        found = change_points(values[:n])
        now = [change.at for change in found.changes]
        alarm = any(all(abs(at - old) > 3 for old in known) for at in now)
        known += now
        last = newest(values[:n][found.since :], family=family)
        alarms.append(alarm or (last is not None and last.outside))
    return alarms


def threshold(values: np.ndarray) -> list[bool]:
    return [
        bool(values[n - 1] > 1.05 * np.median(values[n - 1 - HISTORY : n - 1]))
        for n in range(HISTORY + 1, len(values) + 1)
    ]


def otava(python: str, given: list[np.ndarray]) -> tuple[list[list[bool]], float]:
    text = json.dumps([[values.tolist(), HISTORY] for values in given])
    done = subprocess.run(
        [python, "-c", OTAVA], input=text, capture_output=True, text=True, check=True
    )
    alarms, seconds = json.loads(done.stdout)
    return alarms, seconds


def delays(alarms: list[list[bool]]) -> str:
    waits = [each.index(True) + 1 if any(each) else LATER + 1 for each in alarms]
    at = [int(np.percentile(waits, q, method="inverted_cdf")) for q in (50, 95)]
    texts = [str(wait) if wait <= LATER else f"> {LATER}" for wait in at]
    return f"{texts[0]}, {texts[1]} ({np.mean(np.array(waits) <= 6):.1%} within 6)"


def share(alarms: list[list[bool]]) -> str:
    flat = [alarm for each in alarms for alarm in each]
    return f"{np.mean(flat):.2%} of {len(flat):,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--histories", type=int, default=56)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--otava")
    parser.add_argument("--otava-histories", type=int, default=6)
    parser.add_argument("--family", type=int, nargs="*", default=[1, 5, 20])
    given = parser.parse_args()
    print("| | ours | threshold | Otava |\n|---|---|---|---|")
    totals: list[list[list[bool]]] = [[], [], []]
    begin, looks = time.process_time(), 0
    theirs_s = 0.0
    for kind in KINDS:
        for noise in NOISES:
            made = [*histories(kind, noise, given.histories)]
            cells = [[*map(ours, made)], [*map(threshold, made)], []]
            looks += len(made) * APPENDED
            if given.otava:
                cells[2], seconds = otava(given.otava, made[: given.otava_histories])
                theirs_s += seconds
            for total, alarms in zip(totals, cells, strict=True):
                total.extend(alarms)
            texts = " | ".join(share(alarms) if alarms else "" for alarms in cells)
            print(f"| false alarms, {kind}, {noise:.0%} noise | {texts} |", flush=True)
    texts = " | ".join(share(alarms) if alarms else "" for alarms in totals)
    print(f"| **false alarms, all** | {texts} |")
    ours_ms = 1e3 * (time.process_time() - begin) / looks
    made = [*steps(given.steps)]
    for family in given.family:
        cells = [delays([ours(values, family) for values in made]), "", ""]
        if family == 1:
            cells[1] = delays([*map(threshold, made)])
            if given.otava:
                cells[2] = delays(otava(given.otava, made[: 10 * given.otava_histories])[0])
        print(f"| delay, runs: median, p95; {family} metrics | {' | '.join(cells)} |", flush=True)
    theirs = f"{1e3 * theirs_s / max(sum(map(len, totals[2])), 1):.1f}" if theirs_s else ""
    print(f"| processor time, ms an appended run | {ours_ms:.1f} | | {theirs} |")


if __name__ == "__main__":
    main()
