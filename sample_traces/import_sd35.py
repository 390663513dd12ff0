"""Make `sd35_mi300x/` again: `python sample_traces/import_sd35.py` from the repository's root.

Imports the public Stable Diffusion 3.5 trace of `../shared/corpus`, whole. `sd35_mi300x.md` says
where it comes from.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from profiler.importers.importing import import_trace

FOLDER = Path(__file__).resolve().parent
NAME = "sd35_mi300x"
SOURCE = Path("../shared/corpus/torch/sd35_mi300x.json.gz")
LIMIT = 700_000  # bytes


def main() -> None:
    """Import; ends with the size."""
    shutil.rmtree(FOLDER / NAME, ignore_errors=True)
    run = import_trace(SOURCE, FOLDER, NAME, compress="deflate")
    size = sum(path.stat().st_size for path in run.iterdir())
    sys.stdout.write(f"{run}: {size:,} bytes\n")
    if size > LIMIT:
        raise SystemExit(f"larger than {LIMIT:,} bytes")


if __name__ == "__main__":
    main()
