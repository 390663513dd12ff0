"""`profile-sd3 graph check`: what it prints, writes, and exits with."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from profiler.pipelines import default_model_folder
from tests.command_line import run_command
from tests.graph.models import external_model, graph, save


def run(*arguments: object) -> int:
    """The exit code of `profile-sd3 graph check …`."""
    return run_command("graph", "check", *arguments)


def faulty(folder: Path) -> Path:
    """A model with two errors."""
    nodes = '[n] a = LayerNormalization<axis=-1>(x, "") [n] y = Relu(a)'
    return save(graph("float[2,4] x", "float[2,4] y", nodes), folder)


def test_findings_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors come first, each rule with its nodes, evidence and recommendation; errors exit with
    1."""
    path = faulty(tmp_path)
    assert run(path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}: opset 18, 2 nodes: 2 errors"
    assert lines[4] == "  error empty_input: n"
    assert lines[5] == "    LayerNormalization: input 1 (Scale) has the empty name"
    assert lines[6].startswith("    → give it a scale of ones")
    assert lines[1] == "  error duplicate_node_name: n"


def test_many_nodes_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a rule three nodes are named and the rest counted; --all shows each; notes exit with 0."""
    nodes = " ".join(f"v{i} = Sin({f'v{i - 1}' if i else 'x'})" for i in range(5))
    path = save(graph("float[2] x", "float[2] v4", nodes), tmp_path)
    assert run(path) == 0
    assert "Sin that writes 'v2' and 2 more" in capsys.readouterr().out
    assert run(path, "--all") == 0
    assert capsys.readouterr().out.count("note unnamed_node: Sin that writes") == 5


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All findings of all models as JSON, to a file or to stdout alone."""
    path = faulty(tmp_path)
    assert run(path, "--json", tmp_path / "found.json") == 1
    capsys.readouterr()
    assert run(path, "--json", "-") == 1
    text = capsys.readouterr().out
    assert text == (tmp_path / "found.json").read_text("utf-8")
    [model] = json.loads(text)["models"]
    assert (model["model"], model["opset"], model["errors"]) == (str(path), 18, 2)
    assert model["findings"][1] == {
        "rule": "empty_input",
        "severity": "error",
        "node": "n",
        "evidence": "LayerNormalization: input 1 (Scale) has the empty name",
        "recommendation": model["findings"][1]["recommendation"],
        "fix": True,
    }


