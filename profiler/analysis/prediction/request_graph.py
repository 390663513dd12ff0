"""The tasks of one request as a graph: what each waits for, and which resource it needs.

Two orders. `pipeline` is a thread for each request, which calls one submodule after another, as
diffusers does. `graph` needs a scheduler such as Triton's ensembles, where a call starts as soon as
its inputs are there: calls of `encode` wait for nothing but the request and their own host work,
calls of one step for the step before and for earlier calls of their own branch. Host work that
nothing follows in its part (joining embeddings, the scheduler) waits for all of the part. What
`decode` does stays in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from profiler.analysis.prediction.tasks import Task
from profiler.analysis.prediction.workload import HOST, Workload
from profiler.errors import InputError

__all__ = ["DEFAULT_ORDER", "ORDERS", "Order", "RequestGraph", "request_graph"]

Order = Literal["graph", "pipeline"]
ORDERS: tuple[str, ...] = get_args(Order)
DEFAULT_ORDER: Order = "pipeline"  # what a run of diffusers did
_Edges = list[list[int]]  # by task of a part: the tasks of the part that it waits for


@dataclass(frozen=True, slots=True, eq=False)
class RequestGraph:
    """The n nodes of a request, each after all that it waits for.

    `work[i]` is what node i does: tasks with their steps, -1 outside of steps. It is one call, or
    host work that follows one another. `resource[i]` is the number in `resources` of what it needs,
    the first being the process's host thread, the others devices. `waits_for[i]` counts the nodes
    directly before node i, `after[i]` are those directly after it. `servers[r]` is how many nodes
    resource r runs at once: one each where it is empty.
    """

    work: tuple[tuple[tuple[Task, int], ...], ...]
    resources: tuple[str, ...]
    resource: tuple[int, ...]
    waits_for: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    servers: tuple[int, ...] = ()

    def critical_path(self, durations: Sequence[float]) -> float:
        """The longest chain of nodes with these durations [n]: a request that waits for no other,
        were there as many of each device as it could use."""
        begin = [0.0] * len(self.work)
        end = 0.0
        for node, duration in enumerate(durations):
            done = begin[node] + duration
            end = max(end, done)
            for following in self.after[node]:
                begin[following] = max(begin[following], done)
        return end


def request_graph(workload: Workload, order: Order = DEFAULT_ORDER) -> RequestGraph:
    """The graph of one request of `workload`, with each task on its own device.

    Raises InputError for another order, and for a workload without tasks.
    """
    if order not in ORDERS:
        raise InputError(f"{order!r} is not an order of tasks; use {' or '.join(ORDERS)}")
    edges_of = _in_line if order == "pipeline" else None
    parts = [(-1, workload.encode, edges_of or _encode_edges)]
    parts += [(step, workload.step, edges_of or _step_edges) for step in range(workload.steps)]
    parts.append((-1, workload.decode, _in_line))
    work: list[tuple[Task, int]] = []
    before: _Edges = []
    ends: list[int] = []  # nodes that the next part waits for
    for step, part, edges in parts:
        if not part:
            continue
        base = len(work)
        of_part = edges(part)
        before += [[base + i for i in needed] if needed else list(ends) for needed in of_part]
        followed = {i for needed in of_part for i in needed}
        ends = [base + i for i in range(len(part)) if i not in followed]
        work += [(task, step) for task in part]
    if not work:
        raise InputError("the workload has no tasks; record a run with at least one call")
    return _graph(work, before)


def _graph(work: Sequence[tuple[Task, int]], before: _Edges) -> RequestGraph:
    """The graph of tasks, each of which waits for those in `before`; host work that is followed by
    other host work and nothing else is one node with it."""
    followers = Counter(earlier for needed in before for earlier in needed)
    node_of: list[int] = []
    grouped: list[list[tuple[Task, int]]] = []
    after: _Edges = []
    waits_for: list[int] = []
    for (task, step), needed in zip(work, before, strict=True):
        only = needed[0] if len(needed) == 1 and followers[needed[0]] == 1 else None
        if task.submodule is None and only is not None and work[only][0].submodule is None:
            node_of.append(node_of[only])
            grouped[node_of[only]].append((task, step))
            continue
        node_of.append(len(grouped))
        grouped.append([(task, step)])
        after.append([])
        waits_for.append(len(needed))
        for earlier in needed:
            after[node_of[earlier]].append(node_of[-1])
    calls = [group[0][0] for group in grouped]
    devices = sorted({task.device for task in calls if task.submodule is not None})
    number = {device: i for i, device in enumerate(devices, start=1)}
    return RequestGraph(
        work=tuple(map(tuple, grouped)),
        resources=(HOST, *devices),
        resource=tuple(0 if t.submodule is None else number[t.device] for t in calls),
        waits_for=tuple(waits_for),
        after=tuple(map(tuple, after)),
    )


def _in_line(part: Sequence[Task]) -> _Edges:
    return [[i - 1] if i else [] for i in range(len(part))]


def _encode_edges(part: Sequence[Task]) -> _Edges:
    """Each call waits for the host work directly before it."""
    return _edges(part, [str(i) for i in range(len(part))])


def _step_edges(part: Sequence[Task]) -> _Edges:
    """Each call waits for the calls of its branch before it, and for the host work between."""
    branches = {task.branch for task in part if task.submodule is not None}
    if len(branches) > 1 and not branches <= {"cond", "uncond"}:
        return _in_line(part)  # what a batched call makes is of both branches
    return _edges(part, [task.branch for task in part])


def _edges(part: Sequence[Task], chains: Sequence[str]) -> _Edges:
    """Each call waits for the one before it in its chain and for the host work directly before it,
    host work behind the last call for all calls."""
    edges: _Edges = []
    pending: list[int] = []  # host work since the last call
    last: dict[str, int] = {}  # call by chain
    behind = 1 + max((i for i, task in enumerate(part) if task.submodule is not None), default=-1)
    for i, (task, chain) in enumerate(zip(part, chains, strict=True)):
        needed = pending[-1:]
        if task.submodule is None:
            if i == behind:
                needed = sorted(last.values())
            pending.append(i)
        else:
            needed += [last[chain]] if chain in last else []
            last[chain] = i
            pending = []
        edges.append(needed)
    return edges
