"""Record the goldens, or compare with them: exit code 1 where anything differs."""

from __future__ import annotations

import argparse
import re
import sys
import time

from tests.golden.bundles import BUNDLES
from tests.golden.fresh import outputs_of
from tests.golden.store import (
    FROZEN,
    differences,
    environment_differs,
    read,
    write,
    write_environment,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("--only", default="", metavar="PATTERN", help="of names of bundles")
    parser.add_argument("--workers", type=int, default=2, help="processes; default: 2")
    options = parser.parse_args()
    chosen = [one for one in BUNDLES if re.search(options.only, one.name)]
    missing = [one.name for one in chosen if not one.possible]
    if missing:
        print(f"left out, for want of ../shared/corpus: {', '.join(missing)}")
    names = [one.name for one in chosen if one.possible]
    begun = time.monotonic()
    action = _record if options.action == "record" else _compare
    code = action(names, options.workers)
    print(f"{len(names)} bundles in {time.monotonic() - begun:.0f} s")
    return code


def _record(names: list[str], workers: int) -> int:
    code = 0
    for name, outputs, seconds in outputs_of(names, workers):
        if "failed" in outputs:
            print(f"=== {name} was not recorded\n{outputs['failed']}", flush=True)
            code = 1
            continue
        write(name, outputs)
        size = (FROZEN / f"{name}.json.xz").stat().st_size
        print(f"{name}: {len(outputs)} outputs, {size:,} bytes, {seconds:.1f} s", flush=True)
    write_environment()
    return code


def _compare(names: list[str], workers: int) -> int:
    if warning := environment_differs():
        print(warning)
    different = {}
    for name, outputs, _ in outputs_of(names, workers):
        found = dict(differences(read(name), outputs))
        for output, text in found.items():
            print(f"=== {name}: {output}\n{text}\n", flush=True)
        if found:
            different[name] = len(found)
    told = ", ".join(f"{name} ({count})" for name, count in different.items())
    print(f"{len(different)} bundles differ, with so many outputs: {told}" if told else "all equal")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
