"""Attaching and detaching leaves diffusers pipelines exactly as they were, whatever happens."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref

import numpy as np
import pytest

import profiler
from profiler.capture import Options, Session
from profiler.errors import InputError

pytest.importorskip("diffusers", reason="needs the torch extra")
torch = pytest.importorskip("torch", reason="needs the torch extra")

from tests.capture import tiny_diffusers as tiny  # noqa: E402 - it imports them

pytestmark = pytest.mark.torch

SHORT = {"num_inference_steps": 1, "max_sequence_length": 16, **tiny.SIZE}
FLUX_CALLS = ["text_encoder", "text_encoder_2", "transformer", "vae"]


@pytest.fixture(scope="module")
def flux():
    pipeline = tiny.flux()
    pipeline("a cat", **SHORT)  # diffusers itself leaves attributes behind on first use
    return pipeline


def attributes(pipeline):
    """Class and attributes of the pipeline, its parts and all their modules. Functions and dicts
    (of hooks, of modules) are compared by what they hold, values that a run changes by type."""
    found = {}
    for name, part in {"": pipeline, **vars(pipeline)}.items():
        modules = part.modules() if isinstance(part, torch.nn.Module) else [part]
        for number, module in enumerate(modules):
            found[name, number] = type(module)
            for key, value in getattr(module, "__dict__", {}).items():
                kept = value if callable(value) else type(value)
                if isinstance(value, dict):
                    kept = {entry: id(item) for entry, item in value.items()}
                found[name, number, key] = kept
    return found


def profiled(tmp_path, pipeline, **options):
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        pipeline("a cat", **(SHORT | options))
    return profiler.load(run.path)


def submodules(run):
    return run.calls["submodule"].to_list()


def test_detaching_leaves_everything_as_it_was(tmp_path, flux):
    """Class, attributes, hook dicts: of the pipeline and of every module in it."""
    before = attributes(flux)
    with profiler.profile(flux, out=tmp_path, ops="none"):
        assert attributes(flux) != before
        flux("a cat", **SHORT)
    assert attributes(flux) == before


def test_forward_is_never_replaced(tmp_path, flux):
    """While attached, no module has a `forward` of ours, and the configuration is untouched."""
    config = dict(flux.config)
    with profiler.profile(flux, out=tmp_path, ops="none"):
        assert dict(flux.config) == config
        for name in ("text_encoder", "text_encoder_2", "transformer", "vae"):
            assert "forward" not in vars(getattr(flux, name))


def test_profiling_changes_no_pixel(tmp_path, flux):
    """The image with hooks is the image without."""
    images = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(1)
        images.append(flux("a cat", generator=generator, output_type="np", **SHORT).images)
        if len(images) == 1:
            run = profiler.profile(flux, out=tmp_path, ops="none").__enter__()
    run.__exit__(None, None, None)
    assert np.array_equal(*images)


@pytest.mark.parametrize("part", ["text_encoder_2", "transformer", "vae.decode", "scheduler.step"])
def test_an_exception_leaves_the_pipeline_as_it_was(tmp_path, flux, part, monkeypatch):
    """Wherever a run fails, its finished calls are kept, the drop is named, and every hook goes."""
    owner, _, method = part.partition(".")
    target = getattr(flux, owner)

    def fail(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setitem(vars(target), method or "forward", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        flux("a cat", **SHORT)  # what a failed run leaves behind without us
    before = attributes(flux)
    run = profiler.profile(flux, out=tmp_path, ops="none")
    with pytest.raises(RuntimeError, match="out of memory"), run:
        flux("a cat", **SHORT)
    assert attributes(flux) == before
    loaded = profiler.load(run.path)
    expected = {"text_encoder_2": 1, "transformer": 2, "vae.decode": 3, "scheduler.step": 3}
    assert submodules(loaded) == FLUX_CALLS[: expected[part]]
    lost = [] if part == "scheduler.step" else [owner]
    assert [drop.where for drop in loaded.drops if drop.kind == "untraced_call"] == lost


def test_a_call_that_is_tried_again_is_recorded(tmp_path, flux, monkeypatch):
    """A module that fails once, inside the caller's `except`, and then works, is one recorded call,
    and nothing is lost."""
    forward, tries = type(flux.text_encoder).forward, []

    def once(*args, **kwargs):
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("busy")
        return forward(flux.text_encoder, *args, **kwargs)

    monkeypatch.setitem(vars(flux.text_encoder), "forward", once)
    ids = torch.zeros((1, 4), dtype=torch.long)
    with profiler.profile(flux, out=tmp_path, ops="none") as run:
        try:
            flux.text_encoder(ids)
        except ValueError:
            flux.text_encoder(ids)
    loaded = profiler.load(run.path)
    assert submodules(loaded) == ["text_encoder"]
    assert loaded.drops == ()


def test_an_interrupted_call_does_not_hide_later_ones(tmp_path, flux, monkeypatch):
    """After a KeyboardInterrupt, which torch's hooks are not told of, calls are recorded again."""

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with profiler.profile(flux, out=tmp_path, ops="none") as run:
        with monkeypatch.context() as patch:
            patch.setitem(vars(flux.transformer), "forward", interrupt)
            with pytest.raises(KeyboardInterrupt):
                flux("a cat", **SHORT)
        flux("a cat", **SHORT)
    assert submodules(profiler.load(run.path)) == [*FLUX_CALLS[:2], *FLUX_CALLS]


