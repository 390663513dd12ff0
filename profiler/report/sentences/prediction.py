"""What is said of predictions: what they assume, what they do not know, devices and memory."""

from __future__ import annotations

from profiler.analysis.prediction.codes import (
    Assumption,
    PlacementNote,
    Reason,
    Refusal,
    Unknown,
)
from profiler.report.sentences.worded import Sentences, add_sentences
from profiler.text import said

__all__ = ["FACTORS", "SENTENCES"]

FACTORS: Sentences = {
    Assumption: {
        Assumption.TIMES_BATCH: said(
            "{submodule} takes {share} times as long ({low_share} to {high_share}) with the larger "
            "batch, by the work of each operator"
        ),
        Assumption.ANOTHER_SIZE: said(
            "{submodule} takes {share} times as long ({low_share} to {high_share}) at {size} in "
            "place of {before}, by the work of each operator"
        ),
        Assumption.PRECISION_BY_RATES: said(
            "{submodule} takes {share} times as long ({low_share} to {high_share}) at {dtype}, by "
            "the rates of {device}; kernels of that type may reach less"
        ),
        Assumption.PRECISION_ON_DEVICE: said(
            "the device works {share} times as long ({low_share} to {high_share}) for {submodule} "
            "at {dtype}, by the rates of {device}; kernels of that type may reach less"
        ),
        Assumption.SHARE_OF_ALL: said("{submodule} {share} times ({low_share} to {high_share})"),
        Assumption.SHARE_OF_BATCHED: said(
            "batched calls of {submodule} {share} times ({low_share} to {high_share})"
        ),
    },
}

