"""`profile-sd3 doctor`: what it finds in an environment, and what it says about it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from profiler.cli.commands import doctor
from profiler.cli.commands.doctor import Check, State, diagnose


def found(environment: dict[str, str]) -> dict[str, Check]:
    return {check.name: check for check in diagnose(environment).checks}


def test_nobody_asked_for_profiling():
    """Without the variable nothing is wrong: profiling is off, and the advice says how to switch
    it on."""
    switch = found({})["switch"]
    assert (switch.state, switch.found) == (State.OFF, "RBLN_PROFILER is not set")
    assert "RBLN_PROFILER=1" in switch.advice


@pytest.mark.parametrize(
    ("asked", "writable", "advice"),
    [(True, True, "unset PYTHONDONTWRITEBYTECODE"), (False, False, "-m compileall ")],
)
def test_modules_are_compiled_again_by_each_command(asked, writable, advice, monkeypatch, tmp_path):
    """Nothing is compiled ahead and Python keeps none: asked not to, or not allowed to write."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", asked)
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: writable)
    check = found({})["byte code"]
    assert check.state is State.SLOW
    assert "each command compiles its modules again" in check.found
    assert advice in check.advice


def test_byte_code_is_kept_or_will_be(monkeypatch, tmp_path):
    """Python may write it, so the first command makes it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    assert found({})["byte code"].state is State.OK


def test_switched_on(tmp_path):
    """With the variable set, the settings that a program would get are shown."""
    checks = found({"RBLN_PROFILER": "1", "RBLN_PROFILER_DIR": str(tmp_path / "new")})
    assert checks["switch"].state is State.OK
    assert json.loads(checks["settings"].found)["out"] == str(tmp_path / "new")
    assert (checks["output folder"].state, checks["output folder"].found) == (
        State.OK,
        str(tmp_path / "new"),
    )


def test_settings_that_cannot_be_used():
    """The sentence that a program would print while it starts, unprofiled."""
    checks = found({"RBLN_PROFILER": "1", "RBLN_PROFILER_CONFIG": '{"opps": "all"}'})
    assert checks["settings"].state is State.PROBLEM
    assert "no setting is called opps" in checks["settings"].found


def test_output_folder_is_a_file(tmp_path):
    """Bundles cannot be made below a file."""
    (tmp_path / "traces").write_text("")
    environment = {"RBLN_PROFILER": "1", "RBLN_PROFILER_DIR": str(tmp_path / "traces" / "new")}
    folder = found(environment)["output folder"]
    assert folder.state is State.PROBLEM
    assert folder.found == f"{tmp_path / 'traces'} is no folder"


def test_hook_is_not_installed(monkeypatch):
    """Where Python finds no start-up module, programs are not profiled."""
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    hook = found({})["start-up hook"]
    assert hook.state is State.PROBLEM
    assert sys.executable in hook.found


def test_hook_lies_where_python_reads_no_start_up_files(monkeypatch, tmp_path):
    """A folder on PYTHONPATH is importable, but its .pth files are not read."""
    for name in ("_profile_sd3_startup.py", "profile_sd3.pth"):
        (tmp_path / name).write_text("")

    class Spec:
        origin = str(tmp_path / "_profile_sd3_startup.py")

    monkeypatch.setattr(doctor, "find_spec", lambda name: Spec)
    checks = found({})
    assert checks["start-up hook"].state is State.OK
    assert checks["Python's start-up files"].state is State.PROBLEM
    assert str(tmp_path) in checks["Python's start-up files"].found


def test_no_runtime_is_installed(monkeypatch):
    """An environment without any library whose calls can be recorded is not the program's."""
    monkeypatch.setattr(doctor, "_version", lambda package: "")
    runtimes = found({})["runtimes"]
    assert runtimes.state is State.PROBLEM
    assert "onnxruntime" in runtimes.found


