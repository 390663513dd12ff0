"""What the manifest says of the machine."""

from __future__ import annotations

import sys
import types
from importlib import metadata

import pytest

from profiler.capture import run_info
from profiler.capture.session import Session
from profiler.capture.settings import Options


def test_versions_are_those_of_the_metadata():
    """Read without parsing all of METADATA, versions are what importlib says they are."""
    found = run_info.versions()
    assert {"python", "numpy", "onnxruntime"} <= set(found)
    packages = {name: version for name, version in found.items() if name != "python"}
    assert packages == {name: metadata.version(name) for name in packages}


def test_a_library_of_another_package(monkeypatch):
    """onnxruntime-gpu brings onnxruntime: its version is what the library says."""
    monkeypatch.setattr(run_info, "_version", lambda package: "")
    library = types.ModuleType("onnxruntime")
    library.__version__ = "1.99"
    monkeypatch.setitem(sys.modules, "onnxruntime", library)
    assert run_info.versions()["onnxruntime"] == "1.99"


def test_nobody_changes_what_the_next_run_says():
    """Each manifest gets a mapping of its own, though packages are looked up once."""
    run_info.versions()["numpy"] = "0"
    assert run_info.versions()["numpy"] == metadata.version("numpy")


@pytest.mark.parametrize(("system", "lines"), [("linux", 0), ("darwin", 1), ("win32", 1)])
def test_elsewhere_than_on_linux_a_recording_says_so(tmp_path, monkeypatch, capsys, system, lines):
    """One sentence where a run begins, because nobody has recorded there; none on Linux."""
    monkeypatch.setattr("profiler.capture.session.sys", types.SimpleNamespace(platform=system))
    Session.open(Options(), tmp_path).close()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert all("recording was tried on Linux alone" in line for line in said)
