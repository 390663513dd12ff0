"""Summarize what `gpu_record.py` measured: medians of each call, small enough to stand in a test.

    python benchmarks/gpu_summary.py TARGET.json TRUTH.json [TRUTH.json ...] [--bundles FOLDER ...]

Of several files of one model the first that has a stage counts. Of each stage: `span_ms`, from the
first call's begin to the last one's end on the device, and `wall_ms`, least, median and greatest
(the first repetition aside, which finds things out once); `calls`, name, begin and end, medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any


def summary(stage: Any) -> dict[str, Any] | None:
    """Of one stage, None where it has no timed calls."""
    rows = stage if isinstance(stage, list) else [stage]
    if not (rows and isinstance(rows[0], dict) and rows[0].get("calls")):
        return None
    steady = rows[1:] or rows
    spans = [row["calls"][-1]["end"] - row["calls"][0]["begin"] for row in steady]
    return {
        "span_ms": _spread(spans),
        "wall_ms": _spread([row["wall_ms"] for row in steady]),
        "calls": [
            [
                call["name"],
                *(round(statistics.median(r["calls"][i][k] for r in steady), 3) for k in _ENDS),
            ]
            for i, call in enumerate(steady[0]["calls"])
        ],
    }


def cost(bundle: Path) -> dict[str, Any] | None:
    """What a bundle of `levels` states of tracing, and what calls took there with and without us,
    from the truth beside it: two calls each, and the median of the calls without us."""
    level, turn = bundle.name.split("-")[1:]
    levels = json.loads((bundle.parents[1] / "sd35.truth.json").read_text())["levels"]
    if level not in levels:
        return None
    (manifest,) = bundle.glob("*/manifest.json")
    stated = json.loads(manifest.read_text())["overhead"]
    plain = [time for row in levels["without"] for time in (row["first_ms"], row["wall_ms"])]
    traced = levels[level][int(turn)]
    untraced = statistics.median(plain)
    return {
        "machine": bundle.parents[1].name,
        "level": level,
        "stated": round(stated["share"], 4),
        "seen": round(1 - 2 * untraced / (traced["first_ms"] + traced["wall_ms"]), 4),
        "untraced_ms": [round(stated[f"untraced_{end}_ns"] / 2e6) for end in ("low", "high")],
        "without_ms": [round(f(plain), 1) for f in (min, statistics.median, max)],
        "call_ms": round(traced["wall_ms"], 1),
    }


_ENDS = ("begin", "end")
_AS_IT_IS = ("peaks", "levels", "call_level", "device", "torch")


def _spread(values: list[float]) -> list[float]:
    return [round(f(values), 2) for f in (min, statistics.median, max)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    parser.add_argument("truths", type=Path, nargs="+")
    parser.add_argument("--bundles", type=Path, nargs="+", default=[])
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for path in options.truths:
        truth = json.loads(path.read_text())
        model = found.setdefault(path.name.partition(".")[0], {})
        for name, stage in truth.items():
            made = stage if name in _AS_IT_IS else summary(stage)
            if made is not None and "error" not in made:
                model.setdefault(name, made)
    costs = [
        cost(path) for folder in options.bundles for path in sorted(folder.glob("sd35-*-[12]"))
    ]
    found["costs"] = {"stated": [one for one in costs if one is not None]}
    for model in found.values():
        for rows in model.get("levels", {}).values():
            for row in rows:
                row.pop("calls", None)
    options.target.write_text(
        json.dumps(found, indent=1, sort_keys=True).replace("\n    ", " ") + "\n"
    )


if __name__ == "__main__":
    main()