def test_a_runtime_that_another_package_brings(monkeypatch, tmp_path):
    """Who has onnxruntime-gpu has ONNX Runtime: what counts is the library, not who brings it."""
    folder = tmp_path / "onnxruntime_gpu-1.99.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.99")
    (folder / "top_level.txt").write_text("onnxruntime_of_gpus\n")
    (tmp_path / "onnxruntime_of_gpus.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert doctor._version("onnxruntime_of_gpus") == "1.99"
    assert doctor._version("no_such_library") == ""
    assert doctor._version("no-such-package") == ""


def test_backends_and_importers_are_those_that_are_registered():
    """Folders that register themselves appear without being listed."""
    report = diagnose({})
    assert {backend.name for backend in report.backends} >= {"onnxruntime", "torch", "rbln"}
    assert report.importers.keys() >= {"kineto", "rbln"}


def test_extras_are_those_of_the_package():
    """An installed extra has versions; extras of developers are left out."""
    extras = {extra.name: extra for extra in diagnose({}).extras}
    if not extras:
        pytest.skip("profile-sd3 is not installed here: pip install it")
    assert {"torch", "query", "perfetto"} <= extras.keys()
    assert "perfetto" in extras["perfetto"].installed
    assert not {"dev", "test", "docs"} & extras.keys()


METADATA = """\
Metadata-Version: 2.1
Name: profile-sd3
Version: 1
Requires-Dist: numpy<1
Requires-Dist: typer>=0.1
Provides-Extra: early
Provides-Extra: late
Provides-Extra: never
Requires-Dist: onnxruntime<0.5,>=0.1; extra == "early"
Requires-Dist: onnxruntime>=0.6; extra == "late"
Requires-Dist: no-such-package>=1; extra == "late"
Requires-Dist: polars; python_version < "3" and extra == "never"
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A profile-sd3 that is installed with the requirements above."""
    folder = tmp_path / "packages" / "profile_sd3-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(folder.parent)


def test_what_is_installed_in_another_version_is_said(installed):
    """A package outside the bounds of an extra is not what the extra needs, whatever the next
    extra says; an extra for other Pythons is left out."""
    report = diagnose({})
    extras = {extra.name: extra for extra in report.extras}
    assert extras.keys() == {"early", "late"}
    assert extras["early"].needed == {"onnxruntime": ">=0.1,<0.5"}
    assert extras["late"].needed == {}
    assert extras["late"].missing == ("no-such-package",)
    assert report.requirements.needed == {"numpy": "<1"}
    onnxruntime = next(each for each in report.backends if each.name == "onnxruntime")
    assert onnxruntime.needed == {}


def test_command_says_which_version_is_needed(installed, cli):
    """The bound stands behind the version that is outside of it, also of a package that
    profile-sd3 always needs."""
    _, out, _ = cli("doctor")
    early = next(line for line in out.splitlines() if line.split()[:1] == ["early"])
    assert early.endswith(" (needs >=0.1,<0.5)")
    numpy = [line for line in out.splitlines() if line.startswith("  numpy ")]
    assert numpy[1].endswith(" is not what is needed: <1")


def test_command_says_all_of_it(cli, monkeypatch):
    """Versions, extras, backends, importers, checks; exit code 0 where nothing is wrong."""
    monkeypatch.delenv("RBLN_PROFILER", raising=False)
    code, out, _ = cli("doctor")
    assert code == int("problem" in out.partition("profiling of programs")[2])
    headings = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert headings[:5] == ["versions", "extras", "backends", "importers", "profiling of programs"]


def test_command_ends_with_1_where_something_is_wrong(cli, monkeypatch, tmp_path):
    """The answer to "is my program profiled?" is no; the same stands in the JSON."""
    monkeypatch.setenv("RBLN_PROFILER", "1")
    monkeypatch.setenv("RBLN_PROFILER_CONFIG", "{")
    file = tmp_path / "doctor.json"
    code, out, _ = cli("doctor", "--json", str(file))
    assert code == 1
    assert out.splitlines()[-1].startswith("Programs are not profiled: ")
    states = {check["name"]: check["state"] for check in json.loads(file.read_text())["checks"]}
    assert states["settings"] == "problem"


def test_a_subcommand_is_one_file(tmp_path, monkeypatch):
    """A module of a package of commands becomes a subcommand under its name, at its place."""
    import typer

    from profiler.cli.subcommands import add_subcommands

    folder = tmp_path / "more_commands"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name, place in (("later_one", 20), ("first_", 10)):
        (folder / f"{name}.py").write_text(
            "from profiler.cli.subcommands import Subcommand\n"
            "def command() -> None:\n    'Do it.'\n"
            f"SUBCOMMAND = Subcommand(command, place={place})\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    import more_commands

    app = typer.Typer()
    add_subcommands(app, more_commands)
    assert [command.name for command in app.registered_commands] == ["first", "later-one"]
    assert Path(more_commands.__file__).parent == folder
