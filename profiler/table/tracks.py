"""Which device a track of a trace belongs to, and what the track is called."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.trace.columns import TrackRow

__all__ = ["track_names"]


def track_names(tracks: Sequence[TrackRow]) -> tuple[list[str], list[str]]:
    """For each track the name of its device, "" for none, and its own name.

    The device is the process that the track belongs to, else the root above it; a root that
    belongs to no process is on no device.
    """
    roots = _roots(tracks)
    devices = [
        _process(track) or (tracks[root].name if root != own else "")
        for own, (track, root) in enumerate(zip(tracks, roots, strict=True))
    ]
    return devices, [track.name for track in tracks]


def _process(track: TrackRow) -> str:
    return track.process or ("" if track.pid is None else f"process {track.pid}")


def _roots(tracks: Sequence[TrackRow]) -> list[int]:
    """The root above each track; of tracks whose parents go in a circle, one of the circle."""
    roots = [-1] * len(tracks)
    for own in range(len(tracks)):
        path, at = {own: None}, own
        while roots[at] < 0 and tracks[at].parent >= 0 and tracks[at].parent not in path:
            at = tracks[at].parent
            path[at] = None
        root = roots[at] if roots[at] >= 0 else at
        for track in path:
            roots[track] = root
    return roots
