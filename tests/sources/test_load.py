"""`load` and `analyze` of what another profiler wrote, and what is left behind."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import replace

import pytest

import profiler
from profiler.errors import InputError
from tests.importers.kineto.traces import calls, flux
from tests.importers.rbln.generator import write_sd3
from tests.runs import write_tiny_bundle


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder in which temporary folders are made here."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_foreign_file_is_loaded_as_its_import(tmp_path, temporary):
    """The run is that of the bundle that `import` would write, held until the run is closed."""
    run = profiler.load(flux().write(tmp_path))
    assert [submodule for submodule, *_ in calls(run)][:2] == ["text_encoder", "text_encoder_2"]
    assert run.info.capabilities == ("timeline",)
    assert len(list(temporary.iterdir())) == 1
    run.close()
    run.close()
    assert list(temporary.iterdir()) == []
    assert len(run.calls) == 5


def test_the_import_goes_with_the_last_copy_of_the_run(tmp_path, temporary):
    """Copies of a run hold it as well; when none is left, nothing of it is."""
    run = profiler.load(flux().write(tmp_path))
    copy = replace(run, run_id="copy")
    del run
    gc.collect()
    assert len(list(temporary.iterdir())) == 1
    del copy
    gc.collect()
    assert list(temporary.iterdir()) == []


def test_the_import_goes_at_the_end_of_the_interpreter(tmp_path, temporary):
    """A run that is still used then leaves nothing; a forked child that ends takes nothing away."""
    program = (
        "import os, sys, profiler\n"
        "run = profiler.load(sys.argv[1])\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "print(len(os.listdir(os.environ['TMPDIR'])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(flux().write(tmp_path))],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"
    assert list(temporary.iterdir()) == []


def test_a_file_that_cannot_be_imported_leaves_nothing(tmp_path, temporary):
    """The sentence is the importer's, and the temporary folder is gone."""
    path = tmp_path / "trace.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(InputError, match=r"trace\.json"):
        profiler.load(path)
    assert list(temporary.iterdir()) == []


def test_a_run_that_is_held_can_be_sent_to_another_process(tmp_path, temporary):
    """Its copy there holds nothing that is not its own."""
    run = profiler.load(flux().write(tmp_path))
    sent = pickle.loads(pickle.dumps(run))
    sent.close()
    assert len(list(temporary.iterdir())) == 1
    assert sent.calls.equals(run.calls)


def test_options_from_python(tmp_path, temporary):
    """Values as they are, for `load` and for `analyze`."""
    write_sd3(tmp_path / "rbln", steps=2)
    options = {"pipeline": "sd3", "steps": 2}
    run = profiler.load(str(tmp_path / "rbln"), import_options=options)
    assert run.calls["submodule"].to_list().count("transformer") == 2
    analysis = profiler.analyze(tmp_path / "rbln", import_options=options)
    assert analysis.run.run_id == run.run_id
    with pytest.raises(InputError, match="has no option stages"):
        profiler.load(tmp_path / "rbln", import_options={"stages": 2})


def test_the_newest_names_the_others(tmp_path):
    """A folder's older runs stand in `others`; a bundle has none."""
    old = write_tiny_bundle(tmp_path, "old")
    os.utime(old / "manifest.json", ns=(0, 0))
    write_tiny_bundle(tmp_path, "new")
    run = profiler.load(tmp_path)
    assert (run.run_id, run.others) == ("new", ("old",))
    assert profiler.load(old).others == ()
