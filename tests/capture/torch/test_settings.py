"""How a torch submodule is set up, against what the test has set up itself."""

from __future__ import annotations

import pytest

from profiler.capture.torch.model_settings import module_settings
from profiler.trace import Offload, OffloadKind, SubmoduleSettings
from profiler.trace.manifest_fields import Adapter, Compiled, StepCache

torch = pytest.importorskip("torch", reason="needs the torch extra")
diffusers = pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch


def layers(count=2):
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(count))).eval()


@pytest.fixture
def transformer():
    from tests.capture import tiny_diffusers

    return tiny_diffusers.flux().transformer


def test_bytes_of_weights_by_type():
    """Two layers of 80 bytes in float32; one of them in bfloat16 is half as large, and a weight
    that two layers share counts once."""
    module = layers()
    assert {n: w.bytes for n, w in module_settings(module).weights.items()} == {"float32": 160}
    module[1].to(torch.bfloat16)
    found = module_settings(module).weights
    assert {n: (w.bytes, w.share) for n, w in found.items()} == {
        "float32": (80, 80 / 120),
        "bfloat16": (40, 40 / 120),
    }
    module[1] = module[0]
    assert {n: w.bytes for n, w in module_settings(module).weights.items()} == {"float32": 80}


def test_weights_are_read_again_where_they_are_others():
    """Read again: types changed in place, a part with another type, one that is gone."""
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 2, bias=False)
    )

    def sizes():
        return {name: part.bytes for name, part in module_settings(module).weights.items()}

    assert sizes() == sizes() == {"float32": 96}
    module.half()
    assert sizes() == {"float16": 48}
    module[1] = torch.nn.Linear(4, 2, bias=False)
    assert sizes() == {"float16": 32, "float32": 32}
    del module[0]
    assert sizes() == {"float32": 32}


def test_what_is_not_there_is_absent():
    """A plain module has weights and nothing else."""
    found = module_settings(layers())
    assert found == SubmoduleSettings(weights=found.weights)


def test_attention_backends(transformer):
    """The dispatcher's own where processors name none, else theirs, whatever is active."""
    found = module_settings(transformer).attention
    count = sum(hasattr(module, "processor") for module in transformer.modules())
    assert found.processors == {"FluxAttnProcessor": count}
    assert found.backends == ("native",)
    for module in transformer.modules():
        if hasattr(module, "processor"):
            module.processor._attention_backend = "_native_math"
    assert module_settings(transformer).attention.backends == ("_native_math",)


def test_attention_of_transformers_models_and_torch_kernels():
    """The implementation that the model was made with; kernels that are switched on."""
    import transformers

    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8}
    counts = {"num_attention_heads": 1, "num_hidden_layers": 1}
    config = transformers.CLIPTextConfig(**sizes, **counts, attn_implementation="eager")
    model = transformers.CLIPTextModel(config)
    assert module_settings(model).attention.implementations == ("eager",)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert module_settings(model).attention.sdpa == ("math",)


def test_step_caches(transformer):
    """Switched on by the model's method, or by the function that it calls; with parameters."""
    expected = StepCache(name="FirstBlockCache", parameters={"threshold": 0.125})
    config = diffusers.FirstBlockCacheConfig(threshold=0.125)
    transformer.enable_cache(config)
    assert module_settings(transformer).cache == expected
    transformer.disable_cache()
    assert module_settings(transformer).cache is None
    diffusers.hooks.apply_first_block_cache(transformer, config)
    assert module_settings(transformer).cache == expected


@pytest.mark.parametrize("whole", [True, False], ids=["wrapped", "in place"])
def test_compile_options(whole):
    """As they were given, of torch.compile and of `module.compile()`."""
    module, options = layers(), {"backend": "aot_eager", "dynamic": True, "fullgraph": True}
    if whole:
        module = torch.compile(module, **options)
    else:
        module.compile(**options)
    assert module_settings(module).compiled == Compiled(whole=True, **options)


def test_compiled_parts_and_modes():
    """Layers that are compiled one by one, and Inductor's mode, which its options tell."""
    module = layers(3)
    for layer in module[:2]:
        layer.compile(mode="max-autotune-no-cudagraphs")
    found = module_settings(module).compiled
    assert found == Compiled(
        modules=2, backend="inductor", mode="max-autotune-no-cudagraphs", fullgraph=False
    )
    module[2].compile()
    assert module_settings(module[2]).compiled.mode == "default"


def test_offload_by_accelerate():
    """Of whole models and of layers; a hook that only moves inputs is none."""
    from accelerate import cpu_offload, cpu_offload_with_hook
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module

    module, _ = cpu_offload_with_hook(layers(), execution_device="cpu")
    whole = Offload(kind=OffloadKind.MODEL, execution_device="cpu:0")
    assert module_settings(module).offload == whole
    module = cpu_offload(layers(), execution_device=torch.device("cpu"))
    of_layers = Offload(kind=OffloadKind.SEQUENTIAL, execution_device="cpu:0")
    assert module_settings(module).offload == of_layers
    module = add_hook_to_module(layers(), AlignDevicesHook(execution_device="cpu"))
    assert module_settings(module).offload is None
    module.hf_device_map = {"0": "cpu", "1": "disk"}
    mapped = Offload(kind=OffloadKind.DEVICE_MAP, device_map={"cpu:0": 1, "disk": 1})
    assert module_settings(module).offload == mapped


def test_group_offload(transformer):
    """Its configuration, with the device that computes."""
    cpu = torch.device("cpu")
    diffusers.hooks.apply_group_offloading(
        transformer, cpu, cpu, offload_type="block_level", num_blocks_per_group=1
    )
    found = module_settings(transformer).offload
    assert (found.kind, found.execution_device) == (OffloadKind.GROUP, "cpu:0")
    assert found.parameters["offload_type"] == "block_level"
    assert found.parameters["num_blocks_per_group"] == 1
    assert found.parameters["stream"] is False


@pytest.mark.filterwarnings("ignore:Already found a `peft_config`:UserWarning")
def test_adapters(transformer):
    """Rank, scaling (alpha over rank, times the weight that it was given), what is active and what
    is fused."""
    peft = pytest.importorskip("peft", reason="needs the torch extra")
    targets = ["to_q", "to_k"]
    for name, rank in (("style", 2), ("face", 4)):
        config = peft.LoraConfig(r=rank, lora_alpha=8, target_modules=targets)
        transformer.add_adapter(config, name)
    count = sum(name.endswith((".to_q", ".to_k")) for name, _ in transformer.named_modules())
    transformer.set_adapters(["face"], [0.5])
    style = Adapter(kind="LORA", modules=count, ranks=(2,), scalings=(4.0,))
    face = Adapter(kind="LORA", modules=count, active=True, ranks=(4,), scalings=(1.0,))
    assert module_settings(transformer).adapters == {"style": style, "face": face}
    transformer.fuse_lora(adapter_names=["face"])
    assert module_settings(transformer).adapters["face"].fused
    transformer.unfuse_lora()
    transformer.disable_adapters()
    assert not module_settings(transformer).adapters["face"].active
