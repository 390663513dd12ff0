"""The longest chain of intervals that follow each other: the most that a path can be."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from profiler.run.intervals import Times

__all__ = ["longest_chain"]


def longest_chain(start: Times, end: Times) -> Times:
    """The intervals `[start, end)`, each beginning when the one before has ended or later, that add
    up to most: their rows in order of time, int64.

    Where intervals overlap, they are in the same cluster; chains go through clusters one after
    another. In a cluster that one interval spans, that is the chain (what lies in it is part of
    it); others take O(m log m) steps for their m intervals.
    """
    rows = np.flatnonzero(end > start)
    if not len(rows):
        return rows
    rows = rows[np.lexsort((-end[rows], start[rows]))]
    begin, until = start[rows], np.maximum.accumulate(end[rows])
    heads = np.append(0, np.flatnonzero(begin[1:] >= until[:-1]) + 1)
    tails = np.append(heads[1:], len(rows))
    spanned = end[rows[heads]] == until[tails - 1]  # the first of a cluster is its longest there
    chains = [rows[heads[spanned]]]
    for first, last in zip(heads[~spanned].tolist(), tails[~spanned].tolist(), strict=True):
        cluster = rows[first:last]
        chains.append(cluster[_best(start[cluster].tolist(), end[cluster].tolist())])
    chain = np.concatenate(chains)
    return chain[np.argsort(start[chain], kind="stable")]


def _best(start: list[int], end: list[int]) -> list[int]:
    """The chain in one cluster: weighted interval scheduling, by ends."""
    order = sorted(range(len(end)), key=end.__getitem__)
    ends = [end[i] for i in order]
    best, before = [0], []  # best of the first i by end; how many of them end before i begins
    for place, i in enumerate(order):
        before.append(bisect_right(ends, start[i], 0, place))
        best.append(max(best[-1], end[i] - start[i] + best[before[-1]]))
    chain, place = [], len(order)
    while place:
        if best[place] == best[place - 1]:
            place -= 1
        else:
            chain.append(order[place - 1])
            place = before[place - 1]
    return chain[::-1]
