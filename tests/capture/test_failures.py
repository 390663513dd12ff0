"""What fails in capture is a drop of the run's: the user's call returns what it would have."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

import profiler
from profiler.capture import FakeClock, Options, PipelineHooks, Recorder, Session
from profiler.errors import InputError
from tests.runs import told

from .onnx_pipelines import gathering, opened
from .toy import ToyPipeline


class Stopping(FakeClock):
    """A clock that breaks at one reading, counted from `readings = 0`."""

    readings, breaks_at = 0, -1

    def now_ns(self):
        self.readings += 1
        if self.readings - 1 == self.breaks_at:
            raise RuntimeError("the clock has stopped")
        return super().now_ns()


def test_a_failure_anywhere_around_a_call_is_a_drop(tmp_path, capsys):
    """Whichever reading of the clock fails, of all those in a pipeline call, the pipeline returns
    the same; each is counted as a drop, and stderr has one line for each place."""
    clock = Stopping()
    pipeline = ToyPipeline(clock)
    plain = pipeline(num_inference_steps=2)
    session = Session.open(Options("none"), tmp_path, clock=clock)
    session.attach(pipeline)
    clock.readings = 0
    pipeline(num_inference_steps=2)
    count = clock.readings
    assert count > 40
    for number in range(count):
        clock.readings, clock.breaks_at = 0, number
        result = pipeline(num_inference_steps=2)
        clock.breaks_at = -1
        assert result.keys() == plain.keys()
        assert (result["latent_sample"] == plain["latent_sample"]).all()
    run = profiler.load(session.close())
    failed = [drop for drop in run.drops if "profile-sd3 failed" in told(drop)]
    assert {(drop.kind, drop.unit) for drop in failed} == {("untraced_call", "calls")}
    assert {told(drop) for drop in failed} == {
        "profile-sd3 failed: RuntimeError: the clock has stopped"
    }
    assert sum(drop.count for drop in failed) == count
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(failed)
    assert all("the script goes on: RuntimeError: the clock has stopped" in line for line in said)


class Broken:
    """A source of operators all of whose methods fail."""

    def __getattr__(self, name):
        def fail(*_):
            raise OSError(f"{name} failed")

        return fail


def test_failing_sources_cost_operators_only():
    """Calls are recorded, labelled as ever, where the source of their operators fails; so does
    renewing the sources."""
    recorder = Recorder(FakeClock())
    pipeline = ToyPipeline(recorder.clock)
    broken = Broken()
    hooks = PipelineHooks(pipeline, recorder, lambda entry: broken, broken.renew)
    hooks.attach()
    pipeline(num_inference_steps=1)
    hooks.detach()
    assert [call.submodule for call in recorder.calls()][-2:] == ["transformer", "vae"]
    assert len(recorder.calls()) == 8
    assert sorted(recorder.failures.items())[:4] == [
        (("ToyPipeline", "OSError: begin_pipeline failed"), 1),
        (("ToyPipeline", "OSError: end_pipeline failed"), 1),
        (("ToyPipeline", "OSError: renew failed"), 1),
        (("text_encoder", "OSError: before failed"), 2),
    ]


class Shy(ToyPipeline):
    """One whose parts cannot always be asked for."""

    shy = False

    @property
    def image_encoder(self):
        if self.shy:
            raise RuntimeError("not now")


def test_mocks_keep_the_calls_of_the_script_alone(tmp_path):
    """A mock in a pipeline has every method, but is no submodule: the others are recorded, and it
    notes what it would without us."""
    clock = FakeClock()
    pipeline = ToyPipeline(clock)
    ids = np.zeros((1, 77), np.int64)
    vae = pipeline.vae = mock.create_autospec(pipeline.vae)
    vae.decode.return_value = ids
    tokenizer = pipeline.tokenizer = mock.Mock(return_value=ids)
    upscaler = pipeline.upscaler = mock.MagicMock()
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as run:
        pipeline(num_inference_steps=1)
    assert vae.mock_calls == [mock.call.decode(mock.ANY)]
    assert tokenizer.mock_calls == [mock.call("a cat")] * 2
    assert upscaler.mock_calls == []
    assert pipeline.tokenizer is tokenizer
    loaded = profiler.load(run.path)
    encoders = ["text_encoder", "text_encoder_2", "text_encoder_3"]
    assert loaded.calls["submodule"].to_list() == [*encoders, *encoders, "transformer"]
    assert not loaded.drops


class Plain:
    """A pipeline without a scheduler."""

    def __init__(self, **parts):
        self.__dict__.update(parts)

    def __call__(self, x):
        self.tokenizer(x)
        return self.transformer()


def test_mocks_in_collections_and_without_a_scheduler(tmp_path):
    """A mock tokenizer, whose calls are hooked, is not asked for a schedule, and no mock in a list
    or dict for anything; calls outside loops have no step."""
    clock = FakeClock()
    transformer = ToyPipeline(clock).transformer
    tokenizer, held, given = (mock.MagicMock() for _ in range(3))
    parts = {"transformer": transformer, "tokenizer": tokenizer, "more": [held], "all": {"a": held}}
    pipeline = Plain(**parts)
    with profiler.profile(pipeline, out=tmp_path / "one", ops="none", clock=clock) as run:
        pipeline("a cat")
    assert profiler.load(run.path).calls["step"].to_list() == [-1]
    with (
        pytest.raises(InputError, match="holds no module"),
        profiler.profile({"vae": given, "upscaler": given}, out=tmp_path / "two", clock=clock),
    ):
        pass
    assert tokenizer.mock_calls == [mock.call("a cat")]
    assert held.mock_calls == given.mock_calls == []


class Odd:
    """Not an array, though it has a dtype; nor a text."""

    dtype = "f"

    def shape(self):
        return [1]


def test_what_the_user_replaces_may_fail_to_show_itself(tmp_path):
    """A pipeline whose attributes raise when they are looked at again runs on, with the hooks that
    it has."""
    clock = FakeClock()
    pipeline = Shy(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as run:
        pipeline.shy = True
        pipeline(num_inference_steps=1)
        pipeline.shy = False
    loaded = profiler.load(run.path)
    assert len(loaded.calls) == 8
    assert {told(drop) for drop in loaded.drops} == {"profile-sd3 failed: RuntimeError: not now"}


def test_arguments_that_have_no_shape():
    """An object whose `shape` is a method is no array, and no reason to fail."""
    from profiler.capture.calls import described, first_dimension

    assert (described(Odd()), first_dimension(Odd())) == ("", 0)
    assert (described(np.zeros((2, 1))), first_dimension(np.zeros((2, 1)))) == ("float64[2,1]", 2)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_have_no_shape(tmp_path):
    """A call with a strided nested tensor, whose `shape` raises, is recorded without its shape."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])

    class Pipeline:
        def __init__(self):
            self.transformer = torch.nn.Linear(4, 4)

        def __call__(self, hidden_states):
            return self.transformer(hidden_states)

    pipeline = Pipeline()
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        assert pipeline(nested).is_nested
    loaded = profiler.load(run.path)
    assert loaded.drops == ()
    assert loaded.calls.select("submodule", "input_shapes").rows() == [("transformer", "")]


