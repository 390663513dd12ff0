"""Switching profiling on in this process: by its environment, or by `start()` and `done()`.

    RBLN_PROFILER=1 python inference.py

    profiler.start(ops="none")
    pipe("a cat")
    path = profiler.done()

Until the script imports a library that is profiled, nothing but the standard library is imported.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from profiler.capture.backend import notice
from profiler.capture.process import SwitchedOn, open_session
from profiler.capture.settings import Settings, environment_settings, is_on
from profiler.errors import InputError, ProfilerError

_process = SwitchedOn(open_session)


def from_environment() -> None:
    """Switch profiling on if the environment says so. Called while the interpreter starts.

    If settings are invalid, one sentence on stderr says so and the script runs unprofiled. The
    checked settings go back to the environment, for child processes. A second call changes nothing:
    Python reads the start-up files of a virtual environment twice.
    """
    if _process.asked:
        return
    _process.asked = True
    try:
        if not is_on(os.environ):
            return
        settings = environment_settings(os.environ)
    except ProfilerError as error:
        notice(f"not profiling: {error}")
        return
    settings.write_environment(os.environ)
    _process.switch_on(settings, by_environment=True)


def start(**settings: Any) -> None:
    """Profile this process from now on, until `done()` or its end: all pipelines, and all sessions
    of a runtime outside pipelines. The bundle is written below the folder `out`.

    The keywords are those of `docs/capture.md`: `out`, `name`, `ops`, `config`, `compress`; others
    come from the environment. In a process that is switched on already this changes nothing, unless
    other settings are given: those win over the environment's and start a new run. Child processes
    are switched on by the environment alone. Raises InputError for settings that cannot be used,
    and if an earlier `start` gave others.
    """
    base = environment_settings(os.environ)
    wanted = Settings.of({**base.given(), **settings}).absolute()
    if _process.settings is not None:
        if not settings or wanted == _process.settings:
            return
        if not _process.by_environment:
            raise InputError(
                "profiling was started with other settings: call profiler.done() first"
            )
        _process.switch_off()
    _process.switch_on(wanted)


def done(failure: str = "") -> Path | None:
    """End the recording that `start()` or the environment began. Returns the bundle's folder, None
    if nothing ran or profiling was off. `failure` says what ended the run early. Raises OutputError
    if the bundle cannot be written."""
    if _process.settings is None:
        return None
    return _process.switch_off(failure)


def is_switched_on() -> bool:
    """Whether this process is being recorded, by its environment or since `start()`."""
    return _process.settings is not None


def release(pipeline: Any) -> None:
    """Release a pipeline that the script puts under a `profile` of its own; it is recorded here
    again from its next use after that."""
    _process.release(pipeline)


def recording() -> Any:
    """The session that records what this process runs outside pipelines, or None."""
    return _process.recording()


def stay_out() -> None:
    """Keep this process unprofiled, whatever its environment says: it is `profile-sd3` itself. Its
    children are profiled."""
    if _process.by_environment and _process.unused:
        _process.switch_off()
