"""`profile-sd3 graph compare`: what differs in the graphs, and, with --run, in their time."""

from __future__ import annotations

import json
from functools import partial

import polars as pl
import pytest

import profiler
from profiler.capture.onnxruntime.sessions import submodule_name
from profiler.graph import Optimizer, Target, compare, optimize_files
from profiler.graph.split import split_files
from tests.analysis.comparison.small import BASE, SLOWER, write_steps
from tests.graph.models import graph, save
from tests.graph.optimized_models import TINY

TRANSFORMER = TINY / "transformer" / "model.onnx"


@pytest.fixture
def cli(cli, monkeypatch):
    """Run `graph compare` in a terminal of 100 columns; returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "100")
    return partial(cli, "graph", "compare")


@pytest.fixture(scope="module")
def fused(tmp_path_factory):
    """The tiny transformer with its attentions and GELUs fused."""
    pytest.importorskip("sympy")
    out = tmp_path_factory.mktemp("fused") / "transformer" / "model.onnx"
    optimize_files(TRANSFORMER, out, Optimizer("ort-transformers"))
    return out


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The tiny transformer with every MatMul in two parts."""
    out = tmp_path_factory.mktemp("parts") / "transformer" / "model.onnx"
    split_files(TRANSFORMER, out, Target(parts=2), op_types=["MatMul"])
    return out


def by(document, key):
    """Nodes of base and new by type, role or module."""
    rows = document["graphs"][0][f"by_{key}"]
    return {row[key]: (row["base_nodes"], row["new_nodes"]) for row in rows}


def types(document, module, side):
    """Nodes of a module by type, on one side."""
    row = next(row for row in document["graphs"][0]["by_module"] if row["module"] == module)
    return {entry["type"]: entry["nodes"] for entry in row[f"{side}_types"]}


def test_what_fusing_changes(cli, fused):
    """Fusions show under their layers and roles, nothing else differs; FLOPs of all nodes."""
    code, text, _ = cli(TRANSFORMER, fused, "--json", "-")
    found = json.loads(text)
    assert code == 0
    assert by(found, "type")["Softmax"] == (4, 0)
    assert by(found, "type")["com.microsoft.MultiHeadAttention"] == (0, 4)
    assert types(found, "transformer_blocks.2.attn", "new")["com.microsoft.MultiHeadAttention"] == 1
    assert types(found, "transformer_blocks.2.attn", "base")["Softmax"] == 1
    differing = {name for name, (base, new) in by(found, "module").items() if base != new}
    attention = {f"transformer_blocks.{n}.attn" for n in range(4)}
    gelus = {f"transformer_blocks.{n}.ff.net.0" for n in range(4)}
    gelus |= {f"transformer_blocks.{n}.ff_context.net.0" for n in range(3)}
    assert differing == attention | gelus | {""}
    roles = by(found, "role")
    assert roles["attention"] == (20, 4)
    assert roles["qkv_projection"][0] == roles["qkv_projection"][1]
    (pair,) = found["graphs"]
    assert pair["submodule"] == "transformer"
    assert (pair["base"]["nodes_without_flops"], pair["new"]["nodes_without_flops"]) == (0, 0)
    assert 20e6 < pair["new"]["flops"] < pair["base"]["flops"] < 22e6


def test_what_splitting_changes(cli, parts):
    """Parts show under the layer of the operation, and compute what it did."""
    _, text, _ = cli(TRANSFORMER, parts, "--json", "-")
    found = json.loads(text)
    layer = "transformer_blocks.0.attn.to_q"
    assert types(found, layer, "base") == {"MatMul": 1, "Add": 1}
    assert types(found, layer, "new") == {"MatMul": 2, "Add": 2, "Concat": 1}
    flops = {row["module"]: row for row in found["graphs"][0]["by_module"]}[layer]
    assert flops["base_flops"] == flops["new_flops"] > 0
    assert set(by(found, "module")) == set(by(found, "module"))
    assert all(base for base, _ in by(found, "module").values())


def test_what_it_prints(cli, fused):
    """Sizes first, then types, roles, and layers with what differs in them, equal blocks as one;
    a graph against itself has nothing that differs."""
    code, text, _ = cli(TRANSFORMER, fused)
    lines = text.splitlines()
    assert code == 0
    assert lines[0].startswith("transformer: 515 → 409 nodes, 2.88 MiB → ")
    assert "Nodes by type, 14 of 26 differ" in lines
    assert "Layers, 4 of 39 differ" in lines
    row = next(line for line in lines if line.startswith("transformer_blocks.*.attn "))
    assert row.split()[1:3] == ["134", "80"]
    assert row.endswith("more")
    assert max(map(len, lines)) <= 100
    _, text, _ = cli(TRANSFORMER, TRANSFORMER)
    assert "Nodes by role, 0 of 9 differ" in text
    assert "Layers, " not in text
    assert "Nodes by type" not in text


@pytest.fixture
def small(tmp_path):
    """A folder with two models, and another with one of them and a third."""
    folders = tmp_path / "one", tmp_path / "two"
    for folder, names in zip(folders, (("a", "b"), ("b", "c")), strict=True):
        for name in names:
            (folder / name).mkdir(parents=True)
            nodes = "[r] h = Relu(x) [e] y = Erf(h)" if folder.name == "one" else "[r] y = Erf(x)"
            save(graph("float[rows,4] x", "float[rows,4] y", nodes), folder / name)
    return folders


def test_folders(cli, small):
    """Models of folders are compared by name; what only one has is said."""
    code, text, _ = cli(*small, "--json", "-")
    found = json.loads(text)
    assert code == 0
    assert [pair["submodule"] for pair in found["graphs"]] == ["b"]
    assert found["only_in"] == {"base": ["a/model.onnx"], "new": ["c/model.onnx"]}
    _, text, _ = cli(*small)
    assert "only in base: a/model.onnx" in text


