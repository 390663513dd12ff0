"""Rows of a trace → device, track and category."""

import pytest

from profiler.importers.rbln.trace import Row, track_category, tracks_of
from profiler.trace import Track


def placed(*rows: Row, default: str = "") -> list[tuple[str, str]]:
    (tracks,) = tracks_of([rows], [default])
    return [(track.device, track.name) for track in tracks]


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("Host", "host"),
        ("Neural Engine Clusters", "compute"),
        ("General Compute Engine", "compute"),
        ("External HDMA", "dma"),
        ("Neural DMA", "copy"),
        ("Task DMA", "copy"),
        ("Device HDMA", "copy"),
        ("Device Sync", "sync"),
        ("Device Workload", "other"),
        ("CCL Workload", "other"),
        ("uDMA", "other"),
    ],
)
def test_categories(name: str, category: str) -> None:
    """Every documented command has a category; tracks that are not known are kept as other."""
    assert track_category(name) == category


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("Device 1", "Task DMA"), ("rbln:1", "Task DMA")),
        (("rbln3", "Task DMA"), ("rbln:3", "Task DMA")),
        (("RBLN NPU:2", "Task DMA"), ("rbln:2", "Task DMA")),
        (("RBLN-CA12", "Task DMA"), ("rbln:0", "Task DMA")),
        (("Task DMA",), ("rbln:0", "Task DMA")),
        (("Device 0", "Chiplet 2", "Neural DMA"), ("rbln:0", "Chiplet 2 / Neural DMA")),
        (("Device 1 - Chiplet 2", "Neural DMA"), ("rbln:1", "Chiplet 2 / Neural DMA")),
        (("Chiplet 3", "Neural DMA"), ("rbln:0", "Chiplet 3 / Neural DMA")),
        (("Device 0", "CCL", "CCL"), ("rbln:0", "CCL")),
        (("Device 0", "Device Workload"), ("rbln:0", "Device Workload")),
        (("Host", "Host"), ("rbln:0", "Host")),
    ],
)
def test_rows_that_name_a_device(path: tuple[str, ...], expected: tuple[str, str]) -> None:
    """The device's number comes from the rows above a track, groups become part of its name."""
    assert placed(Row(7, path)) == [expected]


def test_devices_without_a_number_are_counted_over_all_files() -> None:
    """Processes without a number get one for all files, and none that a row names."""
    first = [Row(20, ("ATOM", "Task DMA")), Row(30, ("ATOM", "Task DMA"))]
    second = [Row(30, ("ATOM", "Neural DMA")), Row(1, ("Device 0", "Neural DMA"))]
    found = tracks_of([first, second])
    assert [[track.device for track in tracks] for tracks in found] == [
        ["rbln:1", "rbln:2"],
        ["rbln:2", "rbln:0"],
    ]


def test_a_common_host_belongs_to_the_first_device_of_its_file() -> None:
    """Host commands stand once, at the root device; the file says which that is."""
    rows = (
        Row(0, ("Host", "Host")),
        Row(3, ("Device 3", "Task DMA")),
        Row(2, ("Device 2", "Task DMA")),
    )
    assert placed(*rows)[0] == ("rbln:2", "Host")


def test_the_description_names_the_device_where_the_trace_does_not() -> None:
    """Tracks below no row are on the device that the pipeline's description gives."""
    assert placed(Row(0, ("Task DMA",)), default="rbln:1") == [("rbln:1", "Task DMA")]
    named = placed(Row(0, ("Task DMA",)), Row(4, ("Device 4", "Host")), default="rbln:1")
    assert named == [("rbln:4", "Task DMA"), ("rbln:4", "Host")]


def test_a_track_of_ours() -> None:
    """The result is a track in the project's own words."""
    assert tracks_of([[Row(1, ("Device 0", "External HDMA"))]]) == [
        (Track("rbln:0", "External HDMA", "dma"),)
    ]
