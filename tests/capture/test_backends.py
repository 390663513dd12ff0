"""Backends: who is asked, in which order, and how another package adds one."""

from __future__ import annotations

import ast
import importlib.util
import re
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace

import pytest

import profiler
from profiler.capture import FakeClock, Gaps
from profiler.capture.backend import Backend, backend_named, backend_of, backends, built_in
from profiler.errors import InputError
from tests.capture import toy_backend
from tests.capture.toy import ToyPipeline

CAPTURE = Path(profiler.__file__).parent / "capture"
FOLDERS = sorted(path.parent.name for path in CAPTURE.glob("*/backend.py"))
NEUTRAL = [*CAPTURE.glob("*.py"), *(CAPTURE / "pipelines").glob("*.py")]
PROFILED = """
import profiler, toy_runtime
pipeline = toy_runtime.Pipeline()
with profiler.profile(pipeline, out="traces", name="run") as run:
    assert pipeline(1) == 5
assert type(pipeline) is toy_runtime.Pipeline and "listener" in vars(pipeline.unet)
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toy_backend.install(tmp_path_factory.mktemp("toy"))


def test_every_folder_with_a_backend_is_one():
    """The folders register themselves, each under its own name."""
    assert sorted(backend.name for backend in built_in()) == FOLDERS
    assert set(FOLDERS) >= {"onnxruntime", "rbln", "torch"}


@pytest.mark.parametrize("path", NEUTRAL, ids=lambda path: str(path.relative_to(CAPTURE)))
def test_no_module_of_root_or_pipelines_names_a_backend(path):
    """Neither code nor docstrings nor comments: what is said of one backend stands in its folder.
    The variables that switch profiling on have RBLN's names, which users know, and a launcher of
    jobs is none."""
    text = path.read_text(encoding="utf-8")
    names = "|".join(("onnx", "optimum", "cuda", *FOLDERS))
    named = re.findall(
        rf"(?i){names}", re.sub(r"RBLN_PROFILER\w*|torchrun|TORCHELASTIC\w*", "", text)
    )
    assert named == []


def _imported(path):
    """Modules of capture that a module imports, inside functions as well; not for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    types = [
        n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)
    ]
    unused = {id(node) for block in types for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in unused:
            module = str(node.module)
            for name in (module, *(f"{module}.{alias.name}" for alias in node.names)):
                file = CAPTURE.parents[1] / Path(*name.split(".")).with_suffix(".py")
                if file.is_relative_to(CAPTURE) and file.is_file():
                    yield file


@pytest.mark.parametrize("folder", FOLDERS)
def test_backends_do_not_import_each_other(folder):
    """A backend's folder imports from capture's root and from itself."""
    imported = {file.parent for path in (CAPTURE / folder).glob("*.py") for file in _imported(path)}
    assert imported <= {CAPTURE, CAPTURE / folder}


def test_capture_imports_in_no_circle():
    """Not even by imports inside functions."""
    graph = {path: set(_imported(path)) - {path} for path in CAPTURE.rglob("*.py")}
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph) > 40


@pytest.mark.parametrize(
    ("part", "owner", "name"),
    [
        (SimpleNamespace(session=1), None, "onnxruntime"),
        (SimpleNamespace(open_session=1), None, "onnxruntime"),
        (SimpleNamespace(session=1), SimpleNamespace(rbln_config=1), "rbln"),
        (SimpleNamespace(model=[print], rbln_config=1), None, "rbln"),
        (SimpleNamespace(runtime=print, forward=print), None, "rbln"),
        (SimpleNamespace(), None, ""),
        (None, None, ""),
    ],
)
def test_whose_a_part_is(part, owner, name):
    """A part's attributes tell its backend; what has none of them belongs to nobody."""
    assert backend_of(part, owner).name == name


