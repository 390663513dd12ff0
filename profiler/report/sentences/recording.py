"""What is said of how an imported run was recorded: what tells its calls."""

from __future__ import annotations

from profiler.report.sentences.worded import Sentences
from profiler.text import said
from profiler.trace.manifest_fields import CallsFrom

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    CallsFrom: {
        CallsFrom.ANNOTATIONS: said(
            "the trace has no ranges of modules: a call is a range that its script named"
        ),
        CallsFrom.PROFILER_STEPS: said(
            "the trace has no ranges of modules: a call is a step of torch.profiler's schedule"
        ),
        CallsFrom.OPERATORS: said(
            "from operators (embeddings, convolutions, products, compiled regions): the trace has "
            "no ranges of modules; with_stack=True records them"
        ),
        CallsFrom.GRAPH_LAUNCHES: said(
            "the trace has no ranges of modules: a call is the launch of a graph"
        ),
        CallsFrom.CAPTURED_OPERATORS: said(
            "a call is the launch of a graph, named after the operators of its capture: the trace "
            "has no ranges of modules"
        ),
        CallsFrom.KERNEL_PERIOD: said(
            "from the period of the kernels: the trace has no ranges of modules; with_stack=True "
            "records them"
        ),
        CallsFrom.MODULE_PERIOD: said(
            "by the compiled module of each kernel: a call begins where the module's first "
            "operation comes again"
        ),
        CallsFrom.NOTHING: said(
            "nothing in the trace tells one call from another, so all of it counts as one and the "
            "report is by kernel: with_stack=True records modules"
        ),
    }
}
