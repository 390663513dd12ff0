"""A script that profiles itself with torch's own tools, one way per run: `own_profilers.py WAY`."""

import json
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

CPU = {"activities": [ProfilerActivity.CPU]}
begin_later = len(sys.argv) > 2 and sys.argv[2] == "begin_later"  # start profile-sd3 midway


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        self.between = lambda: None

    def forward(self, x):
        x = self.first(x).relu()
        self.between()
        return self.second(x)


net, x = Net(), torch.ones(2, 16)


def calls(times=3, step=lambda: None):
    for _ in range(times):
        net(x)
        step()


def show(own):
    """The number of the profiler's events, by name."""
    count = Counter(event.name for event in own.events())
    print(sorted(count.items()))


def before_the_first_call():
    with profile(**CPU, schedule=schedule(wait=0, warmup=1, active=2)) as own:
        calls(3, own.step)
    show(own)


def repeated():
    calls()
    plan = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    with profile(**CPU, schedule=plan, on_trace_ready=show, acc_events=True) as own:
        calls(10, own.step)
    calls()


def written_when_ready():
    calls()
    with tempfile.TemporaryDirectory() as folder:
        ready = torch.profiler.tensorboard_trace_handler(folder)
        plan = schedule(wait=1, warmup=2, active=1, repeat=2)
        with profile(**CPU, schedule=plan, on_trace_ready=ready) as own:
            calls(9, own.step)
        for file in sorted(Path(folder).iterdir(), key=lambda path: path.stat().st_mtime_ns):
            events = json.loads(file.read_text())["traceEvents"]
            names = Counter(event["name"] for event in events if event.get("cat") == "cpu_op")
            print(sorted(names.items()))


def left_in_warm_up():
    calls()
    with profile(**CPU, schedule=schedule(wait=0, warmup=5, active=1)) as own:
        calls(2, own.step)
    calls()
    with profile(**CPU) as own:
        calls()
    show(own)


def several_threads():
    calls()
    barrier = threading.Barrier(2)

    def beside():
        for _ in range(3):
            barrier.wait()
            calls(1)
            barrier.wait()

    thread = threading.Thread(target=beside)
    thread.start()
    with profile(**CPU, schedule=schedule(wait=1, warmup=1, active=1)) as own:
        for _ in range(3):
            barrier.wait()
            calls(1)
            barrier.wait()
            own.step()
    thread.join()
    show(own)
    calls()


def by_another_thread():
    ready, go = threading.Event(), threading.Event()
    own = profile(**CPU, schedule=schedule(wait=0, warmup=1, active=1))

    def beside():
        with own:
            ready.set()
            go.wait()
            own.step()
            torch.ones(3).erf()

    thread = threading.Thread(target=beside)

    def start():
        net.between = lambda: None
        thread.start()
        ready.wait()

    calls()
    net.between = start  # prepared by the thread while a call runs here
    calls(1)
    calls()
    go.set()
    thread.join()
    show(own)
    calls()


def inside_a_call():
    own = profile(**CPU, schedule=schedule(wait=0, warmup=1, active=1))
    actions = [own.start, own.step, own.stop]
    net.between = lambda: actions.pop(0)() if actions else None
    calls(6)
    show(own)


def across_calls():
    own = profile(**CPU)
    actions = [own.start, lambda: None, own.stop]
    net.between = lambda: actions.pop(0)() if actions else None
    calls(5)
    show(own)


def autograd():
    calls()
    with torch.autograd.profiler.profile(use_kineto=True, record_shapes=True) as own:
        calls()
    print(sorted(Counter(event.name for event in own.function_events).items()))
    calls()


def itt():
    calls()
    try:
        with torch.autograd.profiler.emit_itt():
            calls()
    except RuntimeError as error:
        print(type(error).__name__)
    calls()


def execution_trace():
    calls()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        observer = torch.profiler.ExecutionTraceObserver()
        observer.register_callback(str(file))
        observer.start()
        calls()
        observer.stop()
        calls()
        observer.unregister_callback()
        nodes = json.loads(file.read_text())["nodes"]
    print(sorted(Counter(node["name"] for node in nodes).items()))


def with_execution_trace():
    calls()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        observer = torch.profiler.ExecutionTraceObserver().register_callback(str(file))
        plan = schedule(wait=1, warmup=1, active=1)
        with profile(**CPU, schedule=plan, execution_trace_observer=observer) as own:
            calls(4, own.step)
        nodes = json.loads(file.read_text())["nodes"]
    print(sorted(Counter(node["name"] for node in nodes).items()))
    show(own)
    calls()


def by_hand():
    calls()
    own = torch.profiler._KinetoProfile(**CPU)
    own.prepare_trace()
    calls()
    own.start_trace()
    calls()
    own.stop_trace()
    show(own)
    calls()


def started_before_us():
    with profile(**CPU, schedule=schedule(wait=0, warmup=2, active=1)) as own:
        calls(1, own.step)
        if begin_later:
            import profiler

            profiler.start()
        calls(2, own.step)
    show(own)
    calls()


globals()[sys.argv[1]]()
print("end")
