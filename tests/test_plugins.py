"""Plug-ins of other packages, as installed packages declare them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from profiler.plugins import plugins

GROUP = "profile_sd3.tests"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a package: its entry points of `GROUP` and the text of its one module."""

    def install(package, points, module):
        folder = tmp_path / package
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = "".join(f"{name} = {value}\n" for name, value in points.items())
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")
        (folder / f"{package}.py").write_text(module)
        monkeypatch.syspath_prepend(str(folder))
        packages.append(package)

    packages = []
    plugins.cache_clear()
    yield install
    plugins.cache_clear()
    for package in packages:
        sys.modules.pop(package, None)


def test_plugins_come_in_order_of_their_names(installed, capsys):
    """Objects of all packages are found under the group, and nothing is said."""
    installed("toy_b", {"second": "toy_b:two"}, "two = 2\n")
    installed("toy_a", {"first": "toy_a:one"}, "one = 1\n")
    assert plugins(GROUP) == (1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("value", "module", "why"),
    [
        ("toy_bad:it", "1 / 0\n", "cannot be loaded (ZeroDivisionError: division by zero)"),
        ("toy_bad:it", "raise SystemExit('gone')\n", "cannot be loaded (SystemExit: gone)"),
        ("toy_bad:it", "x = 1\n", "cannot be loaded (AttributeError"),
        ("toy_absent:it", "", "cannot be loaded (ModuleNotFoundError"),
        ("not a module!", "", "cannot be loaded ("),
        ("toy_bad:it", "it = object()\n", "has no name"),
    ],
)
def test_a_broken_plugin_is_one_notice(installed, capsys, value, module, why):
    """It is left out with one line that names it and its package, once a process; others stay."""
    installed("toy_bad", {"broken": value}, module)
    installed("toy_good", {"whole": "toy_good:it"}, "class it:\n    name = 'x'\n    read = print\n")
    for _ in range(2):
        assert [plugin.name for plugin in plugins(GROUP, "name", "read")] == ["x"]
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.startswith(f"profile-sd3: the plug-in broken ({GROUP}) of toy_bad {why}")
    assert "toy_bad or uninstall it" in line


@pytest.mark.parametrize("statement", ["import profiler", "import profiler.cli.main"])
def test_imports_look_up_no_plugins(statement):
    """Neither the package nor the command line asks for plug-ins when it is imported."""
    program = (
        "import importlib.metadata as m, sys\n"
        "m.entry_points = lambda **_: sys.exit('asked')\n"
        f"{statement}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_looks_up_no_plugins():
    """`--help`, of every command, asks for none either."""
    program = (
        "import importlib.metadata as m, sys\n"
        "m.entry_points = lambda **_: sys.exit('asked')\n"
        "from profiler.cli.main import main\n"
        "sys.argv = ['profile-sd3', *sys.argv[1:]]\n"
        "main()\n"
    )
    for command in ([], ["import"], ["analyze"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *command, "--help"], capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b""), command
