"""Components of any name are submodules, and their calls are what hooks of the test's own count."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import pytest

import profiler

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytest.importorskip("diffusers", reason="needs the torch extra")

import diffusers  # noqa: E402
import transformers  # noqa: E402
from PIL import Image  # noqa: E402

from profiler.capture.torch.modules import entry_points  # noqa: E402
from tests.capture import tiny_components as components  # noqa: E402
from tests.capture import tiny_diffusers as tiny  # noqa: E402 - it imports them

pytestmark = pytest.mark.torch


class Net(torch.nn.Module):
    """A component of somebody's own."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)


class Dreams(diffusers.DiffusionPipeline):
    """Nothing in it has a name that anybody knows."""

    def __init__(self, audio_brain, prior_net, dreamer_net, pixel_maker, timer):
        super().__init__()
        self.register_modules(
            audio_brain=audio_brain,
            prior_net=prior_net,
            dreamer_net=dreamer_net,
            pixel_maker=pixel_maker,
            timer=timer,
        )

    @torch.no_grad()
    def __call__(self, x, steps):
        x = self.prior_net(self.audio_brain(x))
        self.timer.set_timesteps(steps)
        for t in self.timer.timesteps:
            x = self.timer.step(self.dreamer_net(x), t, x).prev_sample
        return self.pixel_maker(x)


def dreams():
    torch.manual_seed(0)
    return Dreams(Net(), Net(), Net(), Net(), tiny.flow_scheduler())


@contextmanager
def counted(**modules):
    """Counts calls of modules by the test's own forward hooks."""
    found: Counter[str] = Counter()
    handles = [
        module.register_forward_hook(lambda *_, name=name: found.update([name]))
        for name, module in modules.items()
    ]
    yield found
    for handle in handles:
        handle.remove()


def recorded(tmp_path, pipeline, *args, **kwargs):
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        result = pipeline(*args, **kwargs)
    return profiler.load(run.path), result


def labels(run):
    return run.calls.select("submodule", "stage", "step").rows()


def numbers(run):
    return Counter(run.calls["submodule"].to_list())


@pytest.mark.parametrize("steps", [1, 3])
def test_components_of_any_name(tmp_path, steps):
    """1, 1, 3 and 1 calls under the components' names; the one in the loop has steps. The output
    is that without capture, and nothing is lost."""
    pipeline, x = dreams(), torch.ones(1, 4)
    without = pipeline(x, steps)
    run, result = recorded(tmp_path, pipeline, x, steps)
    assert labels(run) == [
        ("audio_brain", "encode", -1),
        ("prior_net", "encode", -1),
        *(("dreamer_net", "denoise", step) for step in range(steps)),
        ("pixel_maker", "decode", -1),
    ]
    assert torch.equal(result, without)
    assert (run.drops, list(run.info.submodules)) == (
        (),
        ["audio_brain", "prior_net", "dreamer_net", "pixel_maker"],
    )


def test_files_and_spans_have_the_stages_that_were_found(tmp_path):
    """A call's file is written when its stage is known; stages tile the pipeline call."""
    run, _ = recorded(tmp_path, dreams(), torch.ones(1, 4), 2)
    assert sorted(path.name for path in (tmp_path / run.run_id).glob("0*.pb")) == [
        "000_audio_brain.encode.pb",
        "001_prior_net.encode.pb",
        "002_dreamer_net.step000.pb",
        "003_dreamer_net.step001.pb",
        "004_pixel_maker.decode.pb",
    ]
    spans = run.spans.select("kind", "name").rows()
    assert spans == [
        ("pipeline", "Dreams"),
        ("stage", "encode"),
        ("stage", "denoise"),
        ("step", "step 0"),
        ("step", "step 1"),
        ("stage", "decode"),
    ]


def test_operators_of_a_component_of_any_name(tmp_path):
    """Its operators carry the paths of its modules, as those of any submodule."""
    pipeline = dreams()
    with profiler.profile(pipeline, out=tmp_path) as profiled:
        pipeline(torch.ones(1, 4), 2)
    run = profiler.load(profiled.path)
    assert run.calls["ops_traced"].to_list() == [True] * 5
    of_calls = run.commands.filter(run.commands["call"] >= 0)
    assert set(of_calls["call"]) == set(range(5))
    assert any("inner" in layer for layer in set(of_calls["layer"].cast(str)))
    assert run.calls["stage"].to_list() == ["encode", "encode", "denoise", "denoise", "decode"]


class Loose:
    """Holds its modules in a dict and a list, as scripts do; one lies inside another."""

    def __init__(self):
        self.models = {"thinker": Net(), "painter": Net()}
        self.extra = [Net()]
        self.alias = self.models["thinker"]
        self.hidden = self.models["painter"].inner

    def __call__(self, x):
        return self.models["painter"](self.extra[0](self.models["thinker"](x)))


def test_modules_in_lists_and_dicts(tmp_path):
    """Each is one submodule, under its attribute if it has one, else its key; what lies inside
    another is none. Without a scheduler the stage is `run`."""
    run, _ = recorded(tmp_path, Loose(), torch.ones(1, 4))
    assert labels(run) == [("alias", "run", -1), ("extra_0", "run", -1), ("painter", "run", -1)]
    assert run.spans.select("kind", "name").rows() == [("pipeline", "Loose"), ("stage", "run")]