def test_a_torch_module_is_torchs_whatever_it_calls_its_parts():
    """A module with something that it calls a session is a module."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    module = torch.nn.Linear(1, 1)
    module.session = module.open_session = 1
    assert backend_of(module).name == "torch"


def test_an_unknown_backend_knows_nothing():
    """Bundles may come from packages that are not installed here."""
    assert backend_named("of another machine").event_cost(Gaps()) is None


def test_what_nobody_claims_is_named(tmp_path):
    """Operators of a part without a backend cannot be traced, its calls can."""
    sentence = (
        r"no backend \(onnxruntime, rbln, torch\) traces the operators of text_encoder, which is a "
        r"\w+: use ops='none' or activate_profiler=False"
    )
    with pytest.raises(InputError, match=sentence):
        profiler.profile(ToyPipeline(FakeClock()), out=tmp_path).__enter__()
    with profiler.profile(ToyPipeline(FakeClock()), out=tmp_path, ops="none") as run:
        pass
    assert run.path is not None


def test_defaults_answer_for_a_part_that_tells_its_device():
    """A backend overrides only what it knows."""
    assert Backend().device(SimpleNamespace(device="npu"), None, "") == "npu:0"
    assert Backend().device(SimpleNamespace(), None, "") == "cpu:0"
    assert Backend().weight_bytes(object()) is None


@pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="needs the test extra")
class TestAnotherPackage:
    """A backend that is installed from a local folder."""

    def test_its_calls_are_captured(self, toy):
        """Device, operators, weights, versions and the cost of its events are what it says."""
        done = toy_backend.run(toy, PROFILED)
        assert done.stderr == ""
        run = profiler.load(toy.parent / "traces" / "run")
        assert run.calls["submodule"].to_list() == ["unet", "unet"]
        assert run.calls["device"].to_list() == ["toy:3", "toy:3"]
        commands = run.commands.filter(run.commands["device"] == "toy:3")
        assert commands["layer"].to_list() == ["blocks.0.toy", "blocks.1.toy"] * 2
        assert run.info.submodules["unet"].weight_bytes == 4_096
        assert run.info.overhead.operator_event_ns == 1.0
        assert run.info.versions["toy-runtime"] == "1.5"
        assert "onnxruntime" in run.info.versions
        assert (run.drops, len(backends())) == ((), len(FOLDERS))  # none is installed here

    def test_one_that_cannot_be_loaded_is_one_line(self, toy, tmp_path):
        """The run goes on without it, here with calls alone."""
        target = toy_backend.registered(toy, tmp_path, "toy_backend:MISSING")
        done = toy_backend.run(target, PROFILED.replace("out=", "ops='none', out="))
        (line,) = done.stderr.splitlines()
        assert line.startswith("profile-sd3: the plug-in toy (profile_sd3.backends) of toy-runtime")
        assert profiler.load(tmp_path / "traces" / "run").calls["device"].to_list() == ["cpu:0"] * 2

    @pytest.mark.parametrize(
        ("entry", "words"),
        [
            ("UNDECIDED", r"the backend undecided does not tell .* \(RuntimeError: no driver\)"),
            ("NO_BACKEND", "a backend is left out: .* has a type that is no instance of Backend"),
        ],
    )
    def test_one_that_cannot_be_used_is_one_line(self, toy, tmp_path, entry, words):
        """Also where it fails only when it is asked."""
        target = toy_backend.registered(toy, tmp_path, f"toy_backend:{entry}")
        done = toy_backend.run(target, PROFILED.replace("out=", "ops='none', out="))
        (line,) = done.stderr.splitlines()
        assert re.fullmatch(f"profile-sd3: {words}", line), line
        assert len(profiler.load(tmp_path / "traces" / "run").calls) == 2

    def test_it_watches_what_a_script_uses_outside_pipelines(self, toy):
        """`profiler.start()` asks it at once, the environment's switch when a library that we wait
        for has been imported."""
        started = "import profiler; profiler.start(); import toy_runtime; profiler.done()"
        assert toy_backend.run(toy, started).stdout == "noticed toy_runtime\n"
        switched = (
            "from profiler.capture.startup import from_environment; from_environment()\n"
            "import sys; print('importlib.metadata' in sys.modules)\n"
            "import toy_runtime; print('pipelines'); import profiler.pipelines.sd3"
        )
        done = toy_backend.run(toy, switched, {"RBLN_PROFILER": "1"})
        assert done.stdout == "False\npipelines\nnoticed toy_runtime\n"

    def test_nothing_is_looked_up_without_profiling(self, toy):
        """`import profiler` and `--help` read no entry point."""
        program = (
            "import importlib.metadata as metadata, sys\n"
            "def refuse(**_): raise AssertionError('entry points were read')\n"
            "metadata.entry_points = refuse\n"
            "import profiler\n"
            "from profiler.cli.main import main\n"
            "sys.argv = ['profile-sd3', '--help']\n"
            "try: main()\n"
            "except SystemExit as ended: assert not ended.code\n"
            "assert 'toy_backend' not in sys.modules\n"
        )
        assert "Usage" in toy_backend.run(toy, program).stdout
