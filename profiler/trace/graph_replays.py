"""Replays of a graph of which the recording lost some work.

    incomplete_replays(replay, kernel)  == (3, 12, 1017)

All replays of a graph run the same kernels. Nothing tells which graph a launch replays, so that
what several launches ran alike stands for a graph.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from profiler.trace.columns import Int64s

_REPEATED = 3  # launches of the same kernels are of one graph
_HALF = 0.5  # of a graph's rows: fewer may be of another graph
_MOST, _MOST_GRAPHS = 2_000, 64  # replays and graphs that are looked at


def incomplete_replays(replay: Int64s, kernel: Int64s) -> tuple[int, int, int]:
    """How many replays lack work that others of their graph have, how much, and of how much.

    `replay` and `kernel` are those of each row of graphs, replays numbered in order of their
    launch, of which the last may have been cut."""
    if not len(replay):
        return 0, 0, 0
    order = np.argsort(replay, kind="stable")
    heads = np.flatnonzero(np.diff(replay[order], prepend=-1))
    count = np.diff(heads, append=len(order))
    weights = np.random.default_rng(0).integers(1, 1 << 62, int(kernel.max()) + 2)
    alike = np.add.reduceat(weights[kernel[order]], heads)  # sums of what ran, modulo 2^64
    _, first, times = np.unique(alike, return_index=True, return_counts=True)
    whole = first[times >= _REPEATED]
    odd = np.flatnonzero(~np.isin(alike, alike[whole]))
    odd = odd[odd < len(count) - 1][:_MOST]
    if not len(whole) or not len(odd):
        return 0, 0, 0

    def kernels_of(number: int) -> Counter[int]:
        head = heads[number]
        return Counter(kernel[order[head : head + count[number]]].tolist())

    graphs = sorted((int(count[one]), one) for one in whole.tolist())[:_MOST_GRAPHS]
    full = [(size, kernels_of(one)) for size, one in graphs]
    replays = lost = expected = 0
    for number in odd.tolist():
        own = kernels_of(number)
        for size, kernels in full:  # the smallest graph that has all of these kernels
            if size * _HALF <= count[number] < size and own <= kernels:
                replays, lost, expected = replays + 1, lost + size - own.total(), expected + size
                break
    return replays, lost, expected
