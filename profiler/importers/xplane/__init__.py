"""Profiles of XLA's profiler (`*.xplane.pb`, or the view of it in `*.trace.json.gz`): JAX,
TensorFlow and torch_xla on GPUs and TPUs."""

from __future__ import annotations

import re
from pathlib import Path

from profiler.importers.importer import Importer, reader

# The first plane: its length, perhaps its id, and its name. Perfetto's traces start with 0x0a, too.
_FIRST_PLANE = re.compile(
    rb"\x0a.{1,5}?(?:\x08.{1,9}?)?\x12.(?:/host:|/device:|Task Environment)", re.DOTALL
)


_PLANE_NAME = re.compile(rb'"name"\s*:\s*"(?:/host:CPU|/device:[A-Z]+:\d+)')


def is_view(head: bytes) -> bool:
    """Whether a file that starts so is what the profiler writes for its viewer."""
    text = head.lstrip()
    return text[:1] == b"{" and b'"process_name"' in text and bool(_PLANE_NAME.search(text))


def _recognises(_path: Path, head: bytes) -> bool:
    return _FIRST_PLANE.match(head) is not None or is_view(head)


IMPORTER = Importer(
    name="xplane",
    title="XPlane",
    accepts="an XSpace of XLA's profiler (*.xplane.pb), or the view of one (*.trace.json.gz)",
    recognises=_recognises,
    read=reader(__name__),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes"}),
    seen="those of JAX on TPU v6 Lite and MI300X",
)
