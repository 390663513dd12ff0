"""What is said of a missing extra: a command that works, from the package's own metadata."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import profiler
from profiler import errors
from profiler.errors import (
    InputError,
    MissingPackageError,
    added_by,
    install_command,
    require,
)
from profiler.graph import run_model
from profiler.graph.verify import optimized_graph
from profiler.pipelines import Placement
from profiler.pipelines.benchmark import measure_cpu
from profiler.pipelines.model_folder import check_providers

_PACKAGE = Path(profiler.__file__).parent
SAMPLE = Path(__file__).parent.parent / "sample_traces" / "tiny_two_devices"
_REQUIREMENTS = [
    "numpy>=1.26",
    'duckdb>=2.0; extra == "query"',
    'perfetto>=0.50; extra == "perfetto"',
    'viztracer>=1.0; extra == "perfetto"',
    'optimum-onnx[onnxruntime]==0.1.0; extra == "optimum"',
    'profile-sd3[query,perfetto]; extra == "dev"',
    'ruff>=0.9; extra == "dev"',
    'old>=1; python_version < "3" and extra == "query"',
]


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("query", "pip install 'duckdb>=2.0'"),
        ("perfetto", "pip install 'perfetto>=0.50' 'viztracer>=1.0'"),
        ("optimum", "pip install 'optimum-onnx[onnxruntime]==0.1.0'"),
        ("dev", "pip install 'duckdb>=2.0' 'perfetto>=0.50' 'ruff>=0.9' 'viztracer>=1.0'"),
        ("unknown", "pip install '.[unknown]' in a clone of profile-sd3"),
    ],
)
def test_commands_name_packages(monkeypatch, extra, command):
    """The packages that an extra adds here, those of extras in it, with their versions."""
    monkeypatch.setattr(errors, "requirements", lambda: _REQUIREMENTS)
    assert install_command(extra) == command


def test_the_package_itself():
    """What no extra adds is the package's own."""
    assert list(added_by("", _REQUIREMENTS)) == ["numpy>=1.26"]


def test_extras_of_the_installed_package():
    """Each extra that a message names is in the metadata, and gives requirements that pip takes."""
    named = {
        extra
        for path in _PACKAGE.rglob("*.py")
        for extra in re.findall(r"install_command\(['\"]([a-z-]+)['\"]\)", path.read_text("utf-8"))
    }
    assert {"query", "perfetto", "netron", "torch"} <= named
    for extra in named:
        _, word, *packages = shlex.split(install_command(extra))
        assert word == "install"
        assert [str(Requirement(package)) for package in packages] == packages


_BLOCKED = ("onnxruntime", "onnx", "onnx_ir", "tokenizers", "PIL", "netron", "duckdb")


@pytest.fixture
def bare(monkeypatch):
    """None of the libraries that extras bring can be imported."""
    for name in _BLOCKED:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    ("command", "extra", "lacking"),
    [
        (["run"], "run", "onnxruntime and tokenizers and PIL"),
        (["benchmark-device"], "run", "onnxruntime"),
        (["graph", "check", "m.onnx"], "graph-base", "onnx and onnx_ir"),
        (["graph", "compare", "a.onnx", "b.onnx"], "graph-base", "onnx and onnx_ir"),
        (["graph", "annotate", "m.onnx", "run", "-o", "o"], "graph-base", "onnx and onnx_ir"),
        (["graph", "view", "m.onnx"], "graph-base", "onnx and onnx_ir"),
        (["graph", "export", "tiny", "out"], "graph", "onnxruntime and onnx and onnx_ir"),
        (["graph", "optimize", "a", "b"], "graph", "onnxruntime and onnx and onnx_ir"),
        (["graph", "split", "a", "b"], "graph", "onnxruntime and onnx and onnx_ir"),
    ],
)
def test_commands_say_what_they_need(bare, cli, command, extra, lacking):
    """One sentence with a command that installs it, before anything is done; never a traceback."""
    code, out, err = cli(*command)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f" needs {lacking}: `{install_command(extra)}`" in err


def test_commands_that_need_no_extra():
    """Where no library of an extra can be imported from the start: reports, comparisons,
    predictions, and all of --help."""
    run = str(SAMPLE)
    commands = [
        *(["--help"], ["graph", "--help"], ["run", "--help"], ["graph", "check", "--help"]),
        *(["analyze", run, "--no-html"], ["diff", run, run], ["predict", run, "--steps", "1"]),
        ["dump", f"{run}/host.pb"],
    ]
    script = f"""
import sys
for name in {_BLOCKED}: sys.modules[name] = None
import profiler
for name in profiler.__all__: getattr(profiler, name)
from tests.command_line import run_command
print([run_command(*command) for command in {commands}], file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert done.stderr.splitlines()[-1:] == [str([0] * len(commands))], done.stderr


_IMPORT_ALL = """
import importlib, sys
for name in {blocked}: sys.modules[name] = None
from profiler.errors import MissingPackageError
for name in sys.stdin.read().split():
    try:
        importlib.import_module(name)
    except MissingPackageError as error:
        print(name, error)
