"""Scripts run as a user's are: by this environment's Python, where profile-sd3 is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from tests.capture.switched_on import ROOT, Ended

__all__ = ["Scripts"]


class Scripts:
    """Runs scripts in the folder `work`; bundles are below its `traces`."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def run(self, script: str, **settings: str) -> Ended:
        """Run a script to its end; `settings` are environment variables, of which RBLN_PROFILER
        is not set unless given. Nothing is downloaded."""
        path = self.work / "script.py"
        path.write_text(dedent(script), encoding="utf-8")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RBLN_", "PYTHON"))}
        ended = subprocess.run(
            [sys.executable, str(path)],
            cwd=self.work,
            env=clean | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)} | settings,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        bundles = sorted(self.work.glob("traces/*"))
        return Ended(ended.returncode, ended.stdout, ended.stderr, bundles)

    def profiled(self, script: str, **settings: str) -> Ended:
        """Run a script with RBLN_PROFILER=1 in its environment, which must not fail it."""
        ended = self.run(script, RBLN_PROFILER="1", **settings)
        assert ended.code == 0, ended.err
        assert "could not be written" not in ended.err, ended.err
        return ended
