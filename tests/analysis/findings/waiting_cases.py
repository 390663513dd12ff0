"""Runs for the rules about devices that wait."""

from profiler.trace import HOST_TRACK, ActivityKind, Drop, DropKind, HostActivity
from tests.analysis.findings.cases import analyzed, command, gpu_call, misses, triggers
from tests.runs import EPOCH, Command, make_call, make_span, why

UNALIGNED = (
    Drop(DropKind.UNALIGNED_CLOCK, "cuda:1", 1, "clocks", why("placed by the order of calls")),
)


def _two_commands(first, second, end=1000, drops=(), info=None, **more):
    """One call from 0 to `end`; commands from 0 to `first` and from `second` to `end`."""
    commands = [command(0, 0, first, **more), command(0, second, end, **more)]
    device = more.get("device", "cuda:0")
    call = gpu_call(0, 0, end, device=device)
    return analyzed([call], commands, end=end, drops=drops, **(info or {}))


@triggers("host_bound", host_wait_ns=100, host_wait_share=0.1, commands=2, mean_command_ns=450)
def a_tenth_of_the_span():
    return _two_commands(450, 550)


@misses("host_bound")
def a_tenth_of_the_span_on_another_clock():
    """Nothing relates the device's clock to the host's."""
    return _two_commands(450, 550, drops=UNALIGNED)


@misses("host_bound")
def less_than_a_tenth_of_the_span():
    return _two_commands(451, 550)


@misses("host_bound")
def a_tenth_of_the_span_of_a_trace_of_kernels_alone():
    """Of a producer that told no launches, and nothing else of the host."""
    return _two_commands(450, 550, info={"capabilities": ("timeline",)})


@misses("host_bound")
@misses("idle_gaps")
def a_capture_of_graphs():
    """What the host launched became nodes of a graph: the device had nothing to wait for."""
    capabilities = ("graph_capture", "launches", "timeline")
    return _two_commands(450, 550, info={"capabilities": capabilities})


@triggers("host_bound", recorded="operators", recording_ns=None)
def a_host_that_recorded_operators_of_an_import():
    """torch.profiler with shapes: what that costs is not known."""
    return _two_commands(450, 550, info={"recording": {"record_shapes": True}})


@triggers("host_bound", recorded="python_stacks")
def a_host_that_recorded_stacks():
    recording = {"record_shapes": True, "with_stack": True}
    return _two_commands(450, 550, info={"recording": recording})


@triggers("host_bound", recorded="operators", recording_ns=80)
def a_host_that_recorded_operators_at_a_known_cost():
    return _two_commands(450, 550, info={"overhead": {"share": 0.1, "operators_ns": 80}})


@triggers("host_bound", recorded=None)
def a_host_that_recording_hardly_slowed():
    return _two_commands(450, 550, info={"overhead": {"share": 0.09, "operators_ns": 80}})


MS = 1_000_000


def _waiting(*gaps, **more):
    """Calls of 20 ms and a gap each, behind the first of their three commands of 5 ms; 5 ms before
    the last one the host takes in each call. Their commands, and when they end."""
    calls, commands, begin = [], [], 0
    for number, gap in enumerate(gaps):
        end = begin + (20 + gap) * MS
        calls.append(gpu_call(number, begin, end, **more))
        edges = [0, 5, 5 + gap, 10 + gap, 15 + gap, 20 + gap]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        commands += [command(number, begin + a * MS, begin + b * MS) for a, b in pairs]
        begin = end
    return calls, commands, begin


def _stalled(*gaps):
    calls, commands, end = _waiting(*gaps)
    return analyzed(calls, commands, end=end)


@triggers("host_bound", host_wait_ns=25 * MS, stalls=1, stalls_ns=100 * MS)
def a_stall_in_one_of_several_calls():
    """What the host did once is no part of it, what it does in each call is."""
    return _stalled(100, 0, 0, 0, 0)


