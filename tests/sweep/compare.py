"""A case run twice, with and without capture, and what differs."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from tests.sweep.cases import NEGATIVE, PROMPT, Case
from tests.sweep.truth import Loop, Seen, Truth, watched

__all__ = ["Result", "compared"]


@dataclass(frozen=True)
class Result:
    """What became of a case: calls by component, steps, branches, and what differed."""

    name: str
    family: str
    calls: dict[str, int]
    steps: int
    branches: dict[str, int]
    pieces: tuple[str, ...]  # called by themselves, outside captured calls
    differences: tuple[str, ...]


def compared(case: Case, folder: Path) -> Result:
    """Run `case` without capture, under hooks of our own, and with it; compare."""
    import profiler

    pipeline = case.pipeline()
    with watched(pipeline) as truth:
        without = _bytes(case.call(pipeline))
    pipeline = case.pipeline()  # some keep what they have encoded
    with profiler.profile(pipeline, out=folder, ops="none") as profiled:
        given = _bytes(case.call(pipeline))
    run = profiler.load(profiled.path)
    calls = run.calls.select("submodule", "stage", "branch", "step").rows(named=True)
    differences = [] if given == without else ["outputs differ"]
    differences += [f"lost: {drop.reason}" for drop in run.drops]
    whole = [seen for seen in truth.calls if seen.way in _WAYS]
    pieces = [f"{seen.component}.{seen.way}" for seen in truth.calls if seen.way not in _WAYS]
    measured = {one.name for one in run.info.coverage.uncaptured} if run.info.coverage else set()
    differences += [f"not told: {name}" for name in sorted(set(pieces) - measured)]
    found = [call["submodule"] for call in calls]
    expected = [seen.component for seen in whole]
    if found != expected:
        differences.append(f"calls {_counted(found)} are {_counted(expected)}")
        if Counter(found) == Counter(expected):
            differences.append(f"order {found} is {expected}")
    else:
        differences += _steps(calls, whole)
        differences += _branches(calls, whole, pipeline)
    labels = Counter(f"{call['submodule']} {call['branch']}" for call in calls if call["branch"])
    return Result(
        name=case.name,
        family=case.family,
        calls=dict(Counter(found)),
        steps=_number_of_steps(truth),
        branches=dict(labels),
        pieces=tuple(dict.fromkeys(pieces)),
        differences=tuple(differences),
    )


_WAYS = ("forward", "encode", "decode", "get_text_features", "get_image_features")


def _counted(names: list[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in Counter(names).items())


def _number_of_steps(truth: Truth) -> int:
    return sum(loop.steps for loop in truth.loops)


def _bytes(value: Any) -> list[Any]:
    """All that a pipeline returns, bit by bit."""
    if is_dataclass(value) and not isinstance(value, dict):
        return [_bytes(getattr(value, one.name)) for one in fields(value)]
    if isinstance(value, dict):
        return [_bytes(one) for one in value.values()]
    if isinstance(value, (list, tuple)):
        return [_bytes(one) for one in value]
    if isinstance(value, torch.Tensor):
        value = value.detach().float().numpy()
    if isinstance(getattr(value, "values", None), dict):  # a modular pipeline's state
        return _bytes(value.values)
    return [value.tobytes()] if hasattr(value, "tobytes") else [repr(value)]


def _of_loops(whole: list[Seen]) -> dict[tuple[str, int, int], int]:
    """Calls by component, loop and step."""
    return Counter((seen.component, id(seen.loop), seen.steps) for seen in whole)


def _in_loop(whole: list[Seen]) -> list[bool]:
    """Whether each call is in its loop: between two steps, or as often before the first one as
    between first and second."""
    counts = _of_loops(whole)
    left = dict(counts)
    found = []
    for seen in whole:
        key = (seen.component, id(seen.loop), seen.steps)
        remaining = left[key]
        left[key] -= 1
        if seen.loop is None or seen.steps >= seen.loop.steps:
            found.append(False)
        elif seen.steps:
            found.append(True)
        else:
            found.append(
                remaining <= counts.get((seen.component, id(seen.loop), 1), 0)
                and seen.loop.steps > 1
            )
    return found


def _steps(calls: list[dict[str, Any]], whole: list[Seen]) -> list[str]:
    offsets: dict[int, set[int]] = defaultdict(set)
    wrong = []
    for call, seen, inside in zip(calls, whole, _in_loop(whole), strict=True):
        after = seen.loop is not None and 0 < seen.loop.steps <= seen.steps
        if (call["stage"] == "denoise") is not inside:
            wrong.append(f"{seen.component} before step {seen.steps} is in stage {call['stage']}")
        elif inside:
            offsets[id(seen.loop)].add(call["step"] - seen.steps)
        elif after and seen.loop is whole[-1].loop and call["stage"] != "decode":
            wrong.append(f"{seen.component} after the last step is in stage {call['stage']}")
    wrong += [f"steps are off by {found}" for found in offsets.values() if len(found) > 1]
    return list(dict.fromkeys(wrong))


def _branches(calls: list[dict[str, Any]], whole: list[Seen], pipeline: Any) -> list[str]:
    counts = _of_loops(whole)
    wrong = []
    pairs: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for call, seen, inside in zip(calls, whole, _in_loop(whole), strict=True):
        branch = call["branch"] or ""
        key = (seen.component, id(seen.loop), seen.steps)
        if inside and seen.loop is not None and counts[key] == 1:
            expected = _by_batch(seen, seen.loop)
        elif inside and counts[key] == 2:
            pairs[key].append(branch)
            continue
        else:
            expected = _by_text(seen, pipeline)
        if expected and branch != expected:
            wrong.append(f"{seen.component} is {branch or 'without branch'}, not {expected}")
    for (component, _, step), found in pairs.items():
        if sorted(found) != ["cond", "uncond"]:
            wrong.append(f"{component} in step {step} is {found}")
    return list(dict.fromkeys(wrong))


def _by_batch(seen: Seen, loop: Loop) -> str:
    if not seen.shape or not loop.shape:
        return ""
    batch = loop.shape[0]
    if len(seen.shape) == 5 and len(loop.shape) == 4:
        batch //= seen.shape[2]  # frames, which the scheduler gets one by one
    return "batched" if seen.shape[0] > batch else "cond"


def _by_text(seen: Seen, pipeline: Any) -> str:
    """Which prompt an encoder's tokens are, where its tokenizer can say."""
    tokenizer = getattr(pipeline, seen.component.replace("text_encoder", "tokenizer"), None)
    if "text_encoder" not in seen.component or tokenizer is None or len(seen.tokens) != 1:
        return ""
    text = tokenizer.decode(seen.tokens[0]).replace(" ", "")
    if PROMPT.replace(" ", "") in text:
        return "prompt"
    return "negative_prompt" if NEGATIVE in text else ""
