"""Callbacks when a module is imported: once, after its code, without touching its import."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from importlib.util import find_spec

import pytest

from profiler.capture import imports


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of modules `watched_*` on sys.path; nothing of them stays behind."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("watched_")]:
        del sys.modules[name]
    for name in imports.waiting():
        imports.forget(name)


def ours() -> list[object]:
    return [f for f in sys.meta_path if type(f).__module__ == imports.__name__]


def test_called_once_after_the_code_ran(folder):
    """The callback sees the module complete, and a second import or reload does not call it."""
    (folder / "watched_a.py").write_text("value = 1\n")
    seen = []
    imports.when_imported("watched_a", lambda module: seen.append(module.value))
    module = importlib.import_module("watched_a")
    importlib.reload(module)
    assert seen == [1]
    assert ours() == []


def test_a_module_that_is_there_already(folder):
    """A module imported before is handed over at once, and no finder is installed."""
    (folder / "watched_a.py").write_text("value = 1\n")
    importlib.import_module("watched_a")
    seen = []
    imports.when_imported("watched_a", lambda module: seen.append(module.value))
    assert seen == [1]
    assert ours() == []


def test_the_module_is_what_it_would_be(folder):
    """Loader, its type and its attributes are those of an unwatched import."""
    (folder / "watched_a.py").write_text("")
    imports.when_imported("watched_a", lambda module: None)
    module = importlib.import_module("watched_a")
    assert type(module.__loader__) is importlib.machinery.SourceFileLoader
    assert module.__spec__.loader is module.__loader__
    assert sorted(vars(module.__loader__)) == ["name", "path"]


def test_the_finder_leaves_with_the_last_name(folder):
    """Several names share one finder, which goes when all have been seen."""
    for name in "ab":
        (folder / f"watched_{name}.py").write_text("")
        imports.when_imported(f"watched_{name}", lambda module: None)
    importlib.import_module("watched_b")
    assert (len(ours()), imports.waiting()) == (1, ("watched_a",))
    importlib.import_module("watched_a")
    assert (ours(), imports.waiting()) == ([], ())


def test_a_failing_callback_fails_no_import(folder, capsys):
    """The script's import succeeds; what went wrong is one line on stderr."""
    (folder / "watched_a.py").write_text("")

    def fail(module):
        raise AttributeError("no DiffusionPipeline\nhere")

    imports.when_imported("watched_a", fail)
    importlib.import_module("watched_a")
    wanted = "profile-sd3: watched_a is not profiled: AttributeError: no DiffusionPipeline here\n"
    assert capsys.readouterr().err == wanted


def test_a_failing_module_is_the_scripts_business(folder):
    """An exception of the module itself passes unchanged; a later import that works is seen."""
    file = folder / "watched_a.py"
    file.write_text("raise ValueError('mine')\n")
    seen = []
    imports.when_imported("watched_a", seen.append)
    with pytest.raises(ValueError, match="mine"):
        importlib.import_module("watched_a")
    assert seen == []
    file.write_text("value = 12345\n")
    importlib.invalidate_caches()
    assert importlib.import_module("watched_a").value == 12345
    assert len(seen) == 1


def test_a_missing_module_stays_missing(folder):
    """What is not installed raises ModuleNotFoundError, and looking for it finds nothing."""
    imports.when_imported("watched_missing", lambda module: None)
    assert find_spec("watched_missing") is None
    with pytest.raises(ModuleNotFoundError, match="watched_missing"):
        importlib.import_module("watched_missing")


def test_another_finder_that_asks_all_finders(folder, monkeypatch):
    """A finder that looks a name up through `importlib.util.find_spec` does not recurse."""
    (folder / "watched_a.py").write_text("value = 1\n")

    class Asking(importlib.abc.MetaPathFinder):
        busy = False

        def find_spec(self, name, path, target=None):
            if self.busy or not name.startswith("watched_"):
                return None
            self.busy = True
            try:
                return find_spec(name)
            finally:
                self.busy = False

    monkeypatch.setattr(sys, "meta_path", [Asking(), *sys.meta_path])
    seen = []
    imports.when_imported("watched_a", lambda module: seen.append(module.value))
    importlib.import_module("watched_a")
    assert seen == [1]


def test_a_loader_that_cannot_be_followed_is_said(folder, monkeypatch, capsys):
    """Where a loader takes no wrap, the import succeeds and stderr says what is not profiled."""

    class Loader:
        __slots__ = ()

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            module.value = 1

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name != "watched_a":
                return None
            return importlib.machinery.ModuleSpec(name, Loader())

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    imports.when_imported("watched_a", lambda module: None)
    assert importlib.import_module("watched_a").value == 1
    assert "watched_a is not profiled: its loader" in capsys.readouterr().err
    assert ours() == []
