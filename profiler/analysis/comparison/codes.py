"""Words of comparisons: closed sets."""

from __future__ import annotations

from enum import StrEnum

from profiler.text import NoteCode

__all__ = [
    "ComparisonNote",
    "DifferenceReason",
    "Level",
    "RunTrait",
    "Side",
    "Step",
    "TreeNode",
    "Verdict",
]


class Side(StrEnum):
    """Which side of a comparison."""

    BASE = "base"
    NEW = "new"

    @property
    def other(self) -> Side:
        """The side opposite."""
        return Side.NEW if self is Side.BASE else Side.BASE

    @property
    def alone(self) -> Verdict:
        """The verdict on what only this side has."""
        return Verdict.ONLY_IN_BASE if self is Side.BASE else Verdict.ONLY_IN_NEW


class Verdict(StrEnum):
    """What came of a metric on both sides, or that only one has it."""

    SLOWER = "slower"
    FASTER = "faster"
    WITHIN_NOISE = "within_noise"
    UNCLEAR = "unclear"
    MEASURED_ONCE = "measured_once"
    ONLY_IN_BASE = "only_in_base"
    ONLY_IN_NEW = "only_in_new"


class Level(StrEnum):
    """By what two sides are compared, from the finest: what both know."""

    NODE = "node"
    MODULE = "module"
    SHAPE = "shape"
    ROLE = "role"
    KERNEL = "kernel"
    SORT = "sort"
    SUBMODULE = "submodule"


class Step(StrEnum):
    """What a line of a waterfall from one end-to-end time to the other is of."""

    END_TO_END = "end_to_end"
    SUBMODULE = "submodule"
    ROLE = "role"
    IDLE = "idle"
    BETWEEN = "between"


class TreeNode(StrEnum):
    """What a node of the tree of differences is."""

    SUBMODULE = "submodule"
    MODULE = "module"
    ROLE = "role"
    IDLE = "idle"


class RunTrait(StrEnum):
    """What runs that are compared should have in common."""

    PIPELINE = "pipeline"
    MODEL = "model"
    DEVICES = "devices"
    CPU = "cpu"


class ComparisonNote(NoteCode):
    """What else differs between two sides, and what their intervals do not know."""

    SAME_RUN = "same_run"
    ONE_RUN_EACH = "one_run_each"
    ONE_RUN = "one_run"
    FEW_RUNS = "few_runs"
    CORRECTED = "corrected"
    COST_WITHIN_NOISE = "cost_within_noise"
    TRACED_ON_ONE_SIDE = "traced_on_one_side"
    AS_TRACED = "as_traced"
    ASYNCHRONOUS = "asynchronous"
    OTHER_TRAIT = "other_trait"
    SETTINGS_DIFFER = "settings_differ"
    VERSIONS_DIFFER = "versions_differ"
    CHANGED_VALUE = "changed_value"
    COMPARED_BY = "compared_by"
    COMPARED_BY_FINEST = "compared_by_finest"
    NOT_IN = "not_in"
    NEITHER = "neither"
    NONE_IN_COMMON = "none_in_common"
    FEW_IN_COMMON = "few_in_common"
    PAIRED = "paired"
    TOGETHER = "together"


class DifferenceReason(NoteCode):
    """Why one end-to-end time is not the other: what a difference of work or of waiting consists
    of."""

    OTHER_KERNEL = "other_kernel"
    SAME_KERNEL = "same_kernel"
    UNNAMED_KERNEL = "unnamed_kernel"
    MORE_EXECUTIONS = "more_executions"
    FEWER_EXECUTIONS = "fewer_executions"
    RATES = "rates"
    TOKENS = "tokens"
    KERNEL = "kernel"
    MORE_GAPS = "more_gaps"
    FEWER_GAPS = "fewer_gaps"
    MORE_BETWEEN = "more_between"
    LESS_BETWEEN = "less_between"
