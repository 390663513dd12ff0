"""Runs of every kind that a trace can be, as hypothesis makes them: for what holds of all of them.

Commands overlap, stick out of their calls, never close, last no time, run on several devices or on
none, lack shapes, belong to no call; calls overlap, were not traced, are of several pipeline calls
or of none; spans are missing or contradict each other. Rows are in the order that `Run` promises.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import strategies as st

from profiler.run import CALLS, COMMANDS, COUNTERS, FLOWS, SPANS, Run
from profiler.trace import CATEGORIES, RunInfo
from profiler.trace.events import BRANCHES, ROLES
from tests.runs import make_frame, make_info

__all__ = ["pipeline_runs", "runs"]

_STAGES = ("encode", "denoise", "decode")
_SUBMODULES = ("text_encoder", "text_encoder_3", "transformer", "unet", "vae")
_DEVICES = ("cpu:0", "cuda:0", "rbln:0")
_TRACKS = (
    *("Host", "stream 7", "stream 7 memcpy", "Cluster 0", "CPU thread 1 sync"),
    *("CPUExecutionProvider", "CUDAExecutionProvider", "Memcpy"),
)
_LAYERS = (
    *("transformer_blocks.0.attn.to_q", "transformer_blocks.0.norm1.linear", "pos_embed.proj"),
    *("transformer_blocks.1.ff.net.0.proj", "transformer_blocks.0", "context_embedder"),
    *("time_text_embed.timestep_embedder.linear_1", "cudaLaunchKernel", "cudaStreamSynchronize"),
)
_OPERATIONS: tuple[tuple[str | None, str | None], ...] = (
    ("aten::linear", "float[2,77,32] float[64,32] float[64] -> float[2,77,64]"),
    ("aten::mul", "float[2,77,64] float[2,1,64] -> float[2,77,64]"),
    ("aten::add", "float[2,77,64] float[2,77,64] -> float[2,77,64]"),
    ("aten::layer_norm", "float[2,77,64] -> float[2,77,64]"),
    ("MatMul", "float16[2,77,64] float16[2,64,77] -> float16[2,77,77]"),
    ("Softmax", "float16[2,77,77] -> float16[2,77,77]"),
    ("aten::_scaled_dot_product_flash_attention", None),
    ("Conv", "float[1,4,8,8] float[4,4,3,3] -> float[1,4,8,8]"),
    ("Mul", "int64[] int64[] -> int64[]"),
    ("MemcpyFromHost", "float[0,8]"),
    ("triton_poi_fused_add_mul_0", "not a shape"),
    (None, None),
)
_AMOUNTS = st.none() | st.integers(0, 1 << 40)


def _duration() -> st.SearchStrategy[int]:
    """Mostly short; none, never closed, and very long."""
    return st.one_of(st.integers(1, 60), st.sampled_from([0, -1, 1 << 40]))


def _start() -> st.SearchStrategy[int]:
    return st.integers(0, 300)


def _noted() -> st.SearchStrategy[tuple[int | None, int | None]]:
    """Lag and duration on the device: mostly nobody noted these."""
    told = st.tuples(st.integers(0, 60), st.integers(0, 80))
    return st.just((None, None)) | st.just((None, None)) | told


@st.composite
def _calls(draw: st.DrawFn, numbered: bool) -> list[tuple[object, ...]]:
    count = draw(st.integers(0, 8))
    pipeline = st.integers(-1, 2) if numbered else st.just(-1)
    return [
        (
            index,
            draw(pipeline),
            stage := draw(st.sampled_from(_STAGES)),
            draw(st.sampled_from(_SUBMODULES)),
            draw(st.none() | st.sampled_from(BRANCHES)),
            draw(st.integers(-1, 6)) if stage == "denoise" else -1,
            draw(st.integers(-1, 3)) if stage != "denoise" else -1,
            draw(st.sampled_from(_DEVICES)),
            draw(_start()),
            draw(_duration()),
            *draw(_noted()),
            draw(st.booleans() | st.just(True)),
            "",
        )
        for index in range(count)
    ]


@st.composite
def _commands(draw: st.DrawFn, calls: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    rows = []
    for _ in range(draw(st.integers(0, 30))):
        call = draw(st.integers(-1, len(calls) - 1))
        own = calls[call] if call >= 0 else None
        operation = draw(st.sampled_from(_OPERATIONS))
        start = draw(st.integers(-20, 100)) + (own[8] if own else draw(st.integers(0, 200)))
        amounts = [draw(_AMOUNTS) for _ in range(3)]
        rows.append(
            (
                call,
                own[1] if own else draw(st.integers(-1, 2)),
                own[2] if own else draw(st.none() | st.sampled_from(_STAGES)),
                own[5] if own else draw(st.integers(-1, 6)),
                draw(st.none() | st.sampled_from(_DEVICES)),
                draw(st.sampled_from(_TRACKS)),
                draw(st.sampled_from(CATEGORIES)),
                draw(st.sampled_from(_LAYERS)),
                0,
                operation[0],
                draw(st.none() | st.sampled_from(ROLES)),
                start,
                draw(_duration()),
                *amounts,
                operation[1],
            )
        )
    last = len(calls)
    rows.sort(key=lambda row: (row[0] if row[0] >= 0 else last, row[11]))
    return [_whole(row) for row in rows]


def _whole(row: tuple[object, ...]) -> tuple[object, ...]:
    """The row of a command with its columns `module` and `kernel`, which nobody told."""
    return (*row[:8], None, *row[8:10], None, *row[10:])


@st.composite
def _spans(draw: st.DrawFn, numbered: bool) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for number in range(draw(st.integers(0, 3))):
        pipeline = number if numbered else -1
        rows.append(
            ("pipeline", pipeline, "Pipe", None, -1, draw(_start()), draw(st.integers(0, 200)))
        )
        for stage in draw(st.lists(st.sampled_from(_STAGES), max_size=4)):
            times = draw(_start()), draw(st.integers(0, 90))
            rows.append(("stage", pipeline, stage, stage, -1, *times))
        for step in draw(st.lists(st.integers(0, 6), max_size=7)):
            times = draw(_start()), draw(st.integers(0, 60))
            rows.append(("step", pipeline, f"step {step}", "denoise", step, *times))
    return rows


@st.composite
def _counters(draw: st.DrawFn, calls: int) -> list[tuple[object, ...]]:
    names = [f"{name} arena in use" for name in _SUBMODULES]
    names += ["torch allocated", "torch allocated since the pipeline began", "queue depth"]
    return [
        (
            draw(st.integers(-1, calls - 1)),
            draw(st.none() | st.sampled_from(_DEVICES)),
            name := draw(st.sampled_from(names)),
            draw(st.sampled_from(["bytes", "bytes", "count", None])),
            draw(_start()),
            float(draw(st.integers(-100 if "since" in name else 0, 1 << 40))),
        )
        for _ in range(draw(st.integers(0, 8)))
    ]


@st.composite
def _info(draw: st.DrawFn) -> RunInfo:
    submodules: dict[str, dict[str, object]] = {}
    for name in draw(st.lists(st.sampled_from(_SUBMODULES), unique=True)):
        known: dict[str, object] = {"device": draw(st.sampled_from(_DEVICES))}
        if draw(st.booleans()):
            known["weight_bytes"] = draw(st.integers(0, 1 << 40))
        if draw(st.booleans()):
            known["overhead_ratio"] = {"factor": draw(st.floats(0.5, 1.5))}
        if draw(st.booleans()):
            known["modules"] = {"": "SD3Transformer2DModel", "transformer_blocks.0.attn": "Attn"}
        submodules[name] = known
    hardware = {"cuda:0": {"hardware": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30}}
    devices = draw(st.sampled_from([{}, hardware]))
    return make_info("test", submodules=submodules, devices=devices)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A run; `numbered` ones tell what belongs to which pipeline call."""
    numbered = draw(st.booleans())
    calls = draw(_calls(numbered))
    commands = draw(_commands(calls))
    row = st.integers(0, max(len(commands) - 1, 0))
    flows = draw(st.lists(st.tuples(row, row), max_size=8)) if commands else []
    frames = {
        "calls": (calls, CALLS),
        "commands": (commands, COMMANDS),
        "counters": (draw(_counters(len(calls))), COUNTERS),
        "flows": (flows, FLOWS),
        "spans": (draw(_spans(numbered)), SPANS),
    }
    tables = {name: make_frame(rows, columns) for name, (rows, columns) in frames.items()}
    return Run(run_id="random", info=draw(_info()), **tables)


