"""These tests need an environment of their own: optimum-onnx wants an older transformers.

`.ci/run` makes one and sets PROFILE_SD3_REQUIRE_OPTIMUM=1 there: what is missing is then a failure.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

from tests.conftest import REQUIRE_ALL
from tests.optimum.scripts import Scripts

REQUIRED = os.environ.get("PROFILE_SD3_REQUIRE_OPTIMUM") == "1"
REASON = (
    "these tests need an environment with optimum-onnx and profile-sd3 installed: see "
    "'Pipelines of optimum-onnx' in docs/capture.md"
)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it lies in
        return False


# The start-up module lies beside the packages where profile-sd3 is installed, not in a checkout.
READY = _installed("optimum.onnxruntime") and _installed("_profile_sd3_startup")
if REQUIRED and not READY:
    raise pytest.UsageError(f"PROFILE_SD3_REQUIRE_OPTIMUM=1, but {REASON}")
# Where everything is required but these, they are another step's: not even skipped.
collect_ignore_glob = ["test_*.py"] if REQUIRE_ALL and not READY else []


def pytest_collection_modifyitems(items):
    if not READY:
        for item in items:
            if item.nodeid.startswith("tests/optimum/"):
                item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A folder with the tiny pipelines `sd3`, `flux` and `sdxl`, as optimum has exported them, and
    `saved`, a FLUX of torch's."""
    work = tmp_path_factory.mktemp("export")
    ended = Scripts(work).run("from tests.optimum.tiny_export import export\nexport('.')\n")
    assert ended.code == 0, ended.err
    return work


@pytest.fixture
def scripts(exported, tmp_path):
    """Runs scripts in a folder in which the exported pipelines are."""
    for folder in ("sd3", "flux", "sdxl", "saved"):
        (tmp_path / folder).symlink_to(exported / folder, target_is_directory=True)
    return Scripts(tmp_path)
