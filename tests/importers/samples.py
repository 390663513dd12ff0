"""What importers make of the corpus, as a table beside what independent scripts found.

    python -m tests.importers.samples                 # prints the table
    python -m tests.importers.samples torch/ nsys/    # of these alone
    python -m tests.importers.samples --write         # also into samples.md beside this file

Each sample is imported and analyzed in a process of its own: seconds are processor time from the
path to the written bundle, MB the most memory that the process had. True busy times are those of
`truth.json` and `truth_torch.json`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.corpus import CORPUS

PAGE = Path(__file__).with_name("samples.md")
BEGIN, END = "<!-- samples -->", "<!-- end of samples -->"
_HEAD = ("sample", "importer", "events", "commands", "dropped", "busy, ms", "true", "s", "MB")
_NOTHING = "\N{EN DASH}"
_FOLDERS = ("tensorrt/RTX-3090_fp16", "tensorrt/RTX-3090_fp32", "rocprofv3/ruv_decode")
_NOT_TRACES = ("LICENSE", "SOURCE", "README", "truth")
_NOT_SAMPLES = ("perfetto/",)  # tests of a format that is not imported but read
_OPTIONS = {"aihub/": {"device": "Samsung Galaxy S24", "runtime": "qnn_context_binary"}}
_SUMMARIES = (".tracelens_", ".metadata.json", "execution_details.json")  # beside a sample


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="begins of names; all where none is given")
    parser.add_argument("--write", action="store_true", help=f"write into {PAGE.name}")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        json.dump(measured(CORPUS / options.one), sys.stdout)
        return 0
    chosen = [one for one in samples() if not options.names or one.startswith((*options.names,))]
    text = table(chosen)
    print(text)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return 0


def samples() -> list[str]:
    """Files and folders of the corpus that somebody might import, by name."""
    found = [*_FOLDERS]
    for path in sorted(CORPUS.rglob("*")):
        if path.is_relative_to(CORPUS / "damaged") or path.is_relative_to(CORPUS / "wild"):
            continue  # of other tests
        name = str(path.relative_to(CORPUS))
        told = path.name.startswith(_NOT_TRACES) or any(mark in name for mark in _SUMMARIES)
        if path.is_file() and not told and not name.startswith((*_NOT_SAMPLES, *_FOLDERS)):
            found.append(name)
    return sorted(found)


def table(names: list[str]) -> str:
    """The rows as Markdown."""
    truths = _truths()
    lines = [f"| {' | '.join(_HEAD)} |", f"|{'---|' * len(_HEAD)}"]
    for name in names:
        run = [sys.executable, "-m", "tests.importers.samples", "--one", name]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr}")
        found = json.loads(done.stdout)
        cells = [f"`{name}`", *_cells(found), _times(truths.get(name, [])), *_cost(found)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cells(found: dict) -> list[str]:
    if "refused" in found:
        return [_NOTHING, _NOTHING, _NOTHING, found["refused"], _NOTHING]
    dropped = "; ".join(found["drops"]) or "nothing"
    counts = [f"{found[key]:,}" for key in ("events", "commands")]
    return [found["importer"], *counts, dropped, _times(found["busy_ms"])]


def _times(milliseconds: list[float]) -> str:
    return ", ".join(f"{one:,.3f}" for one in milliseconds) or _NOTHING


def _cost(found: dict) -> list[str]:
    if "refused" in found:
        return [_NOTHING, _NOTHING]
    return [f"{found['seconds']:.2f}", f"{found['megabytes']:.0f}"]


def measured(path: Path) -> dict:
    """What importing `path` gives; in this process, which must be a fresh one."""
    from profiler.errors import InputError
    from profiler.importers import import_trace, recognised
    from profiler.tools.sources import load

    with tempfile.TemporaryDirectory() as folder:
        try:
            importer = recognised([path])
            if importer is None:
                return {"refused": "no importer reads it"}
            begun = time.process_time()
            bundle = import_trace(path, Path(folder), options=options_of(path))
        except InputError as error:
            return {"refused": f"refused: {_without_path(str(error), path)}"}
        seconds = time.process_time() - begun
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        run = load(bundle)
        return {
            "importer": importer.name,
            "events": sum(map(events, _files(path))),
            "commands": len(run.commands),
            "drops": _dropped(run),
            "busy_ms": _busy(run, importer.name),
            "seconds": seconds,
            "megabytes": megabytes,
        }


def options_of(path: Path) -> dict[str, str]:
    """What is chosen of a sample that holds more than a run."""
    name = str(path.relative_to(CORPUS))
    return next((given for begin, given in _OPTIONS.items() if name.startswith(begin)), {})


def _without_path(sentence: str, path: Path) -> str:
    return sentence.replace(f"{path} ", "").split(":")[0].replace("|", "/")


def _dropped(run) -> list[str]:
    """Each drop as how much of what, and its kind; calls that were warm-up."""
    found = {f"{_count(drop)}{drop.unit} ({drop.kind})" for drop in run.drops}
    if run.info.warmup is not None and run.info.warmup.calls:
        found.add(f"{run.info.warmup.calls:,} calls (warm-up)")
    return sorted(found)


def _count(drop) -> str:
    return f"{drop.count:,} " if drop.count >= 0 else ""


def _busy(run, importer: str) -> list[float]:
    """Of devices, in the order of their names; of the CPU where its work is not the host's."""
    import polars as pl

    from profiler.analysis.analyze import analyze

    if importer == "aihub":  # true times are of components
        return [
            time / 1e6 for _, time in sorted(run.calls.select("submodule", "duration_ns").rows())
        ]
    worked = pl.col("busy_ns") + pl.col("before_after_ns")
    rows = analyze(run).devices.sort("device").select("device", worked).rows()
    if importer != "onnxruntime":
        rows = [(name, busy) for name, busy in rows if not name.startswith("cpu")]
    return [busy / 1e6 for _, busy in rows if busy]


