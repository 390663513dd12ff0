"""What pip would install for the core, and for extras that run no ONNX model, has no ONNX Runtime:
over onnxruntime-gpu it would break both.

    .venv/bin/python .ci/check_install.py
"""

import json
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

ASKED = (".", ".[torch,query,perfetto,notebook]")
CONSTRAINT = "torch==2.13.0"  # an open requirement brings gigabytes of CUDA on some indexes


def begun(asked: str, folder: Path) -> subprocess.Popen[bytes]:
    """pip, which writes into the folder what it would install in an empty environment."""
    constraints = folder / "constraints.txt"
    constraints.write_text(CONSTRAINT)
    wanted = ["--dry-run", "--ignore-installed", "--report", str(folder / "report.json")]
    pip = [sys.executable, "-m", "pip", "install", "-q", *wanted, "-c", str(constraints), asked]
    return subprocess.Popen(pip)


def names(folder: Path) -> list[str]:
    """Of the distributions in pip's report."""
    found = json.loads((folder / "report.json").read_text())["install"]
    return sorted(re.sub(r"[-_.]+", "-", one["metadata"]["name"]).lower() for one in found)


def main() -> None:
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in ASKED]
        running = [begun(asked, folder) for asked, folder in zip(ASKED, folders, strict=True)]
        codes = [pip.wait() for pip in running]
        assert not any(codes), f"pip ended with {codes}"
        planned = list(map(names, folders))
    for asked, distributions in zip(ASKED, planned, strict=True):
        assert "profile-sd3" in distributions, distributions
        runtimes = [name for name in distributions if name.startswith("onnxruntime")]
        assert not runtimes, f"{asked} installs {runtimes}: name it in the extras run and graph"
        print(f"{asked}: {len(distributions)} distributions, none of them onnxruntime")


if __name__ == "__main__":
    main()
