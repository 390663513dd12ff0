"""Mutations of every importer's traces and of bundles: read, or refused in one sentence."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from profiler.importers.importing import importers
from tests.command_line import run_command
from tests.fuzz.mutations import campaign, options_of, seeds

_NEEDS_PERFETTO = "perfetto" if importlib.util.find_spec("perfetto") is None else ""
_WITHOUT = {_NEEDS_PERFETTO, "bundles"}  # bundles of ranks are mutated as any bundle
_NAMES = sorted(one.name for one in importers() if one.name not in _WITHOUT)


@pytest.fixture(scope="module")
def all_seeds():
    return seeds()


def test_every_importer_has_a_seed(all_seeds):
    """One that is added needs a trace to mutate, in `tests/importers/test_hostile_files.py`."""
    assert [name for name, made in all_seeds.items() if not made and name not in _WITHOUT] == []
    assert {*_NAMES, "mixed", "archive", "bundle"} <= all_seeds.keys()


@pytest.mark.parametrize("name", [*_NAMES, "mixed", "archive", "bundle"])
def test_mutations_are_read_or_refused(name):
    """Two fixed cases of each; ten minutes of new ones at night."""
    ended, found = campaign([name], seed=20_261_128, count=2)
    assert found == []
    assert ended.total() >= 2


@pytest.mark.parametrize("name", [*_NAMES, "mixed", "archive"])
def test_names_that_are_no_utf8(all_seeds, tmp_path, capsys, name):
    """Each kind of trace is read from a folder whose name's bytes are no UTF-8."""
    folder = tmp_path / os.fsdecode(b"b\xff\xc3(d")
    folder.mkdir()
    make = all_seeds[name][0]
    path = make(folder)
    if path.is_file():
        path = path.rename(path.with_name(f"{os.fsdecode(bytes([0xFF]))}{path.name}"))
    given = [f"--{key}={value}" for key, value in options_of(make).items()]
    code = run_command("import", path, *given, "--out", tmp_path / "out")
    assert code == 0, capsys.readouterr().err
    assert list((tmp_path / "out").glob("*/manifest.json"))


@pytest.mark.nightly
def test_ten_minutes_of_mutations(record_property):
    """New cases each night; a finding names its seed: `python -m tests.fuzz.mutations`."""
    seed = int.from_bytes(os.urandom(4), "big")
    ended, found = campaign([], seed, seconds=600)
    record_property("cases", f"{ended.total()} from seed {seed}")
    assert found == []


def test_the_program_of_the_nightly_run_is_documented():
    """`docs/nightly.md` has the command."""
    page = (Path(__file__).parents[2] / "docs" / "nightly.md").read_text(encoding="utf-8")
    assert "-m nightly tests/importers/test_mutations.py" in page
