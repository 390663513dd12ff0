"""An importer that another package brings: installed from a folder, then used."""

from __future__ import annotations

import json

import pytest

from . import toy


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return toy.install(tmp_path_factory.mktemp("toy"))


def test_import_takes_it_and_its_option(installed, tmp_path):
    """`import` recognises its file, takes its option as a plain one, and notes its capabilities."""
    path = toy.write_trace(tmp_path / "a.toy")
    done = toy.run(installed, "import", path, "--slower", "2", "--out", "runs", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "runs/a\n"
    manifest = json.loads((tmp_path / "runs" / "a" / "manifest.json").read_text())
    assert manifest["capabilities"] == ["timeline", "toys"]
    assert [call["duration_ns"] for call in manifest["calls"]] == [6_000_000, 10_000_000]


def test_import_takes_several_paths_of_one_run(installed, tmp_path):
    """All of them go to the importer at once, and one run comes of them."""
    paths = [toy.write_trace(tmp_path / f"{name}.toy") for name in "ab"]
    done = toy.run(installed, "import", *paths, "--out", "runs", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "runs/a\n"), done.stderr
    manifest = json.loads((tmp_path / "runs" / "a" / "manifest.json").read_text())
    assert len(manifest["calls"]) == 4


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--slower", "0"], "slower=0 is no number from 1: give how many times slower it was"),
        (["--slower"], "--slower has no value"),
        (["--faster", "2"], "the importer toy has no option faster: use slower"),
        (["--pipeline", "sd3"], "the importer toy has no option pipeline: use slower"),
    ],
)
def test_a_wrong_option_is_one_sentence(installed, tmp_path, option, said):
    """It says what is wrong and what there is, and nothing is written."""
    path = toy.write_trace(tmp_path / "a.toy")
    done = toy.run(installed, "import", path, *option, "--out", "runs", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"profile-sd3: {said}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()