def test_a_component_that_is_called_in_a_loop(tmp_path):
    """Three calls of equal shape in one pipeline call, with no scheduler, are passes of a loop."""

    class Speaker:
        def __init__(self):
            self.decoder = Net()

        def __call__(self, x):
            return [self.decoder(x) for _ in range(3)]

    run, _ = recorded(tmp_path, Speaker(), torch.ones(1, 4))
    assert run.calls.select("stage", "iteration").rows() == [("run", 0), ("run", 1), ("run", 2)]


def test_entry_points_are_methods_that_call_children():
    """Of a VAE, a CLIP model, a T5 encoder and a module of one's own."""

    class Both(Net):
        def encode(self, x):
            return self._go(x)

        def _go(self, x):
            return self.inner(x)

        def again(self, x):
            return self(x)

        def child(self):
            return self.inner

        def get_device(self):
            return self.inner.weight.device

    class Below(Both):
        def encode(self, x):
            return super().encode(x)

    assert entry_points(Both()) == entry_points(Below()) == ("forward", "encode")
    assert {"forward", "encode", "decode"} <= set(entry_points(tiny.vae()))
    assert "enable_tiling" not in entry_points(tiny.vae())
    assert entry_points(tiny.t5()) == ("forward",)
    config = transformers.CLIPConfig(
        text_config={"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
        vision_config={"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
    )
    found = entry_points(transformers.CLIPModel(config))
    assert {"get_text_features", "get_image_features"} <= set(found)
    assert not {"get_input_embeddings", "generate"} & set(found)


def test_methods_of_a_component_are_calls(tmp_path):
    """`encode` and `decode` of a component of any name have their stages; what they call inside is
    part of them."""

    class Codec(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Net()

        def encode(self, x):
            return self.inner(x)

        def decode(self, x):
            return self.inner(x)

    class Pipeline:
        def __init__(self):
            self.codec = Codec()

        def __call__(self, x):
            return self.codec.decode(self.codec.encode(x))

    pipeline = Pipeline()
    with counted(inner=pipeline.codec.inner) as found:
        run, _ = recorded(tmp_path, pipeline, torch.ones(1, 4))
    assert labels(run) == [("codec", "encode", -1), ("codec", "decode", -1)]
    assert found["inner"] == 2


def test_tokens_are_iterations(tmp_path):
    """`generate` of a language model: the prompt is one call, each further token a pass."""
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.tensor([[5, 6, 7]])
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    without = model.generate(ids, **options)
    with counted(model=model) as found, profiler.profile(model, out=tmp_path, ops="none") as run:
        result = model.generate(ids, **options)
    calls = profiler.load(run.path).calls
    assert torch.equal(result, without)
    assert len(calls) == found["model"] == 5
    assert set(calls["stage"]) == {"run"}
    assert calls["iteration"].to_list() == [-1, 0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:.callback_steps. is deprecated:FutureWarning")
def test_a_pipeline_of_pipelines(tmp_path):
    """Kandinsky 2.2 holds a prior and a decoder pipeline: two loops with steps of their own, under
    the names that the outer pipeline gives its components."""
    pipeline = components.kandinsky()
    owners = {
        name: value for name, value in vars(pipeline).items() if isinstance(value, torch.nn.Module)
    }

    def images():
        given = {"num_inference_steps": 2, "prior_num_inference_steps": 3, "output_type": "pt"}
        generator = torch.Generator().manual_seed(1)
        return pipeline("a cat", height=64, width=64, generator=generator, **given).images

    without = images()
    profiled = profiler.profile(pipeline, out=tmp_path, ops="none")
    with counted(**(owners | {"movq": pipeline.movq.decoder})) as found, profiled:
        result = images()
    run = profiler.load(profiled.path)
    assert torch.equal(result, without)
    assert numbers(run) == found
    rows = run.calls.select("submodule", "stage", "branch", "step").rows()
    assert [row for row in rows if row[1] != "encode"] == [
        *(("prior_prior", "denoise", "batched", step) for step in range(3)),
        *(("unet", "denoise", "batched", step) for step in range(2)),
        ("movq", "decode", None, -1),
    ]
    assert {row[:3] for row in rows if row[1] == "encode"} == {
        ("prior_text_encoder", "encode", "prompt"),
        ("prior_text_encoder", "encode", "negative_prompt"),
        ("prior_image_encoder", "encode", None),
    }


def test_image_to_video(tmp_path):
    """Stable Video Diffusion: the image is encoded twice, frames are decoded in chunks."""
    pipeline = components.image_to_video()

    def frames():
        generator = torch.Generator().manual_seed(1)
        sizes = {"num_frames": 4, "decode_chunk_size": 2, "height": 32, "width": 32}
        given = {"num_inference_steps": 2, "output_type": "pt", "generator": generator}
        return pipeline(Image.new("RGB", (32, 32), "grey"), **sizes, **given).frames

    without = frames()
    parts = {"image_encoder": pipeline.image_encoder, "unet": pipeline.unet}
    profiled = profiler.profile(pipeline, out=tmp_path, ops="none")
    parts |= {"encoder": pipeline.vae.encoder, "decoder": pipeline.vae.decoder}
    with counted(**parts) as found, profiled:
        result = frames()
    run = profiler.load(profiled.path)
    assert torch.equal(result, without)
    assert Counter(run.calls.select("submodule", "stage").rows()) == {
        ("image_encoder", "encode"): found["image_encoder"],
        ("vae", "encode"): found["encoder"],
        ("unet", "denoise"): found["unet"],
        ("vae", "decode"): found["decoder"],
    }
    assert found == {"image_encoder": 1, "encoder": 1, "unet": 2, "decoder": 2}
