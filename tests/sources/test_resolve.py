"""What a path stands for: kinds of sources, folders of runs, options of importers."""

from __future__ import annotations

import os
import shutil

import pytest

from profiler.errors import InputError
from profiler.run import write_parquet
from profiler.tools.sources import Kind, load, resolve
from profiler.trace import Journal, call_files
from profiler.trace.bundle import State
from tests.importers.kineto.traces import flux
from tests.importers.rbln.generator import write_sd3
from tests.runs import write_empty_bundle, write_tiny_bundle


def found_at(*paths, **options):
    """What is found at `paths`, of one run."""
    (found,) = resolve([paths], options)
    return found


def aged(bundle, seconds):
    """`bundle`, written so long ago."""
    manifest = bundle / "manifest.json"
    os.utime(manifest, ns=(0, 10**18 - seconds * 10**9))
    return bundle


def test_each_form_of_a_run_has_its_kind(tmp_path):
    """A bundle, one of its files, a Parquet folder, a Kineto file and an RBLN folder."""
    bundle = write_tiny_bundle(tmp_path / "traces")
    parquet = tmp_path / "parquet"
    write_parquet(load(bundle), parquet)
    write_sd3(tmp_path / "rbln", steps=1)
    kinds = {
        bundle: Kind.BUNDLE,
        bundle / "merged.pb": Kind.TRACE,
        parquet: Kind.PARQUET,
        flux().write(tmp_path): Kind.FOREIGN,
        flux().write(tmp_path, "packed.json.gz"): Kind.FOREIGN,
        tmp_path / "rbln": Kind.FOREIGN,
    }
    for path, kind in kinds.items():
        found = found_at(path)
        assert (found.newest.path, found.newest.kind, found.others) == (path, kind, ())
    importers = [found_at(path).newest.foreign for path in list(kinds)[3:]]
    assert [foreign.importer.name for foreign in importers] == ["kineto", "kineto", "rbln"]


def test_folders_are_searched_two_levels_deep(tmp_path):
    """Bundles of a folder and of the folders in it, newest first; none below those."""
    write_tiny_bundle(tmp_path / "a" / "b", "deep")
    old = aged(write_tiny_bundle(tmp_path / "gpu", "old"), 20)
    new = aged(write_tiny_bundle(tmp_path / "npu", "new"), 10)
    older = aged(write_tiny_bundle(tmp_path, "older"), 30)
    found = found_at(tmp_path)
    assert [source.path for source in found.sources] == [new, old, older]
    assert found.others == ("gpu/old", "older")
    assert found_at(tmp_path / "a").newest.path == tmp_path / "a" / "b" / "deep"
    (tmp_path / "x" / "y").mkdir(parents=True)
    shutil.move(tmp_path / "a", tmp_path / "x" / "y" / "z")
    with pytest.raises(InputError, match="no bundle in"):
        found_at(tmp_path / "x")


def test_a_run_without_calls_hides_no_other(tmp_path):
    """The newest bundle ended before its first call: the one before is taken, and it is named;
    given itself, it is what was asked for."""
    whole = aged(write_tiny_bundle(tmp_path, "whole"), 10)
    empty = write_empty_bundle(tmp_path, "empty")
    found = found_at(tmp_path)
    assert [source.path for source in found.sources] == [whole]
    assert [(entry.path, entry.state) for entry in found.unfinished] == [(empty, State.EMPTY)]
    assert found_at(empty).newest.path == empty
    shutil.rmtree(whole)
    with pytest.raises(InputError, match="empty holds no call: the run ended before its first"):
        found_at(tmp_path)


def test_a_bundle_that_lost_its_calls_is_no_empty_one(tmp_path):
    """The manifest names calls whose files are gone: it is taken, and says what is missing."""
    bundle = write_tiny_bundle(tmp_path, "bundle")
    for path in call_files(bundle):
        path.unlink()
    assert found_at(tmp_path).newest.path == bundle