@triggers("host_bound", stalls=1, stalls_ns=100 * MS, host_in="load", host_in_ns=300 * MS)
def a_stall_beside_what_the_host_does_in_the_only_call_of_another_submodule():
    """What the device waits for there is named, how little of the waiting a stall may be."""
    calls, commands, begin = _waiting(100, 0, 0, 0, 0)
    last, end = len(calls), begin + 310 * MS
    calls.append(gpu_call(last, begin, end, submodule="vae"))
    commands += [
        command(last, begin, begin + 5 * MS),
        command(last, begin + 305 * MS, end),
        Command(-1, "cpu:0", "Host", "host", "load", begin + 5 * MS, 300 * MS),
    ]
    return analyzed(calls, commands, end=end)


@triggers("host_bound", host_wait_ns=165 * MS, stalls=None)
def a_stall_in_each_of_several_calls():
    return _stalled(60, 50, 40)


@misses("idle_gaps")
@triggers("first_call", stalls_ns=700 * MS)
def a_first_call_in_which_the_host_stands_still():
    return _stalled(700, 0, 0, 0, 0)


def _stalled_encoder(gap):
    place = {"submodule": "text_encoder", "stage": "encode", "step": -1}
    calls, commands, begin = _waiting(100, gap, **place)
    end = begin + 85 * MS
    calls.append(gpu_call(2, begin, end, step=0))
    spans = [make_span("step", "step 0", begin, end, 0)]
    return analyzed(calls, [*commands, command(2, begin, end)], end=end, spans=spans)


@misses("encoder_dominates")
def a_stall_in_an_encoder():
    """140 of 225 ms are an encoder's, 100 of them once."""
    return _stalled_encoder(0)


@triggers("host_bound", host_wait_ns=30 * MS, waits_in="encode", waits_in_ns=30 * MS)
def a_stall_in_an_encoder_for_which_the_device_waits_otherwise():
    """What it waits for in the stage is no more than what it waits for altogether."""
    return _stalled_encoder(20)


def _loading(name, until):
    """Of a gap of 400 µs the host is in `name` until then."""
    loading = Command(-1, "cpu:0", "Host", "host", name, 600_000, until - 600_000)
    work = [command(0, 0, 600_000), command(0, 1_000_000, 1_600_000), loading]
    return analyzed([gpu_call(0, 0, 1_600_000)], work, end=1_600_000)


def _first_calls_load(kind, *gaps):
    """In half of the longest gap and more the host is in one runtime call, or function."""
    calls, commands, end = _waiting(*gaps)
    doing = HostActivity(
        name="cudaLaunchKernel",
        kind=kind,
        thread=HOST_TRACK,
        start_ns=calls[gaps.index(max(gaps))].start_ns + 5 * MS,
        duration_ns=max(gaps) * MS,
    )
    return analyzed(calls, commands, end=end, host_activities=(doing,))


@triggers("host_bound", host_wait_ns=45 * MS, loading_ns=40 * MS)
def a_library_that_the_only_call_loads():
    """40 of 45 ms; what it waits for in 5 ms after that is no more than launches."""
    return _first_calls_load(ActivityKind.RUNTIME_CALL, 40)


@triggers("host_bound", host_wait_ns=45 * MS, loading_ns=None)
def a_function_that_takes_long_in_the_only_call():
    return _first_calls_load(ActivityKind.FUNCTION, 40)


@triggers("host_bound", host_wait_ns=70 * MS, loading_ns=None)
def calls_of_the_driver_that_take_long_later():
    """The second of two calls waits longest: what takes so long there is loaded already."""
    return _first_calls_load(ActivityKind.RUNTIME_CALL, 20, 40)


_NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@triggers("host_bound", host_wait_ns=400_000, data_loader_gaps=1, data_loader_ns=300_000)
def a_gap_in_which_the_host_loads_data():
    return _loading(_NEXT, 900_000)


@triggers("host_bound", data_loader_gaps=20, data_loader_ns=20 * 300_000)
def more_gaps_in_which_the_host_loads_data_than_are_listed():
    """25 gaps of 300 µs."""
    every = 1_000_000
    loads = [
        Command(-1, "cpu:0", "Host", "host", _NEXT, each * every + 700_000, 300_000)
        for each in range(25)
    ]
    work = [command(0, each * every, each * every + 700_000) for each in range(26)]
    end = 25 * every + 700_000
    return analyzed([gpu_call(0, 0, end)], [*work, *loads], end=end)


