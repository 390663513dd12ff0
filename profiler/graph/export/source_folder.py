"""A local diffusers folder: its parts, and the files that go along as they are.

What model_index.json says is only compared with what is known: no path and no class comes from it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.errors import InputError
from profiler.graph.export.pipeline_parts import PartKind, find_pipeline

__all__ = ["SourceFolder", "SourcePart", "copy_files", "open_source", "read_json"]

_MOST_JSON_BYTES = 64 << 20
_BESIDES = ("scheduler", "tokenizer", "tokenizer_2", "tokenizer_3")
_COPIED = {".json", ".txt", ".model", ".jinja"}
_MOST_COPIED_BYTES = 256 << 20  # of one file: Qwen's vocabularies have some ten MB


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A part of the pipeline, and the folder with its config.json and weights."""

    kind: PartKind
    folder: Path


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """A pipeline: its folder, class, parts as far as it has them, and pixels per latent."""

    path: Path
    class_name: str
    parts: tuple[SourcePart, ...]
    scale: int

    def chosen(self, names: Sequence[str]) -> tuple[SourcePart, ...]:
        """The parts of these names, all where there is none. Raises InputError for another name."""
        have = [part.kind.submodule for part in self.parts]
        for name in names:
            if name not in have:
                raise InputError(
                    f"--parts {name}: this {self.class_name} has no such part: give some of "
                    f"{', '.join(have)}"
                )
        return tuple(p for p in self.parts if not names or p.kind.submodule in names)


def open_source(path: Path) -> SourceFolder:
    """The pipeline in the folder; no weights are looked at.

    Raises InputError where there is none, or one that is not exported.
    """
    if not path.is_dir():
        raise InputError(
            f"{path} is no folder: give a diffusers pipeline's, with model_index.json; "
            "`hf download REPOSITORY --local-dir FOLDER` fetches one"
        )
    index = read_json(path / "model_index.json")
    kinds = find_pipeline(index.get("_class_name"), path)
    parts = tuple(
        SourcePart(kind, path / kind.submodule) for kind in kinds if _listed(index, kind, path)
    )
    if not parts:
        raise InputError(f"{path / 'model_index.json'} lists no part of its pipeline: fetch it")
    for part in parts:
        read_json(part.folder / "config.json")
    return SourceFolder(path, str(index["_class_name"]), parts, _scale(path))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file. Raises InputError where it is missing or something else."""
    try:
        if path.stat().st_size > _MOST_JSON_BYTES:
            raise InputError(f"{path} has more than 64 MiB: it is no configuration")
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: copy the pipeline's folder whole") from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}): fetch it again") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object: fetch it again")
    return content


def _listed(index: dict[str, Any], kind: PartKind, path: Path) -> bool:
    """Whether the pipeline has the part. Raises InputError where it is of another class."""
    entry = index.get(kind.submodule)
    if entry is None or entry == [None, None]:
        return False
    if not isinstance(entry, list) or len(entry) != 2 or entry[1] != kind.class_name:
        found = entry[1] if isinstance(entry, list) and len(entry) == 2 else entry
        raise InputError(
            f"{path / 'model_index.json'}: {kind.submodule} is {str(found)[:80]!r} where "
            f"{kind.class_name} is exported: export this pipeline with optimum"
        )
    return True


def _scale(path: Path) -> int:
    """Pixels per latent, from the VAE's configuration; 8 where there is none."""
    if not (path / "vae" / "config.json").is_file():
        return 8
    config = read_json(path / "vae" / "config.json")
    halvings = config.get("temperal_downsample")
    blocks = config.get("block_out_channels")
    if isinstance(halvings, list):
        return int(2 ** len(halvings[:8]))
    return int(2 ** (len(blocks[:8]) - 1)) if isinstance(blocks, list) and blocks else 8


def copy_files(source: SourceFolder, parts: Sequence[SourcePart], out: Path) -> None:
    """Copy model_index.json, the parts' config.json, tokenizers and scheduler below `out`."""
    _copy(source.path, source.path / "model_index.json", out / "model_index.json")
    for part in parts:
        _copy(source.path, part.folder / "config.json", out / part.kind.out / "config.json")
    for name in _BESIDES:
        folder = source.path / name
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            if file.suffix in _COPIED and file.is_file():
                _copy(source.path, file, out / name / file.name)


def _copy(root: Path, file: Path, out: Path) -> None:
    """Copy a file of the source. Raises InputError for one that lies elsewhere, or is too large."""
    real, inside = file.resolve(), root.resolve()
    stores = [inside]
    if inside.parent.name == "snapshots":  # Hugging Face's cache: snapshots link to blobs
        stores.append(inside.parent.parent / "blobs")
    if not any(real.is_relative_to(store) for store in stores):
        raise InputError(f"{file} leads to {real}, outside {root}: copy it there")
    if real.stat().st_size > _MOST_COPIED_BYTES:
        raise InputError(f"{file} has more than 256 MiB, too much for a configuration: remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(real, out)
