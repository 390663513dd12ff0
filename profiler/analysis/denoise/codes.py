"""Words of the tables about denoising steps: closed sets."""

from __future__ import annotations

from enum import StrEnum

from profiler.text import NoteCode

__all__ = [
    "GuidanceEvidence",
    "GuidanceKind",
    "OutlierCause",
    "Over",
    "PartLevel",
    "RedundancyEvidence",
    "RedundancyKind",
]


class PartLevel(StrEnum):
    """What a part of a step is; `block_and_role` or `role` where operators are too many."""

    STEP = "step"
    SUBMODULE = "submodule"
    OPERATOR = "operator"
    BLOCK_AND_ROLE = "block_and_role"
    ROLE = "role"


class OutlierCause(StrEnum):
    """Why a part of a step took longer than usual."""

    WARM_UP = "warm_up"
    FIRST_STEP = "first_step"
    COMMANDS = "commands"
    OVERLAP = "overlap"
    HOST_WORK = "host_work"
    IDLE = "idle"
    CALLS = "calls"


class GuidanceKind(StrEnum):
    """What calls are there for."""

    CLASSIFIER_FREE = "classifier_free_guidance"
    NEGATIVE_PROMPT = "negative_prompt"
    SKIP_LAYERS = "skip_layer_guidance"


class GuidanceEvidence(NoteCode):
    """What the cost of guidance was found by."""

    OWN_CALLS = "own_calls"
    MEASURED_CALLS = "measured_calls"
    HALVED_OPERATORS = "halved_operators"
    GUESSED_HALF = "guessed_half"
    REPLAYED_LAUNCHES = "replayed_launches"


class RedundancyKind(StrEnum):
    """What computes the same again."""

    CONDITIONING = "conditioning"
    POSITION = "position"
    CROSS_ATTENTION = "cross_attention"
    SHAPE_ARITHMETIC = "shape_arithmetic"
    TIMESTEP = "timestep"
    MODULATION = "modulation"


class Over(StrEnum):
    """What something is the same over."""

    STEPS = "steps"
    STEPS_AND_BRANCHES = "steps_and_branches"
    BRANCHES = "branches"
    AHEAD = "known_ahead"
    AHEAD_AND_BRANCHES = "known_ahead_and_branches"


class RedundancyEvidence(NoteCode):
    """What speaks for it."""

    PATH = "path"
    CLASS = "class"
    TOKENS = "tokens"
    ROLE_ROPE = "role_rope"
    NO_BLOCK = "no_block"
    ROLE_MODULATION = "role_modulation"
    ONE_VECTOR = "one_vector_a_sample"
    INTEGERS = "integers"
    NO_DATA = "no_data"
    EQUAL_SHAPES = "equal_shapes"
    NO_SHAPES = "no_shapes"
