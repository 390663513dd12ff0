"""Training: phases of what was launched, and the forward operators of backward ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.importers.kineto.read import read_run
from tests.corpus import CORPUS, needs_corpus

from .traces import Trace

MAIN, AUTOGRAD = 1, 2


def launched(trace, name, start, tid=MAIN, **args):
    """An operator of 8 µs and its kernel."""
    external = trace.op(name, start, 8, tid, **args)
    trace.kernel(f"k_{name}", start + 3, 4, launched=start + 1, external=external, tid=tid)


def backward(trace, name, start, number, kernel):
    """A backward function on autograd's thread, and the operator in it that launches."""
    args = {"Sequence number": number, "Fwd thread id": 1}
    trace.op(name, start, 12, AUTOGRAD, **args)
    launched(trace, kernel, start + 1, AUTOGRAD)


def forward(trace, name, start, number):
    launched(trace, name, start, **{"Sequence number": number, "Fwd thread id": 0})


def step(trace, begin, number):
    """Two forward operators, their backwards, a sum of gradients, and the optimizer."""
    trace.event("user_annotation", f"ProfilerStep#{number}", begin, 200)
    launched(trace, "aten::to", begin + 2)
    forward(trace, "aten::addmm", begin + 20, 7)
    forward(trace, "aten::relu", begin + 40, 8)
    backward(trace, "ReluBackward0", begin + 60, 8, "aten::threshold_backward")
    backward(trace, "AddmmBackward0", begin + 80, 7, "aten::mm")
    launched(trace, "aten::add", begin + 100, AUTOGRAD)
    trace.event("user_annotation", "Optimizer.step#SGD.step", begin + 120, 40)
    launched(trace, "aten::add_", begin + 130)


def test_commands_of_a_step_have_its_phases(tmp_path):
    """Forward by sequence number, backward by the forward's thread or autograd's own, optimizer by
    its range; what belongs to none has no phase."""
    trace = Trace()
    for number in range(2):
        step(trace, 300 * number, number)
    run = trace.imported(tmp_path)
    work = run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    named = work.select(pl.col("module", "layer").cast(pl.String)).rows()
    assert named[:7] == [
        (None, "aten::to"),
        ("forward", "forward/aten::addmm"),
        ("forward", "forward/aten::relu"),
        ("backward", "backward/aten::threshold_backward"),
        ("backward", "backward/aten::mm"),
        ("backward", "backward/aten::add"),
        ("optimizer", "optimizer/aten::add_"),
    ]
    assert named[7:] == named[:7]
    assert work["call"].to_list() == [0] * 7 + [1] * 7


def test_a_graph_of_autograd_s_thread_is_the_waiting_call_s(tmp_path):
    """In a step the backward thread enters a hook, which is a call of its own, and then launches a
    graph within no operator: that is of the call whose thread waits for it, not of the hook, and
    not lost, whatever else is open meanwhile."""
    trace = Trace()
    trace.module("Trainer_0", 0, 200)
    trace.module("Loader_0", 0, 300, tid=3)
    forward(trace, "aten::addmm", 20, 7)
    backward(trace, "AddmmBackward0", 40, 7, "aten::mm")
    trace.module("Hook_0", 60, 10, tid=AUTOGRAD)
    launched(trace, "aten::norm", 61, AUTOGRAD)
    for at in range(3):
        trace.kernel("graph_mm", 110 + 10 * at, 9, launched=100, tid=AUTOGRAD)
    run = trace.imported(tmp_path)
    names = dict(run.calls.select("call", pl.col("submodule").cast(pl.String)).rows())
    work = run.commands.filter(pl.col("device") == "cuda:0")
    of_graph = work.filter(pl.col("kernel").cast(pl.String) == "graph_mm")["call"]
    assert len(of_graph) == 3
    assert {names.get(call) for call in of_graph} == {"Trainer"}


def test_a_backward_operator_is_its_forward_s_module_and_call(tmp_path):
    """With modules, what autograd launched after the call has returned is the call's all the same,
    in the module whose operator it is the backward of: the last one with its number."""
    trace = Trace()
    trace.module("Net_0", 0, 100)
    trace.module("Linear_0", 10, 30)
    forward(trace, "aten::addmm", 20, 7)
    trace.module("ReLU_0", 50, 30)
    forward(trace, "aten::relu", 60, 7)
    backward(trace, "ReluBackward0", 120, 7, "aten::threshold_backward")
    run = trace.imported(tmp_path)
    work = run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    assert work["call"].to_list() == [0, 0, 0]
    assert work["module"].cast(pl.String).to_list() == ["Linear", "ReLU", "ReLU"]


