"""Rehearse a release: build it, check it, run the README from it, and say what would be uploaded.

    python .ci/release.py PYTHON… [--out dist] [--tag]
    python .ci/release.py ~/.pyenv/versions/3.1{1.7,2.1,3.0}/bin/python
    python3 .ci/release.py python3 --try WHEEL   # in another system: builds nothing

Of the committed tree: the source distribution, a wheel of its own for Python 3.11 and one for 3.12
and later, as the given Pythons need them, each wheel built twice (`same_wheels.py`). Each Python
gets an empty environment without a compiler, in which README's commands and Python run from the
wheel, in a folder of their own. Exit code 1 if any of it fails.

An index gets the wheels of `.github/workflows/wheels.yml`, which are for all systems. `--tag` tags
the commit if all is well; pushing the tag starts that workflow. Without it nothing is changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.docs.declared import ELSEWHERE, PRELUDES  # noqa: E402
from tests.docs.pages import Page  # noqa: E402

TOOLS = ("abi3audit", "auditwheel", "build", "twine")
EXTRAS = "[run,graph,query]"  # what README's commands need
MOST_MB = 700  # of the core with what it needs
SERVERS = ("profile-sd3 view", "profile-sd3 graph view", "profile-sd3 mcp")  # end with Ctrl-C
EITHER = ("profile-sd3 diff", "profile-sd3 graph check")  # 1: slower, or a model with faults
FROM_PLAIN_RUN = ("traces/", "old/", "new/")
INPUTS = {
    "sd35.json.gz": "tests/evidence/h200/sd35-eager.json.gz",
    "model.onnx": "profiler/pipelines/tiny/tiny-sd3/transformer/model.onnx",
}
SIZES = """
from importlib.metadata import distributions
for one in distributions():
    places = [each.locate() for each in one.files or ()]
    size = sum(place.stat().st_size for place in places if place.is_file())
    print(f"{size / 1e6:7.1f} {one.metadata['Name']} {one.version}")