def test_unfinished_runs_are_left_out_and_named(tmp_path):
    """A run that goes on, one that was cut short and one without manifest stand beside the rest."""
    whole = write_tiny_bundle(tmp_path, "whole")
    going, cut, unmerged = (write_tiny_bundle(tmp_path, name) for name in ("a", "b", "c"))
    journal = Journal.create(going)
    (cut / ".calls").write_bytes(b"")
    (unmerged / "manifest.json").unlink()
    found = found_at(tmp_path)
    assert [source.path for source in found.sources] == [whole]
    states = [(entry.path, entry.state) for entry in found.unfinished]
    assert states == [(going, State.RUNNING), (cut, State.CUT), (unmerged, State.UNMERGED)]
    for path, said in (
        (going, "still going on"),
        (cut, "has not ended"),
        (unmerged, "no manifest"),
    ):
        with pytest.raises(InputError, match=said):
            found_at(path)
    journal.remove()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "does not exist: give a bundle"),
        (lambda path: path.mkdir(), "no bundle in .*: record one"),
        (lambda path: path.write_text("hello"), "which is not read here. Formats: bundle"),
        (lambda path: path.write_text('{"a": 1}'), r"torch\.profiler, Nsight Systems"),
        (os.mkfifo, "is neither a file nor a folder"),
        (lambda path: path.symlink_to(path), "cannot read"),
    ],
)
def test_what_is_no_run_is_one_sentence(tmp_path, make, said):
    """Nothing, an empty folder, text, other JSON, a pipe, a link to itself."""
    path = tmp_path / "place"
    make(path)
    with pytest.raises(InputError, match=said) as error:
        found_at(path)
    assert str(path) in str(error.value)


def test_options_are_read_by_the_importer(tmp_path):
    """Texts become the values that it declares; each importer gets the options that it has."""
    write_sd3(tmp_path / "rbln", steps=1)
    kineto = flux().write(tmp_path)
    npu, gpu = resolve([[tmp_path / "rbln"], [kineto]], {"pipeline": "sd3", "steps": "1"})
    assert npu.newest.foreign.options == {"pipeline": "sd3", "steps": 1}
    assert gpu.newest.foreign.options == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stepz": "1"}, "the importer rbln has no option stepz: use pipeline, steps, skip, run"),
        ({"steps": "many"}, "steps='many' is no number from 1: give denoising steps"),
        ({"steps": 0}, "steps=0 is no number from 1"),
        ({"steps": True}, "steps=True is no number from 1"),
        ({"steps": "9" * 99}, "is no number from 1"),
        ({"pipeline": ""}, "pipeline='' is no text"),
    ],
)
def test_a_wrong_option_is_one_sentence(tmp_path, options, said):
    """It is refused before anything is imported, and the sentence says what there is."""
    write_sd3(tmp_path / "rbln", steps=1)
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        found_at(tmp_path / "rbln", **options)


def test_options_without_a_foreign_trace_are_refused(tmp_path):
    """A bundle takes none."""
    bundle = write_tiny_bundle(tmp_path)
    with pytest.raises(InputError, match=r"no trace of another profiler.*\(pipeline\)"):
        found_at(bundle, pipeline="sd3")
    with pytest.raises(InputError, match="the importer kineto has no option pipeline: use capture"):
        found_at(flux().write(tmp_path), pipeline="sd3")


def test_several_paths_are_the_files_of_one_run(tmp_path):
    """They go to the importer that recognises all; runs that are whole are not put together."""
    paths = [flux().write(tmp_path, name) for name in ("a.json", "b.json")]
    assert found_at(*paths).newest.foreign.paths == tuple(paths)
    bundles = [write_tiny_bundle(tmp_path, name) for name in "ab"]
    with pytest.raises(InputError, match=r"no files of one run.*profile-sd3 diff"):
        found_at(*bundles)
