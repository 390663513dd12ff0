"""What is asked of an input: commands in this process, and their output and files as text."""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from profiler.cli.main import run
from tests.golden.masks import environment, masked, settle, without_chance
from tests.golden.page import digest, page_parts

__all__ = ["Asked", "files_as_text", "table_as_text"]

_SHOWN_ROWS = 60  # of a table: of the others a digest for each column
_FEW_ROWS = 2  # where the same table stands in JSON


@dataclass
class Asked:
    """Commands that were run in `folder`, and what came out, by name of output."""

    folder: Path
    outputs: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: object, columns: int = 100) -> str:
        """Exit code, stdout and stderr of `profile-sd3 ARGUMENTS`, in the folder."""
        with _stream() as out, _stream() as err:
            with _as_user(arguments, environment(columns, self.folder), self.folder, out, err):
                code = _exit_code()
            texts = [_whole(stream) for stream in (out, err)]
        return f"exit code {code}\n--- stdout\n{texts[0]}\n--- stderr\n{texts[1]}"

    def ask(self, name: str, *arguments: object, columns: int = 100) -> None:
        """Keep what a command prints as `name`."""
        self.keep(name, self.run(*arguments, columns=columns))

    def keep(self, name: str, text: str) -> None:
        """Keep a text, masked."""
        self.outputs[name] = masked(text, self.folder)

    def keep_file(self, name: str, path: str, *, page: bool = False) -> None:
        """Keep the content of a file that a command may have written, and remove it."""
        place = self.folder / path
        if not place.is_file():
            self.keep(name, "not written")
        elif page:
            for part, text in page_parts(place.read_text("utf-8")).items():
                self.keep(f"{name}/{part}", text)
        elif place.suffix == ".json":
            for part, text in _document_parts(place.read_text("utf-8")).items():
                self.keep(f"{name}/{part}", text)
        else:
            self.keep(name, place.read_text("utf-8", "surrogateescape"))
        place.unlink(missing_ok=True)

    def analyze(self, path: str, *more: object) -> None:
        """All that `analyze` prints and writes about `path`."""
        files = ("--json", "a.json", "--csv", "csv", "--parquet", "parquet", "--html", "a.html")
        self.ask("full.120", "analyze", path, "--full", *files, *more, columns=120)
        self.keep_file("json", "a.json")
        self.keep_file("page", "a.html", page=True)
        for name, text in files_as_text(self.folder, ("csv", "parquet")).items():
            self.keep(name, text)
        if (self.folder / path / "summary.json").is_file():  # beside bundles, not Parquet runs
            self.keep_file("summary", f"{path}/summary.json")
        for columns in (60, 80, 120):
            self.ask(f"short.{columns}", "analyze", path, "--no-html", *more, columns=columns)

    def bring_in(self, paths: Sequence[str], options: Mapping[str, str]) -> str:
        """Import files; the bundle, whose manifest then has a fixed moment in it."""
        given = [word for key, value in options.items() for word in (f"--{key}", value)]
        self.ask("import", "import", *paths, "--out", "made", "--name", "imported", *given)
        bundle = self.folder / "made" / "imported"
        manifest = bundle / "manifest.json"
        if manifest.is_file():
            settle(bundle)
            self.keep("import/manifest", manifest.read_text("utf-8"))
            files = sorted(one for one in bundle.iterdir() if one.suffix == ".pb")
            sizes = (f"{one.name}: {digest(one.read_bytes())}" for one in files)
            self.keep("import/files", "\n".join(sizes))
        return "made/imported"


@contextmanager
def _as_user(
    arguments: Sequence[object], variables: Mapping[str, str], folder: Path, out: Any, err: Any
) -> Iterator[None]:
    """This process as a shell would start one: arguments, variables, folder and streams."""
    given, where = dict(os.environ), Path.cwd()
    before = {name: getattr(sys, name) for name in ("stdout", "stderr", "argv")}
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.stdout, sys.stderr = out, err
    sys.argv = ["profile-sd3", *map(str, arguments)]
    try:
        with without_chance():
            yield
    finally:
        for name, value in before.items():
            setattr(sys, name, value)
        os.environ.clear()
        os.environ.update(given)
        os.chdir(where)


def _stream() -> Any:
    """A file: the command line also wants the number of its streams."""
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape")


def _exit_code() -> object:
    try:
        run()
    except SystemExit as stopped:
        return stopped.code or 0
    except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
        return f"none: {type(error).__name__}"  # its text is polars' and counts its own pieces
    return 0


def _whole(stream: Any) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


def files_as_text(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The tables that were written into folders of those names, by folder and name."""
    found = {}
    for path in sorted(one for name in names for one in (folder / name).glob("*")):
        name = f"{path.parent.name}/{path.stem}"
        if path.suffix == ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                head, *rows = csv.reader(file)
            found[name] = table_as_text(dict.fromkeys(head, ""), rows, _FEW_ROWS)
        elif path.suffix == ".parquet":
            frame = pl.read_parquet(path)
            types = {key: str(dtype) for key, dtype in frame.schema.items()}
            found[name] = table_as_text(types, frame.rows(), _FEW_ROWS)
        else:
            found[name] = path.read_text("utf-8")
        path.unlink()
    return found


def _document_parts(text: str) -> dict[str, str]:
    """A JSON document by its first keys; lists of rows as tables, and how the text begins."""
    document = json.loads(text)
    if not isinstance(document, dict):
        return {"": json.dumps(document, indent=1, ensure_ascii=False)}
    head = f"{len(text.splitlines())} lines\n{text[:60]}\n{', '.join(document)}"
    found = {"": head}
    for key, value in document.items():
        if isinstance(value, list) and len(value) > 1 and isinstance(value[0], dict):
            names = list(dict.fromkeys(name for row in value for name in row))
            rows = [[row.get(name, "<none>") for name in names] for row in value]
            found[key] = table_as_text(dict.fromkeys(names, ""), rows, _SHOWN_ROWS)
        else:
            found[key] = json.dumps(value, indent=1, ensure_ascii=False)
    return found


def table_as_text(types: Mapping[str, str], rows: Sequence[Sequence[Any]], shown: int) -> str:
    """How many rows, a line a column with type and digest of all values, and the first rows.

    Floats have 12 digits: the last ones of a mean differ between processors."""
    rows = [[float(f"{x:.12g}") if isinstance(x, float) else x for x in row] for row in rows]
    lines = [f"{len(rows)} rows"]
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    for (name, dtype), values in zip(types.items(), columns, strict=True):
        lines.append(f"{name} {dtype} {digest(repr(values))}")
    lines += [json.dumps(list(row), ensure_ascii=False, default=str) for row in rows[:shown]]
    return "\n".join(lines)