@st.composite
def pipeline_runs(draw: st.DrawFn) -> Run:
    """Pipeline calls as a GPU runs them: encoders, steps of one or two branches, a decoder; each
    command is launched by the host, which waits now and then. Times vary, some of them much."""
    chance = random.Random(draw(st.integers(0, 1 << 32)))
    tables: dict[str, list[tuple[object, ...]]] = {"calls": [], "spans": [], "free": []}
    in_calls: list[tuple[object, ...]] = []
    at = draw(st.sampled_from([0, 1_800_000_000_000_000_000]))
    steps, branches = draw(st.integers(0, 12)), draw(st.sampled_from(_BRANCHES_OF_STEPS))
    for number in range(draw(st.integers(1, 3))):
        begun = at
        for place in _places(steps, branches):
            stage, submodule, branch, step = place
            index, start, device = len(tables["calls"]), at, _PLACED[submodule]
            labels = (number, stage, step)
            at = max(at, *_launched(chance, in_calls, index, labels, device, at))
            own = (index, number, stage, submodule, branch, step, -1, device)
            traced = chance.random() > 0.1
            noted = (None, None)
            if not traced and chance.random() < 0.5:
                noted = (chance.randint(0, 9), chance.randint(0, 99))
            tables["calls"].append((*own, start, at - start, *noted, traced, ""))
            if not traced:
                in_calls[:] = [row for row in in_calls if row[0] != index]
            free = (-1, number, stage, step, "cpu:0", "Host", "host", "scheduler.step", 0)
            tables["free"].append((*free, None, None, at, 7, None, None, None, None))
            at += 9
        tables["spans"].append(("pipeline", number, "Pipe", None, -1, begun, at - begun))
        tables["spans"] += _stage_spans(tables["calls"], number)
        at = begun + 50 if chance.random() < 0.3 else at + 20
    commands = sorted(in_calls, key=lambda row: (row[0], row[11])) + tables["free"]
    sources = {row[16]: place for place, row in enumerate(commands) if row[6] == "host"}
    flows = [
        (sources[row[16]], place)
        for place, row in enumerate(commands)
        if row[6] != "host" and row[16] in sources and row[6] != "sync"
    ]
    shaped = [_whole((*row[:16], _SHAPES.get(str(row[9])))) for row in commands]
    frames = {
        "calls": (tables["calls"], CALLS),
        "commands": (shaped, COMMANDS),
        "counters": ([], COUNTERS),
        "flows": (flows, FLOWS),
        "spans": (tables["spans"], SPANS),
    }
    named = {name: make_frame(rows, columns) for name, (rows, columns) in frames.items()}
    return Run(run_id="pipelines", info=draw(_info()), **named)


