"""Pipelines whose calls run in parts: each is one pipeline call until it is over, and what the
caller sees of it is as without profiling."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from profiler.run.load import load_bundle
from tests.capture.switched_on import drops, labels

pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
STEPS = {  # of each pipeline call in which something ran
    "generators": [3, 2, 2, 2, 1, 1],
    "coroutines": [3, 2, 2],
    "feeds": [3, 1, 1],
}


@pytest.mark.parametrize("kind", STEPS)
def test_pipeline_calls_that_run_in_parts(scripts, kind):
    """Whole, in turns, closed early, failed, never begun, and left when the process ends."""
    program = (HERE / "streaming_pipeline.py").read_text(encoding="utf-8")
    plain = scripts.run(program, kind, RBLN_PROFILER=None)
    ours = scripts.run(program, kind)
    assert (ours.code, ours.out) == (0, plain.out), ours.err
    assert ours.err.replace(f"profile-sd3: the run is in {ours.bundle}\n", "") == plain.err
    calls = load_bundle(ours.bundle).calls
    inside = calls.filter(pl.col("pipeline") >= 0)
    found = inside.group_by("pipeline").agg("step").sort("pipeline")["step"].to_list()
    assert found == [list(range(steps)) for steps in STEPS[kind]]
    assert set(inside["stage"]) == {"denoise"}
    alone = calls.height - inside.height
    assert alone == (kind == "generators")  # between two parts, the script's own
    assert calls["ops_traced"].all()
    assert len(drops(ours.bundle)) == alone  # whose branch is a guess
    assert len(labels(ours.bundle)) == sum(STEPS[kind]) + alone


def test_a_compiled_part_beside_a_suspended_call(scripts):
    """What is left suspended is closed at exit without a word, and dynamo leaves no name of the
    script's `__main__` in our modules."""
    ours = scripts.run(
        """
        import sys

        import torch
        from diffusers import DiffusionPipeline


        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

            def forward(self, x):
                return self.b(self.a(x))


        class Stream(DiffusionPipeline):
            def __init__(self, net):
                super().__init__()
                self.register_modules(net=net)

            def __call__(self):
                with torch.no_grad():
                    while True:
                        yield self.net(torch.ones(1, 4)).shape


        pipe = Stream(Net())
        left = pipe()
        print(next(left))
        pipe.net = torch.compile(pipe.net, backend="eager")
        print(next(pipe()), next(left))
        def holders(main):
            ours = [module for name, module in sys.modules.items() if name.startswith("profiler")]
            return [m.__name__ for m in ours if any(value is main for value in vars(m).values())]


        print(holders(sys.modules["__main__"]))
        """
    )
    assert ours.code == 0, ours.err
    assert ours.out.splitlines()[-1] == "[]"
    assert ours.err == f"profile-sd3: the run is in {ours.bundle}\n"


def test_a_cancelled_call_frees_what_it_held(scripts):
    """Without a collection of garbage, as in a plain process: no cycle of ours holds its frame."""
    program = """
        import asyncio
        import gc
        import weakref

        import torch
        from diffusers import DiffusionPipeline


        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

            def forward(self, x):
                return self.b(self.a(x))


        class Pipeline(DiffusionPipeline):
            def __init__(self, net):
                super().__init__()
                self.register_modules(net=net)

            async def __call__(self, held):
                latents = torch.ones(1, 4)
                held.append(weakref.ref(latents))
                while True:
                    self.net(latents)
                    await asyncio.sleep(0)


        async def cancelled(held):
            task = asyncio.ensure_future(pipe(held))
            while not held:
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass


        pipe, held = Pipeline(Net()), []
        gc.disable()
        asyncio.run(cancelled(held))
        print(held[0]())
        """
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program)
    assert (ours.code, ours.out, plain.out) == (0, "None\n", "None\n"), ours.err
