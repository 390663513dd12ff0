"""XSpaces of XLA's profiler (`*.xplane.pb`): JAX, TensorFlow and torch_xla on GPUs and TPUs."""

from __future__ import annotations

import re
from pathlib import Path

from profiler.importers.importer import Importer, reader

# The first plane: its length, perhaps its id, and its name. Perfetto's traces start with 0x0a, too.
_FIRST_PLANE = re.compile(
    rb"\x0a.{1,5}?(?:\x08.{1,9}?)?\x12.(?:/host:|/device:|Task Environment)", re.DOTALL
)


def _recognises(_path: Path, head: bytes) -> bool:
    return _FIRST_PLANE.match(head) is not None


IMPORTER = Importer(
    name="xplane",
    title="XPlane",
    accepts="an XSpace of XLA's profiler (jax.profiler, tf.profiler: *.xplane.pb)",
    recognises=_recognises,
    read=reader(__name__),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes"}),
    seen="those of JAX on TPU v6 Lite and MI300X",
)