def test_tiled_decoding_is_one_call(tmp_path):
    """The decoder's runs on tiles are part of the one `vae.decode`."""
    pipeline = tiny.flux()
    pipeline.vae.enable_tiling()
    pipeline.vae.tile_latent_min_size, pipeline.vae.tile_sample_min_size = 8, 8
    tiles = []
    pipeline.vae.decoder.register_forward_hook(lambda *_: tiles.append(1))
    run = profiled(tmp_path, pipeline)
    assert len(tiles) > 1
    assert submodules(run) == FLUX_CALLS


def test_a_replaced_scheduler_still_tells_the_steps(tmp_path):
    """What is replaced between attaching and running is hooked when the pipeline runs."""
    pipeline = tiny.sdxl()
    import diffusers

    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        config = pipeline.scheduler.config
        pipeline.scheduler = diffusers.DPMSolverMultistepScheduler.from_config(config)
        pipeline("a cat", num_inference_steps=2, **tiny.SIZE)
        pipeline.scheduler = diffusers.DDIMScheduler.from_config(config)  # has no step_index
        pipeline("a cat", num_inference_steps=2, **tiny.SIZE)
    loaded = profiler.load(run.path)
    assert loaded.calls["step"].to_list() == [-1, -1, 0, 1, -1] * 2
    steps = loaded.spans.filter(loaded.spans["kind"].cast(str) == "step")
    assert steps["step"].to_list() == [0, 1, 0, 1]
    assert "step" not in vars(pipeline.scheduler)


def test_replaced_parts_have_their_operators(tmp_path):
    """A transformer and a VAE that came after the first run are traced as those before them."""
    pipeline, other = tiny.flux(), tiny.flux()
    with profiler.profile(pipeline, out=tmp_path) as run:
        pipeline("a cat", **SHORT)
        pipeline.transformer, pipeline.vae = other.transformer, other.vae
        pipeline("a cat", **SHORT)
    loaded = profiler.load(run.path)
    assert loaded.drops == ()
    assert loaded.calls["ops_traced"].all()
    operators = [
        loaded.commands.filter(loaded.commands["call"] == call).select("layer", "op_type").rows()
        for call in range(8)
    ]
    assert operators[:4] == operators[4:]
    assert ("transformer_blocks.0.attn.to_q", "aten::linear") in operators[2]


def test_a_session_takes_several_pipelines_that_share_parts(tmp_path, flux):
    """A call belongs to the pipeline that runs; detaching in any order leaves nothing behind."""
    import diffusers

    other = diffusers.FluxImg2ImgPipeline.from_pipe(flux)
    other.set_progress_bar_config(disable=True)
    before = attributes(flux)
    session = Session.open(Options("none"), tmp_path, "both")
    first, second = session.attach(flux), session.attach(other)
    with pytest.raises(InputError, match="being profiled already"):
        session.attach(flux)
    flux("a cat", **SHORT)
    other("a cat", image=tiny.image(), strength=1.0, **SHORT)
    first.detach()
    other("a cat", image=tiny.image(), strength=1.0, **SHORT)
    second.detach()
    assert attributes(flux) == before
    run = profiler.load(session.close())
    image_to_image = [*FLUX_CALLS[:2], "vae", *FLUX_CALLS[2:]]
    assert submodules(run) == [*FLUX_CALLS, *image_to_image, *image_to_image]
    assert run.info.pipeline == "FluxPipeline, FluxImg2ImgPipeline"


