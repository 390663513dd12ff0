"""The schemas of `--json`: generated, held by every document, kept from commit to commit."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from profiler.analysis.question import tables
from profiler.compare.tables import TABLES as COMPARED
from profiler.pipelines import default_model_folder
from profiler.run.columns import TABLES
from profiler.trace.documents import VERSIONS
from tests.command_line import run_command
from tests.documents import SCHEMAS, conforms
from tests.fleet.histories import flat
from tests.fleet.test_gate import METRIC, stored
from tests.graph.models import graph, save

sys.path.insert(0, str(SCHEMAS))
import documents

SAMPLES = SCHEMAS.parent / "sample_traces"
TINY, LARGE = SAMPLES / "tiny_two_devices", SAMPLES / "sd35_mi300x"


@pytest.fixture
def written(tmp_path):
    """Run a command that writes a document; it."""

    def run(*arguments, codes=(0,)):
        path = tmp_path / "document.json"
        assert run_command(*arguments, "--json", path) in codes
        return json.loads(path.read_text("utf-8"))

    return run


def test_they_are_generated():
    """The files are what `python schemas/documents.py` writes, one for each kind."""
    made = documents.schemas()
    assert {path.stem for path in SCHEMAS.glob("*.json")} == made.keys() == VERSIONS.keys()
    for kind, schema in made.items():
        path = SCHEMAS / f"{kind}.json"
        assert path.read_text("utf-8") == documents.as_text(schema), f"{kind}: write them anew"


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("analysis", ("analyze", TINY, "--no-html")),
        ("analysis", ("analyze", LARGE, "--no-html", "--step", "1")),
        ("diff", ("diff", TINY, LARGE)),
        ("diff", ("diff", TINY, TINY)),
        ("prediction", ("predict", TINY)),
        ("prediction", ("predict", TINY, "--concurrency", "2", "--devices", "cpu:0,cpu:1")),
        ("prediction", ("predict", LARGE, "--steps", "2")),
    ],
)
def test_documents_of_runs(written, kind, command):
    """Each has the keys of its schema and no others."""
    assert conforms(written(*command))["kind"] == kind


def test_documents_of_several_sides(written, tmp_path):
    """Three sides are a document of another kind."""
    shutil.copytree(TINY, tmp_path / "third")
    assert conforms(written("diff", TINY, LARGE, tmp_path / "third"))["kind"] == "diffs"


def test_the_document_of_an_installation(written):
    """Whatever it finds."""
    assert conforms(written("doctor", codes=(0, 1)))["kind"] == "doctor"


def test_documents_of_fleets(written, tmp_path):
    """Of 30 runs: side by side, the history, the gate."""
    data = stored(tmp_path / "data", flat(np.random.default_rng(2), 30, 0.01))
    for name in ("compare", "history", "gate"):
        more = () if name == "compare" else ("--metric", METRIC)
        assert conforms(written("fleet", name, data, *more))["kind"] == f"fleet_{name}"


def test_documents_of_graphs(written, tmp_path):
    """Of a model that is checked, compared, optimized, split, and annotated with a run."""
    fused = '[n] a = LayerNormalization<axis=-1>(x, "") [n] y = Relu(a)'
    faulty = save(graph("float[2,4] x", "float[2,4] y", fused), tmp_path)
    transformer = default_model_folder() / "transformer" / "model.onnx"
    conforms(written("graph", "check", faulty, codes=(1,)))
    conforms(written("graph", "compare", transformer, transformer))
    conforms(written("graph", "optimize", transformer, tmp_path / "o.onnx"))
    conforms(written("graph", "split", transformer, tmp_path / "s.onnx", "--parts", "2"))
    conforms(written("graph", "annotate", transformer, TINY, "--out", tmp_path / "a.onnx"))


UNITS = {
    "ns": "ns",
    "bytes": "bytes",
    "TFLOP/s": "teraflops_per_s",
    "GB/s": "gigabytes_per_s",
    "FLOPs/byte": "flops_per_byte",
    "W": "w",
    "J": "j",
}


def test_names_have_their_unit():
    """Each column and key that has a unit has it in its name; ratios have none, and a counter of
    any unit has it beside it."""
    columns = {f"{table.name}.{c.name}": c for table in tables() for c in table.columns}
    columns |= {f"diff {name}.{c.name}": c for name, of in COMPARED.items() for c in of}
    columns |= {f"run {name}.{c.name}": c for name, of in TABLES.items() for c in of}
    wrong = [
        place
        for place, column in columns.items()
        if column.unit not in ("", "ratio", "row", "unit")
        and f"_{UNITS[column.unit]}_" not in f"_{column.name}_"
    ]
    assert wrong == []
    page = documents.sections(documents.PAGE.read_text("utf-8"))
    keys = {f"{title}.{key}": words for title, of in page.items() for key, (words, _) in of.items()}
    assert {unit for words in keys.values() for unit in words.split(", ")[1:]} == {"null", "ratio"}


def test_what_breaks_a_program():
    """A key that is gone, one of another type and one that may now be null are named, unless the
    version is higher; a new key and a type of which there is less break nothing."""
    old = {"fleet_gate": documents.schemas()["fleet_gate"]}
    new = copy.deepcopy(old)
    properties = new["fleet_gate"]["properties"]
    assert documents.breaks(old, new) == []
    properties["more"] = {"type": "string"}
    properties["metrics"]["items"]["properties"]["alarm"]["type"] = "string"
    properties["metrics"]["items"]["properties"]["value"]["type"] = "integer"
    assert documents.breaks(old, new) == []
    del properties["metrics"]["items"]["properties"]["unit"]
    properties["run"]["type"] = ["string", "null"]
    properties["failed"]["type"] = "string"
    assert documents.breaks(old, new) == [
        "fleet_gate: run: string is null/string",
        "fleet_gate: failed: boolean is string",
        "fleet_gate: metrics[].unit: gone",
    ]
    properties["version"]["const"] += 1
    assert documents.breaks(old, new) == []
    assert documents.breaks(old, {}) == ["fleet_gate: gone"]


def test_nothing_broke_since_the_commit_before():
    """The schemas of the commit before and of the last release, where git has them."""
    parse = ("rev-parse", "--verify", "--quiet")
    for command in ((*parse, "HEAD"), (*parse, "HEAD^"), ("describe", "--tags", "--abbrev=0")):
        git = ["git", "-C", str(SCHEMAS), *command]
        commit = subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip()
        if commit:
            assert documents.breaks(documents.of_commit(commit), documents.schemas()) == []
