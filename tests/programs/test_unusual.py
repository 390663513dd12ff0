"""Objects of a script that only few scripts have, and children that it forks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.switched_on import drops, labels

pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent


def test_unusual_objects(scripts):
    """Nothing of the script's runs on our behalf, each call is recorded, forked children end as
    without us although Kineto's destructors wait for a thread that they do not have, and so does
    the script, by an exception without a text."""
    program = (HERE / "unusual_objects.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program, RBLN_PROFILER_CONFIG='{"ops": "all"}')
    err = [line for line in ours.err.splitlines() if not line.startswith("profile-sd3: ")]
    assert (ours.code, ours.out, err) == (plain.code, plain.out, plain.err.splitlines())
    assert ours.err.count("profile-sd3: ") == ours.err.count("profile-sd3: the run is in ") == 2
    whole = {len(labels(bundle)): bundle for bundle in ours.bundles}
    assert {count: {name for name, *_ in labels(whole[count])} for count in whole} == {
        6: {"lazy", "net"},
        1: {"net"},
    }
    assert drops(whole[6]) == [("aborted_run", "the run ended with WordlessError")]
    assert drops(whole[1]) == []
