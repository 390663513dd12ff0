"""A session that the script runs by itself, as operator sources want a part; and its name."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profiler.capture.onnxruntime.session_swap import copied_options
from profiler.interruptions import let_pass
from profiler.ort_profiles.providers import device_of_session

__all__ = ["BareSession", "model_name"]


class BareSession:
    """A session of the script: `session` is what runs, this object for the script's own, or what a
    source has put in its place. `source` is that source, None where nothing traces."""

    def __init__(self, session: Any, submodule: str) -> None:
        self.script_session: Callable[[], Any] = weakref.ref(session)
        self._model_bytes = getattr(session, "_model_bytes", None)
        self.submodule = submodule
        self.device = device_of_session(session)
        self.refused = False  # it is not to be recorded
        self.recommendation = "give the session providers there"  # where that is another device
        self.session: Any = self
        self.source: Any = None
        self.lock = threading.RLock()  # held while a source is told of a run that begins
        path = getattr(session, "_model_path", None)
        self.model_path = Path(path) if path else None  # None: made from bytes

    @property
    def gone(self) -> bool:
        """Whether the script has let go of the session."""
        return self.script_session() is None

    @property
    def opened_session(self) -> Any:
        """What runs: see `session`. This object stands for the script's own, since a source must
        not keep that alive; it knows the model's bytes, as a session made from bytes does."""
        return self.session

    def session_options(self) -> Any:
        """A copy of the options that the script's session was made with."""
        return copied_options(self.script_session())

    def open_session(self, options: Any) -> Any:
        """Another session of the same model on the same providers."""
        import onnxruntime

        providers = list(self.script_session().get_provider_options().items())
        model = self.model_path or self._model_bytes
        return onnxruntime.InferenceSession(model, options, providers=providers)


def model_name(session: Any) -> str:
    """The name of a session's submodule: its model's file name, or the folder's where all files
    are called model.onnx, or the graph's name where the model has no file."""
    path = getattr(session, "_model_path", None)
    if path:
        stem, folder = Path(path).stem, Path(path).absolute().parent.name
        return folder if stem == "model" and folder else stem
    try:
        return str(session.get_modelmeta().graph_name or "model")
    except Exception as error:  # noqa: BLE001 - a subclass of the script's may refuse
        let_pass(error)
        return "model"