def test_a_profiled_comparison(cli, fused, tmp_path):
    """Both run in turn on the same inputs; every second call is traced; times are compared by role
    and module, and the bundles are there to be opened."""
    out = tmp_path / "traces"
    options = ("--run", "--repeats", 3, "--out", out, "--size", "batch_size=1", "--json", "-")
    code, text, _ = cli(TRANSFORMER, fused, *options)
    found = json.loads(text)
    assert code == 0
    runs = [profiler.load(found["bundles"][side]) for side in ("base", "new")]
    calls = pl.concat(
        run.calls.select("start_ns", "ops_traced", "input_shapes", side=pl.lit(at))
        for at, run in enumerate(runs)
    ).sort("start_ns")
    assert calls["side"].to_list() == [0, 1] * 8
    assert calls["ops_traced"].to_list() == [True, True, False, False] * 4
    assert calls["input_shapes"].n_unique() == 1
    assert [run.info.submodules["transformer"].model for run in runs] == [
        "transformer/model.onnx"
    ] * 2
    metrics = {row["metric"]: row for row in found["diff"]["metrics"]}
    whole = metrics["submodule.transformer"]
    assert (whole["base_count"], whole["new_count"], whole["resampled"]) == (6, 6, "calls")
    notes = [note["code"] for note in found["diff"]["note_codes"]]
    assert whole["corrected"] or "cost_within_noise" in notes  # of a machine that is busy
    row = metrics["submodule.transformer.role.attention.module.transformer_blocks.0.attn"]
    assert (row["base_count"], row["new_count"]) == (3, 3)
    assert row["low"] is not None
    for run, core in zip(runs, ("Softmax", "MultiHeadAttention"), strict=True):
        module = pl.col("module").cast(pl.String) == "transformer_blocks.0.attn"
        of_call = run.commands.filter(module & (pl.col("call") == 0))
        names = of_call["op_type"].cast(pl.String).to_list()
        assert [name for name in names if name in ("Softmax", "MultiHeadAttention")] == [core]


def test_folders_run_part_by_part(cli, small, tmp_path):
    """Each model is a submodule of both bundles; a gate that nothing exceeds is passed."""
    base, new = small
    save(graph("float[rows,4] x", "float[rows,4] y", "[r] y = Relu(x)"), base / "a", "x.y.onnx")
    (new / "a").mkdir()
    save(graph("float[rows,4] x", "float[rows,4] y", "[r] y = Abs(x)"), new / "a", "x.y.onnx")
    options = ("--run", "--repeats", 3, "--out", tmp_path / "t", "--fail-over", "999999%")
    code, text, _ = cli(*small, *options)
    assert code == 0
    assert text.count("passed: submodule.") == 2
    for bundle in (tmp_path / "t").iterdir():
        found = profiler.load(bundle).calls["submodule"].cast(pl.String).value_counts().rows()
        assert sorted(found) == [("a.x.y", 8), ("b", 8)]


@pytest.mark.parametrize(("limit", "code"), [("5%", 1), ("50%", 0)])
def test_the_gate(cli, small, tmp_path, monkeypatch, limit, code):
    """Times that are known, 20 % slower, fail a gate of 5 % with exit code 1 and pass one of 50 %;
    a metric that the runs do not have is a sentence."""
    runs = [
        write_steps(tmp_path / side, f"20270115-080000-{side}", steps)
        for side, steps in (("base", BASE), ("new", SLOWER))
    ]
    monkeypatch.setattr(compare, "profile_in_turn", lambda *_, **__: tuple(runs))
    gate = ("--run", "--fail-over", limit, "--metric")
    found, text, _ = cli(*small, *gate, "denoise.step")
    assert found == code
    assert ("FAILED: denoise.step" in text) == bool(code)
    assert cli(*small, *gate, "denoise.leap")[0] == 2


def test_inputs_that_one_does_not_take(cli, tmp_path):
    """Models with other inputs are said so, and no bundle is left."""
    models = [
        save(graph(f"float[{n}] x", f"float[{n}] y", "[r] y = Relu(x)"), tmp_path, f"{n}.onnx")
        for n in (4, 5)
    ]
    code, _, err = cli(*models, "--run", "--out", tmp_path / "t")
    assert code == 2
    assert "5.onnx does not run on inputs x [4]" in err
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--fail-over", "5%"], "--fail-over and --metric are about times: give --run"),
        (["--run", "--metric", "end_to_end"], "--metric says what --fail-over looks at"),
        (["--run", "--fail-over", "much"], "is no limit: give per cent"),
        (["--size", "rows"], "--size rows is no NAME=N"),
    ],
)
def test_options_that_do_not_fit(cli, small, options, sentence):
    """One sentence and exit code 2."""
    code, _, err = cli(*small, *options)
    assert (code, len(err.splitlines())) == (2, 1)
    assert sentence in err


def test_what_cannot_be_compared(cli, small, tmp_path):
    """A file and a folder, folders without a common model, and no ONNX: a sentence, no bundle."""
    one = small[0] / "a" / "model.onnx"
    assert "a file and a folder" in cli(one, small[1])[2]
    assert "no model of the same name" in cli(small[0] / "a", small[1] / "b" / "..")[2]
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no")
    code, _, err = cli(one, broken, "--run", "--out", tmp_path / "t")
    assert code == 2
    assert "is not a readable ONNX model" in err
    assert not (tmp_path / "t").exists()


def test_names_of_submodules():
    """Names of files become names that files of a bundle can have."""
    assert submodule_name("vae_decoder") == "vae_decoder"
    assert submodule_name("../größe x.onnx") == "gr_e_x.onnx"
    assert submodule_name("…") == "model"
