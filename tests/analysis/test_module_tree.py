"""The tree of modules: whose a moment is, which blocks are equal, and what follows for a node."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis import DeviceProfile, Selection
from profiler.analysis.analyze import analyze
from profiler.analysis.module_paths import parts_of, ranges
from tests.analysis.asked import asked
from tests.analysis.shaped_runs import Shaped, in_order
from tests.runs import Command, make_call, make_info, make_run, make_span, tiny_run

_GPU, _STREAM = "cuda:0", "stream 7"


def _gpu(call: int, layer: str, start: int, took: int, op_type: str, track: str = _STREAM):
    return Command(call, _GPU, track, "compute", layer, start, took, op_type)


def _tree(run, **options) -> dict[str, dict[str, object]]:
    """The nodes by the names on their way, from the stage on."""
    table = asked(run, **options).module_tree
    names: list[str] = []
    found = {}
    for row in table.to_dicts():
        names = [*names[: row["depth"]], row["name"] or row["kind"]]
        found["/".join(names[1:])] = row
    return found


def _blocks(last: str = "blocks.2.ff.proj", classes: dict[str, str] | None = None):
    """Two steps of three blocks of 100 ns, an embedding before them: 10 ns gaps in between."""
    calls, commands = [], []
    for step in range(2):
        begin = 1000 * step
        calls.append(make_call(step, "transformer", begin, begin + 400, step=step, device=_GPU))
        commands.append(_gpu(step, "embed", begin, 50, "aten::conv"))
        for block in range(3):
            at = begin + 60 + 110 * block
            name = last if block == 2 else f"blocks.{block}.ff.proj"
            commands.append(_gpu(step, f"blocks.{block}.attn.to_q", at, 40, "aten::mm"))
            commands.append(_gpu(step, name, at + 40, 60, "aten::addmm"))
    modules = {"": "Transformer", "embed": "Conv2d"} | (classes or {})
    known = make_info(submodules={"transformer": {"device": _GPU, "modules": modules}})
    spans = [make_span("pipeline", "Pipe", 0, 2000), make_span("stage", "denoise", 0, 2000)]
    return make_run(calls, commands, spans, info=known)


def test_the_run_from_end_to_end():
    """The run is end to end, the stage has what is between calls, the submodule what is between
    its commands, and blocks are one node with what one of them took over both steps."""
    classes = {f"blocks.{number}": "JointBlock" for number in range(3)}
    found = _tree(_blocks(classes=classes))
    expected = {  # elapsed, self, executions, count, shortest, median, longest
        "": (2000, 0, 1, 1, None, None, None),
        "denoise": (2000, 1200, None, 1, None, None, None),
        "denoise/transformer": (800, 100, 2, 1, None, None, None),
        "denoise/transformer/blocks.*": (600, 0, 6, 3, 200, 200, 200),
        "denoise/transformer/blocks.*/ff": (360, 0, 6, 3, 120, 120, 120),
        "denoise/transformer/blocks.*/ff/proj": (360, 0, 6, 3, 120, 120, 120),
        "denoise/transformer/blocks.*/ff/proj/aten::addmm": (360, 360, 6, 3, 120, 120, 120),
        "denoise/transformer/blocks.*/attn": (240, 0, 6, 3, 80, 80, 80),
        "denoise/transformer/blocks.*/attn/to_q": (240, 0, 6, 3, 80, 80, 80),
        "denoise/transformer/blocks.*/attn/to_q/aten::mm": (240, 240, 6, 3, 80, 80, 80),
        "denoise/transformer/embed": (100, 0, 2, 1, None, None, None),
        "denoise/transformer/embed/aten::conv": (100, 100, 2, 1, None, None, None),
    }
    names = ("elapsed_ns", "self_ns", "executions", "count", "min_ns", "median_ns", "max_ns")
    assert {path: tuple(row[name] for name in names) for path, row in found.items()} == expected
    blocks = found["denoise/transformer/blocks.*"]
    assert (blocks["class"], blocks["path"], blocks["share"]) == ("JointBlock", "blocks.*", 0.3)
    assert found["denoise/transformer"]["class"] == "Transformer"
    assert found["denoise/transformer/blocks.*/attn"]["role"] == "qkv_projection"


def test_blocks_of_other_classes_are_apart():
    """Of three blocks one is of another class: two are one node, whose path tells which."""
    classes = {"blocks.0": "Double", "blocks.1": "Double", "blocks.2": "Single"}
    found = _tree(_blocks(classes=classes))
    nodes = {path: row["count"] for path, row in found.items() if path.count("/") == 2}
    assert {path.rpartition("/")[2]: count for path, count in nodes.items()} == {
        "blocks.[0-1]": 2,
        "blocks.2": 1,
        "embed": 1,
    }
    assert found["denoise/transformer/blocks.[0-1]"]["path"] == "blocks.[0-1]"


def test_modules_that_hold_none_are_no_blocks():
    """Linear_0 and Linear_1 of an MLP are its two layers, though both are one product."""
    names = ("MLP.Linear_0", "MLP.Linear_1")
    commands = [_gpu(0, name, 10 * at, 10, "aten::mm") for at, name in enumerate(names)]
    found = _tree(make_run([make_call(0, "transformer", 0, 20, device=_GPU)], commands))
    assert [path for path in found if path.endswith(("_0", "_1"))] == [
        "denoise/transformer/MLP/Linear_0",
        "denoise/transformer/MLP/Linear_1",
    ]


def test_side_by_side_a_moment_belongs_to_the_first():
    """Of two kernels that overlap the later one has what is left; `total_ns` has both whole."""
    commands = [
        _gpu(0, "a.x", 0, 60, "aten::mm"),
        _gpu(0, "a.y", 40, 60, "aten::add", "stream 8"),
        _gpu(0, "a.z", 50, 20, "aten::mul", "stream 9"),
    ]
    found = _tree(make_run([make_call(0, "vae", 0, 120, stage="decode", device=_GPU)], commands))
    times = {path: (row["elapsed_ns"], row["total_ns"]) for path, row in found.items()}
    assert times["decode/vae"] == (120, 140)
    assert times["decode/vae/a"] == (100, 140)
    assert times["decode/vae/a/x"] == (60, 60)
    assert times["decode/vae/a/y"] == (40, 60)
    assert times["decode/vae/a/z"] == (0, 20)
    assert found["decode/vae"]["self_ns"] == 20


@pytest.mark.parametrize("turned", [False, True])
def test_of_those_that_begin_together_the_first_to_end_has_the_moment(turned):
    """Whatever their order in the trace."""
    commands = [
        _gpu(0, "a.x", 10, 60, "aten::mm"),
        _gpu(0, "a.y", 10, 80, "aten::add", "stream 8"),
    ]
    commands = commands[::-1] if turned else commands
    found = _tree(make_run([make_call(0, "vae", 0, 100, stage="decode", device=_GPU)], commands))
    assert [found[f"decode/vae/a/{name}"]["elapsed_ns"] for name in "xy"] == [60, 20]


def test_nodes_of_a_graph_lie_in_their_modules():
    """An ONNX node's layer is a path in its module: the tree has the module and the op type."""
    calls = [make_call(0, "vae", 0, 30, stage="decode", device="cpu:0")]
    layers = [f"decoder.conv_in/node_{at}" for at in range(3)]
    commands = [
        Command(
            *(0, "cpu:0", "Host", "compute", layer, 10 * at, 10, "Conv"), module="decoder.conv_in"
        )
        for at, layer in enumerate(layers)
    ]
    found = _tree(make_run(calls, commands))
    conv = found["decode/vae/decoder/conv_in/Conv"]
    assert (conv["executions"], conv["count"], conv["elapsed_ns"]) == (3, 1, 30)
    assert conv["path"] == "decoder.conv_in"


