"""Operators of optimum's parts: of their own sessions, under the exported graph's modules."""

from __future__ import annotations

import profiler
from profiler.pipelines import default_model_folder
from profiler.trace import MANIFEST_NAME, NO_STEP, read_manifest
from tests.capture.switched_on import drops, labels, whole

LOAD = """
import torch
from optimum.onnxruntime import ORTDiffusionPipeline

pipe = ORTDiffusionPipeline.from_pretrained({folder!r}, export=False, use_io_binding={binding})
pipe.set_progress_bar_config(disable=True)

def image():
    generator = torch.Generator().manual_seed(0)
    size = {{"height": 32, "width": 32, "output_type": "np"}}
    return pipe("a cat", num_inference_steps=2, generator=generator, **size).images

"""


def blocks(path):
    """A module path down to its block: `transformer_blocks.0.attn.to_q` is of
    `transformer_blocks.0`."""
    first, *rest = path.split(".")
    return ".".join([first, *rest[:1]]) if rest and rest[0].isdigit() else first


def test_layers_are_module_paths(scripts):
    """Every operator has the path of its module, though this exporter leaves no metadata but the
    nodes' names; what belongs to the model itself has its class's name."""
    ended = scripts.profiled(LOAD.format(folder="sd3", binding=None) + "image()")
    attribution = whole(ended.bundle).info.attribution
    assert {name: known.share for name, known in attribution.items()} == dict.fromkeys(
        ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae"), 1.0
    )
    commands = profiler.load(ended.bundle).to_pandas()
    of = dict(iter(commands.groupby("submodule", observed=True)))
    assert set(of["transformer"].module.map(blocks)) == {
        "ORTTransformer",  # what optimum has written to its config.json
        "context_embedder",
        "norm_out",
        "pos_embed",
        "proj_out",
        "time_text_embed",
        "transformer_blocks.0",
        "transformer_blocks.1",
    }
    assert {
        "transformer_blocks.0.attn",
        "transformer_blocks.0.attn.to_q",
        "transformer_blocks.0.norm1.linear",
        "transformer_blocks.0.norm1.norm",
    } <= set(of["transformer"].module)
    assert "text_model.encoder.layers.1.self_attn.q_proj" in set(of["text_encoder"].module)
    assert "encoder.block.0.layer.0.SelfAttention.q" in set(of["text_encoder_3"].module)
    assert "decoder.mid_block.resnets.0.conv1" in set(of["vae"].module)


def test_a_pipeline_that_the_script_exports(scripts):
    """Exported while it is loaded, to a folder that goes before the process ends: what the export
    runs is no call, and the layers are known."""
    script = """
from optimum.onnxruntime import ORTFluxPipeline

pipe = ORTFluxPipeline.from_pretrained("saved", export=True)
pipe("a cat", num_inference_steps=1, height=32, width=32, output_type="np")
"""
    ended = scripts.profiled(script)
    assert labels(ended.bundle) == [
        ("text_encoder", "encode", "prompt", NO_STEP),
        ("text_encoder_2", "encode", "prompt", NO_STEP),
        ("transformer", "denoise", "cond", 0),
        ("vae", "decode", "", NO_STEP),
    ]
    attribution = whole(ended.bundle).info.attribution
    assert [known.share for known in attribution.values()] == [1.0] * 4


def test_layers_of_the_newer_exporter(scripts):
    """Of a folder that torch's present exporter wrote, which optimum's pipelines run as well, the
    layers come from the metadata on its nodes: this project's embedded model."""
    folder = str(default_model_folder())
    ended = scripts.profiled(LOAD.format(folder=folder, binding=None) + "image()")
    assert labels(ended.bundle) == [
        *(("text_encoder" + n, "encode", "prompt", NO_STEP) for n in ("", "_2", "_3")),
        *(("text_encoder" + n, "encode", "negative_prompt", NO_STEP) for n in ("", "_2", "_3")),
        *(("transformer", "denoise", "batched", step) for step in range(2)),
        ("vae", "decode", "", NO_STEP),
    ]
    commands = profiler.load(ended.bundle).to_pandas()
    transformer = commands[commands.submodule == "transformer"]
    assert {"transformer_blocks.0", "SD3Transformer2DModel"} <= set(transformer.module.map(blocks))
    assert "transformer_blocks.0.attn.to_q" in set(transformer.module)


