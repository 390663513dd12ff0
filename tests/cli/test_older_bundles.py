"""Bundles of 0.1.0 and later are read; one of a format before that is refused in a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.command_line import refused

_SAMPLE = Path(__file__).parents[2] / "sample_traces" / "tiny_two_devices"


@pytest.fixture
def of_0_1_0(tmp_path: Path) -> Path:
    return Path(shutil.copytree(_SAMPLE, tmp_path / "run"))


def test_a_bundle_of_0_1_0(cli, of_0_1_0: Path) -> None:
    """The sample that 0.1.0 recorded, in format 2, as it lies in the repository."""
    manifest = json.loads((of_0_1_0 / "manifest.json").read_bytes())
    assert (manifest["format_version"], manifest["versions"]["profile-sd3"]) == (2, "0.1.0")
    for words in (("analyze", of_0_1_0, "--no-html", "--strict"), ("diff", of_0_1_0, of_0_1_0)):
        code, out, err = cli(*words)
        assert (code, bool(out)) == (0, True), err


@pytest.mark.parametrize(
    "words",
    [
        "analyze RUN --no-html",
        "diff RUN RUN",
        "predict RUN --steps 2",
        "share RUN --out RUN.zip",
        "merge RUN",
    ],
)
def test_a_format_before_it(cli, of_0_1_0: Path, words: str) -> None:
    """Format 1 was never released: each command says so and what to do, with exit code 2."""
    path = of_0_1_0 / "manifest.json"
    path.write_text(path.read_text().replace('"format_version": 2', '"format_version": 1'))
    given = words.replace("RUN", str(of_0_1_0)).split()
    refused(cli(*given), "manifest.json has format 1, this one reads 2: record the run again")


def test_a_format_before_it_in_a_fleet(cli, of_0_1_0: Path, tmp_path: Path) -> None:
    """The run is left out, and the reason is that sentence."""
    path = of_0_1_0 / "manifest.json"
    path.write_text(path.read_text().replace('"format_version": 2', '"format_version": 1'))
    code, _, err = cli("fleet", "add", tmp_path / "set", of_0_1_0)
    assert code == 2
    assert "has format 1, this one reads 2" in err
    assert "Traceback" not in err
