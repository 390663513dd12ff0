"""Runs that were killed and merged, as the commands take them: with what is there, and a word on
what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.trace.bundle import HOST_NAME, MERGED_NAME
from profiler.trace.journal import Journal
from profiler.trace.manifest import MANIFEST_NAME
from tests.command_line import refused
from tests.runs import write_tiny_bundle


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_tiny_bundle(tmp_path / "base")


@pytest.fixture
def killed(tmp_path: Path, cli) -> Path:
    """A run whose process was killed ahead of its last call's file and of `host.pb`, merged."""
    bundle = write_tiny_bundle(tmp_path / "killed")
    for name in (HOST_NAME, MERGED_NAME, MANIFEST_NAME):
        (bundle / name).unlink()
    Journal.create(bundle).close()
    code, _, err = cli("merge", bundle)
    assert code == 0
    assert "host.pb: missing_file" in err
    return bundle


def test_a_killed_run_is_analyzed(cli, killed: Path) -> None:
    """The report of what is there, which says what is missing; exit code 0."""
    code, out, err = cli("analyze", killed, "--no-html")
    assert (code, err) == (0, "")
    assert "missing file in host.pb" in out
    assert "transformer" in out


def test_a_killed_run_is_compared_and_predicted(cli, base: Path, killed: Path) -> None:
    """`diff`, `analyze --against` and `predict` answer, and say on stderr what the run lacks."""
    said = f"not whole: {killed}: host.pb: "
    for words in (("diff", base, killed), ("diff", killed, base), ("predict", killed)):
        code, out, err = cli(*words)
        assert (code, bool(out)) == (0, True), err
        assert err.startswith(said)
    code, out, _ = cli("analyze", base, "--no-html", "--against", killed)
    assert code == 0
    assert said in out


def test_a_gate_takes_whole_runs_alone(cli, base: Path, killed: Path) -> None:
    """A run that was killed ends early, and would pass as a fast one."""
    refused(cli("diff", base, killed, "--fail-over", "5%"), str(killed), "is not whole", "host.pb")


def test_damage_since_then_is_refused(cli, base: Path, killed: Path) -> None:
    """What has been cut since the run was merged is no part of what it is known to lack."""
    path = next(killed.glob("001_*.pb"))
    path.write_bytes(path.read_bytes()[:-5])
    for words in (("diff", base, killed), ("predict", killed)):
        refused(cli(*words), "is not whole", path.name)
    code, _, err = cli("analyze", killed, "--no-html")
    assert code == 2
    assert path.name in err
