"""Options and rules for all tests."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from profiler.capture.pipelines import script_objects
from tests.torch_modules import uses_torch

# Reproducible everywhere, and blind to how fast the machine is.
settings.register_profile("project", deadline=None, derandomize=True, max_examples=40)
# Looks further, and elsewhere each time: pytest --hypothesis-profile=thorough (docs/nightly.md)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("project")

# There are as many processes of tests as cores: more threads of Polars only wait for each other.
# (The goldens are made with as many threads as users have.)
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")

# A file into which the tests that pass are written, for --without-passed. No option: tests that run
# pytest themselves have the same PYTEST_ADDOPTS.
NOTE_PASSED = os.environ.get("PROFILE_SD3_NOTE_PASSED")
# In CI nothing may be skipped for want of a package, a browser or a sample: see .ci/run.
REQUIRE_ALL = os.environ.get("PROFILE_SD3_REQUIRE_ALL") == "1"


def pytest_addoption(parser):
    parser.addoption(
        "--refresh-goldens",
        action="store_true",
        help="write what the code gives today into the golden files, to be read in the diff",
    )
    parser.addoption(
        "--torch",
        choices=("with", "without", "alone"),
        default="with",
        help="leave out the modules that import torch, or all others: tests/torch_modules.py",
    )
    parser.addoption("--without-passed", type=Path, help="leave out the tests named in this file")


def pytest_ignore_collect(collection_path, config):
    """What `--torch` leaves out is not even imported."""
    wanted = config.getoption("--torch")
    if wanted == "with" or not collection_path.match("test_*.py"):
        return None  # others decide
    return True if uses_torch(collection_path) != (wanted == "alone") else None


def pytest_configure(config):
    gc.disable()  # until all tests are collected: what that makes stays
    if hasattr(config, "workerinput"):
        os.register_at_fork(after_in_child=_Pipes(config).leave)


_passed: list[str] = []


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        _passed.append(report.nodeid)


def pytest_sessionfinish(session):
    if NOTE_PASSED and not hasattr(session.config, "workerinput"):
        Path(NOTE_PASSED).write_text("\n".join(_passed), encoding="utf-8")


class _Pipes:
    """What a process of pytest-xdist and the one that gives it tests talk through. The latter
    learns that the former has died when nobody holds the pipes: its forked children must not."""

    def __init__(self, config):
        # xdist's plugin of a worker alone knows the way to the other side.
        channels = (
            getattr(plugin, "channel", None) for plugin in config.pluginmanager.get_plugins()
        )
        pipe = next(channel for channel in channels if channel is not None).gateway._io
        self._numbers = [pipe.infile.fileno(), pipe.outfile.fileno()]
        self._nothing = os.open(os.devnull, os.O_RDWR)

    def leave(self):
        """Put nothing in their place: the child's copies of the files may still be flushed."""
        for number in self._numbers:
            os.dup2(self._nothing, number, inheritable=False)


class _Portions(LoadFileScheduling):
    """A process takes whole files, for what their fixtures make, and one all of tests/browser: only
    one Perfetto UI can have the port from which it fetches traces. So does one what takes the same
    exported pipelines."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        if file.startswith("tests/browser/"):
            return "tests/browser"
        return "exported" if file in _OF_EXPORTED_PIPELINES else file


_OF_EXPORTED_PIPELINES = (
    "tests/graph/test_export_pipelines.py",
    "tests/pipelines/test_packed_against_diffusers.py",
)
"""Files that take folders from tests/graph/export_sources.py."""


_LONGEST = (
    "tests/capture/torch/test_interrupted.py",  # slow among modules that others have left alive
    "tests/browser/",
    "tests/docs/test_commands.py",
    "tests/notebooks/",
    "tests/graph/test_export",
    "tests/capture/torch/test_compil",
    "tests/capture/torch/test_rewritten",
)
"""What takes minutes in one process: begun first, so that none waits for it at the end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """What `--without-passed` leaves; the order in which processes take files: the longest, then
    those of most tests."""
    file = config.getoption("--without-passed")
    if file is not None:
        passed = set(file.read_text(encoding="utf-8").split("\n"))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    if not hasattr(config, "workerinput"):
        return
    sizes = Counter(item.path for item in items)

    def place(item):
        known = [at for at, name in enumerate(_LONGEST) if item.nodeid.startswith(name)]
        return (known[0], 0) if known else (len(_LONGEST), -sizes[item.path])

    items.sort(key=place)  # which leaves tests of one file in their order, and together


_OBJECTS_BETWEEN_COLLECTIONS = 50_000  # Python's own: 700, each of which finds next to nothing


def pytest_collection_finish(session):
    """Thousands of collected tests and the libraries that they import live as long as the process:
    looking through them for garbage again and again is a sixth of the time that tests take."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 20)
    gc.enable()
    # What is frozen here is no script's: where profiling looks behind variables for frozen objects,
    # it goes no further than into those.
    script_objects._MOST_FROZEN = 1_000


def pytest_xdist_make_scheduler(config, log):
    return _Portions(config, log)


@pytest.fixture
def cli(capsys):
    """Run the command line in this process; returns exit code, stdout and stderr."""
    from tests.command_line import run_command

    def run(*arguments):
        code = run_command(*arguments)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def golden(request):
    """Compares lines with a golden file, or writes it anew under --refresh-goldens."""

    def check(path, lines):
        text = "".join(f"{line}\n" for line in lines)
        if request.config.getoption("--refresh-goldens"):
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8")

    return check


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Where everything is required, a skip is a failure, unless the test is marked as optional."""
    outcome = yield
    report = outcome.get_result()
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but everything is required here: {report.longrepr}"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """The same for modules that skip themselves while they are collected."""
    outcome = yield
    report = outcome.get_result()
    if REQUIRE_ALL and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, but everything is required here: {report.longrepr}"