def test_without_modules_operators_are_by_role():
    """Kernels of a trace that names no modules: what they are for is guessed from what they do."""
    commands = [
        _gpu(0, "gemm_kernel", 0, 30, "aten::mm"),
        _gpu(0, "add_kernel", 30, 10, "aten::add"),
    ]
    found = _tree(make_run([make_call(0, "model", 0, 40, stage="run", device=_GPU)], commands))
    assert [
        (row["name"], row["elapsed_ns"]) for row in found.values() if row["kind"] == "role"
    ] == [
        ("matmul", 30),
        ("elementwise", 10),
    ]


def test_calls_without_operators_are_a_node():
    """Of two calls one was traced: the other's time is no gap between commands."""
    calls = [
        make_call(0, "transformer", 0, 100, step=0, device=_GPU),
        make_call(1, "transformer", 100, 190, step=1, device=_GPU, traced=False),
    ]
    found = _tree(make_run(calls, [_gpu(0, "a.x", 10, 80, "aten::mm")]))
    untraced = found["denoise/transformer/untraced"]
    assert (untraced["elapsed_ns"], untraced["executions"]) == (90, 1)
    assert found["denoise/transformer"]["self_ns"] == 20


def test_a_selection_is_the_sum_of_its_calls():
    """Of one submodule nothing is known of what was around its calls."""
    found = _tree(tiny_run(), selection=Selection(submodule=("transformer",)))
    whole = asked(tiny_run()).submodules.filter(pl.col("submodule") == "transformer")
    elapsed = whole["elapsed_ns"].item()
    assert {found[path]["elapsed_ns"] for path in ("", "denoise", "denoise/transformer")} == {
        elapsed
    }
    assert found["denoise"]["self_ns"] == 0


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("transformer_blocks.7.attn.to_q", ["transformer_blocks.7", "attn", "to_q"]),
        ("ff.net.0.proj", ["ff", "net.0", "proj"]),
        ("0.1", ["0", "1"]),
        ("x.0.1", ["x.0", "1"]),
    ],
)
def test_numbers_belong_to_what_they_number(path, parts):
    """A list of modules is no level of its own."""
    assert parts_of(path) == parts


def test_numbers_as_ranges():
    """Neighbours are a range."""
    assert ranges([0, 1, 2, 5, 7, 8]) == "[0-2,5,7-8]"


def test_a_node_reaches_of_the_peak_what_its_rate_is_of_it():
    """8192 FLOPs in 20 µs, and a copy of 20 µs, which computes nothing, at a peak of 1 TFLOP/s:
    of the run both the rate and the share are of 40 µs."""
    operations = in_order(
        ("aten::mm", "float[16,16] float[16,16]"),
        ("aten::copy_", "float[16,16] float[16,16]"),
        duration=20_000,
    )
    peak = DeviceProfile("unit", {"float32": 1e12}, 1e12, None, "", True, "cuda:0")
    tree = analyze(Shaped(operations).run, measured=(peak,)).module_tree
    rows = [row for row in tree.rows(named=True) if row["flops_of_peak"] is not None]
    assert rows[0]["kind"] == "run"
    assert rows[0]["flops_of_peak"] == pytest.approx(8192 / 40_000 / 1e3)
    for row in rows:
        assert row["teraflops_per_s"] == pytest.approx(row["flops_of_peak"])
