"""A model folder in the diffusers/optimum ONNX layout: model_index.json and a folder per part.

What model_index.json says is used only to learn which parts exist and of which class they are; no
path is ever made from it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from profiler.errors import InputError

__all__ = ["ModelFolder", "Settings", "read_json"]

_RUNTIME = "ORT"  # before the names of optimum's classes


def read_json(path: Path) -> dict[str, object]:
    """Return the JSON object in `path`; raises `InputError` if it is missing or something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing; export the model again or copy it whole") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); fetch it again") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object; fetch it again")
    return content


@dataclass(frozen=True)
class Settings:
    """The content of one JSON settings file, read with checks; `source` is named in errors."""

    source: Path
    values: Mapping[str, object]

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Read the file; raises `InputError` as `read_json` does."""
        return cls(path, read_json(path))

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a positive integer; raises `InputError` if it is absent without default."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{key} in {self.source} must be a positive integer, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number; raises `InputError` if it is absent without default."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{key} in {self.source} must be a number, not {value!r}")
        return float(value)

    def flag(self, key: str) -> bool:
        """Return a truth value, false if absent; raises `InputError` for anything else."""
        value = self.values.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise InputError(f"{key} in {self.source} must be true or false, not {value!r}")
        return value


class ModelFolder:
    """A model folder of the pipeline `class_name`, "" for any.

    Raises `InputError` if there is no such folder, or model_index.json is missing, malformed or
    of another pipeline.
    """

    def __init__(self, path: Path | str, class_name: str = "") -> None:
        """Read model_index.json; nothing else is opened."""
        self.path = Path(path)
        if not self.path.is_dir():
            raise InputError(f"{self.path} is not a folder; name one that holds model_index.json")
        index_path = self.path / "model_index.json"
        if not index_path.is_file():
            raise InputError(
                f"{index_path} is missing; name a folder in the layout that "
                "`optimum-cli export onnx --model … FOLDER` writes"
            )
        self.index = read_json(index_path)
        if class_name and self.pipeline_class != class_name:
            held = str(self.index.get("_class_name"))[:80]
            raise InputError(f"{self.path} holds a {held!r}; this pipeline runs {class_name} only")

    @property
    def pipeline_class(self) -> str:
        """Its class as diffusers calls it, "" where model_index.json has no name."""
        name = self.index.get("_class_name")
        return name.removeprefix(_RUNTIME) if isinstance(name, str) else ""

    def has(self, component: str) -> bool:
        """Say whether model_index.json lists `component`, rather than null or nothing."""
        entry = self.index.get(component)
        return isinstance(entry, list) and len(entry) == 2 and entry[1] is not None

    def class_name(self, component: str) -> str | None:
        """Return the class that model_index.json gives for `component`, if any."""
        entry = self.index.get(component)
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str):
            return entry[1]
        return None

    def model_path(self, part: str) -> Path:
        """Return `<part>/model.onnx`; raises `InputError` if there is no such file."""
        path = self.path / part / "model.onnx"
        if not path.is_file():
            raise InputError(
                f"{part}/model.onnx is missing from {self.path}; export the model again with "
                "`optimum-cli export onnx`, or copy the folder whole"
            )
        return path

    def settings(self, part: str, name: str = "config.json") -> Settings:
        """Read `<part>/<name>`; raises `InputError` if it is missing or malformed."""
        return Settings.read(self.path / part / name)
