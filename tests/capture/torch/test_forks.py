"""Children that are forked while torch's profiler records: they have sessions of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(sys.platform == "win32", reason="fork of POSIX"),
]

ROOT = Path(__file__).resolve().parents[3]
BEGIN = """
import faulthandler, os, threading
import profiler, torch
from profiler.capture.torch.operators import TRACING

class Transformer(torch.nn.Module):
    def __init__(self, inside=lambda: None):
        super().__init__()
        self.linear, self.inside = torch.nn.Linear(4, 4), inside
    def forward(self, hidden_states):
        self.inside()
        return self.linear(hidden_states)

class Pipeline:
    def __init__(self, inside=lambda: None):
        self.transformer = Transformer(inside)
    def __call__(self):
        return self.transformer(torch.ones(1, 4))

def forked(child):
    '''Run `child` in a forked child, which ends then; a child that hangs is ended.'''
    pid = os.fork()
    if not pid:
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            child()
        finally:
            os._exit(0)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)

def traced(pipeline, name):
    '''A run of one call: whether it was traced, and what was lost.'''
    with profiler.profile(pipeline, out="traces", name=name) as run:
        pipeline()
    loaded = profiler.load(run.path)
    print(name, loaded.calls["ops_traced"].to_list(), loaded.drops, flush=True)
"""


def said(tmp_path, script):
    """The lines that a script prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + dedent(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_fork_while_another_thread_traces(tmp_path):
    """It holds the lock, and its session runs: the child, where there is no such thread, traces."""
    script = """
    held, go_on = threading.Event(), threading.Event()
    def inside():
        with TRACING._lock:
            held.set()
            go_on.wait(120)
    other = Pipeline(inside)
    with profiler.profile(other, out="traces", name="parent"):
        thread = threading.Thread(target=other)
        thread.start()
        held.wait(120)
        forked(lambda: traced(Pipeline(), "in-child"))
        go_on.set()
        thread.join()
    traced(Pipeline(), "afterwards")
    """
    assert said(tmp_path, script) == ["in-child [True] ()", "child 0", "afterwards [True] ()"]


def test_a_fork_in_a_traced_call(tmp_path):
    """torch records the thread on in the child: that ends, and what the child runs is traced. The
    parent's modules have no hooks there."""
    script = """
    def child():
        modules = pipeline.transformer.modules()
        print(sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules), flush=True)
        traced(Pipeline(), "in-child")
    pipeline = Pipeline()
    pipeline.transformer.inside = lambda: forked(child)
    traced(pipeline, "parent")
    """
    assert said(tmp_path, script) == ["0", "in-child [True] ()", "child 0", "parent [True] ()"]


def test_a_fork_in_a_block(tmp_path):
    """Without the switch, too: in the child the pipeline is as it was before, and the run is the
    parent's, which goes on."""
    script = """
    pipeline = Pipeline()
    with profiler.profile(pipeline, out="traces", name="parent") as run:
        pipeline()
        def child():
            print(type(pipeline) is Pipeline, flush=True)
            pipeline()
            run.__exit__(None, None, None)
            print(run.path, flush=True)
        forked(child)
        pipeline()
    print(len(profiler.load(run.path).calls), profiler.load(run.path).drops)
    """
    assert said(tmp_path, script) == ["True", "None", "child 0", "2 ()"]
