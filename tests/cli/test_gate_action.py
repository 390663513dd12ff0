"""The GitHub Action that gates a change: its scripts, run by bash in repositories of commits."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from onnx import TensorProto, helper

from tests.capture.switched_on import Environment
from tests.docs.pages import Page

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / ".github" / "actions" / "gate" / "action.yml").read_text("utf-8"))
SCRIPT = """
import sys
import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession("unet.onnx", options, ["CPUExecutionProvider"])
for _ in range(8):
    session.run(None, {"x": np.ones((64, 256), np.float32)})
"""


def model(layers: int) -> bytes:
    """x times a matrix, so many times: twenty times the layers take about twenty times as long."""
    size = [256, 256]
    weight = helper.make_tensor("w", TensorProto.FLOAT, size, [1 / 256] * (256 * 256))
    nodes = [
        helper.make_node("MatMul", [f"x{n}" if n else "x", "w"], [f"x{n + 1}"])
        for n in range(layers)
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 256])
        for name in ("x", f"x{layers}")
    )
    graph = helper.make_graph(nodes, "model", [x], [y], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    made.ir_version = 8
    return made.SerializeToString()


class Repository:
    """A git repository in which each commit has a model, and what a runner gives an action."""

    def __init__(self, folder: Path, python: Environment) -> None:
        self.folder, self._python = folder / "repository", python
        self.runner = folder / "runner"
        for path in (self.folder / "pipeline", self.runner):
            path.mkdir(parents=True)
        self.git("init", "--quiet")
        (self.folder / "pipeline" / "inference.py").write_text(SCRIPT, encoding="utf-8")

    def git(self, *arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.folder), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, layers: int, note: str) -> str:
        (self.folder / "pipeline" / "unet.onnx").write_bytes(model(layers))
        (self.folder / "note").write_text(note)
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", "x")
        return self.git("rev-parse", "HEAD")

    def run(self, before: str = "", **inputs: str) -> tuple[int, str]:
        """Exit code and what the steps print; they get their environment as a runner makes it."""
        given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        given |= {"command": "python inference.py", "working-directory": "pipeline"}
        given |= {"python": self._python.python, "limit": "100%"}
        given |= {"metrics": "submodule.unet", "runs": "3"}
        given |= {name.replace("_", "-"): text for name, text in inputs.items()}
        values = {f"inputs.{name}": text for name, text in given.items()}
        values |= {"github.event.before": before, "github.event.pull_request.base.sha": ""}
        printed = ""
        for step in ACTION["runs"]["steps"]:
            settings = {
                name: values[text.removeprefix("${{ ").removesuffix(" }}")]
                for name, text in step["env"].items()
            }
            settings |= {"RUNNER_TEMP": str(self.runner)}
            for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
                settings[name] = str(self.runner / name)
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
                cwd=self.folder,
                env=self._python.variables(settings),
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            printed += done.stdout
            if done.returncode:
                return done.returncode, printed
        return 0, printed

    @property
    def summary(self) -> str:
        return (self.runner / "GITHUB_STEP_SUMMARY").read_text("utf-8")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def repository(tmp_path, python):
    return Repository(tmp_path, python)


def test_a_slower_commit_fails(repository):
    """Twenty times the layers: exit code 1, and the summary names the metric; both sides have
    three runs, and no worktree is left."""
    repository.commit(10, "base")
    repository.commit(200, "slower")
    code, printed = repository.run(runs="3")
    assert code == 1, printed
    assert "submodule.unet" in repository.summary
    assert "slower" in repository.summary
    output = (repository.runner / "GITHUB_OUTPUT").read_text().strip()
    traces = Path(output.removeprefix("traces="))
    for side in ("base", "change"):
        assert len([*(traces / side).glob("*/manifest.json")]) == 3
    assert len(repository.git("worktree", "list").splitlines()) == 1


def test_an_equal_commit_passes(repository):
    """The same model as in the commit that `base` names: exit code 0. The one between them is
    faster, so beside that the change would fail."""
    first = repository.commit(100, "slow")
    repository.commit(5, "fast")
    repository.commit(100, "equal")
    code, printed = repository.run(base=first, runs="2")
    assert code == 0, printed
    assert "submodule.unet" in repository.summary


@pytest.fixture
def recorder(tmp_path):
    """A Python that only runs what it is to record, and finds nothing slower."""
    path = tmp_path / "python"
    path.write_text(
        '#!/bin/sh\nwhile [ $# != 0 ]; do [ "$1" = -- ] && { shift; exec "$@"; }; shift; done\n'
    )
    path.chmod(0o755)
    return str(path)


def test_a_push_is_compared_with_what_was_there(repository, recorder):
    """`before` of the event is the base; of a new branch it is zeros, and the parent is the base.
    Base and change run in turn."""
    first, parent, head = (repository.commit(5, note) for note in ("1", "2", "3"))
    given = {"command": "git rev-parse HEAD", "python": recorder}
    for before, base, runs in ((first, first, 3), ("0" * 40, parent, 1)):
        code, printed = repository.run(before=before, runs=str(runs), **given)
        assert code == 0, printed
        assert re.findall(r"^[0-9a-f]{40}$", printed, re.MULTILINE) == [base, head] * runs


def test_a_shallow_checkout_gets_the_base(repository, recorder, tmp_path):
    """A clone of the last commit alone, as actions/checkout makes one, fetches the one before."""
    base, head = (repository.commit(5, note) for note in ("base", "change"))
    repository.git("config", "uploadpack.allowAnySHA1InWant", "true")  # as GitHub has it
    whole, repository.folder = repository.folder, tmp_path / "shallow"
    clone = ["git", "clone", "--quiet", "--depth=1", f"file://{whole}", str(repository.folder)]
    subprocess.run(clone, check=True, capture_output=True)
    given = {"command": "git rev-parse HEAD", "python": recorder}
    code, printed = repository.run(before=base, runs="1", **given)
    assert code == 0, printed
    assert re.findall(r"^[0-9a-f]{40}$", printed, re.MULTILINE) == [base, head]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"runs": "3; touch hacked"}, "runs is a number"),
        ({"base": "--upload-pack=touch hacked"}, "the commit to compare with is not there"),
        ({"base": "$(touch hacked)"}, "the commit to compare with is not there"),
        ({"python": "$(touch hacked)"}, "no Python"),
        ({"working_directory": "$(touch hacked)"}, "working-directory"),
        ({"working_directory": "../.."}, "working-directory"),
    ],
)
def test_what_is_wrong_ends_it(repository, inputs, said):
    """One sentence, exit code 2, and nothing of what was given is executed."""
    repository.commit(5, "base")
    repository.commit(5, "change")
    code, printed = repository.run(**inputs)
    assert (code, said in printed) == (2, True), printed
    assert not [*repository.folder.parent.rglob("hacked")]


def test_what_is_gated_is_no_shell(repository):
    """Metrics and limits reach `diff` as they are, which refuses them."""
    repository.commit(5, "base")
    repository.commit(5, "change")
    given = {"metrics": "$(touch${IFS}hacked)", "limit": "5%; touch hacked"}
    assert repository.run(runs="1", **given)[0] == 2
    assert not [*repository.folder.parent.rglob("hacked")]


def test_no_expression_stands_in_a_script():
    """What GitHub would write into a script before a shell reads it could be commands."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"


def test_the_page_uses_it_as_it_is():
    """The workflow of the how-to gives inputs that there are, and the page lists all of them."""
    page = Page.read(ROOT / "docs" / "how-to" / "ci-regression.md")
    (workflow,) = (yaml.safe_load(block.text) for block in page.blocks if block.language == "yaml")
    steps = workflow["jobs"]["regression"]["steps"]
    (used,) = (step for step in steps if "actions/gate" in step.get("uses", ""))
    assert {*used["with"]} <= {*ACTION["inputs"]}
    assert {*re.findall(r"^\| `([\w-]+)` \|", page.text, re.MULTILINE)} >= {*ACTION["inputs"]}
