"""What an importer may do with a broken file: read what is whole, or refuse it in one sentence."""

from __future__ import annotations

from profiler.errors import InputError

__all__ = ["read_or_refused"]


def read_or_refused(read, *given, sentence="", **options):
    """What `read` gives, None where it refuses; any other error is the test's."""
    try:
        return read(*given, **options)
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    assert sentence in said
    return None