"""
failures: list[str] = []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="+", type=Path, metavar="PYTHON")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="for what is built")
    parser.add_argument("--tag", action="store_true", help="tag the commit if all is well")
    parser.add_argument("--try", type=Path, metavar="WHEEL", help="try this wheel alone")
    options = parser.parse_args()
    if wheel := vars(options)["try"]:
        with tempfile.TemporaryDirectory() as scratch:
            for number, python in enumerate(options.pythons):
                try_out(python, wheel.resolve(), Path(scratch) / str(number))
        return ended()
    out = options.out.resolve()
    if out.is_dir() and any(out.iterdir()):
        parser.error(f"{out} is not empty, and all of it would be uploaded: remove it")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        do(sys.executable, "-m", "venv", place / "tools")
        tools = place / "tools" / "bin"
        do(tools / "pip", "install", "-q", *TOOLS)
        tries = list(zip(options.pythons, wheels(options.pythons, out), strict=True))
        source = sources(tools, place, out)
        check(tools, place, source, *tries[0])
        for number, (python, wheel) in enumerate(tries):
            try_out(python, wheel, place / str(number))
    for each in sorted(out.iterdir()):
        digest = hashlib.sha256(each.read_bytes()).hexdigest()
        print(f"would be uploaded: {each.name} {each.stat().st_size:,} bytes sha256:{digest}")
    tag(source.name.removesuffix(".tar.gz").rpartition("-")[2], wanted=options.tag)
    return ended()


def ended() -> int:
    """The exit code; says what failed."""
    print(*[f"FAILED: {each}" for each in failures] or ["all is well"], sep="\n")
    return bool(failures)


def wheels(pythons: list[Path], out: Path) -> Iterator[Path]:
    """The wheel of each of the Pythons, built if none of those before is for it as well."""
    for python in pythons:
        tag = ask(python, "-c", "import sys; print('cp%d%d' % min(sys.version_info[:2], (3, 12)))")
        if not list(out.glob(f"*-{tag.strip()}-*.whl")):
            do(python, ROOT / ".ci" / "same_wheels.py", out)
        yield from out.glob(f"*-{tag.strip()}-*.whl")


def sources(tools: Path, place: Path, out: Path) -> Path:
    """The source distribution of the commit."""
    do("git", "clone", "-q", ROOT, place / "tree")
    do(tools / "python", "-m", "build", "--sdist", "--outdir", out, place / "tree", env=of_commit())
    (source,) = out.glob("*.tar.gz")
    return source


def check(tools: Path, place: Path, source: Path, python: Path, wheel: Path) -> None:
    """Metadata, what the wheels link to, and that the sources give the same wheel."""
    do(tools / "twine", "check", "--strict", *sorted(source.parent.iterdir()))
    for each in sorted(source.parent.glob("*.whl")):
        do(tools / "auditwheel", "show", each)
        if "abi3" in each.name:
            do(tools / "abi3audit", "--strict", each)
    again = place / "again"
    do(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", again, source, env=of_commit())
    if (again / wheel.name).read_bytes() != wheel.read_bytes():
        failures.append(f"{source.name} gives another {wheel.name} than the clone")


def of_commit() -> dict[str, str]:
    """This environment, in which all files are as old as the commit."""
    moment = ask("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
    return {**os.environ, "SOURCE_DATE_EPOCH": moment}


def try_out(python: Path, wheel: Path, place: Path) -> None:
    """Install the wheel alone, then with extras, and run what README says."""
    print(f"== {ask(python, '--version').strip()}, {wheel.name}", flush=True)
    do(python, "-m", "venv", place / "venv")
    programs, work = place / "venv" / "bin", place / "work"
    work.mkdir(parents=True)
    kept = {key: os.environ[key] for key in ("HOME", "LANG") if key in os.environ}
    kept |= {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_"))}
    env = {**kept, "PATH": str(programs), "CC": "/bin/false", "CXX": "/bin/false"}
    install = (programs / "python", "-m", "pip", "install", "-q", "--only-binary", ":all:")
    do(*install, wheel, env=env, cwd=work)
    told = ask(programs / "python", "-c", SIZES, env=env, cwd=work).splitlines()
    total = sum(float(line.split()[0]) for line in told)
    print(*sorted(told, reverse=True)[:8], f"{total:7.1f} MB in all", sep="\n")
    if total > MOST_MB:
        failures.append(f"the core takes {total:.0f} MB, more than {MOST_MB}")
    do(*install, f"{wheel}{EXTRAS}", env=env, cwd=work)
    do(programs / "python", "-m", "pip", "check", env=env, cwd=work)
    for name, source in INPUTS.items():
        shutil.copy(ROOT / source, work / name)
    readme = Page.read(ROOT / "README.md")
    (work / "inference.py").write_text(f"{PRELUDES['README.md']}pipe('a', num_inference_steps=2)")
    for folder in FROM_PLAIN_RUN:
        do("profile-sd3", "run", "--out", folder, env=env, cwd=work)
    (bundle,) = (work / "traces").iterdir()
    do(programs / "python", ROOT / ".ci" / "check_bundle.py", bundle, env=env, cwd=work)
    for command in commands(readme):
        do("/bin/sh", "-c", command, env=env, cwd=work, codes={0, command.startswith(EITHER)})
    (work / "readme.py").write_text(
        "\n".join((PRELUDES["README.md"], *(block.text for block in readme.python)))
    )
    do(programs / "python", "readme.py", env=env, cwd=work)


def commands(readme: Page) -> Iterator[str]:
    """README's commands, those of its table included, as they run here."""
    in_text = re.findall(r"`((?:\w+=\S+ )?(?:profile-sd3|python) [^`]+)`", readme.prose)
    for text in (*(command.text for command in readme.commands), *in_text):
        if text.startswith(SERVERS) or " " not in text.removeprefix("profile-sd3 "):
            yield f"{text} --help"
        elif not f"$ {text}".startswith(tuple(ELSEWHERE)):
            yield text.replace("…", "1")


def tag(version: str, *, wanted: bool) -> None:
    """Tag the commit as a release if that is `wanted` and nothing failed; say what stops it."""
    if ask("git", "-C", ROOT, "status", "--porcelain"):
        print("not in it: changes of this tree that are not committed")
    if f"\n## {version}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        print(f"CHANGELOG.md has no section {version}: give Unreleased that name, and a date")
        if wanted:
            failures.append("not tagged: CHANGELOG.md has no section of this version")
    command = ("git", "-C", ROOT, "tag", "-a", f"v{version}", "-m", f"profile-sd3 {version}")
    if wanted and not failures:
        do(*command)
    else:
        print("would tag:", *map(str, command[3:]))


def do(
    *command: object,
    env: dict[str, str] | None = None,
    cwd: Path = ROOT,
    codes: set[int] | frozenset[int] = frozenset({0}),
) -> None:
    """Run a command, which is shown, and its output if it fails; what fails is counted."""
    words = [*map(str, command)]
    print("+", *words, flush=True)
    program = shutil.which(words[0], path=(env or os.environ)["PATH"]) or words[0]
    done = subprocess.run(
        [program, *words[1:]], env=env, cwd=cwd, check=False, capture_output=True, text=True
    )
    told = done.stdout + done.stderr
    if done.returncode not in codes or "Traceback" in told:
        failures.append(" ".join(words))
        print(told, f"exit code {done.returncode}", flush=True)
    elif "auditwheel" in words[0] or "twine" in words[0]:
        print(" ".join(told.split()))


def ask(*command: object, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    """What a command prints, which must not fail."""
    done = subprocess.run(
        [*map(str, command)], env=env, cwd=cwd, check=True, capture_output=True, text=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
