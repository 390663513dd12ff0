"""Replays of graphs: operators, dims and module paths of their capture, or why there are none."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import polars as pl
import pytest
from msgspec import structs

from profiler.analysis import headline, key_facts
from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus

from .traces import Trace

NAMES = tuple(f"kernel_{number}" for number in range(60))
GRAPHS = CORPUS / "torch_graph"
SGLANG = GRAPHS / "sglang_decode" / "sglang_Qwen3-8B_decode.json.gz"
VLLM = GRAPHS / "vllm_decode_full" / "graph_execution.json.gz"


def runtime(trace, name, start, **args):
    trace.event("cuda_runtime", name, start, 1, **args)


def captured(names=NAMES, extra=(), named=True):
    """A module `Net` of one `Linear` a kernel, while its graph is captured; `extra` are places
    before which a copy was captured that no replay has."""
    trace = Trace()
    trace.module("Net_0", 0, 10_000)
    runtime(trace, "cudaStreamBeginCapture", 1)
    for place, name in enumerate(names):
        begin = 10 + 100 * place
        if place in extra:
            runtime(trace, "cudaMemcpyAsync", begin + 2)
        trace.module(f"Linear_{place}", begin + 5, 60)
        trace.op("aten::mm", begin + 10, 40, **dims(place))
        told = {"kernel": name} if named else {}
        runtime(trace, "cudaLaunchKernel", begin + 20, **told)
    runtime(trace, "cudaStreamEndCapture", 9_000)
    return trace


def dims(place):
    return {"Input Dims": [[4, place + 1], [place + 1, 8]], "Input type": ["float", "float"]}


def replayed(names=NAMES, times=1):
    """`times` launches of a graph of these kernels."""
    trace = Trace()
    for number in range(times):
        begin = 10_000 * number
        trace.event("cuda_runtime", "cudaGraphLaunch", begin, 50, correlation=900 + number)
        for place, name in enumerate(names):
            trace.kernel(name, begin + 20 + 100 * place, 90, correlation=900 + number)
    return trace


def imported(folder, replay, captures=(), **options):
    """The run of a replay beside the traces of captures."""
    beside = folder / "capture_traces"
    beside.mkdir()
    (beside / "execution_details.json").write_text(json.dumps([{"file": "0.json"}]))
    for number, one in enumerate(captures):
        one.write(beside, f"{number}.json")
    return load(import_trace(replay.write(folder), folder / "traces", options=options))


def kernels(run):
    return run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")


def graphs_fact(run):
    return next(fact for fact in key_facts(analyze(run), 1) if str(fact.label) == "Graphs")


def test_a_replay_takes_operators_dims_and_paths_of_the_capture_beside_it(tmp_path):
    """Kernel by kernel; the call is the graph's launch, named by the captured module."""
    run = imported(tmp_path, replayed(), [captured()])
    assert run.calls.select("submodule", "stage").rows() == [("graph Net", "run")]
    found = kernels(run)
    assert found["op_type"].cast(pl.String).unique().to_list() == ["aten::mm"]
    assert found["module"].cast(pl.String).to_list() == [f"Linear_{n}" for n in range(60)]
    shapes = found["shapes"].cast(pl.String).to_list()
    assert shapes == [f"in: float32[4,{n + 1}] float32[{n + 1},8]" for n in range(60)]
    assert found["kernel"].cast(pl.String).to_list() == list(NAMES)
    assert (run.info.recording.graphs.joined, run.info.recording.graphs.kernels) == (60, 60)


def test_a_capture_may_hold_what_the_replay_lacks(tmp_path):
    """Copies that were captured and not replayed shift the order, and nothing else."""
    run = imported(tmp_path, replayed(), [captured(extra=(3, 40))])
    assert kernels(run)["module"].cast(pl.String).to_list() == [f"Linear_{n}" for n in range(60)]


