"""`profiler.submodule("upscaler", module)`: a submodule that the script names itself."""

from __future__ import annotations

import re
from typing import TypeVar

from profiler.capture.pipelines.components import is_executed
from profiler.capture.pipelines.user_labels import give_name
from profiler.capture.session import open_sessions
from profiler.capture.startup import recording
from profiler.errors import InputError

__all__ = ["submodule"]

_T = TypeVar("_T")
_NAME = re.compile(r"[\w.\-]+")  # what `--ops` can name


def submodule(name: str, module: _T) -> _T:
    """Record the calls of `module` (a module, session or runtime) as those of the submodule
    `name`, wherever it is called while a run is being recorded; returns it. Its name wins over
    that of a pipeline that is profiled from then on. Raises InputError for a name that no submodule
    can have."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a submodule: use letters, digits, _, - and .")
    if not is_executed(module):
        raise InputError(
            f"{name} is a {type(module).__name__}, which is no module, session or runtime: "
            "give what executes the submodule"
        )
    give_name(module, name)
    own = recording()
    for session in [*open_sessions(), *([own] if own is not None else [])]:
        session.add_part(name, module)
    return module
