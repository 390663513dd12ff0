"""Programs that do more with models than to call them: they print the same with us, and every call
is there, under the name that the script has for the model, else its class's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.capture.switched_on import drops, labels

HERE = Path(__file__).parent
NEEDS_TORCH = {"training", "surroundings"}
CALLS = {  # of each submodule
    "training": {"net": 8, "parametrization": 1},
    "surroundings": {"empty": 2, "net": 2, "Net": 4, "encoder": 6},
    "unusual_sessions": {"encoder": 4, "tiny": 6, "encoder_2": 47},
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.torch) if name in NEEDS_TORCH else name
        for name in CALLS
    ],
)
def test_a_program(scripts, name):
    """Its output, exit code and stderr but for our lines are those of the unprofiled process."""
    if name in NEEDS_TORCH:
        pytest.importorskip("torch", reason="needs the torch extra")
    program = (HERE / f"{name}.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program)
    assert (ours.code, ours.out) == (plain.code, plain.out), ours.err
    assert plain.code == 0
    assert ours.err.replace(f"profile-sd3: the run is in {ours.bundle}\n", "") == plain.err
    assert Counter(submodule for submodule, *_ in labels(ours.bundle)) == CALLS[name]
    assert drops(ours.bundle) == []
