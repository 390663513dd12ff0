"""What is said of that something was executed and is not in the trace."""

from __future__ import annotations

from profiler.events import DropKind
from profiler.messages import said
from profiler.report.sentences.worded import Sentences

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    DropKind: {
        DropKind.TRUNCATED_FILE: said("truncated file"),
        DropKind.DROPPED_EVENTS: said("dropped events"),
        DropKind.UNTRACED_CALL: said("untraced call"),
        DropKind.UNCLOSED_SLICE: said("unclosed slice"),
        DropKind.MISSING_FILE: said("missing file"),
        DropKind.CHANGED_FILE: said("changed file"),
        DropKind.ABORTED_RUN: said("aborted run"),
        DropKind.UNLABELLED_CALL: said("unlabelled call"),
        DropKind.DOUBTFUL_LABEL: said("doubtful label"),
        DropKind.AGGREGATE_MISMATCH: said("aggregate mismatch"),
        DropKind.UNALIGNED_CLOCK: said("unaligned clock"),
    }
}
