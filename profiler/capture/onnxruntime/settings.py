"""How a session of ONNX Runtime is set up: types of weights and inputs, providers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from profiler.capture.onnxruntime.session_swap import model_path_of, opened_session
from profiler.capture.onnxruntime.weights import model_weights
from profiler.errors import InputError
from profiler.interruptions import let_pass
from profiler.trace.manifest_settings import SubmoduleSettings, WeightType

__all__ = ["session_settings"]

_LONGEST = 200  # characters of an option


def session_settings(part: Any) -> SubmoduleSettings:
    """The settings of a part; inputs and providers are known once its session is open."""
    session = opened_session(part)
    inputs = session.get_inputs() if session is not None else ()
    options = session.get_provider_options() if session is not None else {}
    return SubmoduleSettings(
        weights=_weights(part),
        inputs={one.name: _element_type(one.type) for one in inputs},
        providers={
            name: {key: str(value)[:_LONGEST] for key, value in given.items()}
            for name, given in options.items()
        },
    )


def _element_type(text: str) -> str:
    """`float16` of "tensor(float16)"; ONNX Runtime calls float32 float, and float64 double."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)


def _weights(part: Any) -> dict[str, WeightType]:
    """From the model's file, which is read once; none of a model that is no file."""
    path = model_path_of(part)
    try:
        known = path.stat() if path is not None else None
        if path is None or known is None:
            return {}
        return dict(_of_file(path, known.st_mtime_ns, known.st_size))
    except (OSError, InputError) as error:
        let_pass(error)
        return {}


@lru_cache(maxsize=64)
def _of_file(path: Path, _changed: int, _size: int) -> tuple[tuple[str, WeightType], ...]:
    found = model_weights(path)
    total = found.total_bytes
    ordered = sorted(found.by_type.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple((n, WeightType(bytes=size, share=size / total)) for n, size in ordered if size)
