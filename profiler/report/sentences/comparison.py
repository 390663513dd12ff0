"""What is said of comparisons."""

from __future__ import annotations

from profiler.analysis.comparison.codes import (
    ComparisonNote,
    DifferenceReason,
    Level,
    RunTrait,
    Side,
    Step,
    TreeNode,
    Verdict,
)
from profiler.bootstrap import Resampled
from profiler.report.sentences.worded import Sentences, add_sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    Verdict: {
        Verdict.SLOWER: said("slower"),
        Verdict.FASTER: said("faster"),
        Verdict.WITHIN_NOISE: said("within noise"),
        Verdict.UNCLEAR: said("unclear"),
        Verdict.MEASURED_ONCE: said("measured once"),
        Verdict.ONLY_IN_BASE: said("only in base"),
        Verdict.ONLY_IN_NEW: said("only in new"),
    },
    Side: {Side.BASE: said("base"), Side.NEW: said("new")},
    Resampled: {
        Resampled.RUNS: said("runs"),
        Resampled.PIPELINE_CALLS: said("pipeline calls"),
        Resampled.STEPS: said("steps"),
        Resampled.CALLS: said("calls"),
    },
    Level: {
        Level.NODE: said("ONNX node"),
        Level.MODULE: said("module"),
        Level.SHAPE: said("shape"),
        Level.ROLE: said("role"),
        Level.KERNEL: said("kernel"),
        Level.SORT: said("kind of work"),
        Level.SUBMODULE: said("submodule"),
    },
    Step: {
        Step.END_TO_END: said("end to end"),
        Step.SUBMODULE: said("submodule"),
        Step.ROLE: said("role"),
        Step.IDLE: said("not executing"),
        Step.BETWEEN: said("between calls"),
    },
    TreeNode: {
        TreeNode.SUBMODULE: said("submodule"),
        TreeNode.MODULE: said("module"),
        TreeNode.ROLE: said("role"),
        TreeNode.IDLE: said("not executing"),
    },
    DifferenceReason: {
        DifferenceReason.OTHER_KERNEL: said(
            "{what}{rates}: {time_ratio} times as long{at}, with another kernel ({base_kernel} → "
            "{new_kernel})"
        ),
        DifferenceReason.SAME_KERNEL: said(
            "{what}{rates}: {time_ratio} times as long{at}, with the same kernel ({base_kernel})"
        ),
        DifferenceReason.UNNAMED_KERNEL: said("{what}{rates}: {time_ratio} times as long{at}"),
        DifferenceReason.MORE_EXECUTIONS: said(
            "{what}{rates}: executed more often, {base_executions} → {new_executions} times"
        ),
        DifferenceReason.FEWER_EXECUTIONS: said(
            "{what}{rates}: executed less often, {base_executions} → {new_executions} times"
        ),
        DifferenceReason.RATES: said(" ({base} → {new} TFLOP/s)"),
        DifferenceReason.TOKENS: said(" at {tokens} tokens"),
        DifferenceReason.KERNEL: said("{what}: {time_ratio} times as long"),
        DifferenceReason.MORE_GAPS: said(
            "{submodule}: more gaps, nothing executes for {new_ns} ({base_ns} in the baseline)"
        ),
        DifferenceReason.FEWER_GAPS: said(
            "{submodule}: fewer gaps, nothing executes for {new_ns} ({base_ns} in the baseline)"
        ),
        DifferenceReason.MORE_BETWEEN: said("more time between calls: {base_ns} → {new_ns}"),
        DifferenceReason.LESS_BETWEEN: said("less time between calls: {base_ns} → {new_ns}"),
    },
    RunTrait: {
        RunTrait.PIPELINE: said("pipeline"),
        RunTrait.MODEL: said("model"),
        RunTrait.DEVICES: said("devices"),
        RunTrait.CPU: said("CPU"),
    },
    ComparisonNote: {
        ComparisonNote.SAME_RUN: said(
            "{runs} is on both sides: a run that is compared with itself differs in nothing; give "
            "another"
        ),
        ComparisonNote.ONE_RUN_EACH: said(
            "one run a side: intervals know how its steps or pipeline calls scatter, not how runs "
            "do; record {fewest} or more of each side"
        ),
        ComparisonNote.ONE_RUN: said(
            "one {side} run: it is taken to scatter as the runs of the other side do"
        ),
        ComparisonNote.FEW_RUNS: said(
            "{runs} runs hardly tell noise from difference: record {fewest} or more a side"
        ),
        ComparisonNote.CORRECTED: said("corrected to untraced calls: {submodules}"),
        ComparisonNote.COST_WITHIN_NOISE: said(
            "as traced, for what tracing costs is within noise in some of the runs: {submodules}"
        ),
        ComparisonNote.TRACED_ON_ONE_SIDE: said(
            "operators were traced in {side} only, which makes its calls longer: {submodules}"
        ),
        ComparisonNote.AS_TRACED: said(
            "as traced, with what tracing operators cost on both sides: {submodules}"
        ),
        ComparisonNote.ASYNCHRONOUS: said(
            "calls of {submodules} return before their device is done in {side}: compare busy "
            "times and roles"
        ),
        ComparisonNote.OTHER_TRAIT: said("not the same {what}: {left} → {right}"),
        ComparisonNote.SETTINGS_DIFFER: said("settings differ: {pairs}"),
        ComparisonNote.VERSIONS_DIFFER: said("versions differ: {pairs}"),
        ComparisonNote.COMPARED_BY: said("compared by {level}: {why}"),
        ComparisonNote.COMPARED_BY_FINEST: said("compared by {level}"),
        ComparisonNote.NOT_IN: said("no {level} in {side}"),
        ComparisonNote.NEITHER: said("no {level} on either side"),
        ComparisonNote.NONE_IN_COMMON: said("no {level} in common"),
        ComparisonNote.FEW_IN_COMMON: said(
            "the same {level} in {base_share} of base and {new_share} of new"
        ),
        ComparisonNote.PAIRED: said("{left} of base is compared with {right} of new"),
        ComparisonNote.TOGETHER: said(
            "no submodule is on both sides: {left} of base together are compared with {right} of "
            "new together"
        ),
        ComparisonNote.CHANGED_VALUE: said("{name} {left} → {right}"),
    },
}
add_sentences(SENTENCES)
