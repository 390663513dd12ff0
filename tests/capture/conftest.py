"""Python with the start-up files, made once; each test has a folder of its own in it."""

from __future__ import annotations

import pytest

from tests.capture.switched_on import Environment


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def scripts(python, tmp_path):
    return python.at(tmp_path)
