"""Load plug-ins from entry points, and guard the user's program against our failures.

    for importer in plugins("profile_sd3.importers", "name", "recognises", "read"):
        ...

A plug-in that cannot be loaded is skipped with one line on stderr. Entry points are read on
use, never by `import profiler` or `--help`. `let_pass` re-raises interrupts of the user's
program. `plain_text` is the one place that removes control characters from names of traces and
models.
"""

from __future__ import annotations

import contextlib
import inspect
import opcode
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


# --- An interruption of the user's program while our code runs is passed on to the program.
#
# After `except Exception as error`, `let_pass(error)` raises the error again if the program's
# signal handler raised it; otherwise it is ours: a drop.


_RAISES = {opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]}
_WORDLESS = (MemoryError, StopIteration, StopAsyncIteration, SystemExit)
"""Exceptions that C code raises without arguments, as `sys.exit()` does."""
_CAUSES = 8  # of an error that are checked: they may form a cycle


def let_pass(error: BaseException) -> None:
    """Raise `error`, or one of its causes, if it is an interruption of the user's program (a
    handler's `TimeoutError` is an `OSError` to code that writes a file). Do nothing for an error of
    the running code: ours, a library's, or of a user's property that only we read.

    Causes are also exceptions that the running code was handling when it raised another: their
    tracebacks begin in a frame of it. Those that the user's program was handling when it called us,
    or has handled, are none.

    A function was called by an interruption if one of its arguments is the frame that it
    interrupts, as for signal handlers and trace functions. An exception set by another thread
    (`PyThreadState_SetAsyncExc`) has no such frame; it also has no arguments, and there is no
    `raise` where it occurred. Exceptions with arguments from handlers in C are not detected.
    """
    found: list[BaseException] = [error]
    running: set[FrameType] = set()
    for one in islice(found, _CAUSES):
        if not isinstance(one, Exception) or interrupts(one):
            raise one
        entry = one.__traceback__
        if entry is not None and one is error:
            entry = entry.tb_next  # of the frames below the one that caught it
        while entry is not None:
            running.add(entry.tb_frame)
            entry = entry.tb_next
        context, began = one.__context__, None
        if isinstance(context, Exception | KeyboardInterrupt) and context.__traceback__:
            began = context.__traceback__.tb_frame
        found += filter(None, (one.__cause__, context if began in running else None))


def interrupts(error: BaseException) -> bool:
    """Whether `error` is an interruption of the user's program: see `let_pass`."""
    below: FrameType | None = None
    entry = last = error.__traceback__
    while entry is not None:
        if below is not None and _was_given(entry.tb_frame, below):
            return True
        below, last, entry = entry.tb_frame, entry, entry.tb_next
    wordless = isinstance(error, _WORDLESS) or type(error).__module__ == "_queue"  # queue.Empty
    if last is None or error.args or wordless:
        return False
    return last.tb_frame.f_code.co_code[last.tb_lasti] not in _RAISES


