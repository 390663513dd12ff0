"""Profiled ONNX Runtime sessions in place of a part's own: opened like it, lent, taken back."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

from profiler.errors import InputError

__all__ = [
    "Lending",
    "copied_options",
    "model_of",
    "model_path_of",
    "open_profiled",
    "opened_session",
]


def opened_session(part: Any) -> Any:
    """The session that `part` has open, None where it would open one on first use."""
    return getattr(part, "opened_session", None) if hasattr(part, "open_session") else part.session


class Lending:
    """Sessions of ours in place of a part's `own`, which it has open or opens on first use (None).
    A session that somebody else puts there meanwhile stays there."""

    def __init__(self, part: Any, own: Any) -> None:
        self._part = part
        self._own = own
        self._placed: Any = None

    def lend(self, session: Any) -> None:
        """Have the part run on `session` from now on, whatever it ran on."""
        self._placed = session
        self._part.session = session

    def put(self, session: Any) -> None:
        """Have the part run on `session` from now on."""
        if self._is_in_place():
            self._part.session = self._placed = session

    def give_back(self) -> None:
        """Leave the part with its own session."""
        if self._placed is None or not self._is_in_place():
            return
        if self._own is None:
            del self._part.session
        else:
            self._part.session = self._own

    def _is_in_place(self) -> bool:
        try:
            return opened_session(self._part) is self._placed
        except AttributeError:  # the part is gone
            return False


def open_profiled(part: Any, own: Any, prefix: Path, optimized: Path | None) -> Any:
    """A new session of `part` with profiling on, which takes what belongs to the part's `own`: None
    where it has none open, but opens one itself. Writes the optimized graph where asked.

    Raises InputError where the part profiles its session itself: its runs would be missing there.
    """
    import onnxruntime

    opens = hasattr(part, "open_session")
    options = part.session_options() if opens else copied_options(own)
    if options.enable_profiling:
        raise InputError(
            "ONNX Runtime's own profiling is on in its session: switch off enable_profiling there, "
            "or use activate_profiler=False"
        )
    _profile(options, prefix, optimized)
    if opens:
        session = part.open_session(options)
    else:
        providers = list(own.get_provider_options().items())
        session = onnxruntime.InferenceSession(model_of(part), options, providers=providers)
    _take_what_belongs_to(session, own)
    return session


def copied_options(session: Any) -> Any:
    """A copy of the options that a session was made with."""
    options = session._sess.session_options  # noqa: SLF001 - the public ones are no copy
    options.optimized_model_filepath = ""
    return options


def model_of(part: Any) -> Path | bytes:
    """The model behind a part: a path, or bytes where a session was made from bytes. Raises
    InputError where it tells neither."""
    path = model_path_of(part)
    if path is not None:
        return path
    source = getattr(getattr(part, "session", None), "_model_bytes", None)
    if source is None:
        raise InputError(f"{part!r} tells neither path nor bytes of its model: set model_path")
    return bytes(source)


def model_path_of(part: Any) -> Path | None:
    """Where the model of a part lies; None where it does not tell: its session was made from
    bytes, or it is a torch module."""
    session = None if hasattr(part, "open_session") else getattr(part, "session", None)
    # Of optimum's parts the session is asked first: their own `model_path` warns of its end.
    path = getattr(session, "_model_path", None) or getattr(part, "model_path", None)
    return Path(path) if path else None


def _profile(options: Any, prefix: Path, optimized: Path | None) -> None:
    options.enable_profiling = True
    options.profile_file_prefix = str(prefix)
    options.log_severity_level = 3  # it warns that an optimized graph fits this machine only
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name",
            f"{optimized.name}.data",
        )


def _take_what_belongs_to(session: Any, own: Any) -> None:
    """Have `session` run with the bindings and values of the `own` session, and make such.

    ONNX Runtime checks in Python that an `IOBinding` and a session's `OrtValue` go to the session
    that made them. A part keeps its bindings, from before the run or for after it.
    """
    itself = weakref.ref(session)  # no cycle: it has to go when it is renewed, not when gc comes by

    def run_with_iobinding(iobinding: Any, run_options: Any = None) -> None:
        running = itself()
        if running is not None:
            running._sess.run_with_iobinding(iobinding._iobinding, run_options)  # noqa: SLF001

    session.run_with_iobinding = run_with_iobinding
    session._validate_ortvalue_ownership = lambda _: None  # noqa: SLF001
    for name in ("io_binding", "create_ortvalue_from_shape_and_type"):
        if hasattr(own, name):
            setattr(session, name, getattr(own, name))
