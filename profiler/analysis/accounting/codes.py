"""Words of the accounting: closed sets."""

from __future__ import annotations

from profiler.text import NoteCode

__all__ = ["NoAccount"]


class NoAccount(NoteCode):
    """Why the whole time cannot be accounted for."""

    NO_SPAN = "no_span"
    NO_SPANS = "no_spans"
    HOST_FILE_MISSING = "host_file_missing"
