"""Devices of tracks."""

from __future__ import annotations

from profiler.run.run import track_names
from profiler.trace.columns import TrackRow


def _tracks(*parents: int) -> list[TrackRow]:
    return [TrackRow(i, f"t{i}", "plain", parent, "") for i, parent in enumerate(parents)]


def test_root_is_the_device() -> None:
    """Tracks are on the root above them; a root is on none."""
    assert track_names(_tracks(-1, 0, 1)) == (["", "t0", "t0"], ["t0", "t1", "t2"])


def test_circle() -> None:
    """Tracks that claim each other as parents are on one of them."""
    devices, _ = track_names(_tracks(1, 2, 0, 2))
    assert len(set(devices) - {""}) == 1


def test_very_deep() -> None:
    """A chain of a hundred thousand tracks is walked once."""
    devices, _ = track_names(_tracks(-1, *range(100_000)))
    assert set(devices[1:]) == {"t0"}


def test_process_goes_before_the_root() -> None:
    """A track of a process is on the process, by name or number, also where it has parents."""
    root, *_ = _tracks(-1)
    named = TrackRow(7, "a", "thread", 0, "", 5, 6, "server", "a")
    numbered = TrackRow(8, "b", "thread", 0, "", 5, 6, "", "b")
    assert track_names([root, named, numbered])[0] == ["", "server", "process 5"]