@triggers("host_bound", data_loader_gaps=1, data_loader_ns=300_000)
def a_gap_in_which_the_host_loads_data_beside_a_longer_one_between_calls():
    """What lies between calls is no launch that is late."""
    loads = Command(-1, "cpu:0", "Host", "host", _NEXT, 600_000, 300_000)
    ran = ((0, 0, 500_000), (0, 900_000, 1_000_000), (1, 3_000_000, 3_100_000))
    work = [command(call, start, end) for call, start, end in ran]
    calls = [gpu_call(0, 0, 1_000_000), gpu_call(1, 3_000_000, 3_100_000)]
    return analyzed(calls, [*work, loads], end=3_100_000)


@triggers("host_bound", data_loader_ns=None)
def a_gap_of_which_the_loader_takes_less_than_half():
    return _loading(_NEXT, 790_000)


@triggers("host_bound", data_loader_ns=None)
def a_gap_in_which_the_host_does_something_else():
    return _loading("tokenizer", 900_000)


@triggers("idle_gaps", gaps=1, gap_ns=200_001, cause="unrecorded")
def a_long_gap_of_a_trace_of_kernels_alone():
    return _two_commands(1_000_000, 1_200_001, 2_000_000, info={"capabilities": ("timeline",)})


@triggers("host_bound", host_wait_ns=100)
def a_tenth_of_the_span_with_launches():
    return _two_commands(450, 550, info={"capabilities": ("launches", "timeline")})


@misses("host_bound")
def a_cpu_is_its_own_host():
    return _two_commands(450, 550, device="cpu:1")


@misses("idle_gaps")
def work_of_no_call():
    """The host's file alone: what the device did meanwhile is in others."""
    commands = [command(-1, 0, 10), command(-1, 1_000_000, 1_000_010)]
    return analyzed([], commands, end=1_000_010)


@misses("idle_gaps")
def a_long_gap_that_the_host_is_to_blame_for():
    """`host_bound` says so: one cause is told once."""
    return _two_commands(1_000_000, 1_200_001, 2_000_000)


@triggers("host_bound", host_wait_ns=200_001, gaps=1, gap_ns=200_001)
def a_long_gap_for_the_host():
    return _two_commands(1_000_000, 1_200_001, 2_000_000)


@triggers("idle_gaps", gaps=1, gap_ns=200_001, cause="launch")
def one_long_gap():
    return _two_commands(1_000_000, 1_200_001, 4_000_000)


@triggers("idle_gaps", gaps=1, cause="other_device", waits_most_ns=200_001)
def one_long_gap_for_another_device():
    """cuda:1 computes in the gap, of another submodule's call."""
    return _by_turns()


@triggers("idle_gaps", gaps=1, cause="host", waits_most_ns=200_001)
def one_long_gap_in_which_another_device_does_the_same():
    """cuda:1 computes in the gap, of another call of the same submodule."""
    return _by_turns(names=("t", "t", "t"))


@triggers("idle_gaps", gaps=1, cause="host", waits_most_ns=600_000)
def a_long_gap_between_calls_beside_many_short_ones():
    """Ten gaps of 90 µs in calls are more than that of 600 µs between them, but not long."""
    commands = [command(0, 100_000 * at, 100_000 * at + 10_000) for at in range(11)]
    calls = [gpu_call(0, 0, 1_010_000), gpu_call(1, 1_610_000, 9_100_000)]
    return analyzed(calls, [*commands, command(1, 1_610_000, 9_100_000)], end=9_100_000)


