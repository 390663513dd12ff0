"""Selections of a run, the commands that match them, and a run whose operators are split."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis import pattern, with_roles
from profiler.run import Run
from tests.runs import Command, make_call, make_run, make_span

__all__ = ["Pick", "matching", "picks_of", "split_run"]

Pick = Mapping[str, Sequence[Any]]
"""Chosen values by dimension of the page."""

_OF_CALLS = ("submodule", "branch")
_OF_COMMANDS = ("stage", "step", "device", "role", "call")
# An operator with the norm on one device and the attention on the other, then the norm on both
# tracks of the other.
_APART = (("rbln:0", "C0", "LayerNormalization"), ("rbln:1", "C0", "SDPA"))
_TOGETHER = (("rbln:1", "C0", "LayerNormalization"), ("rbln:1", "C1", "LayerNormalization"))


def matching(run: Run, pick: Pick) -> pl.Series:
    """Which commands of `run` match."""
    of_call = run.calls.select("call", pl.col(_OF_CALLS).cast(pl.String))
    rows = run.commands.join(of_call, on="call", how="left", maintain_order="left")
    tests = [_chosen(name, pick[name]) for name in (*_OF_CALLS, *_OF_COMMANDS) if name in pick]
    if "operator" in pick:
        layer = pl.col("layer").cast(pl.String)
        tests.append(layer.is_in(pick["operator"]) | pattern(layer).is_in(pick["operator"]))
    return rows.select(pl.all_horizontal(pl.lit(value=True), *tests).alias("found"))["found"]


def picks_of(run: Run, seed: int = 0, pairs: int = 12, each: int = 3) -> list[dict[str, list[Any]]]:
    """Selections of a run that match something: of each dimension the first `each` values and two
    together, and `pairs` of two and three dimensions."""
    draw, known = random.Random(seed), _values(run)
    found = [{name: [value]} for name, values in known.items() for value in values[:each]]
    found += [{name: values[:2]} for name, values in known.items() if len(values) > 2]
    names = [name for name, values in known.items() if values]
    for number in range(pairs):
        several = draw.sample(names, 3 if number % 3 == 2 else 2)
        found.append({name: [draw.choice(known[name])] for name in several})
    return [pick for pick in found if matching(run, pick).any()]


def split_run(steps: int = 3, seed: int = 0) -> Run:
    """Calls of two branches a step, whose operators are split over two devices, over the tracks of
    each and by role, and overlap in part; an encoder, a decoder, host work in and out of calls."""
    draw, calls, commands, now = random.Random(seed), [], [], 0
    for branch in ("prompt", "negative_prompt"):
        calls.append(_encoded(len(calls), branch, now, draw, commands))
        now += 1000
    for step in range(steps):
        for branch in ("cond", "uncond"):
            calls.append(_denoised(len(calls), branch, step, now, draw, commands))
            now += 4000
        for layer in ("scheduler.step", "callback"):
            commands.append(
                Command(-1, "cpu:0", "Host", "host", layer, now, 70, "", "denoise", step)
            )
            now += 60
    calls.append(make_call(len(calls), "vae", now, now + 500, stage="decode"))
    commands += [
        Command(
            len(calls) - 1, "rbln:0", "C0", "compute", f"decoder.{i}.conv", now + 90 * i, 80 + i
        )
        for i in range(4)
    ]
    spans = [make_span("pipeline", "P", 0, now + 600), make_span("stage", "denoise", 2000, now)]
    return with_roles(make_run(calls, commands, spans))


def _encoded(index, branch, begin, draw, commands):
    for i in range(6):
        at = begin + 120 * i
        commands.append(Command(index, "cpu:0", "Host", "host", f"layers.{i}.fc", at, 20))
        took = draw.randint(60, 140)
        commands.append(
            Command(index, "rbln:1", "C0", "compute", f"layers.{i}.fc", at, took, "Gemm")
        )
    return make_call(
        index, "text_encoder", begin, begin + 900, stage="encode", branch=branch, device="rbln:1"
    )


def _denoised(index, branch, step, begin, draw, commands):
    for block in range(2):
        at = begin + 1900 * block
        pieces = [
            *(
                (f"attn.to_{part}", f"rbln:{device}", "C0", "compute", 40 * device, "MatMul")
                for part in "qk"
                for device in (0, 1)
            ),
            *(
                ("attn.sdpa", f"rbln:{i % 2}", f"C{i // 2}", "compute", 300, "SDPA")
                for i in range(4)
            ),
            ("attn.sdpa", "rbln:0", "DMA", "dma", 280, "copy"),
            ("norm1", "rbln:0", "C0", "compute", 700, "LayerNormalization"),
            ("ff", "rbln:0", "C0", "compute", 900, "Gemm"),
            ("ff", "rbln:0", "DMA", "copy", 850, "copy"),
            ("ff", "rbln:0", "C1", "compute", 905, "Gemm"),
            ("ff", "cpu:0", "Host", "host", 840, ""),
            ("residual", "rbln:1", "C0", "compute", 1500, "Add"),
            *(
                ("fused", device, track, "compute", 1600, op_type)
                for device, track, op_type in (_APART if step == 0 else _TOGETHER)
            ),
        ]
        for layer, device, track, category, start, op_type in pieces:
            took = draw.randint(30, 190)
            name = f"transformer_blocks.{block}.{layer}"
            commands.append(
                Command(index, device, track, category, name, at + start, took, op_type)
            )
    return make_call(index, "transformer", begin, begin + 3950, step=step, branch=branch)


def _chosen(name: str, values: Sequence[Any]) -> pl.Expr:
    if name in ("step", "call"):
        return pl.col(name).is_in([*values])
    return pl.col(name).cast(pl.String).is_in([*values]).fill_null(value=False)


def _values(run: Run) -> dict[str, list[Any]]:
    """The values of each dimension that a reader can choose."""
    calls, commands = run.calls, run.commands
    layers = commands["layer"].cast(pl.String).unique().sort()
    several = pl.select(pattern(pl.lit(layers))).to_series().unique().sort()
    texts = {
        "stage": calls["stage"],
        "submodule": calls["submodule"],
        "branch": calls["branch"],
        "device": commands["device"],
        "role": commands["role"],
    }
    known: dict[str, list[Any]] = {
        name: [text for text in values.cast(pl.String).unique().sort().drop_nulls() if text]
        for name, values in texts.items()
    }
    known["step"] = sorted(step for step in calls["step"].unique() if step >= 0)
    known["call"] = calls["call"].to_list()
    known["operator"] = [
        *several.filter(several.str.contains(r"\*", literal=False))[:2],
        *layers[:2],
    ]
    return known
