"""What a program may ask of the runs in one folder: plain functions, which `mcp` serves.

    ask = Questions(Path("traces"))
    ask.list_runs()
    ask.sql("2026-11-24_a", "select submodule, count(*) from calls group by all")

Everything is read-only. A run is named as `list_runs` names it; what lies outside the folder, also
a link, is no run. Answers are bounded: rows of tables and SQL, time and memory of a query.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from profiler.analysis.result import Analysis
    from profiler.run.run import Run

__all__ = ["MOST_ROWS", "Questions"]

MOST_ROWS = 1000
_SECONDS = 60  # of a query
_RUNS = 500  # that are listed


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
        from profiler.files import plain
        from profiler.report.files import document

        with self._analysis(run) as found:
            told = document(found)
        keys = [
            key for key, value in told.items() if not isinstance(value, list) or len(value) < 60
        ]
        return {key: plain(told[key]) for key in keys if key not in ("findings", "commands")}

    def findings(self, run: str) -> list[dict[str, Any]]:
        """What stands out in a run, most severe first, with evidence."""
        from profiler.files import plain
        from profiler.report.files import document

        with self._analysis(run) as found:
            told = document(found)
        return [plain(each) for each in told.get("findings", [])]

    def tables(self) -> list[str]:
        """Tables and columns that SQL knows, with their meaning."""
        from profiler.query import table_lines

        return [*table_lines(160)]

    def sql(self, run: str, query: str, rows: int = 100) -> dict[str, Any]:
        """The answer of one query in SQL (DuckDB's) on a run: it only reads, reaches no file, and
        may take a minute and 4 GiB."""
        from profiler.files import plain
        from profiler.query import Database

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
        """Bundles by their name below the folder; those that a link leads to elsewhere are none."""
        from profiler.trace.bundle import find_bundles

        return {
            str(bundle.relative_to(self._folder)): bundle
            for bundle in find_bundles(self._folder)
            if bundle.resolve().is_relative_to(self._folder) and bundle != self._folder
        }

    @contextmanager
    def _run(self, name: str) -> Iterator[Run]:
        from profiler.sources import load

        bundle = self._bundles().get(name)
        if bundle is None:
            raise InputError(f"there is no run {name!r:.120}: list_runs names those that are")
        run = load(bundle)
        try:
            yield run
        finally:
            run.close()

    @contextmanager
    def _analysis(self, name: str) -> Iterator[Analysis]:
        from profiler.analysis.analyze import analyze

        with self._run(name) as run:
            yield analyze(run)


def _first(batches: Iterator[pl.DataFrame], rows: int) -> pl.DataFrame:
    """The first rows of an answer."""
    import polars as pl

    found: list[pl.DataFrame] = []
    for batch in batches:
        found.append(batch)
        if sum(map(len, found)) >= rows:
            break
    return pl.concat(found).head(rows)