@triggers("idle_gaps", cause="host", waits_most_ns=119_000)
def a_long_gap_ahead_of_which_the_host_waited_for_a_microsecond():
    """The host waits for the device for the last 1 µs of its work, then prepares the next call for
    120 µs: without the wait it would have been 1 µs earlier, not 120."""
    wait = Command(-1, "cpu:0", "Host sync", "sync", "cudaStreamSynchronize", 999_000, 1_000)
    calls = [gpu_call(0, 0, 1_000_000), gpu_call(1, 1_120_000, 2_000_000)]
    launches = [
        Command(n, "cpu:0", "Host", "host", "op", at, 1) for n, at in ((0, 0), (1, 1_120_000))
    ]
    work = [command(0, 0, 1_000_000), command(1, 1_120_000, 2_000_000)]
    commands = [wait, launches[0], work[0], launches[1], work[1]]
    return analyzed(calls, commands, end=2_000_000, flows=[(1, 2), (3, 4)])


def _around(before, behind):
    call = gpu_call(0, before, 1000 - behind)
    return analyzed([call], [command(0, before, 1000 - behind)])


@triggers("idle_around", around_ns=50, before_ns=30, behind_ns=20, around_share=0.05)
def a_host_that_prepares_and_follows_up():
    return _around(30, 20)


@misses("idle_around")
def a_host_that_hardly_does():
    return _around(30, 19)


@triggers("idle_gaps", cause="host", host_in="poll", host_in_ns=150_001)
def one_long_gap_for_most_of_which_the_host_is_in_one_thing():
    return _between_calls(150_001)


@triggers("host_bound", host_in="poll", host_in_ns=60_000)
def a_gap_in_a_call_for_a_quarter_of_which_the_host_is_in_one_thing():
    return _in_call(60_000)


@triggers("host_bound", host_in=None)
def a_gap_in_a_call_for_less_than_a_quarter_of_which_it_is():
    return _in_call(49_000)


@triggers("idle_gaps", cause="host", host_in=None)
def one_long_gap_that_the_host_hardly_has_to_do_with():
    return _between_calls(49_000)


def _in_call(took):
    """A call with a gap of 200,001 ns, for part of which the host polls."""
    work = [command(0, 0, 1_000_000), command(0, 1_200_001, 2_000_000)]
    call = gpu_call(0, 0, 2_000_000)
    return analyzed([call], work, end=2_000_000, host_activities=(_polls(took),))


@triggers("idle_gaps", cause="host", data_loader_ns=150_001, data_loader_gaps=1, host_in=None)
def one_long_gap_between_calls_in_which_the_host_loads_data():
    return _between_calls(150_001, _NEXT)


def between_calls_for(name, stage="denoise"):
    """Two calls of a stage, 200,001 ns apart, for most of which the host is in `name`."""
    return _between_calls(150_001, name, stage=stage)


def _between_calls(took, name="poll", **more):
    """Two calls, 200,001 ns apart, for part of which the host polls, or does something else."""
    calls = [gpu_call(0, 0, 1_000_000, **more), gpu_call(1, 1_200_001, 4_000_000, **more)]
    work = [command(0, 0, 1_000_000), command(1, 1_200_001, 4_000_000)]
    return analyzed(calls, work, end=4_000_000, host_activities=(_polls(took, name),))


def _polls(took, name="poll"):
    return HostActivity(
        name=name,
        kind=ActivityKind.FUNCTION,
        thread=HOST_TRACK,
        start_ns=EPOCH + 1_000_000,
        duration_ns=took,
    )


@misses("idle_gaps")
def one_long_gap_between_clocks():
    """Nobody knows how far apart the calls of both devices were."""
    return _by_turns(*UNALIGNED)


def _by_turns(*drops, names=("t", "u", "t")):
    ends = (0, 1_000_000, 1_200_001, 4_000_000)
    devices = ("cuda:0", "cuda:1", "cuda:0")
    places = [*zip(ends, ends[1:], devices, strict=False)]
    calls = [
        gpu_call(i, a, b, device=d, submodule=name)
        for i, ((a, b, d), name) in enumerate(zip(places, names, strict=True))
    ]
    work = [command(i, a, b, device=d) for i, (a, b, d) in enumerate(places)]
    return analyzed(calls, work, end=4_000_000, drops=drops)