def test_bound_inputs_and_outputs(scripts):
    """With optimum's io-binding, whose bindings belong to the parts' own sessions, the calls run on
    the profiled sessions all the same: every call has operators, and the image is the same."""
    ended = scripts.profiled(
        LOAD.format(folder="sd3", binding=True)
        + """
import profiler

profiled = image()
profiler.done()
print((profiled == image()).all())
"""
    )
    assert ended.out.splitlines()[-1] == "True"
    manifest = read_manifest(ended.bundle / MANIFEST_NAME)
    assert [entry.call.submodule for entry in manifest.calls if not entry.commands] == []


STATE = """
import gc, weakref
import profiler

NAMES = ("text_encoder", "text_encoder_2", "transformer", "vae_encoder", "vae_decoder", "vae")

def state():
    parts = {name: getattr(pipe, name) for name in NAMES}
    return type(pipe), {name: (type(part), dict(vars(part))) for name, part in parts.items()}

def same(before, after):
    kind, parts = before
    return kind is after[0] and all(
        known is after[1][name][0]
        and values.keys() == after[1][name][1].keys()
        and all(value is after[1][name][1][key] for key, value in values.items())
        for name, (known, values) in parts.items()
    )

"""


def test_parts_are_as_they_were(scripts):
    """After a `with` block, one that failed, and `done()`, all that the parts hold is what they
    held: the very sessions and bindings."""
    ended = scripts.run(
        LOAD.format(folder="flux", binding=True)
        + STATE
        + """
image()  # diffusers notes its hooks on the transformer in its first call
before = state()
with profiler.profile(pipe, out="traces", name="whole"):
    lent = pipe.transformer.session
    image()
print(same(before, state()), lent is pipe.transformer.session)

try:
    with profiler.profile(pipe, out="traces", name="failed"):
        pipe("a cat", num_inference_steps=1, callback_on_step_end=lambda *_: 1 / 0)
except ZeroDivisionError:
    print(same(before, state()))

profiler.start(out="traces", name="started")
image()
print(same(before, state()))
profiler.done()
print(same(before, state()))
"""
    )
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-4:] == ["True False", "True", "False", "True"]
    assert [bundle.name for bundle in ended.bundles] == ["failed", "started", "whole"]


def test_a_part_that_is_moved(scripts):
    """What moves a part to other providers (`pipe.to`) moves its own session, which it runs on from
    then on: the calls that follow are recorded without operators, which is a drop."""
    ended = scripts.run(
        LOAD.format(folder="flux", binding=False)
        + """
import profiler

own = pipe.transformer.session
before = own._sess
with profiler.profile(pipe, out="traces"):
    image()
    pipe.transformer.session.set_providers(["CPUExecutionProvider"])
    print(pipe.transformer.session is own, own._sess is before)
    image()
print(pipe.transformer.session is own)
"""
    )
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-2:] == ["True False", "True"]
    calls = [entry for entry in whole(ended.bundle).calls if entry.call.submodule == "transformer"]
    assert [entry.call.ops_traced for entry in calls] == [True, True, False, False]
    assert [kind for kind, _ in drops(ended.bundle)] == ["untraced_call"]


def test_a_pipeline_that_goes_frees_its_sessions(scripts):
    """`del pipe` frees the pipeline and its parts while the process is being profiled; what they
    ran is in the run."""
    ended = scripts.profiled(
        LOAD.format(folder="flux", binding=None)
        + """
import gc, weakref

image()
known = [weakref.ref(owner) for owner in (pipe, pipe.transformer, pipe.transformer.session)]
del pipe
gc.collect()
gc.collect()  # the first has freed what held the session
print([owner() is None for owner in known])
"""
    )
    assert ended.out.splitlines()[-1] == "[True, True, True]"
    assert all(entry.commands > 0 for entry in whole(ended.bundle).calls)
