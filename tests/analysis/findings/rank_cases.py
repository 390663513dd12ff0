"""Runs for the rule about ranks that others wait for: two ranks, a collective every 100 ns."""

from tests.analysis.findings.cases import analyzed, command, gpu_call, misses, triggers
from tests.runs import EPOCH

_EVERY, _LONG = 100, 40


def _ranks(*late, residual=0, end=1000):
    """Rank 1 begins each collective so much later than rank 0, earlier where it is negative."""
    calls, commands, collectives = [], [], []
    for rank in (0, 1):
        device = f"rank{rank}/cuda:0"
        calls.append(gpu_call(rank, 0, len(late) * _EVERY, device=device))
        for number, by in enumerate(late):
            begin = number * _EVERY + max(by if rank else -by, 0)
            stop = number * _EVERY + abs(by) + _LONG
            place = {"device": device, "track": "stream 20 collectives", "category": "collective"}
            commands.append(command(rank, begin, stop, **place, kernel="ncclKernel_AllReduce"))
    for number, by in enumerate(late):
        starts = [EPOCH + number * _EVERY + max(-by, 0), EPOCH + number * _EVERY + max(by, 0)]
        collectives.append({"kind": "all_reduce", "members": list(enumerate(starts))})
    clocks = [{"rank": 0}, {"rank": 1, "aligned": True, "residual_ns": residual, "pairs": 5}]
    job = {"world_size": 2, "ranks": clocks, "collectives": collectives}
    return analyzed(calls, commands, end=end, job=job)


@triggers("straggler", rank=1, ranks=2, last=4, compared=5, launch_delay_ns=40, others_waited_ns=40)
def last_in_four_of_five():
    return _ranks(10, 10, 10, 10, -10)


@triggers("straggler", rank=0, last=5, compared=5, launch_delay_ns=50)
def last_in_all_of_five():
    return _ranks(-10, -10, -10, -10, -10)


@misses("straggler")
def last_in_three_of_five():
    """Two ranks that take turns: less than three quarters."""
    return _ranks(10, 10, 10, -10, -10)


@misses("straggler")
def four_collectives_tell_of_no_habit():
    return _ranks(10, 10, 10, 10)


@misses("straggler")
def late_by_less_than_the_clocks_are_known():
    return _ranks(10, 10, 10, 10, 10, residual=10)


@misses("straggler")
def late_by_next_to_nothing():
    """Less than 1 % of the run."""
    return _ranks(1, 1, 1, 1, 1)


def _collective(exposed, kernel="ncclDevKernel_Generic_1", device="cuda:0", end=1000):
    """A collective of 300 ns, so much of it beside no kernel."""
    track = {"device": device, "track": "stream 20 collectives", "category": "collective"}
    both = [
        command(0, 0, 600 - exposed, device=device),
        command(0, 300, 600, **track, kernel=kernel),
    ]
    return analyzed([gpu_call(0, 0, 600, device=device)], both, end=end)


@triggers("exposed_collectives", exposed_ns=100, exposed_share=0.1, collective_ns=300)
def a_third_of_a_collective_is_exposed():
    """The recording of one rank: how long it waited for others is not known."""
    return _collective(100)


@triggers("exposed_collectives", exposed_ns=300, exposed_share=0.3, collective_ns=300)
def a_collective_of_rccl():
    return _collective(300, device="rocm:0")


@triggers("exposed_collectives", exposed_ns=200, collective_ns=300, to_overlap_ns=None)
def as_much_computation_outside_of_a_collective():
    """200 of its 300 ns are exposed, and a kernel runs ahead of it for 300 ns."""
    return _collective(200)


def _beside_little(outside):
    """A kernel that begins so long before a collective, and ends 100 ns after its begin."""
    track = {"track": "stream 20 collectives", "category": "collective"}
    both = [command(0, 300 - outside, 400), command(0, 300, 600, **track, kernel="nccl")]
    return analyzed([gpu_call(0, 0, 600)], both, end=1000)


@triggers("exposed_collectives", exposed_ns=200, collective_ns=300, to_overlap_ns=49)
def hardly_any_computation_outside_of_a_collective():
    return _beside_little(49)


@triggers("exposed_collectives", exposed_ns=200, collective_ns=300, to_overlap_ns=50)
def a_quarter_as_much_computation_outside_of_a_collective():
    return _beside_little(50)


@triggers("exposed_collectives", exposed_ns=250, exposed_share=0.25, waited_ns=50, to_overlap_ns=0)
def collectives_that_wait_for_another_rank():
    """Five of 40 ns, and 10 more each on the rank that waits, which computes nothing."""
    return _ranks(10, 10, 10, 10, 10)


@misses("exposed_collectives")
def less_than_a_tenth_is_exposed():
    return _collective(99)


@misses("exposed_collectives")
def a_collective_beside_kernels():
    return _collective(0)