def test_a_backward_in_no_module_is_a_call_of_its_own(tmp_path):
    """Net takes 100 us of each pass of 300, the loss behind it 60, and what autograd does for both
    80: none has what another did. Modules keep their paths in it. A pass begins with Net, though
    the backward is called as often; one within a module's call is that call's."""
    trace = Trace()
    for number in range(3):
        begin = 300 * number
        trace.module("Net_0", begin, 100)
        trace.module("Linear_0", begin + 5, 90)
        forward(trace, "aten::addmm", begin + 10, 2 * number)
        trace.module("MSELoss_0", begin + 110, 60)
        forward(trace, "aten::mse_loss", begin + 120, 2 * number + 1)
        for file in ("torch/_tensor.py(575)", "torch/autograd/__init__.py(252)"):
            trace.frame(f"{file}: backward", begin + 180, 80)
        backward(trace, "MseLossBackward0", begin + 190, 2 * number + 1, "aten::mse_loss_backward")
        backward(trace, "AddmmBackward0", begin + 220, 2 * number, "aten::mm")
    run = trace.imported(tmp_path)
    assert run.calls["submodule"].cast(pl.String).to_list() == ["Net", "MSELoss", "backward"] * 3
    assert run.calls["iteration"].to_list() == [0] * 3 + [1] * 3 + [2] * 3
    tiles = run.tiles.calls
    assert tiles["elapsed_ns"].to_list() == [100_000, 60_000, 80_000] * 3
    assert tiles["busy_ns"].to_list() == [4_000, 4_000, 8_000] * 3
    assert tiles["hidden_ns"].sum() == 0
    work = run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    assert work["call"].to_list()[:4] == [0, 1, 2, 2]
    assert work["layer"].cast(pl.String).to_list()[:4] == [
        "Linear",
        "aten::mse_loss",
        "aten::mse_loss_backward",
        "Linear",
    ]
    inside = Trace()
    inside.module("Trainer_0", 0, 300)
    inside.frame("torch/_tensor.py(575): backward", 180, 80)
    inside.kernel("k", 200, 10, launched=190)
    folder = tmp_path / "inside"
    folder.mkdir()
    assert inside.imported(folder).calls["submodule"].cast(pl.String).to_list() == ["Trainer"]


def test_a_recomputed_operator_is_of_the_module_that_ran_it_in_the_backward(tmp_path):
    """A checkpointed block runs again on autograd's thread, below the first backward that needs
    it: its products are those of its Linear there, not of the ReLU whose backward asked."""
    trace = Trace()
    trace.module("Net_0", 0, 100)
    trace.module("Block_0", 5, 90)
    trace.module("Linear_0", 10, 30)
    forward(trace, "aten::addmm", 20, 7)
    trace.module("ReLU_0", 50, 30)
    forward(trace, "aten::relu", 60, 8)
    args = {"Sequence number": 8, "Fwd thread id": 1}
    trace.op("ReluBackward0", 120, 60, AUTOGRAD, **args)
    trace.module("Linear_0", 125, 20, tid=AUTOGRAD)
    launched(trace, "aten::addmm", 130, AUTOGRAD)
    launched(trace, "aten::threshold_backward", 160, AUTOGRAD)
    run = trace.imported(tmp_path)
    work = run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    assert work["call"].to_list() == [0, 0, 0, 0]
    modules = ["Block.Linear", "Block.ReLU", "Block.Linear", "Block.ReLU"]
    assert work["module"].cast(pl.String).to_list() == modules


@needs_corpus
@pytest.mark.parametrize(
    "name",
    [
        "torch_kineto_tb/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
        "torch_kineto_tb/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz",
        "torch_multirank/nccl_parser_config/nccl_data.json.gz",
    ],
)
def test_backward_operators_of_the_corpus_find_their_forward(name):
    """Over 95 % of the time of backward kernels, collectives aside, has a forward operator, and
    names agree:
    `ConvolutionBackward0` is of a convolution."""
    run = read_run([CORPUS / Path(name)])
    training = run.writer.launches.training
    duration = run.trace.duration_ns[run.writer.launches.row]
    kernels = [run.trace.events[row].name for row in run.writer.launches.row.tolist()]
    behind = np.array(training.phases) == "backward"
    behind &= [not name.startswith("nccl") for name in kernels]
    found = behind & (training.forward >= 0)
    assert duration[found].sum() > 0.95 * duration[behind].sum()
    names = {
        (run.trace.events[backward].name, run.trace.events[forward].name)
        for backward, forward in zip(
            training.backward[found].tolist(), training.forward[found].tolist(), strict=True
        )
    }
    convolutions = [pair for pair in names if "ConvolutionBackward" in pair[0]]
    assert convolutions
    assert all("conv" in forward for _, forward in convolutions)


def test_products_of_devices_that_run_at_once_take_no_more_than_the_run(tmp_path):
    """Two threads each run float32 products on a device of their own for nine tenths of the run:
    so much of it is that, not twice as much."""
    trace = Trace(deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}])
    for thread in (1, 2):
        trace.module("Linear_0", 0, 100_000, tid=thread)
        for number in range(10):
            at = 10_000 * number
            trace.kernel(
                "ampere_sgemm_128x64_tn",
                at + 1_000,
                9_000,
                launched=at,
                tid=thread,
                device=thread - 1,
                external=trace.op("aten::mm", at, 500, tid=thread),
            )
    made = analyze(trace.imported(tmp_path))
    assert made.contradictions.is_empty()
    (found,) = [one for one in made.findings if one.rule == "single_precision"]
    assert found.evidence["total_ns"] == 2 * 90_000_000
    assert found.evidence["run_share"] == pytest.approx(0.9)