@misses("idle_gaps")
def gaps_of_just_100_microseconds():
    """Two of them, a twentieth of the span together."""
    starts = (0, 1_100_000, 2_200_000)
    commands = [command(0, start, start + 1_000_000) for start in starts]
    return analyzed([gpu_call(0, 0, 3_200_000)], commands, end=3_200_000)


@misses("idle_gaps")
def one_long_gap_in_a_long_run():
    return _two_commands(1_000_000, 1_199_999, 4_000_000)


def _steps_of(call_ns, device="cpu:0", busy_ns=0, drops=()):
    """Two steps of 500 ns, each with a call that its caller has back after `call_ns`, while its
    device computes for `busy_ns`."""
    spans = [make_span("step", f"step {i}", 500 * i, 500 * (i + 1), i) for i in range(2)]
    calls = [gpu_call(i, 500 * i, 500 * i + call_ns, device=device) for i in range(2)]
    host = [
        Command(
            -1, "cpu:0", "Host", "host", "scheduler.step", 500 * i + call_ns, 20, "", "denoise", i
        )
        for i in range(2)
    ]
    busy = [command(i, 500 * i, 500 * i + busy_ns, device=device) for i in range(2)]
    return analyzed(calls, [*host, *(busy if busy_ns else ())], spans=spans, drops=drops)


@triggers(
    "host_between_steps",
    between_ns=48,
    host_work_ns=20,
    not_recorded_ns=28,
    longest_host_work="scheduler.step",
)
def a_twentieth_between_calls():
    return _steps_of(452)


@misses("host_between_steps")
def a_twentieth_between_calls_on_other_clocks():
    """The last step ends where a call of another device begins, wherever that was placed."""
    return _steps_of(452, drops=UNALIGNED)


def _of_calls_alone(producer):
    """Two steps without operators on a GPU, half of each between calls."""
    calls = [gpu_call(i, 500 * i, 500 * i + 250, traced=False) for i in range(2)]
    spans = [make_span("step", f"step {i}", 500 * i, 500 * (i + 1), i) for i in range(2)]
    return analyzed(calls, spans=spans, producer=producer)


@misses("host_between_steps")
def a_gpu_that_works_behind_its_calls():
    """A capture of calls alone: the host waits between them for what they launched."""
    return _of_calls_alone("capture")


@triggers("host_between_steps", between_ns=250)
def calls_that_another_producer_recorded_alone():
    return _of_calls_alone("test")


@misses("host_between_steps")
def less_than_a_twentieth_between_calls():
    return _steps_of(453)


@misses("host_between_steps")
def a_device_that_works_on():
    """The host is ahead by 380 ns a step; the device computes through all of it."""
    return _steps_of(120, "cuda:0", 500)


def _waits(steps, drops=()):
    """Four steps of a GPU that computes 90 of 100 ns; in `steps` of them the host waits for it."""
    spans = [make_span("step", f"step {i}", 100 * i, 100 * (i + 1), i) for i in range(4)]
    calls = [gpu_call(i, 100 * i, 100 * i + 50) for i in range(4)]
    work = [command(i, 100 * i + 5, 100 * i + 95) for i in range(4)]
    waits = [
        Command(
            -1, "cpu:0", "sync", "sync", "cudaStreamSynchronize", 100 * i + 50, 45, "", "denoise", i
        )
        for i in range(steps)
    ]
    return analyzed(calls, [*work, *waits], spans=spans, end=400, drops=drops)


@triggers("scheduler_sync", operation="cudaStreamSynchronize", waits=4, host_ns=180)
def a_wait_in_every_step():
    return _waits(4)


@misses("scheduler_sync")
def a_wait_in_every_step_on_another_clock():
    return _waits(4, drops=UNALIGNED)


@misses("scheduler_sync")
def a_wait_in_half_of_the_steps():
    return _waits(2)


def _transfer_of(name):
    commands = [
        command(0, 0, 50, track="stream 7 memcpy", category="dma", layer=name),
        command(0, 50, 1000),
    ]
    return analyzed([gpu_call(0, 0, 1000)], commands)