def test_a_replaced_part_whose_session_cannot_be_opened_again(tmp_path, capsys):
    """The pipeline runs on with the part that it was given, whose calls are recorded; stderr and
    the drops say why they have no operators."""
    import onnx

    class Part:
        def __init__(self, name):
            self.file = tmp_path / f"{name}.onnx"
            onnx.save(gathering(), str(self.file))
            self.session = opened(str(self.file))

        def forward(self, x):
            return self.session.run(None, {"x": x, "i": np.array([0])})[0]

    class Pipeline:
        def __init__(self):
            self.transformer = Part("first")

        def __call__(self, x):
            return self.transformer.forward(x)

    pipeline, x = Pipeline(), np.ones((2, 3), np.float32)
    with profiler.profile(pipeline, out=tmp_path / "out") as run:
        pipeline(x)
        replaced = Part("second")
        replaced.file.unlink()
        pipeline.transformer = replaced
        for _ in range(2):
            assert (pipeline(x) == 2).all()
    loaded = profiler.load(run.path)
    assert loaded.calls["ops_traced"].to_list() == [True, False, False]
    (drop,) = loaded.drops
    assert (drop.kind, drop.where) == ("untraced_call", "transformer")
    assert "NoSuchFile" in told(drop)
    assert capsys.readouterr().err.count("transformer is not recorded whole") == 1


def test_a_run_is_closed_while_its_pipeline_call_ends():
    """Where another thread that closes the run is first to end the pipeline call, that is all."""

    class Closing(list):
        def remove(self, value):
            super().remove(value)  # the other thread
            super().remove(value)

    recorder = Recorder(FakeClock())
    pipeline = recorder.begin_pipeline("Pipeline")
    recorder._open = Closing([pipeline])
    recorder.end_pipeline(pipeline)
    assert (recorder._open, pipeline.end_ns) == ([], 0)