"""


def test_modules_say_what_they_need():
    """Every module can be imported without the libraries of extras, or says in the one sentence of
    the command line which command installs them: no ImportError is a library's own."""
    files = (path.relative_to(_PACKAGE.parent).with_suffix("") for path in _PACKAGE.rglob("*.py"))
    modules = [".".join(file.parts).removesuffix(".__init__") for file in files]
    blocked = (*_BLOCKED, "torch", "diffusers", "transformers", "IPython")
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL.format(blocked=blocked)],
        input=" ".join(module for module in sorted(modules) if module != "profiler.__main__"),
        capture_output=True,
        text=True,
        check=False,
        cwd=_PACKAGE.parent,
    )
    assert done.returncode == 0, done.stderr[-1000:]
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    named = r"profiler\.[a-z.]+ needs [a-zA-Z_]+( and [a-zA-Z_]+)*: `pip install '[^`]+'`"
    assert [line for line in told.values() if not re.fullmatch(named, line)] == []
    without = (
        "profiler.pipelines.model_folder",
        "profiler.pipelines.tiny",
        "profiler.tools.sources",
    )
    assert {"profiler.graph.check", "profiler.pipelines.sd3", "profiler.tools.notebook"} <= {*told}
    assert not {*without} & {*told}


@pytest.mark.parametrize(
    ("what", "use"),
    [
        ("profiler.graph", lambda: run_model(b"", {})),
        ("profiler.graph", lambda: optimized_graph(Path("m.onnx")).__enter__()),
        ("profiler.pipelines", lambda: check_providers(())),
        ("profiler.pipelines", lambda: measure_cpu(Placement(()), "cpu:0")),
    ],
)
def test_functions_say_what_they_need(monkeypatch, what, use):
    """So do functions that import ONNX Runtime when they are called. An ImportError is what they
    raise, too, for who asks for that."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingPackageError, match=f"{what} needs onnxruntime: `pip ") as raised:
        use()
    assert isinstance(raised.value, ImportError)


@pytest.mark.parametrize(
    ("missing", "extra"),
    [(("tokenizers",), "run-gpu"), (("onnxruntime", "tokenizers"), "run")],
)
def test_a_runtime_that_is_there_is_not_installed_over(monkeypatch, missing, extra):
    """Who has ONNX Runtime, from onnxruntime-gpu perhaps, is not told to install onnxruntime."""
    for name in ("onnxruntime", "tokenizers", "PIL"):
        library = None if name in missing else types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, library)
    with pytest.raises(InputError, match=f"needs {' and '.join(missing)}: ") as raised:
        require("run", "run")
    assert install_command(extra) in str(raised.value)
    assert ("onnxruntime>=" in str(raised.value)) == ("onnxruntime" in missing)


def test_a_library_that_is_broken(monkeypatch, tmp_path):
    """One that is there and cannot be imported is not installed over either: its reason is said."""
    (tmp_path / "broken_library.py").write_text("raise ImportError('libcudart.so is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    sentence = r"broken_library, which cannot be imported \(libcudart.so is missing\)"
    with pytest.raises(InputError, match=sentence):
        require("run", "run", "broken_library")


def test_nothing_names_the_project_to_pip():
    """The project is on no registry: such a command finds nothing, or what is a stranger's. Neither
    messages nor pages nor notebooks give one."""
    root = _PACKAGE.parent
    files = [*_PACKAGE.rglob("*.py"), root / "README.md"]
    for folder in ("docs", "notebooks"):
        files += [one for kind in ("*.md", "*.ipynb") for one in (root / folder).rglob(kind)]
    told = re.compile(r"pip install[^\n#`]* '?profile-sd3\b")
    assert [one.name for one in files if told.search(one.read_text("utf-8"))] == []


def test_recording_needs_three_packages(tmp_path):
    """Of what the core requires, recording imports msgspec, numpy and protobuf alone, as
    `docs/install.md` says of machines that only record."""
    project = tomllib.loads((_PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    names = {Requirement(text).name for text in project["dependencies"]}
    script = f"""
import sys
for name in {names - {"msgspec", "numpy", "protobuf"}} | {{"yaml"}}: sys.modules[name] = None
import profiler
from profiler.capture import FakeClock
from tests.capture.toy import ToyPipeline
clock = FakeClock()
pipe = ToyPipeline(clock)
with profiler.profile(pipe, ops="none", out={str(tmp_path)!r}, clock=clock) as run:
    pipe(num_inference_steps=2)
print(len([*run.path.glob("0*.pb")]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=_PACKAGE.parent,
    )
    assert done.stdout == "9\n", done.stderr
