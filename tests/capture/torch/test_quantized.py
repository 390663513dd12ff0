"""Quantized modules: every operator has its module and role, products have their FLOPs, and the
settings say what the weights are. The same transformer as it was has the FLOPs to compare with.

torchao and bitsandbytes are in no extra, since diffusers and transformers import them wherever
they are: docs/nightly.md says how these cases are run.
"""

from __future__ import annotations

import importlib.util

import polars as pl
import pytest

import profiler
from profiler.capture.backend import backend_of

torch = pytest.importorskip("torch", reason="needs the torch extra")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

WIDTH, TOKENS, BLOCKS = 64, 16, 2
PLACES = ("attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out", "ff.up", "ff.down")
LAYERS = [f"blocks.{n}.{place}" for n in range(BLOCKS) for place in PLACES]
WEIGHTS = BLOCKS * (4 * WIDTH**2 + 2 * 4 * WIDTH**2)  # elements
OUTPUTS = BLOCKS * (4 + 4 + 1) * WIDTH  # biases, and scales by row


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("to_q", "to_k", "to_v", "to_out"):
            setattr(self, name, torch.nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        parts = (part(x).unflatten(-1, (2, -1)) for part in (self.to_q, self.to_k, self.to_v))
        query, key, value = (part.transpose(1, 2) for part in parts)
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        return self.to_out(out.transpose(1, 2).flatten(2))


class FeedForward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.up(x)))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.ff = Attention(), FeedForward()

    def forward(self, x):
        x = x + self.attn(x)
        return x + self.ff(x)


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Pipeline:
    def __init__(self, transformer):
        self.transformer = transformer

    @torch.no_grad()
    def __call__(self, x):
        return self.transformer(x)


def dynamic(transformer):
    return torch.ao.quantization.quantize_dynamic(transformer, {torch.nn.Linear}, torch.qint8)


def dynamic_half(transformer):
    return torch.ao.quantization.quantize_dynamic(transformer, {torch.nn.Linear}, torch.float16)


def by_torchao(config):
    def quantized(transformer):
        from torchao import quantization

        quantization.quantize_(transformer, getattr(quantization, config)())
        return transformer

    return quantized


def by_bitsandbytes(kind, **options):
    def quantized(module):
        import bitsandbytes

        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.Linear):
                new = getattr(bitsandbytes.nn, kind)(
                    child.in_features, child.out_features, **options
                )
                new.load_state_dict(child.state_dict())
                setattr(module, name, new.to("cpu"))
            else:
                quantized(child)
        return module

    return quantized


def recorded(quantize, out):
    """The commands of the transformer's call, and the run."""
    torch.manual_seed(0)
    pipeline, x = Pipeline(quantize(Transformer().eval())), torch.randn(1, TOKENS, WIDTH)
    without = pipeline(x)
    with profiler.profile(pipeline, out=out) as profiled:
        given = pipeline(x)
    assert torch.equal(without, given)
    run = profiler.load(profiled.path)
    assert run.drops == ()
    commands = profiler.analyze(run).commands.filter(pl.col("call") >= 0)
    return commands.cast(dict.fromkeys(("layer", "role", "op_type"), pl.String)), run, pipeline


def nightly(package, *cases):
    """Cases of a package that is in no extra."""
    missing = importlib.util.find_spec(package) is None
    marks = [pytest.mark.nightly, pytest.mark.skipif(missing, reason=f"needs {package}")]
    return [pytest.param(*case, marks=marks) for case in cases]


TORCHAO = {  # a scale in float32 and a zero point of a byte for each row
    "Int8Tensor (float32)": WEIGHTS + 5 * OUTPUTS,
    "float32": 4 * OUTPUTS,
}
QUANTIZED = [
    (dynamic, "quantized::linear_dynamic", {"packed (qint8)": WEIGHTS, "float32": 4 * OUTPUTS}),
    (
        dynamic_half,
        "quantized::linear_dynamic_fp16",
        {"packed (float16)": 2 * WEIGHTS, "float32": 4 * OUTPUTS},
    ),
    *nightly(
        "torchao",
        (by_torchao("Int8DynamicActivationInt8WeightConfig"), "aten::_int_mm", TORCHAO),
        (by_torchao("Int8WeightOnlyConfig"), "aten::mm", TORCHAO),
    ),
    *nightly(
        "bitsandbytes",
        (
            by_bitsandbytes("Linear8bitLt", has_fp16_weights=False),
            "MatMul8bitFp",
            {"Int8Params (int8)": WEIGHTS, "float32": 4 * OUTPUTS},
        ),
        (
            by_bitsandbytes("Linear4bit", quant_type="nf4"),
            "bitsandbytes::gemm_4bit",
            # a scale of a byte for each 64 weights, one in float32 for up to 256 of these scales
            {
                "Params4bit (nf4)": WEIGHTS // 2 + WEIGHTS // 64 + 4 * len(LAYERS),
                "float32": 4 * OUTPUTS,
            },
        ),
    ),
]


@pytest.mark.parametrize(("quantize", "product", "stored"), QUANTIZED)
def test_quantized_modules_keep_layers_and_roles(tmp_path, quantize, product, stored):
    """The products of each linear layer have its path, its role and the FLOPs that it had before;
    nothing else has another layer than one of the model; weights are told as they are stored."""
    commands, run, pipeline = recorded(quantize, tmp_path)
    products = commands.filter(op_type=product)
    assert products["layer"].to_list() == LAYERS
    roles = ["qkv_projection" if ".attn." in layer else "mlp" for layer in LAYERS]
    assert products["role"].to_list() == roles
    wide = ("up", "down")
    assert products["flops"].to_list() == [
        2 * TOKENS * WIDTH * WIDTH * (4 if layer.endswith(wide) else 1) for layer in LAYERS
    ]
    names = {name for name, _ in Transformer().named_modules() if name}
    assert set(commands["layer"]) <= names
    assert set(commands["role"]) <= {*roles, "attention", "residual", "data_movement"}
    (settings,) = run.info.submodule_settings["transformer"]
    assert {name: found.bytes for name, found in settings.weights.items()} == stored
    told = backend_of(pipeline.transformer).weight_bytes(pipeline.transformer)
    assert told == sum(stored.values())
