"""What an installation puts beside the packages, so that Python reads it while it starts."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

import pytest

from tests.capture.switched_on import STARTUP

NAMES = ["_profile_sd3_startup.py", "profile_sd3.pth", "profile_sd3.start"]


def test_the_start_up_files_lie_at_the_root_of_site_packages():
    """Those of the sources, all of them, and pip knows them, so that it removes them as well."""
    try:
        files = distribution("profile-sd3").files or []
    except PackageNotFoundError:
        pytest.skip("profile-sd3 is not installed here: pip install it")
    assert sorted(path.name for path in STARTUP.iterdir() if path.is_file()) == NAMES
    installed = {str(path): path for path in files if str(path) in NAMES}
    assert sorted(installed) == NAMES
    for name, path in installed.items():
        assert path.read_binary() == (STARTUP / name).read_bytes()
