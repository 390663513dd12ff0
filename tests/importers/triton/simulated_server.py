"""A simulated Triton Inference Server whose true queue and compute times are known.

Written from the server's documentation (docs/user_guide/trace.md, ensemble_models.md, batcher.md)
and from nothing of this project: what its traces mean is asserted against `Served`, not the other
way round. Times are int nanoseconds on a steady clock.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

CLOCK = 2_356_425_054_587_444  # where the steady clock stands when the server starts
HANDLER = 11_000  # in the request handler ahead of the queue, and behind computing
FRONT = 40_000  # in the HTTP or GRPC endpoint, each way
SCHEDULING = 3_000  # between a step of an ensemble and the next


@dataclass(frozen=True)
class Model:
    """A model as its configuration describes it.

    `input`, `infer` and `output` are the ns of a batch of one; each further request of a batch adds
    a tenth. A model with `steps` is an ensemble: groups of models, those of one group run at
    once. One with `calls` is a BLS model, which calls these in turn while it computes.
    """

    name: str
    version: int = 1
    instances: int = 1
    max_batch: int = 1
    delay: int = 0  # how long the batcher waits for more requests
    input: int = 20_000
    infer: int = 1_000_000
    output: int = 15_000
    steps: tuple[tuple[str, ...], ...] = ()
    calls: tuple[str, ...] = ()


@dataclass
class Served:
    """What truly happened to one request; all times None until they are reached."""

    model: Model
    request_start: int
    parent: Served | None = None
    protocol: str = ""  # HTTP or GRPC, of what came from outside
    recv: tuple[int, int] | None = None
    send: tuple[int, int] | None = None
    queue_start: int | None = None
    compute_start: int | None = None
    input_end: int | None = None
    output_start: int | None = None
    compute_end: int | None = None
    request_end: int | None = None
    batch: int | None = None  # requests with the same number were computed together
    instance: int | None = None
    id: int | None = None  # None: not traced
    children: list[Served] = field(default_factory=list)

    @property
    def queue_ns(self) -> int:
        return self.compute_start - self.queue_start

    @property
    def compute_ns(self) -> int:
        return self.compute_end - self.compute_start


class Server:
    """Discrete events: requests wait in their model's queue for an instance that is free."""

    def __init__(self, models: Iterable[Model], seed: int = 0, noise: float = 0.2):
        self._models = {model.name: model for model in models}
        self._waiting: dict[str, list[tuple[Served, Callable[[int], None]]]] = {
            name: [] for name in self._models
        }
        self._free = {name: list(range(m.instances)) for name, m in self._models.items()}
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = itertools.count()
        self._batches = itertools.count(1)
        self._random = random.Random(seed)
        self._noise = noise
        self.served: list[Served] = []  # those from outside, as they arrived

    def run(self, arrivals: Iterable[tuple[int, str, str]]) -> list[Served]:
        """(ns after the start, model, HTTP or GRPC) of each request → what happened to them."""
        for at, name, protocol in arrivals:
            self._at(CLOCK + at, lambda now, n=name, p=protocol: self._arrive(now, n, p))
        while self._events:
            now, _, act = heapq.heappop(self._events)
            act(now)
        return self.served

    def _at(self, when: int, act: Callable[[int], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def _spread(self, ns: int) -> int:
        return max(1, round(ns * self._random.uniform(1 - self._noise, 1 + self._noise)))

    def _arrive(self, now: int, name: str, protocol: str) -> None:
        # A GRPC endpoint waits long before there is anything to read.
        begin = now - self._spread(20_000_000) if protocol == "GRPC" else now
        recv = (begin, now + self._spread(FRONT))
        request = self._request(name, recv[1] + self._spread(FRONT), None)
        request.protocol, request.recv = protocol, recv
        self.served.append(request)

        def answered(end: int) -> None:
            # What is sent may be out before the handler lets go of the request.
            sent = end - self._random.choice((-1, 1)) * self._spread(HANDLER) // 4
            request.send = (sent, sent + self._spread(FRONT))

        self._at(request.request_start, lambda at: self._handle(request, at, answered))

    def _request(self, name: str, start: int, parent: Served | None) -> Served:
        request = Served(self._models[name], start, parent)
        if parent is not None:
            parent.children.append(request)
        return request

    def _handle(self, request: Served, now: int, done: Callable[[int], None]) -> None:
        request.queue_start = now + self._spread(HANDLER)

        def end(at: int) -> None:
            request.request_end = at + self._spread(HANDLER)
            self._at(request.request_end, done)

        if request.model.steps:
            self._at(request.queue_start, lambda at: self._ensemble(request, 0, at, end))
        else:
            self._at(request.queue_start, lambda at: self._enqueue(request, at, end))

    def _ensemble(self, request: Served, step: int, now: int, end: Callable[[int], None]) -> None:
        if step == len(request.model.steps):
            end(now)
            return
        left = len(request.model.steps[step])

        def one_done(at: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._at(at + SCHEDULING, lambda a: self._ensemble(request, step + 1, a, end))

        for name in request.model.steps[step]:
            child = self._request(name, now + SCHEDULING, request)
            self._at(child.request_start, lambda at, c=child: self._handle(c, at, one_done))

    def _enqueue(self, request: Served, now: int, end: Callable[[int], None]) -> None:
        self._waiting[request.model.name].append((request, end))
        self._dispatch(request.model, now)
        if request.model.delay:
            self._at(now + request.model.delay, lambda at: self._dispatch(request.model, at))

    def _dispatch(self, model: Model, now: int) -> None:
        waiting, free = self._waiting[model.name], self._free[model.name]
        while waiting and free:
            late = now - waiting[0][0].queue_start >= model.delay
            if len(waiting) < model.max_batch and not late:
                return
            batch, waiting[:] = waiting[: model.max_batch], waiting[model.max_batch :]
            self._compute(model, batch, free.pop(0), now)

    def _compute(
        self,
        model: Model,
        batch: Sequence[tuple[Served, Callable[[int], None]]],
        instance: int,
        now: int,
    ) -> None:
        number = next(self._batches)
        factor = 1 + (len(batch) - 1) / 10
        input_end = now + self._spread(round(model.input * factor))
        for request, _ in batch:
            request.batch, request.instance = number, instance
            request.compute_start, request.input_end = now, input_end

        def finish(at: int) -> None:
            end = at + self._spread(round(model.output * factor))
            for request, _ in batch:
                request.output_start, request.compute_end = at, end
            self._at(end, lambda when: self._release(model, batch, instance, when))

        inferred = self._spread(round(model.infer * factor))
        if model.calls:
            self._at(input_end + inferred // 2, lambda at: self._call(batch[0][0], 0, at, finish))
        else:
            self._at(input_end + inferred, finish)

    def _call(
        self, request: Served, position: int, now: int, finish: Callable[[int], None]
    ) -> None:
        if position == len(request.model.calls):
            self._at(now + self._spread(request.model.infer // 2), finish)
            return
        child = self._request(request.model.calls[position], now, request)
        self._handle(child, now, lambda at: self._call(request, position + 1, at, finish))

    def _release(
        self,
        model: Model,
        batch: Sequence[tuple[Served, Callable[[int], None]]],
        instance: int,
        now: int,
    ) -> None:
        self._free[model.name].append(instance)
        for _, end in batch:
            end(now)
        self._dispatch(model, now)


def trace(served: Sequence[Served], rate: int = 1) -> list[Served]:
    """Number every `rate`-th request and all that it called, in order of their begins."""
    chosen: list[Served] = []
    numbers = itertools.count(1)
    for request in served[rate - 1 :: rate]:
        for each in _with_called(request):
            each.id = next(numbers)
            chosen.append(each)
    return chosen


def _with_called(request: Served) -> Iterator[Served]:
    yield request
    for child in request.children:
        yield from _with_called(child)


_OLD_NAMES = {  # of the Triton 1 series, in lower case and with other words for the handler
    "REQUEST_START": "request handler start",
    "REQUEST_END": "request handler end",
}


def timestamps(request: Served) -> list[tuple[str, int]]:
    """What a trace of level TIMESTAMPS holds of it, in order of time."""
    named = [
        ("REQUEST_START", request.request_start),
        ("QUEUE_START", request.queue_start),
        ("COMPUTE_START", request.compute_start),
        ("COMPUTE_INPUT_END", request.input_end),
        ("COMPUTE_OUTPUT_START", request.output_start),
        ("COMPUTE_END", request.compute_end),
        ("INFER_RESPONSE_COMPLETE", request.request_end and request.request_end - 1_000),
        ("REQUEST_END", request.request_end),
    ]
    if request.recv and request.send:
        receiving = "HTTP_RECV" if request.protocol == "HTTP" else "GRPC_WAITREAD"
        named += [(f"{receiving}_START", request.recv[0]), (f"{receiving}_END", request.recv[1])]
        named += [(f"{request.protocol}_SEND_START", request.send[0])]
        named += [(f"{request.protocol}_SEND_END", request.send[1])]
    return sorted(((n, t) for n, t in named if t is not None), key=lambda each: each[1])


def fragments(traced: Sequence[Served], seed: int = 0) -> str:
    """The file of today's server: a fragment for the model, one for each timestamp, of several
    requests in turn, in no order of time."""
    chance = random.Random(seed)
    queues = []
    for request in traced:
        pieces: list[dict[str, object]] = [_head(request)]
        stamps = [
            {"id": request.id, "timestamps": [{"name": name, "ns": ns}]}
            for name, ns in timestamps(request)
        ]
        if len(stamps) > 5:  # the documentation's own example has these two the wrong way round
            stamps[3], stamps[4] = stamps[4], stamps[3]
        queues.append(pieces + stamps)
    rows = []
    while queues:
        at = chance.randrange(min(len(queues), 4))
        rows.append(queues[at].pop(0))
        if not queues[at]:
            queues.pop(at)
    return "[" + ",".join(json.dumps(row) for row in rows) + "]"


def objects(traced: Sequence[Served], names: str = "upper") -> str:
    """The file of older servers: one object a request; `names` "lower" is the Triton 1 series."""
    rows = []
    for request in traced:
        stamps = [
            {"name": name if names == "upper" else _old_name(name), "ns": ns}
            for name, ns in timestamps(request)
            if names == "upper" or name != "INFER_RESPONSE_COMPLETE"
        ]
        rows.append({**_head(request), "timestamps": stamps})
    return json.dumps(rows)


def _old_name(name: str) -> str:
    return _OLD_NAMES.get(name, name.lower().replace("waitread", "wait/read").replace("_", " "))


def _head(request: Served) -> dict[str, object]:
    head: dict[str, object] = {
        "id": request.id,
        "model_name": request.model.name,
        "model_version": request.model.version,
    }
    if request.parent is not None and request.parent.id is not None:
        head["parent_id"] = request.parent.id
    return head


SD3_ENSEMBLE = (
    Model("clip_l", infer=2_000_000, max_batch=4, delay=200_000),
    Model("clip_g", infer=4_000_000, max_batch=4, delay=200_000),
    Model("t5", infer=9_000_000, instances=2),
    Model("denoise", infer=60_000_000, instances=2),
    Model("vae", infer=12_000_000),
    Model("sd3", steps=(("clip_l", "clip_g", "t5"), ("denoise",), ("vae",))),
)
"""Three encoders at once, then the denoiser, then the decoder."""

SD3_BLS = (
    *SD3_ENSEMBLE[:-1],
    Model("sd3", infer=800_000, instances=4, calls=("clip_l", "clip_g", "t5", "denoise", "vae")),
)
"""The same as business logic scripting: one Python model that calls the others in turn."""


def open_loop(
    count: int, gap: int, model: str = "sd3", seed: int = 0
) -> list[tuple[int, str, str]]:
    """`count` requests whose gaps are exponential with mean `gap` ns, HTTP and GRPC in turn."""
    chance = random.Random(seed)
    at, arrivals = 50_000_000, []
    for number in range(count):
        arrivals.append((at, model, "GRPC" if number % 3 == 2 else "HTTP"))
        at += round(chance.expovariate(1 / gap))
    return arrivals
