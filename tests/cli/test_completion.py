"""Shell completion: runs, sections and submodules, quickly and without a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import typer

from profiler.cli.main import (
    command_line,
    complete_comparison_sections,
    complete_placements,
    complete_runs,
    complete_sections,
    complete_submodule,
    complete_submodules,
)
from profiler.compare.report import TITLES
from profiler.report import section_kinds
from tests.runs import write_tiny_bundle


@pytest.fixture
def line(monkeypatch):
    """Sets the line that a shell wants completed."""

    def typed(text):
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", text)
        monkeypatch.delenv("COMP_WORDS", raising=False)

    return typed


def test_sections_are_those_that_reports_have():
    """Their keys are read from the source of their modules, in the report's order."""
    assert complete_sections("") == [kind.key for kind in section_kinds()]


def test_sections_of_a_comparison_are_those_it_has():
    """Their keys are read from the source, in their order, and completed behind a comma."""
    assert complete_comparison_sections("") == [*TITLES]
    assert complete_comparison_sections("shapes,k") == ["shapes,kernels"]


def test_a_submodule_is_completed_for_what_if(tmp_path, line):
    """`--drop` takes one, `--place` one with each device of the run."""
    bundle = write_tiny_bundle(tmp_path)
    line(f"profile-sd3 predict {bundle} --drop t")
    assert complete_submodule("t") == ["transformer"]
    devices = json.loads((bundle / "manifest.json").read_text())["devices"]
    assert complete_placements("tr") == [f"transformer={name}" for name in devices]
    assert complete_submodule("none") == []


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("analyze", "path"),
        ("diff", "runs"),
        ("diff", "against"),
        ("diff", "sections"),
        ("predict", "path"),
        ("predict", "drop"),
        ("predict", "place"),
        ("query", "words"),
        ("view", "path"),
    ],
)
def test_what_a_subcommand_takes_is_completed(tmp_path, monkeypatch, line, name, parameter):
    """Each asks its own function: in a folder with a run something is offered."""
    monkeypatch.chdir(tmp_path)
    bundle = write_tiny_bundle(tmp_path / "traces")
    line(f"profile-sd3 {name} {bundle} ")
    group = typer.main.get_group(command_line())
    context = group.make_context("profile-sd3", [name], resilient_parsing=True)
    command = group.get_command(context, name)
    found = next(one for one in command.params if one.name == parameter)
    assert found.shell_complete(context, "")


def test_sections_are_completed_behind_a_comma():
    """What stands before the comma stays, and is not offered again."""
    assert complete_sections("ro") == ["roofline"]
    assert complete_sections("idle,r") == ["idle,requests", "idle,roofline", "idle,ranks"]
    assert complete_sections("idle,idl") == []


def test_submodules_are_those_of_the_run(tmp_path, line):
    """Of the bundle that the line names, or of the newest in a folder."""
    bundle = write_tiny_bundle(tmp_path)
    for named in (bundle, tmp_path):
        line(f"profile-sd3 analyze {named} --submodule t")
        assert complete_submodules("t") == ["transformer"]
    assert complete_submodules("vae,tr") == ["vae,transformer"]


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b"{}", b'{"submodules": 3}', b"\xff", None])
def test_a_broken_bundle_offers_nothing(tmp_path, line, manifest):
    """None, none that is JSON, none of ours, a folder of that name; a line cut in a quotation."""
    bundle = write_tiny_bundle(tmp_path)
    (bundle / "manifest.json").unlink()
    if manifest is None:
        (bundle / "manifest.json").mkdir()
    else:
        (bundle / "manifest.json").write_bytes(manifest)
    line(f"profile-sd3 analyze {bundle} --submodule '")
    assert complete_submodules("") == []


def test_runs_are_whole_and_other_folders_are_gone_into(tmp_path, monkeypatch):
    """A run ends where it is named, a folder with a separator, unless it alone is offered: then
    what is in it. Hidden ones only where asked for."""
    monkeypatch.chdir(tmp_path)
    bundle = write_tiny_bundle(tmp_path / "traces")
    (tmp_path / ".hidden").mkdir()
    assert complete_runs("tr") == [f"traces/{bundle.name}"]
    (tmp_path / "trials").mkdir()
    assert complete_runs("tr") == ["traces" + os.sep, "trials" + os.sep]
    (tmp_path / "trials").rmdir()
    assert complete_runs("traces/") == [f"traces/{bundle.name}"]
    assert complete_runs("") == [f"traces/{bundle.name}", "traces" + os.sep]
    assert complete_runs(".h") == [".hidden" + os.sep]


def test_runs_of_what_is_not_there(tmp_path, monkeypatch):
    """No folder of traces, no folder at all, a file in its place: nothing is offered."""
    monkeypatch.chdir(tmp_path)
    assert complete_runs("") == []
    assert complete_runs("none/") == []
    (tmp_path / "file").write_text("")
    assert complete_runs("file/") == []


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("profile-sd3 analyze --section idle,ro", "idle,roofline"),
        ("profile-sd3 ana", "analyze"),
        ("profile-sd3 analyze --list-s", "--list-sections"),
    ],
)
def test_a_shell_is_answered(tmp_path, words, offered):
    """What bash is given for a line; reports are not imported for it."""
    environment = {
        **os.environ,
        "_PROFILE_SD3_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: sys.stderr.write(str('polars' in sys.modules)))\n"
        "sys.argv = ['profile-sd3']\n"
        "from profiler.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == ([offered], "False")
