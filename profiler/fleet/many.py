"""`import` and `analyze` of many: each item by itself, in one process or on many workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from profiler.analysis.analyze import analyze
from profiler.errors import ProfilerError
from profiler.files import scratch_folder
from profiler.fleet.workers import Lost, Workers, mapped
from profiler.metrics import summarize_analysis
from profiler.sources import Imports, load_source, page_path, resolve
from profiler.trace.bundle import place_bundle

__all__ = ["Done", "analyze_many", "analyzed", "import_many", "imported"]

_Task = TypeVar("_Task")


class Done(Struct, frozen=True):
    """What became of one item: what was `written`, and of an analysis the end-to-end time; or the
    `reason` why nothing could be done."""

    place: str
    written: tuple[str, ...] = ()
    end_to_end_ns: int = 0
    reason: str = ""


def analyze_many(
    bundles: Sequence[Path],
    workers: Workers,
    *,
    pages: bool = True,
    say: Callable[[int, int, Done], None] = lambda *_: None,
) -> list[Done]:
    """Analyze each run; its page and its summary go into its bundle. In their order."""
    return _all(analyzed, [(bundle, pages) for bundle in bundles], workers, say)


def import_many(
    files: Sequence[Path],
    out: Path,
    options: Mapping[str, str],
    workers: Workers,
    *,
    say: Callable[[int, int, Done], None] = lambda *_: None,
) -> list[Done]:
    """Import each file or folder as a run of its own, as a bundle below `out`. In their order."""
    if workers.scheduler:  # whose workers were started elsewhere
        files, out = [path.absolute() for path in files], out.absolute()
    return _all(imported, [(path, out, dict(options)) for path in files], workers, say)


def analyzed(task: tuple[Path, bool]) -> Done:
    """The report of one run; what goes wrong is said in what is returned."""
    path, page = task
    return _told(path, lambda: _analyzed(path, page=page))


def imported(task: tuple[Path, Path, Mapping[str, str]]) -> Done:
    """One import; what goes wrong is said in what is returned."""
    path, out, options = task
    return _told(path, lambda: _imported(path, out, options))


def _analyzed(path: Path, *, page: bool) -> Done:
    from profiler.report.html.page import write_html

    (found,) = resolve([[path]])
    with Imports() as imports:
        source = imports.ready(found.newest)
        run = load_source(source)
        analysis = analyze(run)
        written = []
        if page:
            written.append(page_path(source, filtered=False))
            write_html(run, analysis, written[0], source=source.path)
        summarize_analysis(analysis, source)
    time = analysis.accounting.end_to_end_ns
    return Done(str(source.place), tuple(map(str, written)), time)


def _imported(path: Path, out: Path, options: Mapping[str, str]) -> Done:
    """Written aside and moved when it is whole: what a killed worker leaves is no run of `out`."""
    from profiler.importers.importing import import_all

    with scratch_folder(out / "import") as folder:
        bundles = import_all([path], folder, options=options)
        return Done(str(path), tuple(str(place_bundle(bundle, out)) for bundle in bundles))


def _told(path: Path, work: Callable[[], Done]) -> Done:
    try:
        return work()
    except ProfilerError as error:
        return Done(str(path), reason=str(error))
    except Exception as error:  # one bad item among thousands stops nothing
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return Done(str(path), reason=f"{path} cannot be read ({said})")


def _all(
    work: Callable[[_Task], Done],
    tasks: Sequence[_Task],
    workers: Workers,
    say: Callable[[int, int, Done], None],
) -> list[Done]:
    found: dict[int, Done] = {}
    for number, result in mapped(work, tasks, workers):
        place = str(tasks[number][0])  # type: ignore[index]
        done = Done(place, reason=result.reason) if isinstance(result, Lost) else result
        found[number] = done
        say(len(found), len(tasks), done)
    return [found[number] for number in sorted(found)]
