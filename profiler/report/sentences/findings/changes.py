"""The change that a finding recommends, in one line: what to do first.

    change(finding)  == "Launch less: CUDA graphs, torch.compile, larger batches, fused nodes"

`words` has the whole recommendation.
"""

from __future__ import annotations

from collections.abc import Mapping

from profiler.analysis.denoise.codes import OutlierCause
from profiler.analysis.findings.codes import MostlyBetween
from profiler.analysis.findings.finding import Finding
from profiler.analysis.waiting.codes import WaitCause
from profiler.report.sentences.findings.late_host import (
    waits_for_data_loader,
    waits_longer_than_launches,
)
from profiler.report.sentences.findings.outside_nodes import is_qnn
from profiler.report.sentences.findings.roofline import is_attention
from profiler.report.sentences.findings.words import words
from profiler.text import Said, said

__all__ = ["BY_CAUSE", "CHANGES", "OTHERWISE", "change"]

CHANGES: Mapping[str, Said] = {
    "compilation": said("Warm up with every shape; keep the compiler's cache between processes"),
    "cpu_fallback": said("Export with another opset or type, so that the provider takes them"),
    "data_movement": said("Keep one type and layout from end to end; avoid .contiguous()"),
    "decode_peak": said("Decode in tiles or slices: vae.enable_tiling(), vae.enable_slicing()"),
    "device_imbalance": said("Divide heads or channels evenly over the devices"),
    "elementwise_chains": said("Compile the submodule, or export activations as one operator"),
    "encoder_dominates": said("Cache the embeddings of repeated prompts"),
    "first_call": said("Warm up with the same shapes, and keep the process alive"),
    "graph_capture": said("Record a replay: profile after the engine has captured its graphs"),
    "host_bound": said("Launch less: CUDA graphs, torch.compile, larger batches, fused nodes"),
    "idle_device": said("Run guidance's branches or several requests on both devices"),
    "incomplete_trace": said("Record again with fewer calls traced; copy truncated files again"),
    "known_ahead": said("Compute shift, scale and gate of all steps as one batch before the loop"),
    "launch_bound": said("Launch fewer, larger commands: fuse, batch prompts and branches"),
    "little_headroom": said("Quantize the largest submodule, or offload encoders when done"),
    "negative_prompt": said("Cache the embeddings of the negative prompt"),
    "norm_chains": said("Use the framework's norm, or compile the block"),
    "outside_nodes": said("Share buffers with the device; send several inputs a call"),
    "provider_switches": said("Give the second provider larger pieces, or the whole submodule"),
    "recomputed": said("Compute it once before the loop and pass it in"),
    "scheduler_sync": said("Find what synchronizes (.item(), .cpu()) and keep it on the host"),
    "separate_guidance": said("Batch both branches in one call"),
    "single_precision": said("Load it in bfloat16, or allow TF32"),
    "slow_products": said("Tune its kernels: TunableOp, max-autotune; sizes in multiples of 64"),
    "slow_start": said("Run at least as many steps before recording (--warmup)"),
    "step_cache": said("Compare images and times at other thresholds of the cache"),
    "step_drift": said("Watch clocks, temperature and memory; measure again when it is warm"),
    "straggler": said("Find what this rank does beyond the others; check its clocks"),
    "track_imbalance": said("Divide by a multiple of the number of tracks"),
    "tracing_overhead": said("Record with fewer calls traced: --ops every:4, or call spans only"),
    "unaccounted_time": said("Record the pipeline's stages, or name what runs between them"),
    "uncaptured_modules": said("Name what is not captured: profiler.submodule()"),
    "unfused_attention": said("Use scaled_dot_product_attention, or a fused attention of ONNX"),
}
"""By rule."""

BY_CAUSE: Mapping[object, Said] = {
    WaitCause.LAUNCH: said("Look at what the host does in the gaps: .item(), allocation, loading"),
    WaitCause.SYNC: said("Remove synchronization: .item(), .cpu(), printing, blocking copies"),
    WaitCause.QUEUE: said("Find what holds launched work back: other streams, other processes"),
    WaitCause.HOST: said("Look at what the host does between calls: scheduler, callbacks"),
    WaitCause.COPY: said("Start copies earlier; keep what is copied in each call resident"),
    WaitCause.OTHER_DEVICE: said("Give it other work in the meantime: independent calls, requests"),
    WaitCause.UNRECORDED: said("Record every launch of the host: they say whether it was late"),
    WaitCause.DATA: said("Prefetch from pinned memory; keep weights resident"),
    MostlyBetween.HOST_WORK: said("Keep latents, guidance and scheduler on the device"),
    MostlyBetween.NOT_RECORDED: said(
        "Find what runs there: callbacks, progress bars, other threads"
    ),
    OutlierCause.OVERLAP: said("Keep what overlaps off this device, or off these steps"),
    OutlierCause.HOST_WORK: said("Move the host work of this step out of the loop"),
    OutlierCause.IDLE: said("Look for garbage collection, I/O and other threads in this step"),
    OutlierCause.COMMANDS: said("Look for changed shapes or guidance in this step"),
    OutlierCause.FIRST_STEP: said("Look at what the pipeline call loads or allocates before it"),
}
"""Of rules that find several causes."""
_TRANSFERS = said("Prefetch from pinned memory; leave tensors on the device")
_STEPS = said("Record again on a quiet machine; look at these steps in the timeline")
OTHERWISE: Mapping[str, Said] = {"transfers_exposed": _TRANSFERS, "outlier_steps": _STEPS}
"""Of rules whose cause says it, where none is known."""


_OTHER_ATTENTION = said("Try another attention backend; lengths in multiples of 64")
_QNN = said("htp_performance_mode=burst, rpc_control_latency; shared memory for tensors")
_ONCE = said("Warm up and record again; gc.freeze() before the run prevents collections")
_LOAD_AHEAD = said("Load ahead: DataLoader workers (num_workers), persistent, pinned memory")


def change(finding: Finding) -> str:
    """What to do about it, in one line; of a rule that nobody wrote one for its recommendation."""
    if waits_for_data_loader(finding):
        return _LOAD_AHEAD
    if finding.rule == "host_bound" and waits_longer_than_launches(finding):
        return BY_CAUSE[WaitCause.LAUNCH]
    if finding.rule == "first_call" and "stalls_ns" in finding.evidence:
        return _ONCE
    if finding.rule == "outside_nodes" and is_qnn(finding):
        return _QNN
    if finding.rule == "slow_products" and is_attention(finding):
        return _OTHER_ATTENTION
    cause = finding.evidence.get("cause", finding.evidence.get("mostly"))
    found = CHANGES.get(finding.rule) or BY_CAUSE.get(cause) or OTHERWISE.get(finding.rule)
    return found or words(finding).recommendation