def test_a_copy_made_while_attached_is_a_copy(tmp_path, flux):
    """A deep copy of an attached part works on its own weights, and its calls are not the run's."""
    with profiler.profile(flux, out=tmp_path, ops="none") as run:
        vae, transformer = copy.deepcopy(flux.vae), copy.deepcopy(flux.transformer)
        with torch.no_grad():
            for parameter in vae.parameters():
                parameter.zero_()
            assert not vae.decode(torch.ones(1, 1, 8, 8)).sample.any()
            with transformer.cache_context("cond"):
                assert transformer._diffusers_hook is not flux.transformer._diffusers_hook
        assert transformer.cache_context.__self__ is transformer
    assert submodules(profiler.load(run.path)) == []


def test_a_shallow_copy_of_a_scheduler_runs_itself(tmp_path, flux):
    """A copy made while the scheduler is attached advances its own step, not the original's."""
    with profiler.profile(flux, out=tmp_path, ops="none"):
        flux("a cat", output_type="np", **SHORT)
        made = copy.copy(flux.scheduler)
        made.set_timesteps(2, mu=1.0)
        made.step(torch.ones(1), made.timesteps[0], torch.ones(1))
        assert made.step_index == 1
        assert flux.scheduler.step_index == SHORT["num_inference_steps"]
    assert type(made) is type(flux.scheduler)


def test_an_attached_pipeline_can_be_pickled(tmp_path, flux):
    """Pickles and copies of an attached pipeline and of its parts are those of the plain one: they
    run, have its classes, and need nothing of ours where they are loaded."""
    with profiler.profile(flux, out=tmp_path, ops="none") as run:
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            written = pickle.dumps(flux, protocol)
            assert b"profiler.capture" not in written
        saved = io.BytesIO()
        torch.save(flux.transformer, saved)
        made = [pickle.loads(written), copy.deepcopy(flux), copy.copy(flux)]
        assert [type(other) for other in made] == [type(flux).__bases__[0]] * 3
        for other in made[:2]:
            assert other("a cat", output_type="np", **SHORT).images.shape == (1, 32, 32, 3)
    assert submodules(profiler.load(run.path)) == []
    saved.seek(0)
    assert type(torch.load(saved, weights_only=False)) is type(flux.transformer)


def test_an_interrupted_module_does_not_hide_later_calls(tmp_path, flux, monkeypatch):
    """Nor after a KeyboardInterrupt in a module that is called without its pipeline."""

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    ids = torch.zeros((1, 4), dtype=torch.long)
    with profiler.profile(flux, out=tmp_path, ops="none") as run:
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setitem(vars(flux.text_encoder), "forward", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    flux.text_encoder(ids)
            flux.text_encoder(ids)
            flux.text_encoder_2(ids)
    loaded = profiler.load(run.path)
    assert submodules(loaded) == ["text_encoder", "text_encoder_2"] * 2
    assert loaded.drops == ()  # the script caught both


def test_a_session_without_pipelines_leaves_nothing(tmp_path):
    """No folder is made before the first pipeline is attached; `close` says that there is none."""
    session = Session.open(Options("none"), tmp_path / "new")
    assert session.close() is None
    assert not (tmp_path / "new").exists()


def test_attaching_keeps_no_pipeline_alive(tmp_path):
    """A pipeline that the script drops is freed while the session goes on, and its run is kept."""
    session = Session.open(Options("none"), tmp_path, "freed")
    pipeline = tiny.flux()
    session.attach(pipeline)
    pipeline("a cat", **SHORT)
    parts = [weakref.ref(part) for part in (pipeline, pipeline.transformer, pipeline.vae)]
    del pipeline
    gc.collect()
    assert [part() for part in parts] == [None, None, None]
    assert submodules(profiler.load(session.close())) == FLUX_CALLS
