"""`profile-sd3 query`: SQL over runs, and the read-only questions that `mcp` serves.

    ask = Questions(Path("traces"))
    ask.list_runs()
    ask.sql("2026-11-24_a", "select submodule, count(*) from calls group by all")

Paths outside the folder, including links, are rejected. Rows, time and memory of a query are
limited.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.cli import options as shared
from profiler.cli.main import complete_runs
from profiler.cli.runs import damaged_files, left_out, not_whole, opened, other_runs
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import STDOUT, check_documents, progress, tell
from profiler.errors import InputError, OutputError
from profiler.files import plain

if TYPE_CHECKING:
    import polars as pl
    from polars import DataFrame

    from profiler.cli.commands.fleet import DatasetQueryOptions
    from profiler.run.run import Run
    from profiler.tools.query import Database
    from profiler.tools.sources import Found, Imports, Source


# --- `profile-sd3 query`: SQL over runs.


_ON_A_TERMINAL = 40  # rows
_STDIN = Path("-")


@cli_options
class QueryOptions:
    """Options of `profile-sd3 query`."""

    words: list[str] = arg(
        "[PATH...] SQL  Runs (bundles, folders of bundles, of which the newest is taken, .pb "
        "files, Parquet runs, or what `import` takes), then the query.  [default: traces]",
        default=None,
        autocompletion=complete_runs,
    )
    file: Path | None = opt("FILE  Read the query from there; -: from stdin.")
    every: bool = opt("--all  Take every bundle of a folder, not the newest only.")
    rows: int | None = shared.ANSWER_ROWS
    csv: Path | None = shared.ANSWER_CSV
    parquet: Path | None = shared.ANSWER_PARQUET
    json: Path | None = shared.ANSWER_JSON
    importing: list[str] = shared.IMPORT_OPTIONS
    out: Path | None = shared.KEPT_IMPORT
    timeout: float = shared.ANSWER_TIMEOUT
    tables: bool = opt("List tables and columns with their meaning.")


def query(options: QueryOptions) -> None:
    """Query runs in SQL (DuckDB's).

    Tables: calls, commands, commands_with_calls, counters, flows, spans, args, and those of the
    analysis; the column run names the run of each row. A query only reads, and reaches no file. It
    may use 4 GiB of memory, or half of the machine's if that is less.
    """
    from profiler.tools.query import Database, table_lines

    if options.tables:
        for line in table_lines(_width() if sys.stdout.isatty() else 100):
            sys.stdout.write(f"{line}\n")
        return
    wanted = answer_files(options)
    paths, sql = _split(options.words, options.file)
    notes: list[str] = []
    with (
        progress("reading runs"),
        opened(paths, options.importing, options.out) as (found, imports),
    ):
        sources = _sources(found, notes, every=options.every)
        database = Database(dict(_runs(sources, imports, notes)), options.timeout or None)
    for note in notes:
        tell(note, err=True)
    with database:
        answer(database, sql, wanted, options.rows)


def answer(database: Database, sql: str, wanted: dict[str, Path], rows: int | None) -> None:
    """Write the answer to the files, or print it."""
    from profiler.tools.query import at_ctrl_c

    with at_ctrl_c(database.interrupt):
        # Shows no percentage: query_progress() may wait for the query, and Ctrl-C with it.
        with progress("asking"):
            batches = database.ask(sql).batches()
            batches = chain([next(batches)], batches)
        if wanted:
            _write(batches, wanted)
        else:
            print_rows(batches, rows)


def _split(words: list[str], file: Path | None) -> tuple[list[Path], str]:
    """Return paths and SQL. Raises InputError if there is no SQL, or FILE cannot be read."""
    if file is not None:
        return [Path(word) for word in words] or [Path("traces")], _read(file)
    *before, sql = words or [""]
    if not sql.strip():
        raise InputError('give a query, such as "SELECT * FROM calls"; --tables lists the tables')
    if _is_path(sql):
        raise InputError(f"{sql} is a path: give the query behind it, or --file for one in a file")
    return [Path(word) for word in before] or [Path("traces")], sql


def _is_path(text: str) -> bool:
    """Whether there is a file or folder of that name; a query may be longer than any name."""
    try:
        return Path(text).exists()
    except OSError:
        return False


def _read(file: Path) -> str:
    if file == _STDIN:
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is no UTF-8 text: give a file with a query") from error


def answer_files(options: QueryOptions | DatasetQueryOptions) -> dict[str, Path]:
    """Return the files to write, by format. Raises OutputError, before any work, if one cannot
    be written."""
    files = {"csv": options.csv, "parquet": options.parquet, "json": options.json}
    if options.parquet == STDOUT:
        raise OutputError("--parquet - is not there: Parquet goes to a file")
    wanted = {form: path for form, path in files.items() if path is not None}
    check_documents({f"--{form}": path for form, path in wanted.items()})
    return wanted


def _runs(sources: list[Source], imports: Imports, notes: list[str]) -> Iterator[tuple[str, Run]]:
    """Yield the runs by name; further runs of the same name are called by their path. Adds remarks
    on them to `notes`."""
    from profiler.tools.sources import load_source

    taken: set[str | Path] = set()
    for source in sources:
        place = source.place
        if place.resolve() in taken:
            raise InputError(f"{place} is given twice: name every run once")
        run = load_source(imports.ready(source))
        name = str(place) if run.run_id in taken else run.run_id
        taken.update((place.resolve(), name))
        notes += not_whole(place, damaged_files(run))
        yield name, run


def _sources(found: list[Found], notes: list[str], *, every: bool) -> list[Source]:
    if every:
        notes += [line for each in found for line in left_out(each)]
        return [source for each in found for source in each.sources]
    if sys.stderr.isatty():
        notes += [line for each in found for line in other_runs(each)]
        notes += ["--all takes all"] if any(each.others for each in found) else []
    return [each.newest for each in found]


def _write(batches: Iterator[DataFrame], files: dict[str, Path]) -> None:
    from profiler.report.files import write_answer

    with nullcontext() if STDOUT in files.values() else progress("writing"):
        written = write_answer(batches, files, sys.stdout.buffer)
    sys.stdout.flush()
    for path in files.values():
        if path != STDOUT:
            tell(f"wrote {path}: {written:,} rows", err=STDOUT in files.values())


def print_rows(batches: Iterable[DataFrame], rows: int | None) -> None:
    """Print `rows` of an answer (0: all); without a number what fits on a terminal, else all."""
    from profiler.tools.query import answer_lines

    terminal = sys.stdout.isatty()
    limit = (_ON_A_TERMINAL if terminal else None) if rows is None else rows or None
    for line in answer_lines(batches, limit, _width() if terminal else None):
        sys.stdout.write(f"{line}\n")  # typer.echo would write UTF-8 if the encoding is ASCII


def _width() -> int:
    return shutil.get_terminal_size((80, 24)).columns


SUBCOMMAND = Subcommand(query, place=80, about_runs=True)


# --- The questions that programs may ask about the runs in a folder, which `mcp` serves.
#
# Everything is read-only. A run is named as in `list_runs`; anything outside the folder, including
# links to there, is not a run. Answers are bounded: rows of tables and SQL, time and memory.


MOST_ROWS = 1000
_SECONDS = 60  # of a query
_RUNS = 500  # at most in a list


class Questions:
    """Questions about the bundles in a folder, searched two levels deep."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder: give one that holds bundles")
        self._folder = folder.resolve()

    def list_runs(self) -> dict[str, Any]:
        """Runs of the folder, newest first, by the name that the other questions take."""
        names = [*self._bundles()]
        return {"runs": names[:_RUNS], "total": len(names)}

    def summary(self, run: str) -> dict[str, Any]:
        """What a run is and where its time went: stages, submodules, steps, tracing cost."""
        report = self._report(run)
        keys = [
            key for key, value in report.items() if not isinstance(value, list) or len(value) < 60
        ]
        return {key: plain(report[key]) for key in keys if key not in ("findings", "commands")}

    def findings(self, run: str) -> list[dict[str, Any]]:
        """What stands out in a run, most severe first, with evidence."""
        return [plain(each) for each in self._report(run).get("findings", [])]

    def tables(self) -> list[str]:
        """Tables and columns that SQL knows, with their meaning."""
        from profiler.tools.query import table_lines

        return [*table_lines(160)]

    def sql(self, run: str, query: str, rows: int = 100) -> dict[str, Any]:
        """The answer of one query in SQL (DuckDB's) on a run: it only reads, reaches no file, and
        may take a minute and 4 GiB."""
        from profiler.tools.query import Database

        wanted = max(1, min(rows, MOST_ROWS))
        with self._run(run) as loaded, Database({loaded.run_id: loaded}, _SECONDS) as database:
            frame = _first(database.ask(query).batches(), wanted + 1)
        found = frame.head(wanted).to_dicts()
        return {"rows": plain(found), "more": len(frame) > wanted}

    def diff(self, base: str, new: str) -> str:
        """How run `new` differs from run `base`: by stage, submodule, module and shape, in
        Markdown."""
        from profiler.compare.compare import compare_runs
        from profiler.compare.side_by_side import brief_report
        from profiler.report.files import markdown

        with self._run(base) as one, self._run(new) as other:
            return markdown(brief_report(compare_runs([one], [other]), hints=False))

    def _bundles(self) -> dict[str, Path]:
        """Return the bundles by their path below the folder, without those that are links to
        elsewhere or contain such links."""
        from profiler.trace.bundle import find_bundles

        return {
            str(bundle.relative_to(self._folder)): bundle
            for bundle in find_bundles(self._folder)
            if bundle.resolve().is_relative_to(self._folder)
            and bundle != self._folder
            and self._holds_its_files(bundle)
        }

    def _holds_its_files(self, bundle: Path) -> bool:
        """Whether no file of a bundle is a link that leads out of the folder."""
        with os.scandir(bundle) as entries:
            links = [Path(entry.path) for entry in entries if entry.is_symlink()]
        return all(link.resolve().is_relative_to(self._folder) for link in links)

    @contextmanager
    def _run(self, name: str) -> Iterator[Run]:
        from profiler.tools.sources import load

        bundle = self._bundles().get(name)
        if bundle is None:
            raise InputError(f"there is no run {name!r:.120}: list_runs names those that are")
        run = load(bundle)
        try:
            yield run
        finally:
            run.close()

    def _report(self, name: str) -> dict[str, Any]:
        from profiler.analysis.analyze import analyze
        from profiler.report.files import document

        with self._run(name) as run:
            return document(analyze(run))


def _first(batches: Iterator[pl.DataFrame], rows: int) -> pl.DataFrame:
    """The first rows of an answer."""
    import polars as pl

    found: list[pl.DataFrame] = []
    for batch in batches:
        found.append(batch)
        if sum(map(len, found)) >= rows:
            break
    return pl.concat(found).head(rows)
