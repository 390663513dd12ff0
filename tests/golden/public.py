"""The public surface: help of each command, names with signatures, paths that docs tell."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.golden.questions import Asked

ROOT = Path(__file__).resolve().parents[2]
_COMMAND = re.compile(r"^  ([a-z][a-z-]*)(?:\s|$)", re.MULTILINE)
_DOTTED = re.compile(r"\bprofiler(?:\.[A-Za-z_][A-Za-z_0-9]*)+")
_IMPORTED = re.compile(r"^\s*(?:>>> )?from (profiler[\w.]*) import ([\w, ]+)", re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_GROUPS = ("importers", "backends", "grammars")


def ask_help(asked: Asked) -> None:
    """`--help` of the program and of all commands below it."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        words = waiting.pop()
        text = asked.run(*words, "--help")
        asked.keep(" ".join(("help", *words)), text)
        _, found, commands = text.partition("\nCommands:\n")
        if found:
            listed = commands.partition("--- stderr")[0]
            waiting += [(*words, name) for name in _COMMAND.findall(listed)]


def ask_names(asked: Asked) -> None:
    """What `profiler` exports, with signatures of functions, and of methods of classes."""
    import profiler

    asked.keep("exported", "\n".join(sorted(profiler.__all__)))
    for name in profiler.__all__:
        if name != "__version__":
            asked.keep(name, "\n".join(_described(getattr(profiler, name))))


def ask_plugins(asked: Asked) -> None:
    """Whether each path that docs or docstrings name is there, and its public attributes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {name: project.get(name) for name in ("scripts", "entry-points", "gui-scripts")}
    asked.keep("entry points", "\n".join(f"{name}: {told}" for name, told in groups.items()))
    sources = "".join(path.read_text("utf-8") for path in sorted((ROOT / "profiler").rglob("*.py")))
    known = [f"profile_sd3.{group}: {f'profile_sd3.{group}' in sources}" for group in _GROUPS]
    asked.keep("groups", "\n".join(known))
    for path in TOLD:
        asked.keep(path, "\n".join(_described(_found(path))))


def paths_in_docs() -> list[str]:
    """Dotted paths below `profiler` that pages for users name: to write `told.txt` anew."""
    found = set()
    for page in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]):
        if "decisions" not in page.parts:
            text = page.read_text("utf-8")
            found |= {path.rstrip(".") for path in _DOTTED.findall(text)}
            found |= {
                f"{module}.{name.strip()}"
                for module, names in _IMPORTED.findall(text)
                for name in names.split(",")
                if name.strip()
            }
    return sorted(path for path in found if _found(path) is not None)


def _found(path: str) -> Any:
    """What stands at a dotted path, None where nothing does."""
    words = path.split(".")
    for at in range(len(words), 0, -1):
        try:
            found: Any = import_module(".".join(words[:at]))
        except ImportError:
            continue
        for word in words[at:]:
            found = getattr(found, word, None)
        return found
    return None


def _described(thing: Any) -> Iterator[str]:
    if thing is None:
        yield "is not there"
    elif inspect.ismodule(thing):
        yield "module"  # what it has beside documented names may move
    elif inspect.isclass(thing):
        yield f"class{_signature(thing)}"
        for name in sorted(set(dir(thing))):
            if not name.startswith("_"):
                member = inspect.getattr_static(thing, name)
                inner = getattr(member, "__func__", member)
                told = _signature(inner) if callable(inner) else f": {type(member).__name__}"
                yield f"  {name}{told}"
    else:
        yield f"{type(thing).__name__}{_signature(thing)}" if callable(thing) else str(type(thing))


def _signature(thing: Any) -> str:
    try:
        return _ADDRESS.sub("", str(inspect.signature(thing)))
    except (TypeError, ValueError):
        return "(?)"


_TOLD = Path(__file__).parent / "told.txt"
TOLD = _TOLD.read_text("utf-8").split() if _TOLD.is_file() else []
"""The paths that docs gave when the goldens were recorded: docs may name others later."""

if __name__ == "__main__":
    _TOLD.write_text("\n".join(paths_in_docs()) + "\n", "utf-8")