def test_what_an_operator_clears_beside_its_kernels_is_no_part_of_it(tmp_path):
    """A product whose library clears its workspace first: the kernel has all of its work, and two
    kernels of one operator are its parts."""
    capture, replay = Trace(), Trace()
    runtime(capture, "cudaStreamBeginCapture", 1)
    replay.event("cuda_runtime", "cudaGraphLaunch", 0, 50, correlation=900)
    for number, kernel in enumerate(("product", "split", "reduce")):
        if number != 2:
            capture.op("aten::mm", 10 + 100 * number, 80 + 100 * number, **dims(number))
            runtime(capture, "cudaMemsetAsync", 12 + 100 * number)
            replay.event("gpu_memset", "Memset (Device)", 20 + 100 * number, 5, correlation=900)
        runtime(capture, "cudaLaunchKernel", 20 + 100 * number, kernel=kernel)
        replay.kernel(kernel, 30 + 100 * number, 60, correlation=900)
    runtime(capture, "cudaStreamEndCapture", 9_000)
    run = imported(tmp_path, replay, [capture])
    found = kernels(run).filter(pl.col("category") == "compute")
    assert found["shapes"].cast(pl.String).to_list() == [
        "in: float32[4,1] float32[1,8]",
        "in: float32[4,2] float32[2,8] part 1/2",
        "in: float32[4,2] float32[2,8] part 2/2",
    ]


@pytest.mark.parametrize(("strangers", "joined"), [(1, 59), (2, 0)])
def test_the_capture_must_have_98_percent_of_the_kernels(tmp_path, strangers, joined):
    """One stranger of sixty is 98.3 %, two are 96.7 %: none of its kernels is told then."""
    names = tuple("other" if place < strangers else name for place, name in enumerate(NAMES))
    run = imported(tmp_path, replayed(names), [captured()])
    assert run.info.recording.graphs.joined == joined
    assert run.calls["submodule"].to_list() == ["graph Net" if joined else "graph"]


def test_a_capture_of_another_model_is_refused_where_it_was_named(tmp_path):
    """Beside the trace it is left alone, and the header says so; by option it is an error."""
    other = captured(tuple(f"other_{number}" for number in range(60)))
    run = imported(tmp_path, replayed(), [other])
    assert "98 % are needed" in graphs_fact(run).note
    path = other.write(tmp_path, "other.json")
    with pytest.raises(InputError, match="the capture of another graph: at most 0%"):
        import_trace(tmp_path / "trace.json", tmp_path / "no", options={"capture": str(path)})
    assert not (tmp_path / "no").exists()


def test_what_holds_no_capture_is_refused(tmp_path):
    """A trace given as capture must be one."""
    path = replayed().write(tmp_path)
    with pytest.raises(InputError, match="holds no capture of a graph"):
        import_trace(path, tmp_path / "traces", options={"capture": str(path)})


def test_equal_captures_take_turns(tmp_path):
    """Two graphs of the same kernels, one a layer: replays take them in turn."""
    second = captured()
    for event in second.events:
        event["name"] = event["name"].replace("Net_0", "Head_0")
    run = imported(tmp_path, replayed(times=4), [captured(), second])
    assert run.calls["submodule"].to_list() == ["graph Net", "graph Head"] * 2


def test_launches_without_names_are_compared_by_kind_as_a_whole(tmp_path):
    """CUDA's recorder tells no kernel's name at its launch: as many of the same kinds."""
    run = imported(tmp_path, replayed(), [captured(named=False)])
    assert run.info.recording.graphs.joined == 60
    (tmp_path / "less").mkdir()
    run = imported(tmp_path / "less", replayed(NAMES[:59]), [captured(named=False)])
    assert run.info.recording.graphs.joined == 0


def test_without_a_capture_the_report_is_by_kernel_and_says_why(tmp_path):
    """The graph's launch is a call, its kernels have their own names."""
    run = imported(tmp_path, replayed())
    assert run.calls["submodule"].to_list() == ["graph"]
    assert kernels(run)["op_type"].cast(pl.String).to_list() == list(NAMES)
    assert "capture_traces" in graphs_fact(run).note


