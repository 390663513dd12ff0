"""What `fleet history` says of a change is the comparison of the two bundles around it."""

from __future__ import annotations

import shutil
from random import Random

from tests.command_line import run_command
from tests.fleet.bundles import write_bundle

CHANGED = 12  # the first run that takes a fifth longer


def test_a_change_is_explained_by_the_bundles_around_it(tmp_path, capsys):
    """24 recorded runs, a fifth slower from the 13th on: the history names the runs on both sides
    and prints what `diff` does of their bundles; where one is gone, it says so."""
    noise = Random(0)
    for number in range(24):
        slower = 1.2 if number >= CHANGED else 1
        write_bundle(tmp_path / "traces", number, 1e6 * slower * noise.gauss(1, 0.005))
    assert run_command("fleet", "add", tmp_path / "data", tmp_path / "traces", "--keep-paths") == 0
    capsys.readouterr()
    ask = ("history", tmp_path / "data", "--metric", "denoise.step")
    ask += ("--assume-same", "variant,recipe,hardware")
    assert run_command("fleet", *ask) == 0
    out = capsys.readouterr().out
    assert "denoise.step: 24 runs, median 239 ms since the last change, newest 2" in out
    assert "; compared with 200 ms" in out
    good, bad = f"run{CHANGED - 1:03d}", f"run{CHANGED:03d}"
    assert good in out
    assert bad in out
    assert "Where the difference is" in out
    assert "--section" not in out
    places = " ".join(str(tmp_path / "traces" / name) for name in (good, bad))
    assert f"everything: profile-sd3 diff {places} --full" in out
    assert out.count("--full") == 1
    shutil.rmtree(tmp_path / "traces" / bad)
    assert run_command("fleet", *ask) == 0
    assert f"the bundle of {bad} is not at" in capsys.readouterr().out
