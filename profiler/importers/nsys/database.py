"""An export of Nsight Systems, whose tables and columns exist only where something was recorded.

Source: https://docs.nvidia.com/nsight-systems/UserGuide/index.html, "SQLite schema reference".
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from profiler.importers.sqlite_file import SqliteFile, open_sqlite

__all__ = ["open_nsys", "shared_texts"]


def open_nsys(path: Path) -> AbstractContextManager[SqliteFile]:
    """The export at `path`, plain or gzip. Raises InputError where it cannot be read."""
    return open_sqlite(path, "`nsys export --type sqlite`")


def shared_texts(database: SqliteFile, ids: Iterable[int]) -> dict[int, str]:
    """What `StringIds` has for these ids; those that it lacks are left out."""
    return database.texts("StringIds", "value", ids)
