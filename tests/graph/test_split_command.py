"""`profile-sd3 graph split`: files and folders, what it says, and what it refuses."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import onnx_ir as ir
import pytest

from profiler.cli.commands.graph import parse_bytes, parse_sizes
from profiler.errors import InputError
from tests.graph.split_models import make_model, numbers


@pytest.fixture
def cli(cli):
    """Run `graph split` in this process; returns exit code, stdout and stderr."""
    return partial(cli, "graph", "split")


@pytest.fixture
def linear(tmp_path):
    """A model of one MatMul with 4 columns, its weight of 96 bytes in a file of its own."""
    feeds = {"x": numbers(5, 6)}
    model = make_model([("MatMul", ["x", "w"], "y", {})], feeds, {"w": numbers(6, 4)})
    path = tmp_path / "models" / "linear.onnx"
    path.parent.mkdir()
    ir.save(model, path, external_data="linear.data", size_threshold_bytes=0)
    return path


def test_a_file(cli, linear, tmp_path):
    """The model is written with what was done, how large parts are, and how far outputs differ."""
    out = tmp_path / "out.onnx"
    code, text, _ = cli(linear, out, "--parts", 2)
    assert code == 0
    assert f"{out}: 1 operation split into 2 parts" in text
    assert "MatMul by columns in 2: MatMul_0" in text
    assert "largest part: 48 of 96 bytes, MatMul_0" in text
    assert "compared: y (float32): largest difference" in text
    assert [node.op_type for node in ir.load(out).graph] == ["MatMul", "MatMul", "Concat"]


def test_large_weights_stay_outside(cli, tmp_path):
    """Slices of external weights are written to external data, each with its own numbers."""
    feeds = {"x": numbers(5, 64)}
    weights = {"w": numbers(64, 99), "v": numbers(99, 70)}
    nodes = [("MatMul", ["x", "w"], "h", {}), ("MatMul", ["h", "v"], "y", {})]
    source, out = tmp_path / "m.onnx", tmp_path / "out" / "m.onnx"
    ir.save(make_model(nodes, feeds, weights), source, external_data="m.data")
    code, text, _ = cli(source, out, "--max-bytes", "6000")
    assert code == 0, text
    assert out.with_name("m.onnx.data").stat().st_size >= 4 * (64 * 99 + 99 * 70)
    slices = [
        v.const_value.numpy() for n, v in ir.load(out).graph.initializers.items() if "w/" in n
    ]
    assert np.array_equal(np.concatenate(slices, 1), weights["w"])


def test_json(cli, linear, tmp_path):
    """The same for programs."""
    code, text, _ = cli(linear, tmp_path / "o.onnx", "--max-bytes", "50B", "--json", "-")
    entry = json.loads(text)["models"][0]
    assert code == 0
    assert entry["split"][0] | {"bytes": 96, "part_bytes": 48, "parts": 2} == entry["split"][0]
    assert entry["differences"][0]["output"] == "y"
    assert (entry["whole"], entry["small"]) == ([], 0)


def test_a_folder(cli, linear, tmp_path):
    """Every model of a folder is split; other files and models without such operations are
    copied, weights that were cut are not."""
    (linear.parent / "config.json").write_text("{}")
    relu = make_model([("Relu", ["x"], "y", {})], {"x": numbers(2, 3)})
    ir.save(relu, linear.parent / "relu.onnx")
    out = tmp_path / "out"
    code, text, _ = cli(linear.parent, out, "--parts", 2)
    assert code == 0
    assert f"{out / 'relu.onnx'}: copied" in text
    assert sorted(path.name for path in out.iterdir()) == [
        "config.json",
        "linear.onnx",
        "relu.onnx",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["MODEL", "OUT"], ["either --max-bytes", "--parts"]),
        (["MODEL", "OUT", "--parts", "2", "--max-bytes", "8MiB"], ["either"]),
        (["MODEL", "OUT", "--parts", "1"], ["--parts 1 splits nothing"]),
        (["MODEL", "OUT", "--max-bytes", "large"], ["--max-bytes large is no number of bytes"]),
        (["MODEL", "OUT", "--parts", "2", "--op-types", "Relu"], ["type Relu", "MatMul, Gemm"]),
        (["MODEL", "OUT", "--parts", "2", "--op-types", "Conv"], ["no operation of the types"]),
        (["MODEL", "OUT", "--parts", "2", "--node", "fc9"], ["node fc9"]),
        (["MODEL", "OUT", "--max-bytes", "1GiB"], ["no operation has more than 1,073,741,824"]),
        (["MODEL", "OUT", "--max-bytes", "3"], ["MatMul_0: ", "at least 24 bytes"]),
        (["MODEL", "OUT", "--parts", "2", "--size", "n"], ["--size n is no NAME=N"]),
        (["MODEL", "OUT", "--parts", "2", "--size", "hight=64"], ["--size hight: no dimension"]),
        (["MODEL", "MODEL", "--parts", "2"], ["is an input, which is never written over"]),
        (["MODEL", "OUT", "--parts", "2", "--json", "MODEL"], ["never written over"]),
        (["FOLDER", "OUT", "--parts", "2", "--node", "x"], ["give its file"]),
        (["OUT", "OUT2", "--parts", "2"], ["does not exist"]),
    ],
)
def test_refusals(cli, linear, tmp_path, arguments, words):
    """One sentence, exit code 2, and nothing is written."""
    places = {"MODEL": linear, "FOLDER": linear.parent, "OUT": tmp_path / "o", "OUT2": "p"}
    code, _, err = cli(*(places.get(argument, argument) for argument in arguments))
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in words), err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("damage", ["cut", "text", "no data", "cut data"])
def test_damaged_models(cli, linear, tmp_path, damage):
    """One sentence, exit code 2, and nothing is written."""
    data = linear.with_name("linear.data")
    if damage == "cut":
        linear.write_bytes(linear.read_bytes()[:-20])
    elif damage == "text":
        linear.write_text("not a model")
    elif damage == "no data":
        data.unlink()
    else:
        data.write_bytes(data.read_bytes()[:50])
    code, _, err = cli(linear, tmp_path / "o.onnx", "--parts", 2)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err
    assert not (tmp_path / "o.onnx").exists()


def test_an_operation_without_schema(cli, tmp_path):
    """A model that ONNX Runtime cannot run cannot be compared, and is not written."""
    nodes = [("MatMul", ["x", "w"], "h", {}), ("com.example:Magic", ["h"], "y", {})]
    model = make_model(nodes, {"x": numbers(5, 6)}, {"w": numbers(6, 4)})
    ir.save(model, tmp_path / "m.onnx")
    code, _, err = cli(tmp_path / "m.onnx", tmp_path / "o.onnx", "--parts", 2)
    assert code == 2
    assert "cannot be compared" in err
    assert not (tmp_path / "o.onnx").exists()


def test_numbers():
    """Bytes in binary and decimal units; sizes by name."""
    assert [parse_bytes(text, "-") for text in ("8MiB", "1.5 kb", "7", "2GiB")] == [
        8 << 20,
        1500,
        7,
        2 << 30,
    ]
    assert parse_sizes(["a=2", "b c=30"]) == {"a": 2, "b c": 30}
    for text in ("a", "a=", "=3", "a=0", "a=-1", "a=1e9"):
        with pytest.raises(InputError, match="size"):
            parse_sizes([text])
    for text in ("0", "", "-1", "8 miles", "0.1"):
        with pytest.raises(InputError, match="no number of bytes"):
            parse_bytes(text, "--max-bytes")
