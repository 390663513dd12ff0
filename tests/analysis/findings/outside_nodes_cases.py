"""Runs for the rule about time around nodes."""

from profiler.analysis.calls import AroundNodes
from profiler.text import Note
from tests.analysis.findings.cases import analyzed, misses, triggers
from tests.runs import Command, make_call

_AVERAGES = ("averages", "cycles")


def _execution(
    nodes, begin=350, capabilities=_AVERAGES, around=("RPC", "accelerator"), traced=True
):
    """A call of 1000 ns on an NPU: RPC from 100 to 900, in it the accelerator's runtime from 200 to
    800, a wait of 50 ns, then its nodes for as long as told."""
    spans = {"RPC": (100, 800), "accelerator": (200, 600)}
    commands = [Command(0, "cpu:0", "QNN", "host", name, *spans[name]) for name in around]
    commands += [
        Command(0, "qnn:0", "HTP wait", "sync", "wait", 300, 50),
        Command(0, "qnn:0", "HTP", "compute", "Conv", begin, nodes),
    ]
    call = make_call(0, "t", 0, 1000, device="qnn:0", traced=traced)
    return analyzed([call], commands, end=1000, capabilities=capabilities)


def _part(name, time_ns):
    return Note.of(AroundNodes.PART, name=name, time_ns=time_ns)


@triggers(
    "outside_nodes",
    before_after_ns=600,
    outside_share=0.6,
    nodes_ns=400,
    parts=(_part("RPC", 200), _part("accelerator", 150), _part("wait", 50)),
)
def nodes_of_less_than_half_a_call():
    """Each part is without what lies further in; 200 ns of the call have no name."""
    return _execution(400)


@triggers("outside_nodes", before_after_ns=600, parts=(_part("wait", 50),))
def a_wait_alone_has_a_name():
    return _execution(400, around=())


@misses("outside_nodes")
def nodes_that_take_most_of_a_call():
    return _execution(801, begin=150)


@misses("outside_nodes")
def nodes_whose_times_were_recorded():
    """There the idle time of the device is known, and findings about it say more."""
    return _execution(400, capabilities=("timeline",))


@misses("outside_nodes")
def a_call_whose_nodes_were_not_recorded():
    return _execution(400, traced=False)