def _files(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]


def events(path: Path) -> int:
    """Entries of a file, counted without an importer."""
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    if data.startswith(b"SQLite format 3\0"):
        return _rows(path)
    if data.lstrip()[:1] in (b"{", b"["):
        return _entries(json.loads(data))
    if path.name.endswith(".xplane.pb"):
        return _xplane_events(data)
    if path.suffix == ".yaml":
        return data.count(b"inference_time_milliseconds:")
    return max(sum(1 for _ in csv.reader(io.StringIO(data.decode("utf-8", "replace")))) - 1, 0)


def _rows(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        wanted = [n for n in names if n.startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS"))]
        counts = [database.execute(f'SELECT count(*) FROM "{n}"').fetchone()[0] for n in wanted]
    return sum(counts)


def _entries(document) -> int:
    if isinstance(document, list):
        return len(document)
    for key in ("traceEvents", "Layers"):
        if key in document:
            return len(document[key])
    if "data" in document:  # QHAS: a table each
        return sum(len(one["data"]) for one in document["data"].values())
    tool = document.get("rocprofiler-sdk-tool", ())
    return sum(len(rows) for one in tool for rows in one["buffer_records"].values())


def _xplane_events(data: bytes) -> int:
    """Fields 4 in fields 3 in fields 1: events of lines of planes."""
    return sum(
        number == 4
        for plane_number, plane in _fields(data)
        if plane_number == 1
        for line_number, line in _fields(plane)
        if line_number == 3
        for number, _ in _fields(line)
    )


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of a message's length-delimited fields."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        size, at = _varint(data, at) if tag & 7 in (0, 2) else ({1: 8, 5: 4}[tag & 7], at)
        if tag & 7 == 2:
            yield tag >> 3, data[at : at + size]
        at += size if tag & 7 else 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def _truths() -> dict[str, list[float]]:
    """Busy milliseconds by sample, in the order of devices, as far as a device has any."""
    found = {}
    for name, truth in json.loads((CORPUS / "truth.json").read_text()).items():
        sample = next((one for one in _FOLDERS if name.startswith(f"{one}/resnet")), name)
        busy = truth.get("busy_ms")
        if isinstance(busy, dict):
            found[sample] = [ms for _, ms in sorted(busy.items()) if ms is not None]
    for name, truth in json.loads((CORPUS / "truth_torch.json").read_text()).items():
        if name != "_about":
            devices = sorted(truth["devices"], key=lambda device: device["device"])
            found[name] = [device["busy"] for device in devices if device["busy"]]
    return found


if __name__ == "__main__":
    sys.exit(main())
