"""The files and folders that `analyze` writes beside what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.cli.documents import STDOUT, check_documents, write_json
from profiler.errors import InputError, OutputError

if TYPE_CHECKING:
    from profiler.analysis.document import Report
    from profiler.analysis.result import Analysis
    from profiler.report.html.page import Packing
    from profiler.run.run import Run
    from profiler.sources import Source

__all__ = ["ReportFiles"]


class ReportFiles(Struct, frozen=True):
    """What was asked for, None: not; "-" as JSON file is stdout. `html` is None where the page goes
    beside the trace, `no_html` where there is none; `language` is that in which it opens."""

    json: Path | None
    csv: Path | None
    parquet: Path | None
    html: Path | None
    no_html: bool = False
    language: str = "auto"

    @property
    def only_json(self) -> bool:
        """Whether the JSON document is all that goes to stdout."""
        return self.json == STDOUT

    def check(self) -> None:
        """Refuse, before any work, to write over what is a trace and no report, or no page where
        one is asked for."""
        if self.html == STDOUT:
            raise OutputError("--html - is not there: the page goes to a file")
        check_documents({"--json": self.json, "--html": self.html})
        if self.html is not None and self.no_html:
            raise InputError("--html and --no-html contradict each other: give one of them")

    def packing(self, source: Source) -> Packing | None:
        """What packs the trace into the page, begun before the run is read; None without a page."""
        from profiler.report.html.page import Packing

        return None if self.no_html else Packing(source.path)

    def write_tables(self, run: Run, analysis: Analysis) -> list[Path]:
        """Write JSON, CSV and Parquet as asked for; returns what was written to disk."""
        from profiler.analysis.roles import with_roles
        from profiler.report.files import to_json, write_csv_tables, write_parquet_tables

        written: list[Path] = []
        if self.json is not None:
            write_json(self.json, to_json(analysis))
            written += [] if self.only_json else [self.json]
        if self.csv is not None:
            write_csv_tables(analysis, self.csv)
            written.append(self.csv)
        if self.parquet is not None:
            filled = with_roles(run, analysis.kinds, analysis.kind_roles)
            write_parquet_tables(filled, analysis, self.parquet)
            written.append(self.parquet)
        return written

    def write_page(
        self, run: Run, source: Source, analysis: Analysis, report: Report, packing: Packing
    ) -> Path:
        """Write the HTML page where it was asked for, or beside the trace; returns its path."""
        from profiler.analysis.roles import with_roles
        from profiler.report.html.page import write_html
        from profiler.sources import page_path

        path = self.html or page_path(source, filtered=bool(analysis.run.selection))
        try:
            run = with_roles(run, analysis.kinds, analysis.kind_roles)
            write_html(run, analysis, path, self.language, report=report, packing=packing)
        except (OSError, OutputError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            advice = "give another place with --html FILE, or --no-html to leave it out"
            raise OutputError(f"the page {path} was not written ({reason}): {advice}") from error
        return path