def _was_given(frame: FrameType, below: FrameType) -> bool:
    """Whether `below` is an argument of the function that runs in `frame`."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        count += 1
    given = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    return any(
        value is below or (type(value) is tuple and any(one is below for one in value))
        for value in given
    )


def error_text(error: BaseException) -> str:
    """`error` as "ValueError: …"; its type alone if it has no text, or fails to say it."""
    try:
        text = str(error)
    except Exception as failed:  # noqa: BLE001 - the exception may be the program's own
        let_pass(failed)
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# --- Printable names: text of a trace or a model must not control a terminal or page.
#
# This is the one place that decides which characters are removed: control characters, and with them
# all escape sequences (colours, links by OSC 8, the clipboard by OSC 52), line breaks, marks of
# text direction, characters without width, and unpaired surrogates.


_NO_BREAK = "\N{NO-BREAK SPACE}"  # between a number and its unit
_STAND_IN = "\N{REPLACEMENT CHARACTER}"


def plain_text(text: str, instead: Callable[[str], str] | None = None) -> str:
    """`text` as one line without hidden characters; a run of unprintable ones becomes one �, or
    each of them `instead(character)`. No-break spaces stay."""
    if text.isprintable():
        return text
    found: list[str] = []
    for character in text:
        if character.isprintable() or character == _NO_BREAK:
            found.append(character)
        elif instead is not None:
            found.append(instead(character))
        elif found[-1:] != [_STAND_IN]:
            found.append(_STAND_IN)
    return "".join(found)


# --- Plug-ins: objects that other packages register under an entry point group of ours.


@cache
def plugins(group: str, *needs: str) -> tuple[Any, ...]:
    """The objects registered under `group`, sorted by name. Those that cannot be loaded or lack an
    attribute of `needs` are left out, each with one line on stderr."""
    if not _may_have(group):
        return ()
    # This import takes a fifth of the time of `--help`, which needs no plug-in.
    from importlib.metadata import entry_points

    found = []
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        try:
            plugin = point.load()
            missing = [need for need in needs if not hasattr(plugin, need)]
        except (Exception, SystemExit) as error:  # whatever its module does
            if interrupts(error):
                raise
            _leave_out(point, group, f"cannot be loaded ({type(error).__name__}: {error})")
            continue
        if missing:
            _leave_out(point, group, f"has no {missing[0]}")
        else:
            found.append(plugin)
    return tuple(found)


def _may_have(group: str) -> bool:
    """Whether an installed package may have entry points of `group`, by the text of their files:
    `entry_points` takes five times as long, because it parses those of all packages."""
    mark = f"[{group}]".encode()
    for place in map(str, sys.path):
        if os.path.isfile(place) or place.endswith(".egg"):  # noqa: PTH113 - it never raises
            return True  # packed: not looked into
        with contextlib.suppress(OSError, ValueError), os.scandir(place or ".") as entries:
            for entry in entries:
                if entry.name.endswith((".dist-info", ".egg-info")):
                    with contextlib.suppress(OSError):
                        if mark in Path(entry.path, "entry_points.txt").read_bytes():
                            return True
    return False


def _leave_out(point: EntryPoint, group: str, why: str) -> None:
    """Report a plug-in that is not used on stderr, if there is one."""
    package = point.dist.name if point.dist else point.module
    line = f"profile-sd3: the plug-in {point.name} ({group}) of {package} {why} and is left out: "
    line += f"update {package} or uninstall it"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(plain_text(" ".join(line.split())) + "\n")
        sys.stderr.flush()


# --- Former names of modules, which programs and plug-ins may import: forwarded for one release.


_MOVED = {
    "profiler._version": "profiler.trace",
    "profiler.analysis.comparison.compare": "profiler.compare.compare",
    "profiler.analysis.prediction.predict": "profiler.prediction.predict",
    "profiler.analysis.prediction.scenario": "profiler.prediction.scenario",
    "profiler.analysis.registry": "profiler.analysis.question",
    "profiler.analysis.table": "profiler.analysis.question",
    "profiler.analysis.work": "profiler.analysis.flops",
    "profiler.bootstrap": "profiler.trace.bootstrap",
    "profiler.events": "profiler.trace.events",
    "profiler.export": "profiler.tools.export",
    "profiler.grammars.parsed": "profiler.grammars.names",
    "profiler.graph.netron_server": "profiler.graph.netron",
    "profiler.graph.optimize.optimizers": "profiler.graph.optimize.files",
    "profiler.metrics": "profiler.tools.metrics",
    "profiler.model_layouts": "profiler.pipelines.model_layouts",
    "profiler.onnx_targets": "profiler.pipelines.model_folder",
    "profiler.options": "profiler.text",
    "profiler.perfetto_ui": "profiler.tools.perfetto_ui",
    "profiler.pipelines.classes": "profiler.pipelines.pipeline",
    "profiler.pipelines.tiny.build": "profiler.graph.tiny_model",
    "profiler.query": "profiler.tools.query",
    "profiler.redaction": "profiler.trace.redaction",
    "profiler.share": "profiler.tools.share",
    "profiler.sources": "profiler.tools.sources",
    "profiler.capture.testing": "profiler.capture.profile",
    "profiler.testing": "profiler.capture.profile",
    "profiler.table.columns": "profiler.run.columns",
    "profiler.workbench.annotating": "profiler.graph.annotate",
    "profiler.workbench.comparing": "profiler.graph.compare",
}


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, which imports names on first use. `homes` has the
    names in each of its modules, as one text."""
    home = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


def moved_module(name: str) -> ModuleSpec | None:
    """The specification of a module that has moved, or of a package that contained some, else None.
    Importing a moved module gives a DeprecationWarning."""
    packages = any(old.startswith(f"{name}.") for old in _MOVED)
    if name not in _MOVED and not packages:
        return None
    return ModuleSpec(name, _Forwarding(), is_package=packages)  # type: ignore[arg-type]


class _Forwarding:
    """Loads a module that has moved, under its former name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module under its present name; None for a package, which is created."""
        new = _MOVED.get(spec.name)
        if new is None:
            return None
        warnings.warn(f"{spec.name} is {new} now", DeprecationWarning, stacklevel=2)
        forwarded = ModuleType(spec.name)
        forwarded.__dict__.update(vars(import_module(new)))
        return forwarded

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has been executed under its present name."""
