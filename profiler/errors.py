"""The errors a user can meet; `cli` turns each into one sentence and exit code 2.

    ProfilerError
    ├── InputError     what was given cannot be read or used as asked
    │   └── MissingPackageError   … without a package that is not installed; an ImportError, too
    └── OutputError    the result cannot be written where it was asked for

Every message says what is wrong, where, and what to do about it, in one sentence.
"""

from __future__ import annotations

__all__ = ["InputError", "MissingPackageError", "OutputError", "ProfilerError"]


class ProfilerError(Exception):
    """Base of every error that profile-sd3 raises on purpose."""


class InputError(ProfilerError):
    """What was given (a path, a trace, a model folder, an option) cannot be used."""


class MissingPackageError(InputError, ImportError):
    """What was asked for needs a package that is not installed."""


class OutputError(ProfilerError):
    """A result cannot be written to the place that was asked for."""
