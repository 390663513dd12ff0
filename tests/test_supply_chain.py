"""What CI and releases install and publish: pinned, listed with its licence, and described."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from profiler.errors import DISTRIBUTION
from tests.docs.pages import Page

_ROOT = Path(__file__).resolve().parents[1]
_PINNED = dict(
    re.findall(r"^([\w.-]+)==(\S+)$", (_ROOT / ".ci" / "constraints.txt").read_text(), re.MULTILINE)
)


def _required(extra: str, project: dict) -> list[Requirement]:
    """The requirements of an extra, "" for the package's own, with those of extras it names."""
    texts = project["optional-dependencies"][extra] if extra else project["dependencies"]
    found = []
    for each in map(Requirement, texts):
        if each.name == DISTRIBUTION:
            found += [one for nested in sorted(each.extras) for one in _required(nested, project)]
        elif each.marker is None or each.marker.evaluate({"python_version": "3.11"}):
            found.append(each)
    return found


def test_constraints_pin_what_is_required():
    """Each package of the extras that CI installs has one version, which its requirement takes;
    no address of an index or file is in the file."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    needed = [one for extra in ("", "dev", "torch") for one in _required(extra, project)]
    wrong = [
        str(one)
        for one in needed
        if not one.specifier.contains(_PINNED.get(one.name.lower(), "0"), prereleases=True)
    ]
    assert wrong == []
    lines = (_ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if "://" in line or line.startswith("-")] == []
    assert "-c .ci/constraints.txt" in (_ROOT / ".ci" / "run").read_text()


_IMPORTED_AS = {"protobuf": "google", "pyyaml": "yaml"}
_WINGS = ("graph", "pipelines", "fleet")  # each has an extra


def _imported(tree: ast.AST) -> set[str]:
    """The packages that the code imports, wherever it does."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_the_core_requires_what_it_imports():
    """Each required package is imported by a file outside the wings that have extras; pandas and
    pyarrow are for `to_pandas`, of Polars, alone."""
    sources = [
        path
        for path in (_ROOT / "profiler").rglob("*.py")
        if path.relative_to(_ROOT / "profiler").parts[0] not in _WINGS
    ]
    imported = set().union(*(_imported(ast.parse(path.read_text("utf-8"))) for path in sources))
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    required = {one.name for one in _required("", project)}
    assert {name for name in required if _IMPORTED_AS.get(name, name) not in imported} == set()


def test_pandas_frames_need_pyarrow():
    """The day that Polars makes pandas frames without it, it need not be required any more."""
    code = "import sys, polars; sys.modules['pyarrow'] = None; polars.DataFrame([1]).to_pandas()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: import of pyarrow halted")


def test_licences_are_listed():
    """Each pinned package, those of CUDA on other machines apart, is listed below a licence."""
    page = (_ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    items = re.findall(r"^- (.+?): (.+)$", page.partition("<!-- packages -->")[2], re.MULTILINE)
    listed = {one.split()[0]: licence for licence, names in items for one in names.split(", ")}
    elsewhere = {name for name in _PINNED if name.startswith(("nvidia", "cuda", "triton"))}
    assert _PINNED.keys() - listed.keys() <= elsewhere
    assert all(listed.values())


def test_a_release_is_audited_and_described():
    """The workflow audits what is pinned, builds twice the same, and attests wheels and SBOM."""
    jobs = yaml.safe_load((_ROOT / ".github" / "workflows" / "wheels.yml").read_text())["jobs"]
    steps = {
        name: " ".join(f"{one.get('run', '')} {one.get('uses', '')}" for one in job["steps"])
        for name, job in jobs.items()
    }
    assert "pip-audit" in steps["audit"]
    assert ".ci/same_wheels.py" in steps["same"]
    assert {"audit", "same"} <= set(jobs["wheels"]["needs"])
    assert "SOURCE_DATE_EPOCH" in steps["wheels"]
    assert "SOURCE_DATE_EPOCH" in steps["sdist"]
    for word in ("twine check --strict", "cyclonedx-py", "attest-build-provenance", "attest-sbom"):
        assert word in steps["provenance"]


_SYSTEMS = {"ubuntu": "POSIX :: Linux", "macos": "MacOS", "windows": "Microsoft :: Windows"}


def test_classifiers_are_those_of_the_wheels():
    """Each system and Python that is named gets a wheel, and each of the wheels is named."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    jobs = yaml.safe_load((_ROOT / ".github" / "workflows" / "wheels.yml").read_text())["jobs"]
    told = " ".join(f"{one};" for one in project["project"]["classifiers"])
    built = {_SYSTEMS[name.split("-")[0]] for name in jobs["wheels"]["strategy"]["matrix"]["os"]}
    assert {*re.findall(r"Operating System :: ([^;]+);", told)} == built
    minors = [int(minor) for minor in re.findall(r"Python :: 3\.(\d+);", told)]
    assert minors == [*range(11, minors[-1] + 1)]
    assert project["tool"]["cibuildwheel"]["build"] == ["cp311-*", "cp312-*"]
    assert project["tool"]["scikit-build"]["wheel"]["py-api"] == "cp312"


def test_a_rehearsed_release_runs_what_the_readme_says():
    """Each command of README is run from the wheel, or is one that serves, or needs a clone; each
    folder and file that one names is made for it."""
    spec = importlib.util.spec_from_file_location("release", _ROOT / ".ci" / "release.py")
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)
    readme = Page.read(_ROOT / "README.md")
    found = list(release.commands(readme))
    said = re.findall(r"`profile-sd3 ([\w-]+)", readme.prose)
    assert {*said} == {line.split()[1] for line in found if line.startswith("profile-sd3 ")}
    named = {word for line in found for word in line.split() if re.search(r"\w/$|\.\w+$", word)}
    assert named <= {*release.FROM_PLAIN_RUN, *release.INPUTS, "inference.py"}
    assert all((_ROOT / source).is_file() for source in release.INPUTS.values())
