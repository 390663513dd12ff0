"""Runs that were killed and merged, as the commands take them: with what is there, and a word on
what is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from profiler.capture.run_info import NOT_ENDED
from profiler.trace import BundleWriter, CommandBuilder, Journal
from tests.command_line import refused
from tests.runs import TINY_CALLS, TINY_INFO, write_tiny_bundle


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_tiny_bundle(tmp_path / "base")


@pytest.fixture
def killed(tmp_path: Path, cli) -> Path:
    """A run whose process was killed in its second pipeline call, merged."""
    with BundleWriter.create(tmp_path / "killed", "run") as bundle:
        bundle.begin(structs.replace(TINY_INFO, drops=(NOT_ENDED,)))
        of_second = replace(TINY_CALLS[0], index=4, start_ns=TINY_CALLS[-1].start_ns + 5_000)
        for number, calls in enumerate((TINY_CALLS, [of_second])):
            for call in calls:
                bundle.write_call(replace(call, pipeline=number), CommandBuilder().build())
    Journal.create(bundle.directory).close()
    code, _, err = cli("merge", bundle.directory)
    assert code == 0
    assert "host.pb: missing_file" in err
    assert "it was killed" in err
    return bundle.directory


def test_a_killed_run_is_analyzed(cli, killed: Path) -> None:
    """The report of what is there, which says what is missing; exit code 0."""
    code, out, err = cli("analyze", killed, "--no-html", "--full")
    assert (code, err) == (0, "")
    assert "Missing file in host.pb" in out
    assert "transformer" in out


def test_a_killed_run_is_compared_and_predicted(cli, base: Path, killed: Path) -> None:
    """`diff`, `analyze --against` and `predict` answer, and say on stderr what the run lacks."""
    said = f"not whole: {killed}: host.pb: "
    for words in (("diff", base, killed), ("diff", killed, base), ("predict", killed)):
        code, out, err = cli(*words)
        assert (code, bool(out)) == (0, True), err
        assert said in err
        assert f"not whole: {killed}: run: the run did not end" in err
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
