"""ONNX models profiled in turn, two at a time, on the same inputs: one bundle a side.

    folders = profile_in_turn([pair], Path("traces"), ("a", "b"), repeats=10)

Each pair runs base, new, base, new, …, so that what changes meanwhile (clocks, other processes)
meets both. Of each side's calls every second has its operators traced; the others run as if nobody
traced, and tell what tracing costs. A pair's models are loaded while it runs, no longer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.capture.onnxruntime.bare_run import BareRun, run_to_its_end
from profiler.capture.onnxruntime.bare_session import BareSession
from profiler.capture.operator_source import SourceRequest
from profiler.capture.options import Options
from profiler.capture.registry import open_source
from profiler.capture.run_info import part_facts
from profiler.capture.session import Session
from profiler.errors import InputError
from profiler.trace.bundle import WORK_NAME

__all__ = ["ModelPair", "calls_of", "profile_in_turn", "submodule_name"]

_OPS = "every:2"
_WARMUP = 4  # runs of each model, two of either kind


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Two models that are compared as `submodule`; `inputs` makes the arrays by name that both
    run on."""

    submodule: str
    base: Path
    new: Path
    inputs: Callable[[], Mapping[str, Any]]


def calls_of(repeats: int) -> int:
    """The calls of each model: the first and `repeats` more of either kind."""
    return 2 * repeats + 2


def submodule_name(text: str) -> str:
    """`text` as a submodule and its files can be called: letters, digits, `_`, `.` and `-`."""
    return re.sub(r"[^\w.\-]+", "_", text, flags=re.ASCII).strip("._-")[:80] or "model"


def profile_in_turn(
    pairs: Iterable[ModelPair],
    out: Path,
    titles: tuple[str, str],
    *,
    repeats: int,
    on_run: Callable[[], None] = lambda: None,
) -> tuple[Path, Path]:
    """The bundles of both sides, written below `out`, called by date and `titles`.

    Of each model the first call with operators and the first without stand apart in comparisons; of
    the others `repeats` are traced and as many are not. `on_run` is called after each run. Raises
    InputError where ONNX Runtime does not take a model or fails on the inputs; then no bundle is
    left.
    """
    sides = [Session.open(Options(_OPS), out, title=title) for title in titles]
    try:
        for pair in pairs:
            _profile(pair, sides, repeats, on_run)
    except BaseException:
        for side in sides:
            _discard(side)
        raise
    base, new = (side.close() for side in sides)
    if base is None or new is None:
        raise InputError("there is no model to run: give two models, or folders with such")
    return base, new


def _profile(
    pair: ModelPair, sides: list[Session], repeats: int, on_run: Callable[[], None]
) -> None:
    inputs = dict(pair.inputs())
    models = [
        _ProfiledModel(side, path, pair.submodule)
        for side, path in zip(sides, (pair.base, pair.new), strict=True)
    ]
    try:
        with sides[0].warmup(), sides[1].warmup():
            for _ in range(_WARMUP):
                for model in models:
                    model.run(inputs)
        for _ in range(calls_of(repeats)):
            for model in models:
                model.run(inputs)
                on_run()
    finally:
        for model in models:
            model.close()


def _discard(side: Session) -> None:
    """Close a session of which no bundle shall stay."""
    import shutil

    path = side.close()
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)


class _ProfiledModel:
    """A model in the bundle of `side`: its session, and what traces its operators."""

    def __init__(self, side: Session, path: Path, submodule: str) -> None:
        self._side, self._path = side, path
        self._session = _open(path)
        self._bare = BareSession(self._session, submodule)
        folder = side.directory / WORK_NAME
        folder.mkdir(exist_ok=True)
        side.describe(part_facts(submodule, self._bare, self._bare.device, traced=True))
        selection = Options(_OPS).selection(submodule)
        self._bare.source = open_source(
            SourceRequest(
                submodule,
                self._bare,
                self._bare.device,
                folder,
                side.recorder,
                selection=selection,
            )
        )
        assert self._bare.source is not None
        side.add_source(self._bare.source, submodule, lambda: self._bare.gone)

    def run(self, inputs: Mapping[str, Any]) -> None:
        """One call. Raises InputError where the model fails on the inputs."""
        session = self._session
        arguments = {"self": session, "output_names": None, "input_feed": inputs}
        run = BareRun(self._side, self._bare, session, "run", type(session).run, arguments)
        run.begin()
        try:
            run_to_its_end(run)
        except Exception as error:  # ONNX Runtime's errors have no common class
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
            raise InputError(
                f"{self._path} does not run on inputs {shapes} ({_first_line(error)}): give sizes "
                "that it takes for its symbolic dimensions"
            ) from error

    def close(self) -> None:
        """Trace no more, and let go of the model; its operators are written with the next one's."""
        self._bare.source.close()
        self._session = None


def _open(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Threads of one session that wait by spinning would take the cores of the other.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above
        raise InputError(
            f"ONNX Runtime does not take {path} ({_first_line(error)}): profiled is what it runs"
        ) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
