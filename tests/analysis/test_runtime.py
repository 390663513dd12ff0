"""Advice that knows what executed a run, and empty answers that say what to record."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import astuple, replace

import profiler
from profiler.analysis import Finding, change, rules, words
from profiler.analysis.dropped_data import CONSEQUENCES, unchecked
from profiler.analysis.finding_text import has_other_advice
from profiler.analysis.findings import checked_text
from profiler.analysis.idle_causes import WaitCause
from profiler.analysis.result import Where
from profiler.analysis.runtime import INSTEAD, Runtime, is_compiled, runtime_of
from profiler.report import catalogue, section_kinds
from profiler.text import in_language
from tests.analysis.asked import asked
from tests.analysis.findings.cases import analyzed, command, gpu_call
from tests.runs import Command, make_call, make_info, make_run

SAMPLES = Path(__file__).parents[2] / "sample_traces"
H200 = Path(__file__).parents[1] / "evidence/h200"


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (SAMPLES / "sd35_mi300x", Runtime.COMPILED),
        (SAMPLES / "tiny_two_devices", Runtime.ONNXRUNTIME),
        (H200 / "flux-eager.json.gz", Runtime.TORCH),
        (H200 / "flux-compiled.json.gz", Runtime.COMPILED),
    ],
)
def test_what_executed_a_run(path, runtime):
    """Generated Triton kernels are of torch.compile, models that end with .onnx of ONNX Runtime."""
    assert runtime_of(asked(profiler.load(path))) is runtime


def test_a_part_that_is_compiled():
    """FLUX with its transformer compiled: the decoder is not, and may be advised to be."""
    analysis = asked(profiler.load(H200 / "flux-compiled.json.gz"))
    assert is_compiled(analysis, "transformer")
    assert not is_compiled(analysis, "vae")
    (found,) = (each for each in analysis.findings if each.where.submodule == "vae")
    assert found.rule == "elementwise_chains"
    assert change(found).startswith("Compile the submodule")


def test_a_rule_that_found_something_could_be_checked():
    """Kernels of float32 without shapes, whose names tell it."""
    product = command(0, 0, 900, op_type="aten::mm", kernel="ampere_sgemm_128x64_tn")
    known = ("timeline", "launches", "memory")
    analysis = analyzed([gpu_call(0, 0, 1000)], [product], producer="kineto", capabilities=known)
    assert "single_precision" in {finding.rule for finding in analysis.findings}
    (some, _) = unchecked(analysis)["shapes"]
    assert "slow_products" in some
    assert "single_precision" not in some


def _xla_run():
    call = make_call(0, "transformer", 0, 90, device="tpu:0")
    work = [Command(0, "tpu:0", "XLA Ops", "compute", "fusion", 0, 50)]
    return make_run([call], work, info=make_info("xplane"))


def test_an_xla_run_is_told_nothing_of_torch():
    """No recommendation of a rule with other words for XLA names torch, CUDA graphs or ONNX."""
    assert runtime_of(asked(_xla_run())) is Runtime.XLA
    others = ("torch", "ONNX", "CUDA", ".item()", ".cpu()", "run.warmup", "graph breaks")
    for rule, evidence in (
        ("elementwise_chains", {}),
        ("norm_chains", {}),
        ("single_precision", {}),
        ("host_bound", {"host_wait_ns": 9, "commands": 1}),
        ("host_bound", {"host_wait_ns": 9_000_000, "commands": 1}),
        ("idle_gaps", {"cause": WaitCause.LAUNCH, "gaps": 2}),
        ("idle_gaps", {"cause": WaitCause.SYNC, "gaps": 2}),
        ("idle_gaps", {"cause": WaitCause.HOST, "gaps": 2}),
        ("scheduler_sync", {}),
        ("first_call", {"first_ns": 9, "later_median_ns": 1}),
    ):
        found = Finding(rule, {**evidence, "runtime": Runtime.XLA})
        assert has_other_advice(Finding(rule, evidence), Runtime.XLA), rule
        for text in (words(found).recommendation, change(found)):
            assert not any(word in text for word in others), text


def test_a_compiled_run_is_not_advised_to_compile():
    """What it says in place of that."""
    for rule in ("elementwise_chains", "norm_chains"):
        found = Finding(rule, {"runtime": Runtime.COMPILED})
        assert "ompiled already" in change(found)
        assert "torch.compile" not in words(found).recommendation
    waits = Finding("host_bound", {"runtime": Runtime.COMPILED})
    assert "torch.compile" not in change(waits)


_ROCM = Where(device="rank1/rocm:0", submodule="transformer")


@pytest.mark.parametrize(("device", "name"), [("rank1/rocm:0", "HIP"), ("npu:0", "NPU")])
def test_graphs_of_others_have_their_names(device, name):
    """In every text that names CUDA graphs, in Korean too; NVIDIA's keep their name."""
    for rule, evidence in (
        ("launch_bound", {"device_time_share": 0.5}),
        ("host_bound", {"host_wait_ns": 9, "host_wait_share": 0.5, "commands": 1}),
        ("host_bound", {"host_wait_ns": 9, "host_wait_share": 0.5, "runtime": Runtime.COMPILED}),
    ):
        found = Finding(rule, evidence, replace(_ROCM, device=device))
        cuda = replace(found, where=replace(_ROCM, device="cuda:0"))
        for text, of_cuda in (
            (words(found).recommendation, words(cuda).recommendation),
            (change(found), change(cuda)),
        ):
            assert text == of_cuda.replace("CUDA graphs", f"{name} graphs")
            korean = in_language(text, catalogue("ko"))
            assert "CUDA" not in korean
            assert (f"{name} 그래프" in korean) == (f"{name} graphs" in text)
        assert "CUDA graphs" in words(cuda).recommendation


def test_tf32_is_no_advice_for_amd():
    """torch ignores it there."""
    found = Finding("single_precision", {"run_share": 0.5}, _ROCM)
    for text in (*astuple(words(found)), change(found)):
        assert "TF32" not in text


def test_every_text_that_is_replaced_is_one_of_a_rule():
    """A text that a rule words anew must be worded anew in `INSTEAD`, too."""
    sources = Path(profiler.__file__).parent.joinpath("analysis").glob("*.py")
    text_of = (path.read_text() for path in sources if path.name != "runtime.py")
    joined = re.sub(r'"\s*\n\s*"', "", "".join(text_of))
    for text in INSTEAD:
        assert text in joined, text


def test_an_empty_answer_says_what_to_record():
    """A torch trace without shapes: rules that need them are counted, with the option."""
    info = make_info("kineto", capabilities=("timeline", "launches", "memory"))
    call = make_call(0, "vae", 0, 90, device="cuda:0")
    work = [Command(0, "cuda:0", "stream 7", "compute", "conv", 0, 90)]
    analysis = asked(make_run([call], work, info=info))
    (some, advice) = unchecked(analysis)["shapes"]
    assert {"slow_products", "elementwise_chains"} <= some
    assert "record_shapes=True" in advice
    text = str(checked_text(analysis))
    assert text.startswith(
        f"{len(rules()) - len(some)} of {len(rules())} rules checked, none applies; "
    )
    assert text.endswith(f"{len(some)} need shapes: Record with record_shapes=True")


def test_what_rules_name_exists():
    """The data that they need has a sentence for the report that lacks it, and the section to read
    next is one of the report's."""
    assert {code for rule in rules().values() for code in rule.needs} == {*CONSEQUENCES}
    sections = {kind.key for kind in section_kinds()}
    assert {rule.section for rule in rules().values()} - {""} <= sections
