"""A trace of torch.profiler to a bundle, beside orjson and pandas making a DataFrame of its events.

    python benchmarks/import_kineto.py [--bytes 100e6] [--file TRACE] [--rounds 3] [--folder DIR]

The trace is that of `large_files.py`, or a `--file` of your own. `import` writes the whole bundle;
`pandas` only decodes the file and makes a DataFrame of its events, with their arguments as one
column of dicts; `columns` makes columns of the arguments too (`pandas.json_normalize`); `typed` is
msgspec's typed decode alone. Without
orjson they decode with `json`. Each measurement is a process of its own, in turn; figures are
medians of processor seconds, since machines are shared, and the largest resident set.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
from import_peers import compare, decoded, import_file, measure
from large_files import write


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a trace, decoded."""
    data = path.read_bytes()
    plain = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    events: list[dict[str, Any]] = decoded(plain)["traceEvents"]
    return events


def read_with_pandas(path: Path, _folder: Path) -> None:
    """The events as a DataFrame."""
    import pandas as pd

    pd.DataFrame(events_of(path))


def read_columns(path: Path, _folder: Path) -> None:
    """The events as a DataFrame with a column for each of their arguments."""
    import pandas as pd

    pd.json_normalize(events_of(path), max_level=1)


def read_typed(path: Path, _folder: Path) -> None:
    """The events as the importer's own types, by msgspec: less than this nothing that uses a JSON
    library for all of the text can take."""
    from profiler.files import decoder_of
    from profiler.kineto.trace_file import Header

    data = path.read_bytes()
    plain = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    decoder_of(Header).decode(plain)


WAYS = {
    "import": import_file,
    "typed": read_typed,
    "pandas": read_with_pandas,
    "columns": read_columns,
}


def measured(path: Path, rounds: int) -> None:
    """Print what each way takes of one trace."""
    events = len(events_of(path))
    print(f"{events:,} events, {path.stat().st_size / 1e6:,.0f} MB")
    compare(__file__, ["--file", str(path)], [*WAYS], events, rounds)


def main() -> None:
    """Compare the ways on one trace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=float, default=100e6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        measure(WAYS[given.way], given.file)
        return
    if given.file:
        measured(given.file, given.rounds)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path, _ = write("kineto", Path(folder), given.bytes)
        measured(path, given.rounds)


if __name__ == "__main__":
    main()
