"""`profile-sd3 graph optimize`: what it says, and what it refuses."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import onnx_ir as ir
import pytest

from profiler.graph.optimize import rewrites
from tests.graph.models import graph, save
from tests.graph.split_models import make_model, numbers


@pytest.fixture
def cli(cli):
    """Run `graph optimize` in this process; returns exit code, stdout and stderr."""
    return partial(cli, "graph", "optimize")


@pytest.fixture
def model(tmp_path):
    """Two Identities around a Relu, which every optimizer removes."""
    nodes = "[a] a = Identity(x) [b] b = Relu(a) [c] c = Identity(b) [d] y = Abs(c)"
    return save(graph("float[batch,4] x", "float[batch,4] y", nodes), tmp_path)


def test_what_it_says(cli, model, tmp_path):
    """Nodes before and after by type, bytes, module paths, and how far outputs differ; with --all
    also what stayed."""
    out = tmp_path / "o.onnx"
    code, text, _ = cli(model, out)
    assert code == 0
    sizes = f"{model.stat().st_size:,} → {out.stat().st_size:,} bytes"
    assert text.splitlines() == [
        f"{out}: ort basic: 4 → 2 nodes, {sizes}",
        "  Identity  2 → 0",
        "  other 2 types: as many as before",
        "  module paths: on 0 of 2 nodes; before on 0 of 4",
        "  compared: y (float32): largest difference 0, 0 of its largest magnitude; at most 0.0001",
    ]
    _, text, _ = cli(model, out, "--all")
    assert "  Abs       1 → 1\n" in text


def test_json(cli, model, tmp_path):
    """The same as an object a model."""
    code, text, _ = cli(model, tmp_path / "o.onnx", "--json", "-")
    (found,) = json.loads(text)["models"]
    assert code == 0
    assert (found["with"], found["level"], found["model_type"]) == ("ort", "basic", None)
    assert found["nodes"]["before"], found["nodes"]["after"] == (4, 2)
    assert found["nodes"]["by_type"]["Identity"] == {"before": 2, "after": 0}
    assert found["differences"][0]["absolute"] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--with", "magic"], "optimizer 'magic' is not known: give one of ort,"),
        (["--level", "most"], "level 'most' is not known: give one of basic, extended, all"),
        (["--with", "onnxslim", "--level", "all"], "--level belongs to --with ort"),
        (["--model-type", "vae"], "--model-type belongs to --with ort-transformers"),
        (["--with", "ort-transformers", "--model-type", "gpt"], "model type 'gpt' is not known"),
    ],
)
def test_options_that_do_not_fit(cli, model, tmp_path, options, sentence):
    """One sentence, exit code 2, no file."""
    code, _, err = cli(model, tmp_path / "o.onnx", *options)
    assert (code, len(err.splitlines())) == (2, 1)
    assert sentence in err
    assert list(tmp_path.iterdir()) == [model]


def test_never_over_an_input(cli, model, tmp_path):
    """Neither the model nor the JSON is written over the model; what is no model is refused."""
    before = model.read_bytes()
    assert cli(model, model)[0] == 2
    assert cli(model, tmp_path / "o.onnx", "--json", model)[0] == 2
    assert model.read_bytes() == before
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(before[:20])
    code, _, err = cli(broken, tmp_path / "o.onnx")
    assert code == 2
    assert "is not a readable ONNX model" in err
    assert not (tmp_path / "o.onnx").exists()


def test_what_an_optimizer_breaks_is_not_written(cli, tmp_path, monkeypatch):
    """ONNX Runtime writes out a float16 Gelu with constants in float32; left so, one sentence,
    without a temporary path, names the way out."""
    monkeypatch.setattr(rewrites._Casts, "put_back", lambda *_: None)
    feeds = {"x": numbers(2, 4).astype(np.float16)}
    ir.save(make_model([("Gelu", ["x"], "y", {})], feeds, opset=20), tmp_path / "gelu.onnx")
    out = tmp_path / "out" / "fused.onnx"
    code, _, sentence = cli(tmp_path / "gelu.onnx", out)
    assert code == 2
    assert "what ort wrote" in sentence
    assert "choose another optimizer by --with" in sentence
    assert ".fused.onnx." not in sentence
    assert not out.exists()
