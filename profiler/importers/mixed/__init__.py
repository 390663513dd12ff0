"""A folder with files of several recorders: one run, if their clocks relate.

No importer of its own: it has no `IMPORTER`, since it needs all the others. `registry` makes one of
them where a folder holds files that no single importer reads together.
"""

from __future__ import annotations

NAME = "mixed"
ACCEPTS = "a folder with files of several of these that are of one run"
