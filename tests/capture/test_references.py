"""Nothing of ours keeps a tensor of the user's: what a call was given and what it returned goes
when the script lets go of it, without the help of the garbage collector."""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import profiler
from profiler.capture import Settings, SwitchedOn, open_session
from tests.capture.onnx_pipelines import gathering, opened


@contextmanager
def without_collector():
    """As `gc.disable()` in a script; it stays disabled."""
    gc.collect()
    gc.disable()
    try:
        yield
        assert not gc.isenabled()
    finally:
        gc.enable()


def alive(references):
    return [name for name, reference in references.items() if reference() is not None]


@pytest.mark.torch
@pytest.mark.parametrize("ops", ["none", "all"])
def test_tensors_of_torch_go_with_the_script(tmp_path: Path, ops: str):
    """Inputs, latents between the calls and results of a pipeline's calls, recorded with shapes,
    are gone while the profile goes on; so are those of a call that failed."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    references = {}

    class Scheduler:
        def step(self, sample):
            return sample + 1

    class Pipeline:
        def __init__(self):
            self.text_encoder = torch.nn.Linear(4, 4)
            self.transformer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
            self.scheduler = Scheduler()

        def encode_prompt(self, prompt):
            return self.text_encoder(prompt)

        def __call__(self, prompt, fail=False):
            embedding = self.encode_prompt(prompt)
            references["embedding"] = weakref.ref(embedding)
            latents = self.scheduler.step(self.transformer(embedding))
            references["latents"] = weakref.ref(latents)
            if fail:
                raise ValueError("out of prompts")
            return latents * 2

    pipeline = Pipeline()
    with torch.no_grad(), profiler.profile(pipeline, out=tmp_path, ops=ops) as run:
        pipeline(torch.ones(1, 4))  # what is made once is made
        with without_collector():
            prompt = torch.ones(2, 4)
            references["prompt"] = weakref.ref(prompt)
            result = pipeline(prompt)
            references["result"] = weakref.ref(result)
            del prompt, result
            assert alive(references) == []
            failing = torch.ones(3, 4)
            references["failing"] = weakref.ref(failing)
            with suppress(ValueError):
                pipeline(failing, fail=True)
            del failing
            assert alive(references) == []
    shapes = profiler.load(run.path).calls["input_shapes"].to_list()
    assert shapes == [f"input: float32[{rows},4]" for rows in (1, 1, 2, 2, 3, 3)]


@pytest.fixture
def process():
    """One that is left as it was, also where a test fails."""
    process = SwitchedOn(open_session)
    yield process
    process.switch_off()


@pytest.mark.parametrize("ops", ["none", "all"])
def test_arrays_of_onnx_runtime_go_with_the_script(tmp_path: Path, process: SwitchedOn, ops: str):
    """The same of a pipeline on ONNX Runtime, and of a bare session's runs in a process that is
    switched on, also of one that fails."""
    (tmp_path / "gather.onnx").write_bytes(gathering().SerializeToString())
    process.switch_on(Settings.of({"out": tmp_path / "out", "ops": ops}))
    session = opened(str(tmp_path / "gather.onnx"))
    references = {}
    session.run(None, {"x": np.ones((1, 3), np.float32), "i": np.array([0])})
    with without_collector():
        for row in (0, 7):  # the second fails
            x, i = np.ones((2, 3), np.float32), np.array([row])
            references[f"x {row}"], references[f"i {row}"] = weakref.ref(x), weakref.ref(i)
            with suppress(Exception):
                (y,) = session.run(None, {"x": x, "i": i})
                references["y"] = weakref.ref(y)
                del y
            del x, i
            assert alive(references) == []
    path = process.switch_off()
    assert path is not None
    shapes = profiler.load(path).calls["input_shapes"].to_list()
    assert shapes == [f"x: float32[{rows},3]; i: int64[1]" for rows in (1, 2)]


def test_arrays_of_asynchronous_runs_go_with_the_script(
    tmp_path: Path, process: SwitchedOn, monkeypatch
):
    """What `run_async` was given is gone once it has called back, here before it returns."""

    def run_async(self, output_names, input_feed, callback, user_data, run_options=None):
        callback(self._sess.run(output_names, input_feed, run_options), user_data, "")

    monkeypatch.setattr(onnxruntime.InferenceSession.__mro__[1], "run_async", run_async)
    (tmp_path / "gather.onnx").write_bytes(gathering().SerializeToString())
    process.switch_on(Settings.of({"out": tmp_path / "out", "ops": "none"}))
    session = opened(str(tmp_path / "gather.onnx"))
    references = {}

    def answered(results, _data, _error):
        references["y"] = weakref.ref(results[0])

    with without_collector():
        x = np.ones((2, 3), np.float32)
        references["x"] = weakref.ref(x)
        session.run_async(["y"], {"x": x, "i": np.array([0])}, answered, None)
        del x
        assert references.keys() == {"x", "y"}
        assert alive(references) == []
    assert len(profiler.load(process.switch_off()).calls) == 1
