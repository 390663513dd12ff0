"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# Reproducible everywhere, and blind to how fast the machine is.
settings.register_profile("project", deadline=None, derandomize=True)
# Looks further: pytest --hypothesis-profile=thorough
settings.register_profile("thorough", deadline=None, max_examples=5000)
settings.load_profile("project")
