"""Each statement of docs/known-limits.md and docs/cannot-answer.md is held by a test or by a
command on the page, which runs with the docs, or this file says why no test can."""

from __future__ import annotations

import ast
import re
from functools import cache

import polars as pl
import pytest

import profiler
from profiler.importers import import_trace
from tests.command_line import run_command
from tests.docs.pages import REPOSITORY
from tests.importers.nsys import generated as nsys
from tests.importers.rocprofv3 import generated as rocprofv3

_STATEMENT = re.compile(r"^(?:- (.*(?:\n  .*)*)|\| (?!question |files )(.*) \|)$", re.MULTILINE)
_TEST = re.compile(r"^(tests/\S+\.py)::(\w+)$")
_PAGE = "a command of the page"
_HAND = "measured or tried by hand: "
_ELSEWHERE = "of others' programs and files, which no test of ours changes: "

HELD = {
    "docs/known-limits.md": {
        "A module `profiler`": "tests/capture/test_startup_process.py::"
        "test_a_module_of_our_name_is_shadowed",
        "Submodules of a diffusers pipeline": "tests/capture/torch/test_script_modules.py::"
        "test_what_runs_before_a_pipelines_first_call_is_not_seen",
        "A run of a bare session": f"{_HAND}processor time of one machine",
        "A function that is compiled": "tests/capture/torch/test_script_modules.py::"
        "test_a_function_that_is_compiled_in_a_run_is_compiled_in_each",
        "`torch.jit.script(module)`": "tests/capture/torch/test_script_modules.py::"
        "test_hooked_modules_are_traced_and_exported_but_not_scripted",
        "A copy of an attached module": "tests/capture/torch/test_script_modules.py::"
        "test_a_copy_of_a_hooked_module_is_not_recorded",
        "A hooked `encode` or `decode`": "tests/capture/torch/test_script_modules.py::"
        "test_what_a_hooked_method_shows",
        "Submodules that a pipeline runs in threads": "tests/capture/test_threads.py::"
        "test_a_pipelines_own_thread_is_in_no_pipeline_call",
        "While pipeline calls in threads": "tests/capture/test_conversions.py::"
        "test_the_thread_waits_for_rest_or_for_the_oldest",
        "A thread that is interrupted": f"{_HAND}a race of three threads",
        "`signal.signal(SIGTERM": "tests/capture/test_startup_ends.py::"
        "test_a_script_that_takes_sigterm_back",
        "Other numbers of ranks": "tests/docs/test_limits.py::test_what_predict_has_no_option_for",
        "[What if]": "a link",
        "Steps of one run share": f"{_HAND}docs/diff.md has how often",
        "Each row stands alone": "tests/test_resampling.py::test_noise_alone_is_rarely_called",
        "Steps that do different work": "what scatter is",
        "A model that ONNX Runtime's CPU": "tests/graph/test_split_command.py::"
        "test_an_operation_without_schema",
        "Parts whose widths": "tests/graph/test_export_bad_input.py::"
        "test_parts_that_run_would_refuse",
        "Weights come from safetensors": "tests/graph/test_export_bad_input.py::"
        "test_pickled_weights",
        "Not exported": "tests/graph/test_export_bad_input.py::test_other_pipelines",
        "Not every part comes": f"{_ELSEWHERE}torch 2.13, ONNX Runtime 1.31",
        "ONNX Runtime cannot fuse": f"{_ELSEWHERE}its fusions",
        "States of earlier tokens": "tests/graph/test_split_attention.py::"
        "test_states_of_earlier_tokens_keep_an_operation_whole",
        "Opset 11 or later": _PAGE,
        "Above 2 GB of weights": "tests/graph/test_optimize.py::"
        "test_more_than_2_gb_for_fusions_that_read_weights",
        "The optimizer, then both": f"{_HAND}memory of 2.4 GB of weights",
        "`ort-transformers` fuses": f"{_ELSEWHERE}its fusions",
        "Each model is loaded twice": f"{_HAND}memory",
        "Random inputs": "what random is",
        "`--run` measures on the CPU": "tests/graph/test_compare_graphs.py::"
        "test_a_profiled_comparison",
        "On NPUs": "not tried",
        "On GPUs": "not tried",
        "Versions": "a link",
    },
    "docs/cannot-answer.md": {
        "Did another process": f"{_ELSEWHERE}traces lack it",
        "Did the driver move": f"{_ELSEWHERE}traces lack it",
        "Has this card faster": f"{_ELSEWHERE}traces lack it",
        "What limits the inside": f"{_ELSEWHERE}traces lack it",
        "Is the image as good": f"{_ELSEWHERE}traces lack it",
        "What did production": "what recording is for",
        "How long was a cycle": "tests/importers/rbln/test_import.py::test_bytes_and_cycles",
        "Nsight Systems": "tests/docs/test_limits.py::test_ranges_tell_flops_and_no_types",
        "rocprofv3": "tests/docs/test_limits.py::test_ranges_tell_flops_and_no_types",
        "layers of TensorRT": "tests/importers/tensorrt/test_exports.py::"
        "test_layers_lie_end_to_end_and_say_so",
        "stage times of": "tests/importers/serving/test_stage_times.py::test_stages_of_vllm_omni",
        "ONNX Runtime on a GPU": "tests/docs/test_questions.py::"
        "test_nodes_fall_back_from_a_gpu_too",
        "replayed CUDA graphs": "tests/importers/kineto/test_captured_calls.py::"
        "test_graphs_of_which_no_capture_tells_are_told_apart_by_their_kernels",
        "Myelin's blocks": "tests/analysis/comparison/test_nodes.py::test_the_nodes_of_a_layer",
        "Whether a row is too long": "tests/trace/test_health.py::"
        "test_far_beyond_its_peers_alone_changes_nothing",
        "Lengths that are wrong": "tests/trace/test_health.py::test_what_is_possible_is_not_seen",
        "Lengths that are all": "tests/trace/test_health.py::test_what_is_possible_is_not_seen",
        "A clock that is set": "tests/trace/test_health.py::"
        "test_a_clock_that_is_set_forward_is_not_seen",
        "A device's clock": "tests/trace/test_health.py::test_what_is_possible_is_not_seen",
        "Lost operators": f"{_ELSEWHERE}nothing refers to them",
        "Work of one device": "tests/trace/test_health.py::test_what_is_possible_is_not_seen",
        "A clock that loses": "tests/trace/test_health.py::test_what_is_possible_is_not_seen",
        "Ranges of the host": "tests/importers/test_health.py::"
        "test_ranges_that_are_only_unusual_stay",
        "Lost kernels of a graph": "tests/trace/test_health.py::"
        "test_lost_kernels_of_a_graph_that_ran_once_are_not_seen",
        "Kernels that are up to": "tests/trace/test_health.py::"
        "test_dependent_launches_may_start_before_the_work_ahead_of_them_ends",
        "Overlaps of processes": "not tried",
    },
}
"""Page → how a statement begins → the test that holds it, or why there is none."""


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of the tests of a file."""
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("page", HELD)
def test_each_statement_is_held(page):
    """None is without a test or a reason, none is left here that went, and each test is there."""
    found = _STATEMENT.findall((REPOSITORY / page).read_text(encoding="utf-8"))
    statements = [bullet or row for bullet, row in found]
    held = HELD[page]
    wrong = [one for one in statements if sum(one.startswith(begin) for begin in held) != 1]
    assert wrong == []
    assert [begin for begin in held if not any(one.startswith(begin) for one in statements)] == []
    named = [found for by in held.values() if (found := _TEST.match(by))]
    assert len(named) > len(held) / 2
    assert [one[0] for one in named if one[2] not in names_in(one[1])] == []


def test_what_predict_has_no_option_for(capsys):
    """Ranks, offloading and LoRA."""
    assert run_command("predict", "--help") == 0
    options = re.findall(r"--[a-z-]+", capsys.readouterr().out)
    assert "--steps" in options
    assert [one for one in options if re.search("rank|offload|lora", one)] == []


def _of_nsys(folder, text):
    rows = [nsys.Range(0, 100, text), nsys.Call(20, 25, 1), nsys.Kernel(30, 90, 1)]
    return nsys.export(folder, rows)


def _of_rocprofv3(folder, text):
    marks = [rocprofv3.Mark(0, 100, text)]
    told = rocprofv3.Told([rocprofv3.Kernel(30, 90, 1)], [rocprofv3.Call(20, 25, 1)], marks=marks)
    return rocprofv3.as_json(told, folder)


@pytest.mark.parametrize("written", [_of_nsys, _of_rocprofv3])
@pytest.mark.parametrize("sizes", ["", ", sizes = [[3], [2, 3], [3, 4]]"])
def test_ranges_tell_flops_and_no_types(tmp_path, written, sizes):
    """A product of 2×3 and 3×4 has 48 FLOPs if the range has its sizes; neither bytes nor a part of
    the peak, for which its type would have to be known."""
    path = written(tmp_path, f"aten::addmm, seq = 12, op_id = 5{sizes}")
    analysis = profiler.analyze(import_trace([path], tmp_path / "traces"))
    work = analysis.commands.filter(pl.col("category") == "compute")
    assert work["flops"].to_list() == [48 if sizes else None]
    assert work["bytes_read"].to_list() == [None]
    assert analysis.shapes["flops_of_peak"].drop_nulls().is_empty()