SENTENCES: Sentences = {
    Assumption: {
        Assumption.OVERHEAD_CORRECTED: said(
            "times are without the cost of tracing operators where it is known ({factors})"
        ),
        Assumption.OVERHEAD_RATIO: said("{submodule} times {ratio}"),
        Assumption.AS_TRACED: said(
            "times are as recorded and include the cost of tracing operators, which is not known: "
            "for times without it, record with --measure-overhead, or with --ops none"
        ),
        Assumption.AS_TRACED_ELSEWHERE: said(
            "times are as recorded and include what the profiler cost, which its trace does not "
            "tell"
        ),
        Assumption.AS_TRACED_AT: said(
            "times are as recorded and include the cost of tracing operators: {share} of the run, "
            "which is not known by submodule or lies within noise there; for times without it, "
            "record with --measure-overhead, or with --ops none"
        ),
        Assumption.OVERLAPPING_CALLS: said(
            "pipeline calls of the run overlapped: their times include what they waited for another"
        ),
        Assumption.INSTANCES_SEEN: said(
            "each model runs as many requests at once as it was seen to: {models}"
        ),
        Assumption.INSTANCES_OF: said("{submodule} {instances}"),
        Assumption.NO_BATCHES: said(
            "each request computes alone, for as long as its batch did: {calls} recorded calls "
            "shared theirs with others"
        ),
        Assumption.OTHER_REQUESTS: said(
            "{requests} requests that called other models, or called them more or less often, are "
            "left out"
        ),
        Assumption.WITHOUT_SUBMODULES: said(
            "without {submodules} its calls and the host's time before each of them are left out; "
            "nothing stands in for what they made"
        ),
        Assumption.WITHOUT_GUIDANCE: said(
            "without guidance no negative prompt is encoded and no uncond call is made"
        ),
        Assumption.HALF_BATCH_MEASURED: said(
            "{submodule} takes {share} of a batched call, as measured in its cond calls"
        ),
        Assumption.HALF_BATCH_ESTIMATED: said(
            "{submodule} takes {share} ({low_share} to {high_share}) of a batched call, by halving "
            "the batch of each operator"
        ),
        Assumption.TIMES_BATCH: said(
            "{submodule} takes {share} ({low_share} to {high_share}) of its time with the larger "
            "batch, by the work of each operator"
        ),
        Assumption.ANOTHER_SIZE: said(
            "{submodule} takes {share} ({low_share} to {high_share}) of its time at {size} in "
            "place of {before}, by the work of each operator"
        ),
        Assumption.SAME_PRECISION: said("{submodule} computes in {dtype} already"),
        Assumption.PRECISION_BY_RATES: said(
            "{submodule} takes {share} ({low_share} to {high_share}) of its time at {dtype}, by "
            "the rates of {device}; kernels of that type may reach less"
        ),
        Assumption.SHARE_OF_STEPS: said(
            "some calls do not happen in all of {steps} steps ({submodules}): of fewer or more "
            "steps the same share has them"
        ),
        Assumption.STEPS_OF: said("{submodule} in {steps}"),
        Assumption.SHARES_MULTIPLY: said("what is said of one submodule multiplies: {submodules}"),
        Assumption.SHARE_OF_ALL: said("{submodule} {share} ({low_share} to {high_share})"),
        Assumption.SHARE_OF_BATCHED: said(
            "batched calls of {submodule} {share} ({low_share} to {high_share})"
        ),
        Assumption.AS_MANY_LAUNCHES: said(
            "launches are replayed: calls launch as much as they did, and the host takes as long "
            "for it; unchanged, the replay has a device span of {replayed_ns}, and {recorded_ns} "
            "were recorded"
        ),
        Assumption.SPANS_OF_CALLS: said(
            "a request lasts from its first call to its last one: the run was killed before it "
            "could tell more"
        ),
        Assumption.HOST_AS_RECORDED: said(
            "the host is as slow as it was while it was recorded: without the profiler, launches "
            "come sooner; to correct for that, give --untraced the time that the run takes "
            "without it"
        ),
        Assumption.HOST_UNTRACED: said(
            "within calls the host takes {share} of its recorded time, so that the run takes as "
            "long as --untraced says"
        ),
        Assumption.HOST_WITH_STACKS: said(
            "the host is as slow as it was while Python stacks were recorded (with_stack), which "
            "slow it: without the profiler, launches come sooner; to correct for that, give "
            "--untraced the time that the run takes without it"
        ),
        Assumption.HALF_BATCH_ON_DEVICE: said(
            "the device works {share} ({low_share} to {high_share}) as long on half a batch of "
            "{submodule}, which is launched as before"
        ),
        Assumption.PRECISION_ON_DEVICE: said(
            "the device works {share} ({low_share} to {high_share}) as long for {submodule} at "
            "{dtype}, by the rates of {device}; kernels of that type may reach less"
        ),
        Assumption.ONE_LAUNCH: said(
            "each call of {submodules} is launched at once, as a CUDA graph: its shapes stay the "
            "same, and recording the graph takes no time"
        ),
        Assumption.NOT_CAPTURED: said(
            "{submodules} are launched as before: their calls wait for the device, which no graph "
            "can"
        ),
    },
    Reason: {
        Reason.LESS_WORK: said(
            "in {submodule} the device has {less_ns} less to do than in as many steps without that "
            "change; the run gains {gained_ns} of that"
        ),
        Reason.LAUNCH_BOUND: said(
            "{submodule} is launch-bound: in the replay, where work begins as soon as it is "
            "launched and its stream is free, the device is idle for {idle_ns} of the {elapsed_ns} "
            "of its calls"
        ),
        Reason.WITH_GRAPHS: said(
            "what would remove that bound is one launch a call (`--cuda-graph`): {predicted_ns} "
            "then, with a device span of {device_span_ns}; less work on the device would not"
        ),
    },
    Refusal: {
        Refusal.REPLAY_OFF: said(
            "replayed as it was, the run has a device span of {replayed_ns}, and {recorded_ns} "
            "were recorded ({off_share} off)"
        ),
        Refusal.PARTLY_TRACED: said("some calls of {submodule} were recorded without launches"),
        Refusal.LAUNCHES_MISSING: said(
            "the launches of {missing_share} of the device's work are not in the trace"
        ),
    },
    Unknown: {
        Unknown.BATCH_GUESSED: said(
            "how long {submodule} takes with a larger batch: its operators were not traced"
        ),
        Unknown.SIZE_GUESSED: said(
            "how long {submodule} takes with images of another size: no operator in the trace "
            "tells; its time is taken to go with the pixels, at most with their square"
        ),
        Unknown.ACTIVATIONS_AS_RECORDED: said(
            "how much memory activations need then: they are counted as recorded"
        ),
        Unknown.HALF_BATCH_GUESSED: said(
            "what half a batch takes of {submodule}: none of its calls was traced with operators; "
            "half is taken, and all of it as the upper bound"
        ),
        Unknown.WORK_OF_OPERATORS: said(
            "the work of {share} of the operators' time of {submodule}"
        ),
        Unknown.PRECISION_OF: said(
            "what {dtype} does to {submodule}: the types of its operators are not in the trace; it "
            "is taken to stay as it is"
        ),
        Unknown.CALLS_OUTSIDE: said(
            "what {calls} calls in no pipeline call are for: they are left out"
        ),
        Unknown.DROPPED: said("what is not in the trace ({kind}, see `profile-sd3 analyze`)"),
        Unknown.NO_LAUNCHES: said(
            "what {devices} waited for: the trace has no launches, so time in which a device waits "
            "for the host is taken to become less with its work"
        ),
        Unknown.SCATTER: said(
            "how much it scatters: nothing in the run was measured twice, so no interval is given"
        ),
        Unknown.SCATTER_BEYOND_ESTIMATES: said(
            "how much it scatters: nothing in the run was measured twice, so the interval has the "
            "bounds of what was estimated alone"
        ),
        Unknown.SCATTER_OF_CALLS: said(
            "how much one pipeline call differs from the next beyond its steps: one was measured, "
            "so times of several may lie outside of the interval; record several"
        ),
        Unknown.SCATTER_OF_RUNS: said(
            "how runs differ from one another: the interval has what varied within this run, and "
            "equal runs minutes apart on a shared machine differ by more"
        ),
        Unknown.SCATTER_OF_SINGLE: said(
            "how much what was measured once scatters, {share} of the predicted time: it is taken "
            "to scatter as the steps do"
        ),
    },
    PlacementNote: {
        PlacementNote.NO_TRANSFER_TIME: said(
            "moving tensors between devices takes no time beside that of calls"
        ),
        PlacementNote.NO_INTERFERENCE: said(
            "calls take what they were measured to take, whatever runs on other devices"
        ),
        PlacementNote.LIKE_OTHER_DEVICE: said(
            "{device} is not in the run and assumed to be like {other}"
        ),
        PlacementNote.LIKE_OTHER_CPU: said(
            "{device} is not in the run and assumed to be like {other}, with as many cores of its "
            "own; where it takes cores away from other devices, these slow down"
        ),
        PlacementNote.OTHER_HARDWARE: said(
            "{device} is other hardware than {measured_on}, and their rates do not tell the time "
            "there; record a run with that device, or measure both with "
            "`profile-sd3 benchmark-device`"
        ),
        PlacementNote.LAUNCHES_ELSEWHERE: said(
            "{device} is other hardware than {measured_on}, and how fast a host launches there is "
            "not known, so the time there is not; record a run with that device"
        ),
        PlacementNote.WEIGHTS_UNKNOWN: said(
            "weights of {submodules} are not known and count as nothing"
        ),
        PlacementNote.ACTIVATIONS_UNKNOWN: said(
            "activations of {submodules} are not known and count as nothing"
        ),
        PlacementNote.TOO_LARGE: said(
            "{device} has {memory_bytes} and would hold {needed_bytes} of {submodules} "
            "({weights_bytes} of weights, {activations_bytes} of activations)"
        ),
        PlacementNote.SEARCH_CUT: said(
            "the search ended after {simulations} simulations; others may be better"
        ),
    },
}
add_sentences(SENTENCES, FACTORS)
