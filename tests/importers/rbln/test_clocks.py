"""Laying the clocks of several devices onto one timeline."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from profiler.importers.rbln.trace import place

Calls = list[dict[str, tuple[int, int]]]


def moved(calls: Calls) -> list[dict[str, tuple[int, int]]]:
    clocks = place(calls)
    return [
        {d: (start + offsets[d], end + offsets[d]) for d, (start, end) in call.items()}
        for call, offsets in zip(calls, clocks.offsets, strict=True)
    ]


def test_one_device_keeps_its_times() -> None:
    """A run on one device has the device's own times."""
    calls = [{"rbln:0": (100, 200)}, {"rbln:0": (300, 400)}]
    clocks = place(calls)
    assert moved(calls) == calls
    assert (clocks.reference, clocks.devices["rbln:0"].placed_by) == ("rbln:0", "own_clock")


def test_another_device_goes_where_the_order_of_calls_has_room() -> None:
    """Its calls lie between those before and after, as far apart as on its own clock."""
    calls: Calls = [
        {"rbln:0": (1_000, 2_000)},
        {"rbln:1": (50, 150)},
        {"rbln:0": (2_500, 3_000)},
        {"rbln:1": (1_250, 1_350)},
        {"rbln:0": (3_400, 4_000)},
    ]
    clocks = place(calls)
    found = clocks.devices["rbln:1"]
    assert found.placed_by == "call_order"
    assert (found.offset_ns, found.uncertainty_ns) == (2_000, 100)  # between 1950 and 2050
    assert moved(calls)[3] == {"rbln:1": (3_250, 3_350)}


def test_a_device_before_or_after_all_others_is_put_next_to_them() -> None:
    """Where the order bounds an offset on one side only, calls touch."""
    assert moved([{"rbln:0": (10, 20)}, {"rbln:1": (5, 9)}])[1] == {"rbln:1": (20, 24)}
    late: Calls = [{"rbln:1": (500, 900)}, {"rbln:0": (10, 20)}, {"rbln:1": (950, 960)}]
    assert place(late).reference == "rbln:1"


def test_a_call_of_two_devices_starts_on_both_at_once() -> None:
    """The devices of one call are laid onto each other by its begin."""
    calls: Calls = [{"rbln:0": (100, 200)}, {"rbln:0": (300, 400), "rbln:1": (7, 90)}]
    assert place(calls).devices["rbln:1"].placed_by == "shared_call"
    assert moved(calls)[1]["rbln:1"] == (300, 383)


def test_an_order_that_cannot_be_is_not_forced() -> None:
    """Calls that overlapped fit no order: the device begins with the run, and it is said."""
    calls: Calls = [
        {"rbln:0": (100, 200)},
        {"rbln:1": (0, 5_000)},
        {"rbln:0": (210, 300)},
    ]
    assert place(calls).devices["rbln:1"].placed_by == "run_start"
    assert moved(calls)[1]["rbln:1"][0] == 100


def test_clocks_that_start_anew_in_each_file() -> None:
    """Files without a common clock are laid end to end, which is said of every device."""
    calls: Calls = [{"rbln:0": (5, 105)}, {"rbln:0": (5, 55)}, {}, {"rbln:1": (900, 910)}]
    assert moved(calls) == [
        {"rbln:0": (0, 100)},
        {"rbln:0": (100, 150)},
        {},
        {"rbln:1": (150, 160)},
    ]
    assert {found.placed_by for found in place(calls).devices.values()} == {"end_to_end"}


def test_nothing_to_place() -> None:
    """A run without any command has no clock."""
    assert place([{}, {}]).devices == {}


@given(
    st.lists(
        st.tuples(st.sampled_from(["rbln:0", "rbln:1", "rbln:2"]), st.integers(1, 10**9)),
        min_size=1,
        max_size=40,
    ),
    st.lists(st.integers(0, 10**15), min_size=3, max_size=3),
)
def test_serial_calls_stay_in_order(made: list[tuple[str, int]], skew: list[int]) -> None:
    """Calls that ran one after the other come out in order, on clocks that differ at will."""
    calls: Calls = []
    now = 0
    for device, length in made:
        begin = now + skew[int(device[-1])]
        calls.append({device: (begin, begin + length)})
        now += length + 10
    placed = [extent for call in moved(calls) for extent in call.values()]
    assert all(start >= 0 for start, _ in placed)
    assert [end - start for start, end in placed] == [length for _, length in made]
    assert all(a[1] <= b[0] for a, b in pairwise(placed))
