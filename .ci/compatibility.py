"""Try the oldest and the newest supported versions, each in an environment of its own.

    python .ci/compatibility.py [NAME…] [--wheel FILE]

In each: the README's run, its report, and tests of capture, tables and reports, against the wheel
of the committed tree. Exit code 1 if any of it fails; the last lines say which versions were tried.
The lower bounds of pyproject.toml are what "oldest" installs, so that they stay true.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTING = ("pytest", "pytest-xdist", "hypothesis", "onnx", "typing_extensions")
SHOWN = ("onnxruntime", "torch", "diffusers", "transformers", "polars", "pandas", "numpy")
TESTS = (
    "tests/capture/onnxruntime/test_bare.py",
    "tests/capture/onnxruntime/test_operators.py",
    "tests/cli/test_analyze.py",
    "tests/cli/test_diff.py",
    "tests/fleet/test_adding.py",
    "tests/table/test_small_traces.py",
    "tests/table/test_parquet.py",
    "tests/test_dataframes.py",
)
TORCH_TESTS = (
    "tests/capture/pipelines/test_diffusers_calls.py",
    "tests/capture/torch/test_operators_pipeline.py",
    "tests/importers/kineto",
)


def oldest(*extras: str) -> list[str]:
    """Exactly the lower bounds of the core and of these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [re.sub(r">=([\d.]+).*", r"==\1", one) for one in wanted if ">=" in one]


ENVIRONMENTS: dict[str, tuple[str, list[str]]] = {
    "oldest": ("run", oldest("run", "run-gpu")),
    "newest": ("run", []),
    "torch-oldest": ("run,torch", oldest("torch")),
    "torch-2.13": ("run,torch", ["torch==2.13.0", "diffusers==0.38.0"]),
    "torch-2.14": ("run,torch", ["torch==2.14.1", "diffusers==0.42.0"]),
    "torch-newest": ("run,torch", ["torch>=2.15"]),
}
"""The extras, and what their requirements are narrowed to."""


def tried(name: str, wheel: Path, tree: Path, folder: Path) -> tuple[bool, str]:
    """Whether all of it worked in that environment, and the versions that it had."""
    extras, pins = ENVIRONMENTS[name]
    environment = folder / name
    run([sys.executable, "-m", "venv", environment])
    python = environment / "bin" / "python"
    pip = [python, "-m", "pip", "install", "-q", "--no-cache-dir"]
    if not run([*pip, f"{wheel}[{extras}]", *pins, *TESTING]):
        return False, "cannot be installed"
    command, traces = environment / "bin" / "profile-sd3", folder / f"{name}-traces"
    pytest = [python, "-m", "pytest", "-q", "-n", "0", "-o", "filterwarnings=default"]
    good = [
        run([command, "run", "--out", traces, "--name", "run"], cwd=folder),
        run([python, ROOT / ".ci" / "check_bundle.py", traces / "run"]),
        run([command, "analyze", traces, "--json", folder / f"{name}.json"], cwd=folder),
        run([*pytest, *TESTS, *(TORCH_TESTS if "torch" in extras else ())], cwd=tree),
    ]
    listed = [python, "-m", "pip", "list", "--format=freeze"]
    told = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    return all(good), ", ".join(one for one in told if one.partition("==")[0] in SHOWN)


def run(command: Iterable[str | Path], cwd: Path = ROOT) -> bool:
    """Whether it ended well."""
    words = [str(word) for word in command]
    print("+", *words, flush=True)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(words, cwd=cwd, env=clean, check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"all of {', '.join(ENVIRONMENTS)}"
    )
    parser.add_argument("--wheel", type=Path, help="of the project; built if none is given")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        wheel = options.wheel
        if wheel is None:
            run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place, ROOT])
            (wheel,) = place.glob("*.whl")
        tree = place / "tree"  # the tests without the package: that is the installed one
        run(["git", "clone", "-q", ROOT, tree])
        run(["rm", "-r", tree / "profiler"])
        for name in options.names or ENVIRONMENTS:
            with tempfile.TemporaryDirectory(dir=place) as folder:
                results.append((name, *tried(name, wheel.resolve(), tree, Path(folder))))
    for name, good, versions in results:
        print(f"{name}: {'passed' if good else 'FAILED'}: {versions}")
    return not all(good for _, good, _ in results)


if __name__ == "__main__":
    sys.exit(main())
