"""What is written about a run is for its user alone, unless it is to be shared."""

from __future__ import annotations

import os
import stat

import pytest

from profiler.cli.main import command_line
from profiler.files import SHARED, write_atomically
from profiler.trace import Journal
from tests.command_line import run_command
from tests.trace.samples import small_bundle

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")


@pytest.fixture(autouse=True)
def usual_umask(monkeypatch):
    """Others may read what is made."""
    monkeypatch.delenv(SHARED, raising=False)
    before = os.umask(0o022)
    yield
    os.umask(before)


def _modes(folder) -> dict[str, int]:
    places = [folder, *folder.rglob("*")]
    return {place.name: stat.S_IMODE(place.stat().st_mode) for place in places}


def test_a_bundle_is_ones_own(tmp_path):
    """Its folder is 0700, each file in it 0600, the journal of a run that goes on as well."""
    bundle = small_bundle(tmp_path)
    Journal.create(bundle).close()
    modes = _modes(bundle)
    assert modes.pop("small") == 0o700
    assert set(modes.values()) == {0o600}
    assert ".calls" in modes


@pytest.mark.parametrize("value", ["1", "true", "ON"])
def test_the_variable_shares(tmp_path, monkeypatch, value):
    """RBLN_PROFILER_SHARED=1 leaves permissions to the umask."""
    monkeypatch.setenv(SHARED, value)
    modes = _modes(small_bundle(tmp_path))
    assert modes.pop("small") == 0o755
    assert set(modes.values()) == {0o644}


@pytest.mark.parametrize("value", ["", "0", "no", "what"])
def test_other_values_share_nothing(tmp_path, monkeypatch, value):
    """Anything but a yes keeps files to oneself, also over one that others could read."""
    monkeypatch.setenv(SHARED, value)
    target = tmp_path / "report.json"
    target.write_text("{}")
    target.chmod(0o644)
    write_atomically(target, b"{}")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_reports_and_tables(tmp_path, capsys):
    """What `analyze` writes is one's own; with --shared others may read it, and the variable is as
    it was."""
    bundle, out = small_bundle(tmp_path), tmp_path / "out"
    out.mkdir()
    asked = ("analyze", bundle, "--json", out / "a.json", "--html", out / "a.html")
    asked = (*asked, "--csv", out / "csv")
    assert run_command(*asked) == 0
    files = [place for place in out.rglob("*") if place.is_file()]
    assert {stat.S_IMODE(place.stat().st_mode) for place in files} == {0o600}
    assert run_command(*asked, "--shared") == 0
    assert {stat.S_IMODE(place.stat().st_mode) for place in files} == {0o644}
    assert SHARED not in os.environ
    capsys.readouterr()


def test_who_has_the_option():
    """Every subcommand that writes files about runs."""
    import typer.main

    commands = typer.main.get_command(command_line()).commands
    having = {name for name, one in commands.items() if any(p.name == "shared" for p in one.params)}
    assert having == {
        *("run", "record", "import", "analyze", "diff", "predict", "query", "merge", "share"),
        "benchmark-device",
    }
