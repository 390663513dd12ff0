"""What CI and releases install and publish: pinned, listed with its licence, and described."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from profiler.errors import DISTRIBUTION

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


def test_licences_are_listed():
    """Each pinned package, those of CUDA on other machines apart, has a row with a licence."""
    page = (_ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| ([\w.-]+) \| \S+ \| (.+) \|$", page, re.MULTILINE))
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
    for word in ("cyclonedx-py", "attest-build-provenance", "attest-sbom"):
        assert word in steps["provenance"]