_BRANCHES_OF_STEPS = (("cond", "uncond"), ("batched",), (None,), ("cond", "uncond", "skip_layers"))
_PLACED = {"text_encoder": "cpu:0", "text_encoder_3": "rbln:0", "transformer": "cuda:0"}
_PLACED |= {"vae": "cuda:0"}
_SHAPES = {name: shapes for name, shapes in _OPERATIONS if name}


def _places(
    steps: int, branches: tuple[str | None, ...]
) -> Iterator[tuple[str, str, str | None, int]]:
    """Stage, submodule, branch and step of the calls of a pipeline call."""
    for submodule in ("text_encoder", "text_encoder_3"):
        yield from (("encode", submodule, b, -1) for b in ("prompt", "negative_prompt"))
    yield from (("denoise", "transformer", b, step) for step in range(steps) for b in branches)
    yield "decode", "vae", None, -1


def _launched(
    chance: random.Random,
    rows: list[tuple[object, ...]],
    call: int,
    labels: tuple[int, str, int],
    device: str,
    at: int,
) -> Iterator[int]:
    """Add the commands of a call, each with the host's launch of it; gives when the host went on.
    The last column, for now, is what launch and command share."""
    busy = at
    for place in range(6):
        operation = _OPERATIONS[place % 5][0]
        pair = f"{call}.{place}"
        long = 20 if chance.random() < 0.05 else 1
        launch, took = chance.randint(1, 6), chance.randint(1, 12) * long
        where = (call, *labels)
        layer = _LAYERS[place]
        on_host = ("cpu:0", "CPU thread 1", "host", "cudaLaunchKernel", 0, None, None)
        rows.append((*where, *on_host, at, launch, None, None, None, pair))
        at += launch
        busy = max(busy, at) + chance.randint(0, 3)
        category = "copy" if place == 5 else "compute"
        track = "stream 7 memcpy" if place == 5 else f"stream {7 + chance.randint(0, 1)}"
        on_device = (device, track, category, layer, 0, operation, None)
        rows.append((*where, *on_device, busy, took, None, None, None, pair))
        busy += took
        if chance.random() < 0.2:
            waits = ("cpu:0", "CPU thread 1 sync", "sync", "cudaStreamSynchronize", 0, None, None)
            rows.append((*where, *waits, at, busy - at, None, None, None, f"{pair}."))
            at = busy
        yield at


def _stage_spans(calls: list[tuple[object, ...]], number: int) -> Iterator[tuple[object, ...]]:
    """A span a stage and a step of a pipeline call, around its calls."""
    own = [call for call in calls if call[1] == number]
    for stage in dict.fromkeys(call[2] for call in own):
        yield ("stage", number, stage, stage, -1, *_around([c for c in own if c[2] == stage]))
    for step in dict.fromkeys(call[5] for call in own if call[5] != -1):
        name = f"step {step}"
        yield ("step", number, name, "denoise", step, *_around([c for c in own if c[5] == step]))


def _around(calls: list[tuple[object, ...]]) -> tuple[int, int]:
    begin, end = min(c[8] for c in calls), max(c[8] + c[9] for c in calls)
    return begin, end - begin + 9
