"""The outputs of bundles, each made in a process of its own: none sees what another has left."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from traceback import format_exception

from tests.golden.bundles import BUNDLES
from tests.golden.masks import without_chance
from tests.golden.questions import Asked

__all__ = ["outputs_of"]


def outputs_of(
    names: Sequence[str], workers: int = 1
) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, outputs and seconds of each bundle, as they get ready; the longest are begun first.
    One that cannot be made has the single output `failed`, which is no golden."""
    by_name = {one.name: one for one in BUNDLES}
    ordered = sorted(names, key=lambda name: -by_name[name].weight)
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, max_tasks_per_child=1) as pool:
        waiting = {pool.submit(_made, name): name for name in ordered}
        for future in as_completed(waiting):
            error = future.exception()
            if error is not None:
                yield waiting[future], {"failed": "".join(format_exception(error))}, 0.0
            else:
                yield future.result()


def _made(name: str) -> tuple[str, dict[str, str], float]:
    bundle = next(one for one in BUNDLES if one.name == name)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        asked = Asked(Path(folder))
        with without_chance():
            bundle.ask(asked)
    return name, asked.outputs, time.monotonic() - begun