def test_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--fix says what was repaired and how far outputs differ, and exits by what is left."""
    path, out = faulty(tmp_path), tmp_path / "out.onnx"
    assert run(path, "--fix", out) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{out}: repaired: empty_input 1, duplicate_node_name 1"
    assert lines[1].startswith("  compared: y (float32): largest difference ")
    assert lines[2] == f"{out}: opset 18, 2 nodes: nothing found"
    assert run(path, "-o", out, "--json", "-") == 0
    [model] = json.loads(capsys.readouterr().out)["models"]
    assert model["fixed"]["repaired"] == {"empty_input": 1, "duplicate_node_name": 1}
    assert model["fixed"]["differences"][0]["output"] == "y"


def test_a_folder_of_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder is checked model by model, and its repaired copy has all its files."""
    source = default_model_folder()
    assert run(source) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert len(heads) == len(list(source.glob("*/model.onnx")))
    assert run(source, "--fix", tmp_path / "out") == 0
    assert "constant_subgraph 1" in capsys.readouterr().out
    assert (tmp_path / "out" / "model_index.json").is_file()


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Escape sequences in names of nodes are not printed, and stay in no line of their own."""
    model = graph("float[2] x", "float[2] y", "a = Relu(x) y = Relu(a)")
    for node in model.graph.node:
        node.name = "\x1b[31mred\n"
    assert run(save(model, tmp_path)) == 1
    out = capsys.readouterr().out
    assert "duplicate_node_name: \N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_json_in_any_encoding(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stdout has no characters for is written as JSON escapes it."""
    model = graph("float[2] x", "float[2] y", "a = Relu(x) y = Relu(a)")
    for node in model.graph.node:
        node.name = "Aufmerksamkeit é"
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert run(save(model, tmp_path), "--json", "-") == 1
    text = written.getvalue().decode(encoding)
    assert json.loads(text)["models"][0]["findings"][0]["node"] == "Aufmerksamkeit é"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["\x1b[31mred.onnx"], "\N{REPLACEMENT CHARACTER}[31mred.onnx does not exist"),
        (["nowhere.onnx"], "nowhere.onnx does not exist: give an ONNX file or a folder of them"),
        (["text.onnx"], "text.onnx is not a readable ONNX model"),
        (["model.onnx", "--target", "npu"], "no target is called 'npu'"),
        (["model.onnx", "--fix", "model.onnx"], "model.onnx is an input"),
        (["model.onnx", "--json", "model.onnx"], "model.onnx is an input"),
        (
            ["model.onnx", "--fix", "o.onnx", "--json", "o.onnx"],
            "--fix and --json both name o.onnx",
        ),
        (["model.onnx", "model.onnx", "--fix", "o.onnx"], "--fix takes one model or one folder"),
        (["model.onnx", "--fix", "o.onnx", "--size", "N"], "--size N is no NAME=N"),
        (["model.onnx", "--fix", "o.onnx", "--size", "N=2"], "--size N: no dimension is called so"),
        (["model.onnx", "--size", "N=2"], "--size is for the inputs that --fix compares on"),
        (["cut/model.onnx", "--fix", "o.onnx"], "the file ends at 3"),
        (["invalid.onnx", "--fix", "o.onnx"], "Add of opset 18 takes 2 to 2 inputs, not 1"),
        (["custom.onnx", "--fix", "o.onnx"], "ONNX Runtime does not take"),
    ],
)
def test_bad_input(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bad input is one sentence on stderr and exit code 2; nothing is written."""
    monkeypatch.chdir(tmp_path)
    save(graph("float[2] x", "float[2] y", "[n] y = Relu(x)"), tmp_path)
    save(
        graph("float[2] x", "float[2] y", "[n] y = my.Own(x)", domains=', "my": 1'),
        tmp_path,
        "custom.onnx",
    )
    save(graph("float[2] x", "float[2] y", "[n] y = Add(x)"), tmp_path, "invalid.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    (tmp_path / "cut").mkdir()
    external_model(tmp_path / "cut", size=3)
    before = sorted(tmp_path.rglob("*"))
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.startswith("profile-sd3: ")
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_missing_data_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing external data is found, not tripped over: exit code 1."""
    path = external_model(tmp_path, size=0)
    assert run(path) == 1
    assert "error missing_data: w" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("add", "mul"), [("/a/Add_2", "/b/Mul_token_7_2"), ("_a_Add", "_b_Mul")], ids=["ort", "qairt"]
)
def test_findings_beside_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], add: str, mul: str
) -> None:
    """A profile of QNN whose nodes the model names, as ONNX Runtime or Qualcomm's converter calls
    them: findings of a rule are in order of their time; a node that the run does not have has
    none."""
    made = graph("int64[2] x", "int64[2] y", "a = Add(x, x) b = Mul(a, a) y = Sub(b, b)")
    for one, name in zip(made.graph.node, ("/a/Add", "/b/Mul", "/c/Sub"), strict=True):
        one.name = name
    model = save(made, tmp_path)
    rows = [
        "0,EXECUTE,4,COUNT,BACKEND,ROOT,Number of HVX threads used",
        f"0,NODE,10,CYCLES,BACKEND,SUB-EVENT,{add}:OpId_1 (cycles)",
        f"0,NODE,30,CYCLES,BACKEND,SUB-EVENT,{mul}:OpId_2 (cycles)",
        "0,BACKEND,400,US,BACKEND,ROOT,Accelerator (execute) time",
        "0,EXECUTE,900,US,BACKEND,ROOT,QNN (execute) time",
    ]
    header = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,"
    header += "Event Identifier"
    profile = tmp_path / "profile.csv"
    profile.write_text("\n".join((header, *rows)), encoding="utf-8")
    run(model, "--target", "qnn", "--measured", profile, "--json", tmp_path / "found.json")
    out = capsys.readouterr().out
    assert "measured: 400 µs a call, 100 % of what was measured" in out
    [entry] = json.loads((tmp_path / "found.json").read_text("utf-8"))["models"]
    wide = [f for f in entry["findings"] if f["rule"] == "int64_compute" and "/" in f["node"]]
    assert [(f["node"], f["measured_ns"], f["measured_share"]) for f in wide] == [
        ("/b/Mul", 300_000, 0.75),
        ("/a/Add", 100_000, 0.25),
        ("/c/Sub", None, None),
    ]
