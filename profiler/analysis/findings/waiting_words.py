"""What rules about waiting devices say: what recording does to them, and what to do by cause."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.messages import Said, said

__all__ = ["FIND_OUT", "KEEP_THERE", "SLOWER", "SLOWER_WITH_STACKS", "WAITED_FOR"]

SLOWER = said(
    "Recording slows the host: without the profiler the device waits less. Faster kernels gain "
    "nothing while it waits."
)
SLOWER_WITH_STACKS = said(
    "Recording slows the host, Python stacks most of all: without the profiler the device waits "
    "less. Faster kernels gain nothing while it waits."
)
KEEP_THERE = said(
    "Keep latents, guidance and scheduler on the device, and sigmas and timesteps there from the "
    "start; drop callbacks and progress bars; or compile the whole step."
)
FIND_OUT = said(
    "Find out what runs there, for most of it was not recorded: callbacks, progress bars, garbage "
    "collection, locks, other threads."
)
# Column of the idle table: what the device waits for, and what to do about it.
WAITED_FOR: Mapping[str, tuple[Said, Said]] = {
    "host_ns": (
        said("the host, in calls"),
        said(
            "Look at what the host does in the gaps: synchronizing (.item(), .cpu(), printing), "
            "allocation, graph breaks, lazy loading."
        ),
    ),
    "queued_ns": (
        said("launched commands to begin"),
        said(
            "The host had launched the next command: look for what holds it back, events of other "
            "streams, other processes on the device, changes of clocks."
        ),
    ),
    "between_ns": (
        said("the next call"),
        said(
            "Look at what the host does between calls: scheduler, guidance, callbacks, "
            "post-processing; or let other requests fill the gaps."
        ),
    ),
    "other_device_ns": (
        said("another device"),
        said(
            "Give it work meanwhile: independent calls at the same time, several requests at once; "
            "profile-sd3 predict compares placements."
        ),
    ),
    "data_ns": (
        said("data"),
        said(
            "Copy ahead of need from pinned memory on a stream of its own, and keep weights "
            "resident."
        ),
    ),
}
