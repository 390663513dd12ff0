"""Objects of a script that only few scripts have, and children that it forks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.switched_on import CALLS_ONLY, ENCODER, SESSION, drops, labels

HERE = Path(__file__).parent


@pytest.mark.torch
def test_unusual_objects(scripts):
    """Nothing of the script's runs on our behalf, each call is recorded, forked children end as
    without us although Kineto's destructors wait for a thread that they do not have, and so does
    the script, by an exception without a text."""
    pytest.importorskip("torch", reason="needs the torch extra")
    program = (HERE / "unusual_objects.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program, RBLN_PROFILER_CONFIG='{"ops": "all"}')
    err = [line for line in ours.err.splitlines() if not line.startswith("profile-sd3: ")]
    assert (ours.code, ours.out, err) == (plain.code, plain.out, plain.err.splitlines())
    assert ours.err.count("profile-sd3: the run is in ") == 2
    assert ours.err.count("profile-sd3: ") == 2
    whole = {len(labels(bundle)): bundle for bundle in ours.bundles}
    assert {count: {name for name, *_ in labels(whole[count])} for count in whole} == {
        8: {"lazy", "net", "equal"},
        1: {"net"},
    }
    assert drops(whole[8]) == [("aborted_run", "the run ended with WordlessError")]
    assert drops(whole[1]) == []


def test_a_time_limit_in_the_first_use(scripts):
    """The exception of a signal handler reaches the script, also if the signal comes while the
    standard library looks for packages on our behalf and suppresses what is raised."""
    program = """
    import signal, sys

    class LateError(Exception):
        pass

    def late(number, frame):
        raise LateError

    def audit(event, arguments):
        if event == "os.listdir" and not sent:
            if sys._getframe(1).f_globals.get("__name__") == "importlib.metadata":
                sent.append(event)
                signal.raise_signal(signal.SIGALRM)

    sent, session = [], made()
    signal.signal(signal.SIGALRM, late)
    sys.addaudithook(audit)
    for _ in range(2):
        try:
            session.run(None, {"x": x})
            print("ran", sent)
        except LateError:
            print("late", sent)
    """
    ours = scripts.run(SESSION + program, **CALLS_ONLY)
    assert ours.out == "late ['os.listdir']\nran ['os.listdir']\n", ours.err
    assert labels(ours.bundle) == [ENCODER]
