"""A pipeline's own `rbln_config`, honoured as if it had been given to us; on a fake `rebel`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import profiler
from profiler.capture import FakeClock
from profiler.errors import InputError

from .fake_rebel import (
    FakeRebel,
    RBLNRuntimeVAEDecoder,
    RBLNStableDiffusion3Pipeline,
    Runtime,
)

OFF = {"activate_profiler": False}
ALL = {"text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae"}


@pytest.fixture
def rebel(tmp_path, monkeypatch):
    fake = FakeRebel(FakeClock(1_790_000_000_000_000_000), tmp_path)
    fake.install(monkeypatch)
    monkeypatch.delenv("RBLN_PROFILER", raising=False)
    return fake


@pytest.fixture
def record(rebel, tmp_path):
    """The run of one image with one step."""

    def run(pipeline, **options):
        out = tmp_path / "bundles"
        with profiler.profile(pipeline, out=out, clock=rebel.clock, **options) as run:
            pipeline(num_inference_steps=1)
        return profiler.load(run.path)

    return run


def traced(run):
    """The submodules whose calls have operators."""
    return set(run.calls.filter(run.calls["ops_traced"])["submodule"])


def test_a_submodule_that_is_not_to_be_profiled_has_calls_alone(rebel, record):
    """`activate_profiler: False` of the VAE's own configuration: its call, without operators, as
    the manifest says; no drop tells of a loss."""
    run = record(RBLNStableDiffusion3Pipeline(rebel, {"vae": OFF}))
    assert traced(run) == ALL - {"vae"}
    assert len(run.calls) == 8
    told = {name: facts.activate_profiler for name, facts in run.info.submodules.items()}
    assert told == dict.fromkeys(ALL, True) | {"vae": False}
    assert run.drops == ()


def test_it_is_as_if_it_had_been_given_to_us(rebel, record):
    """Their configuration and ours leave the same run, but for which submodules write files."""
    own = record(RBLNStableDiffusion3Pipeline(rebel, {"transformer": OFF}))
    given = record(RBLNStableDiffusion3Pipeline(rebel), config={"transformer": OFF})
    columns = ("submodule", "stage", "branch", "step", "device", "duration_ns", "ops_traced")
    assert own.calls.select(columns).equals(given.calls.select(columns))
    assert own.commands.drop("run_id", strict=False).height == given.commands.height
    facts = own.info.submodules["transformer"], given.info.submodules["transformer"]
    assert [known.activate_profiler for known in facts] == [False, False]
    assert [known.writes_shards for known in facts] == [False, True]
    assert [len(known.runtime_calls) for known in facts] == [1, 1]


def test_what_is_said_to_us_wins(rebel, record):
    """A submodule that is switched off in its own configuration is traced where ours says so."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel, {"vae": OFF, "transformer": OFF})
    run = record(
        pipeline, config={"vae": {"activate_profiler": True}, "transformer": {"device": 0}}
    )
    assert traced(run) == ALL - {"transformer"}


@pytest.mark.parametrize(
    ("config", "left"),
    [
        ({"vae": OFF, "transformer": {"activate_profiler": None}}, ALL - {"vae"}),
        (SimpleNamespace(vae=SimpleNamespace(activate_profiler=False)), ALL - {"vae"}),
        (OFF, set()),
        ({"activate_profiler": False, "vae": {"activate_profiler": True}}, {"vae"}),
        ({"vae": {"activate_profiler": "no"}}, ALL),
        ("nonsense", ALL),
    ],
)
def test_the_pipelines_own_configuration(rebel, record, config, left):
    """As a mapping or an object, by submodule or for all; what is no boolean says nothing."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel)
    for name in ALL:
        getattr(pipeline, name).rbln_config.activate_profiler = None
    pipeline.rbln_config = config
    assert traced(record(pipeline)) == left


def test_a_submodules_configuration_wins_over_the_pipelines(rebel, record):
    """What the runtime was made with counts: the pipeline's value is inherited, not imposed."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel, {"vae": {"activate_profiler": True}})
    pipeline.rbln_config = {"vae": OFF}
    assert "vae" in traced(record(pipeline))


def test_a_device_that_is_configured_is_held_against_the_runtime(rebel, tmp_path):
    """`device: 1` beside a runtime on device 0 is refused, as it is in our configuration."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel)
    config = pipeline.text_encoder_3.rbln_config
    config.device, config.device_map = 1, {"compiled_model": 1}
    sentence = "text_encoder_3 is configured for device 1 but runs on rbln:0"
    with pytest.raises(InputError, match=sentence):
        profiler.profile(pipeline, out=tmp_path)
    pipeline.text_encoder_3.model[0].device = 1
    profiler.profile(pipeline, out=tmp_path)
    pipeline.rbln_config = {"transformer": {"device": 1}}  # that of the submodule says 0, and wins
    profiler.profile(pipeline, out=tmp_path)


def test_a_device_in_a_mapping_places_the_calls(rebel, record):
    """A runtime that does not tell its device is where its submodule's configuration, here a
    mapping, says; the parts of a VAE may be on two."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel)
    pipeline.transformer.model[0].device = None
    pipeline.transformer.rbln_config = {"device": 2}
    pipeline.vae.decoder.runtime.device = 3
    encoder = Runtime(rebel, "vae", device=0, activate_profiler=True)
    pipeline.vae.encoder = RBLNRuntimeVAEDecoder(encoder)
    pipeline.vae.rbln_config.device_map = {"encoder": 0, "decoder": [3, 4]}
    run = record(pipeline)
    devices = dict(run.calls.select("submodule", "device").iter_rows())
    assert devices == dict.fromkeys(ALL, "rbln:0") | {"transformer": "rbln:2", "vae": "rbln:3"}


def test_a_submodule_that_is_replaced_brings_its_own(rebel, tmp_path):
    """Between two calls of the pipeline a transformer is put in that is not to be profiled."""
    pipeline = RBLNStableDiffusion3Pipeline(rebel)
    other = RBLNStableDiffusion3Pipeline(rebel, {"transformer": OFF}).transformer
    with profiler.profile(pipeline, out=tmp_path / "bundles", clock=rebel.clock) as run:
        pipeline(num_inference_steps=1)
        pipeline.transformer = other
        pipeline(num_inference_steps=1)
    calls = profiler.load(run.path).calls
    steps = calls.filter(calls["submodule"] == "transformer")
    assert steps["ops_traced"].to_list() == [True, False]


def test_a_configuration_that_fails_is_none(rebel, record):
    """A property that raises, as one of a half-loaded configuration may, is the user's affair."""

    class Broken:
        @property
        def activate_profiler(self):
            raise RuntimeError("no context")

    pipeline = RBLNStableDiffusion3Pipeline(rebel)
    pipeline.rbln_config = {"transformer": Broken()}
    assert traced(record(pipeline)) == ALL
