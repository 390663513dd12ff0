"""What ends as it should is not reported as missing, and each process names its bundle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.capture.switched_on import drops, labels

HERE = Path(__file__).parent


def test_workers_that_a_pool_ends(scripts):
    """Leaving the pool sends SIGTERM to workers that wait: their six calls and the parent's one
    are all there, nothing is a drop, and stderr names every bundle."""
    ended = scripts.run((HERE / "pool_workers.py").read_text(encoding="utf-8"))
    assert ended.code == 0
    counts = sorted(len(labels(bundle)) for bundle in ended.bundles)
    assert counts in ([1, 3, 3], [1, 6])  # one worker may take all
    assert [drops(bundle) for bundle in ended.bundles] == [[]] * len(ended.bundles)
    named = re.findall(r"the run is in (.+)", ended.err)
    assert sorted(map(Path, named)) == ended.bundles


@pytest.mark.parametrize("ops", ["all", "none"])
def test_a_run_that_is_refused(scripts, ops):
    """The script catches what the runtime raises: two calls returned, and nothing is a drop."""
    program = (HERE / "refused_run.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program, RBLN_PROFILER_CONFIG=f'{{"ops": "{ops}"}}')
    assert (ours.code, ours.out) == (0, plain.out)
    assert len(labels(ours.bundle)) == 2
    assert drops(ours.bundle) == []
