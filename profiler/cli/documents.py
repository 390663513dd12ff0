"""Documents that commands write: JSON, Markdown; to a file that appears whole, or to stdout for
`-`. What cannot be written is refused before any work."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from profiler.errors import OutputError
from profiler.plugins import plain_text

__all__ = ["STDOUT", "check_documents", "check_output", "write_json", "write_text"]

STDOUT = Path("-")
_ESCAPED = "profile_sd3_escaped"


def check_documents(
    documents: Mapping[str, Path | None],
    *,
    inputs: Iterable[Path] = (),
    outputs: Mapping[str, Path | None] | None = None,
) -> None:
    """Refuse what would be lost or cannot be written; `documents` by option, and by argument or
    option the other `outputs` of the command.

    Raises OutputError where two of them are one file, or a document is part of a trace, one of
    `inputs`, a folder, or in a folder that is not there or may not be written to.
    """
    from profiler.files import same_file

    sources = list(inputs)
    options = {path: option for option, path in (outputs or {}).items() if path is not None}
    for option, path in documents.items():
        if path is None:
            continue
        if path in options:
            raise OutputError(f"{options[path]} and {option} both name {path}: give two files")
        options[path] = option
        if path != STDOUT:
            check_output(path)
            _check_place(option, path)
            if any(same_file(path, source) for source in sources):
                raise OutputError(
                    f"{option} {path} is an input, which is never written over: give another name"
                )


def check_output(path: Path | None) -> None:
    """Raises OutputError where `path` names what is a trace and no report: a `.pb`, a manifest, or
    a file of a run that was written as Parquet."""
    if path is None:
        return
    if path.suffix == ".pb" or path.name == "manifest.json" or _of_parquet_run(path):
        raise OutputError(f"{path} is part of a trace: give another file to write to")


def write_json(path: Path, text: str) -> None:
    r"""Write JSON text; on stdout what its encoding lacks, and what a terminal would act on, as
    `\uXXXX`, which is the same JSON. Raises OutputError where it cannot be written."""
    if path == STDOUT:
        encoding = sys.stdout.encoding
        codecs.register_error(_ESCAPED, _escape)
        text = "\n".join(plain_text(line, _as_escape) for line in text.split("\n"))
        text = text.encode(encoding, _ESCAPED).decode(encoding)
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write text, to a file in UTF-8. Raises OutputError where it cannot be written."""
    from profiler.files import write_atomically

    if path == STDOUT:
        sys.stdout.write(text)
    else:
        write_atomically(path, text.encode(), sync=True)


def _check_place(option: str, path: Path) -> None:
    if path.is_dir():
        raise OutputError(f"{option} {path} is a folder: give the name of a file to write")
    if not path.parent.is_dir():
        raise OutputError(f"{option} {path}: {path.parent} is no folder: make it, or give another")
    if not os.access(path.parent if not path.exists() else path, os.W_OK):
        raise OutputError(f"{option} {path} may not be written: give a place where you may write")


def _of_parquet_run(path: Path) -> bool:
    """Whether `write_parquet` wrote the file of that name."""
    if path.suffix not in (".json", ".parquet"):
        return False
    from profiler.run.load import FILES, is_parquet_run

    return path.name in FILES and is_parquet_run(path.parent)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return _as_escape(error.object[error.start : error.end]), error.end


def _as_escape(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs)
