"""Words of predictions: closed sets."""

from __future__ import annotations

from profiler.text import NoteCode

__all__ = ["Assumption", "PlacementNote", "Reason", "Refusal", "Unknown"]


class Assumption(NoteCode):
    """What a prediction takes for granted."""

    OVERHEAD_CORRECTED = "overhead_corrected"  # factors: notes OVERHEAD_RATIO
    OVERHEAD_RATIO = "overhead_ratio"
    AS_TRACED = "as_traced"
    AS_TRACED_ELSEWHERE = "as_traced_elsewhere"
    AS_TRACED_AT = "as_traced_at"
    OVERLAPPING_CALLS = "overlapping_calls"
    WITHOUT_SUBMODULES = "without_submodules"
    WITHOUT_GUIDANCE = "without_guidance"
    HALF_BATCH_MEASURED = "half_batch_measured"
    HALF_BATCH_ESTIMATED = "half_batch_estimated"
    TIMES_BATCH = "times_batch"
    ANOTHER_SIZE = "another_size"
    SAME_PRECISION = "same_precision"
    PRECISION_BY_RATES = "precision_by_rates"
    SHARE_OF_STEPS = "share_of_steps"  # submodules: notes STEPS_OF
    STEPS_OF = "steps_of"
    SHARES_MULTIPLY = "shares_multiply"  # submodules: notes SHARE_OF_ALL, SHARE_OF_BATCHED
    SHARE_OF_ALL = "share_of_all"
    SHARE_OF_BATCHED = "share_of_batched"
    AS_MANY_LAUNCHES = "as_many_launches"
    HOST_AS_RECORDED = "host_as_recorded"
    HOST_UNTRACED = "host_untraced"
    HOST_WITH_STACKS = "host_with_stacks"
    HALF_BATCH_ON_DEVICE = "half_batch_on_device"
    PRECISION_ON_DEVICE = "precision_on_device"
    ONE_LAUNCH = "one_launch"
    NOT_CAPTURED = "not_captured"
    SPANS_OF_CALLS = "spans_of_calls"
    INSTANCES_SEEN = "instances_seen"  # models: notes INSTANCES_OF
    INSTANCES_OF = "instances_of"
    NO_BATCHES = "no_batches"
    OTHER_REQUESTS = "other_requests"


class Reason(NoteCode):
    """Why a replayed request takes what it takes."""

    LESS_WORK = "less_work"
    LAUNCH_BOUND = "launch_bound"
    WITH_GRAPHS = "with_graphs"


class Refusal(NoteCode):
    """Why launches cannot be replayed, and nothing is predicted."""

    REPLAY_OFF = "replay_off"
    PARTLY_TRACED = "partly_traced"
    LAUNCHES_MISSING = "launches_missing"


class Unknown(NoteCode):
    """What a prediction does not know."""

    HALF_BATCH_GUESSED = "half_batch_guessed"
    BATCH_GUESSED = "batch_guessed"
    SIZE_GUESSED = "size_guessed"
    ACTIVATIONS_AS_RECORDED = "activations_as_recorded"
    WORK_OF_OPERATORS = "work_of_operators"
    PRECISION_OF = "precision_of"
    CALLS_OUTSIDE = "calls_outside"
    DROPPED = "dropped"
    NO_LAUNCHES = "no_launches"
    SCATTER = "scatter"
    SCATTER_BEYOND_ESTIMATES = "scatter_beyond_estimates"
    SCATTER_OF_CALLS = "scatter_of_calls"
    SCATTER_OF_RUNS = "scatter_of_runs"
    SCATTER_OF_SINGLE = "scatter_of_single"


class PlacementNote(NoteCode):
    """What is said of devices and of what is placed on them."""

    NO_TRANSFER_TIME = "no_transfer_time"
    NO_INTERFERENCE = "no_interference"
    LIKE_OTHER_DEVICE = "like_other_device"
    LIKE_OTHER_CPU = "like_other_cpu"
    OTHER_HARDWARE = "other_hardware"
    LAUNCHES_ELSEWHERE = "launches_elsewhere"
    WEIGHTS_UNKNOWN = "weights_unknown"
    ACTIVATIONS_UNKNOWN = "activations_unknown"
    TOO_LARGE = "too_large"
    SEARCH_CUT = "search_cut"
