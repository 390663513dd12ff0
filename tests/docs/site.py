"""The site of the documentation, built as `.ci/run` builds it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY

__all__ = ["build_site"]


def build_site(folder: Path) -> Path:
    """Build it below `folder`; a warning, as of a link that leads nowhere, is an error.

    Skips where mkdocs is missing.
    """
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is missing: install the docs extra")
    site = folder / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return site