@triggers("transfers_exposed", copied="pinned")
def a_transfer_from_pinned_memory():
    return _transfer_of("Memcpy HtoD (Pinned -> Device)")


@triggers("transfers_exposed", copied="pageable")
def a_transfer_from_pageable_memory():
    return _transfer_of("Memcpy HtoD (Pageable -> Device)")


@triggers("transfers_exposed", copied="on_devices")
def a_copy_on_the_device():
    return _transfer_of("Memcpy DtoD (Device -> Device)")


def _transfer(transfer_end, compute_start):
    commands = [
        command(0, 0, transfer_end, track="stream 7 memcpy", category="dma"),
        command(0, compute_start, 1000),
    ]
    return analyzed([gpu_call(0, 0, 1000)], commands)


@triggers("transfers_exposed", data_wait_ns=50, transfer_ns=50, hidden_share=0.0)
def a_transfer_that_nothing_hides():
    return _transfer(50, 50)


@misses("transfers_exposed")
def a_short_transfer():
    return _transfer(49, 49)


@misses("transfers_exposed")
def a_transfer_half_of_which_is_hidden():
    return _transfer(100, 50)


def _turns(border, *, shared=False, kinds=("cuda:0", "cuda:1"), drops=()):
    first, second = kinds
    calls = [
        gpu_call(0, 0, border, device=first),
        make_call(1, "vae", border, 1000, stage="decode", device=second),
    ]
    sharing = ["cpu:0"] if shared else []
    return analyzed(calls, devices={second: {"shared_with": sharing}}, drops=drops)


@triggers("idle_device", devices=2, idle_device_calls_ns=100, idle_device_calls_share=0.1)
def a_device_for_a_tenth_of_the_run():
    return _turns(900)


@misses("idle_device")
def a_device_for_a_tenth_of_a_run_of_two_clocks():
    """Where its call was placed decides how long the run took."""
    return _turns(900, drops=UNALIGNED)


@misses("idle_device")
def a_device_for_more_than_a_tenth():
    return _turns(899)


@misses("idle_device")
def devices_that_are_the_same_cores():
    return _turns(950, shared=True, kinds=("cpu:0", "cpu:1"))


@misses("idle_device")
def devices_of_two_kinds():
    return _turns(950, kinds=("cuda:0", "cpu:0"))


def _copied(name, until, again=500):
    """The host launches a kernel of 300 µs at once, then copies from 300 µs on, which holds it, and
    launches the next kernel, which runs from `again` to 900 µs of 1 ms."""
    us = 1000
    host = {"device": "cpu:0", "track": HOST_TRACK, "category": "host"}
    work = [
        command(0, 0, 5 * us, **host, layer="cudaLaunchKernel"),
        command(0, 10 * us, (until + 10) * us, **host, layer="cudaMemcpyAsync"),
        command(0, (again - 20) * us, (again - 10) * us, **host, layer="cudaLaunchKernel"),
        command(0, 0, 300 * us),
        command(0, 300 * us, until * us, category="dma", layer="aten::copy_", kernel=name),
        command(0, again * us, 900 * us),
    ]
    flows = ((0, 3), (1, 4), (2, 5))
    known = ("launches", "timeline")
    return analyzed(
        [gpu_call(0, 0, 1000 * us)], work, end=1000 * us, flows=flows, capabilities=known
    )


@triggers(
    "blocking_copies",
    copies=1,
    copy_ns=100_000,
    idle_behind_ns=100_000,
    stopped_ns=200_000,
    host_wait_ns=400_000,
)
def a_copy_to_pageable_memory_amid_a_call():
    """Held for 390 µs, the host launches the next kernel so much later: the device waits 100 µs."""
    return _copied("Memcpy DtoH (Device -> Pageable)", 400)


@misses("blocking_copies")
def a_copy_to_pinned_memory_amid_a_call():
    return _copied("Memcpy DtoH (Device -> Pinned)", 400)


@misses("blocking_copies")
def a_short_copy_to_pageable_memory():
    return _copied("Memcpy DtoH (Device -> Pageable)", 301, 302)
