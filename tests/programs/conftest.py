"""The Python of switched-on scripts, and a folder for each test."""

from tests.capture.conftest import python, scripts

__all__ = ["python", "scripts"]
