"""Damage to healthy recordings of five producers, at random places: the check sees it, and undoes
what can be undone; the recordings as they are raise no alarm."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from profiler.trace.health import check
from tests.corpus import CORPUS, needs_corpus
from tests.importers.damage import KINDS, Given, busy_ns, recorded
from tests.trace.health_rows import healthy

pytestmark = needs_corpus

BASES = {
    "Kineto CUDA": (
        "torch_pairs/Qwen_Qwen1.5-0.5B-Chat__h100.json.gz",
        "torch_multirank/trace_filter/sampled_rank-0.json.gz",
        "wild/switch_moe_a100.json.gz",
    ),
    "Kineto ROCm": (
        "torch/sd35_mi300x.json.gz",
        "torch_pairs/Qwen_Qwen1.5-0.5B-Chat__mi300.json.gz",
    ),
    "nsys": ("nsys/mfu_2gpu_before.sqlite", "nsys/flameox_nsight-2025.5.2.sqlite"),
    "rocprofv3": ("rocprofv3/908_results.json.gz",),
    "XPlane": ("xplane/jax_conv_minimal_08.xplane.pb",),
}
FILES = [name for names in BASES.values() for name in names]
MANY = 20
UNDONE = ("one row + 1.6 s", "0.14 % + 50 ms", "clock - 100 µs")


@cache
def base(name: str) -> Given:
    return recorded(CORPUS / name)


def alarms(given: Given) -> set[str]:
    return {str(note.rule) for note in check(*given).notes if note.rule.damage}


@pytest.mark.parametrize("name", FILES)
def test_recordings_as_they_are_raise_no_alarm(name):
    assert alarms(base(name)) == set()


def outcome(given: Given, kind: str, seed: int) -> tuple[bool, str, bool]:
    """Whether damage is seen, why it cannot be if so, and whether busy times are the twin's."""
    damaged = KINDS[kind](given, np.random.default_rng(seed))
    found = check(*damaged.given)
    rules = {str(note.rule) for note in found.notes if note.action != "noted" or note.rule.damage}
    seen = bool(rules & set(damaged.rules))
    twin = check(*given)
    before = busy_ns(given.rows, twin.start, twin.end, twin.kept)
    after = busy_ns(damaged.given.rows, found.start, found.end, found.kept)
    near = all(abs(after[one] - was) <= max(0.01 * was, 25_000) for one, was in before.items())
    return seen, damaged.unseen, near


def rates(given: Given, seeds: range) -> dict[str, list[tuple[bool, str, bool]]]:
    return {kind: [outcome(given, kind, seed) for seed in seeds] for kind in KINDS}


def missed(found: dict[str, list[tuple[bool, str, bool]]]) -> list[str]:
    """The kinds of damage that were not seen though they could be, with how often."""
    return [
        f"{kind}: {sum(not seen and not why for seen, why, _ in cases)} of {len(cases)}"
        for kind, cases in found.items()
        if any(not seen and not why for seen, why, _ in cases)
    ]


@pytest.mark.parametrize("name", ["generated", FILES[0], "nsys/mfu_2gpu_before.sqlite"])
def test_damage_is_seen(name):
    """A few places; all bases, and many, at night."""
    given = Given(*healthy(3)) if name == "generated" else base(name)
    assert missed(rates(given, range(2))) == []


@pytest.mark.nightly
def test_damage_is_seen_at_many_places(record_property):
    """Where lengths or a clock were put right, busy times are those of the twin in 95 of 100."""
    undone: dict[str, list[bool]] = defaultdict(list)
    for name in FILES:
        found = rates(base(name), range(MANY))
        assert missed(found) == []
        for kind, cases in found.items():
            hits = sum(seen for seen, _, _ in cases)
            record_property(f"{name} {kind}", f"{hits} of {len(cases)}")
            undone[kind] += [near for seen, _, near in cases if seen]
    for kind in UNDONE:
        assert np.mean(undone[kind]) >= 0.95, kind
