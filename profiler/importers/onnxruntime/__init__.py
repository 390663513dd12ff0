"""Profiles that ONNX Runtime wrote without us: a file a session, or a folder of them."""

from __future__ import annotations

from pathlib import Path

from profiler.importers.importer import Importer, head_of, reader

_SESSION = (b'"model_loading', b'"session_initialization"', b'"model_run"')
_NODE = (b'"op_name"', b'"provider"')


def profiles_in(folder: Path) -> list[Path]:
    """The profiles that lie in a folder, by name."""
    files = (path for path in folder.iterdir() if path.is_file())
    named = (path for path in files if path.name.endswith((".json", ".json.gz")))
    return sorted(path for path in named if _is_profile(head_of(path)))


def _is_profile(head: bytes) -> bool:
    array = head.lstrip()[:1] == b"[" and b'"cat"' in head
    return array and (any(name in head for name in _SESSION) or all(n in head for n in _NODE))


def _recognises(path: Path, head: bytes) -> bool:
    return bool(profiles_in(path)) if path.is_dir() else _is_profile(head)


IMPORTER = Importer(
    name="onnxruntime",
    title="ONNX Runtime",
    accepts="a profile of ONNX Runtime (.json or .json.gz), or a folder with those of a run",
    recognises=_recognises,
    read=reader(__name__),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes"}),
    seen="1.32, and a build of 2022 with fences; kernels of GPUs by their sources alone",
)