def test_a_trace_of_a_capture_says_that_nothing_of_it_ran(tmp_path):
    """Launches, and no kernel of theirs; said once, where the headline calls it a capture."""
    run = captured().imported(tmp_path)
    found = analyze(run)
    assert headline(found, 1).startswith("graph capture, not serving")
    assert "Graphs" not in [str(fact.label) for fact in key_facts(found, 1)]
    fact = graphs_fact(replace(run, info=structs.replace(run.info, capabilities=())))
    assert (fact.value, "not run" in fact.note) == ("60", True)


@needs_corpus
@pytest.mark.parametrize(
    ("path", "root", "number", "operator", "ms"),
    [
        (SGLANG, "Qwen3Model", 544, "aten::mm", 2.4177),
        (VLLM, "GptOssForCausalLM", 421, "vllm::moe_forward", 7.1715),
    ],
    ids=["sglang", "vllm"],
)
def test_replays_of_the_corpus_are_told_whole(tmp_path, path, root, number, operator, ms):
    """Every kernel has its operator and dims, most a module, and the costliest row of operators
    takes what the truth says."""
    run = load(import_trace(path, tmp_path))
    graph = run.calls.filter(pl.col("submodule") == f"graph {root}")["call"].item()
    found = kernels_of(run, graph)
    told = found.filter(pl.col("shapes").is_not_null() & pl.col("op_type").is_not_null())
    assert (len(found), run.info.recording.graphs.joined) == (number, number)
    assert len(told) >= 0.96 * number
    shapes = analyze(run).shapes.filter(pl.col("op_type").cast(pl.String) == operator)
    assert shapes["total_ns"].max() / 1e6 == pytest.approx(ms, rel=0.01)


def kernels_of(run, call):
    return run.commands.filter((pl.col("call") == call) & (pl.col("category") == "compute"))


@needs_corpus
def test_captures_of_the_corpus_do_not_fit_each_other(tmp_path):
    """vLLM's capture is refused for SGLang's replay; without any, the report is by kernel."""
    other = next((VLLM.parent / "capture_traces").glob("*.gz"))
    with pytest.raises(InputError, match="another graph"):
        import_trace(SGLANG, tmp_path / "no", options={"capture": str(other)})
    alone = tmp_path / SGLANG.name
    shutil.copyfile(SGLANG, alone)
    run = load(import_trace(alone, tmp_path / "traces"))
    assert run.info.recording.graphs.joined == 0
    assert "graph" in run.calls["submodule"].to_list()


@pytest.mark.parametrize("by_graph", [True, False])
def test_short_kernels_of_a_graph_are_no_matter_of_launches(tmp_path, by_graph):
    """Products of 5 µs that compute next to nothing: launched one by one they are launch-bound; a
    graph launches all of them at once, and nothing tells what bounds them."""
    trace = Trace(deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}])
    if by_graph:
        trace.event("cuda_runtime", "cudaGraphLaunch", 0, 50, correlation=900)
    else:
        trace.module("Net_0", 0, 1_000)
    for place, name in enumerate(NAMES):
        begin = 60 + 6 * place
        if by_graph:
            trace.kernel(name, begin, 5, correlation=900)
        else:
            operator = trace.op("aten::mm", begin - 10, 2, **dims(place))
            trace.kernel(name, begin, 5, launched=begin - 9, external=operator)
    analysis = analyze(imported(tmp_path, trace, [captured()] if by_graph else ()))
    assert len(analysis.shapes) == 60
    expected = [None if by_graph else "launch"]
    for table in (analysis.shapes, analysis.roofline, analysis.roofline_roles):
        assert table["bound"].cast(pl.String).unique().to_list() == expected
    tree = analysis.module_tree.filter(pl.col("commands") == 60)
    assert tree["bound"].cast(pl.String).unique().to_list() == expected
