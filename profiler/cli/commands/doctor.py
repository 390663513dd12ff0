"""`profile-sd3 doctor`: check the installation and why a program is not profiled.

`diagnose` returns values, and the command prints them. Versions come from package metadata, so
no library is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, cli_options
from profiler.cli.terminal import check_documents, tell, write_result
from profiler.errors import DISTRIBUTION, ProfilerError, added_by, requirements
from profiler.files import plain
from profiler.trace import __version__

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# --- `profile-sd3 doctor`: what is installed, and why a program would not be profiled.


@cli_options
class DoctorOptions:
    """Options of `profile-sd3 doctor`."""

    json_file: Path | None = shared.RESULT_FILE


def doctor(options: DoctorOptions) -> None:
    """Say what is installed and whether programs are profiled.

    Looks at the environment that profile-sd3 runs in: versions, extras, backends, importers, the
    start-up hook and the RBLN_PROFILER variables. Exits with 1 if something keeps a program
    from being profiled. Paste its output into a bug report.
    """

    check_documents({"--json": options.json_file})
    report = diagnose(os.environ)
    if write_result(options.json_file, "doctor", lambda: plain(report)):
        for line in _lines(report):
            tell(line)
    if report.problems:
        raise typer.Exit(1)


def _lines(report: Report) -> Iterator[str]:
    yield "versions"
    yield from _pairs(report.versions)
    for name, versions in report.requirements.needed.items():
        yield f"  {name} {report.requirements.installed[name]} is not what is needed: {versions}"
    if report.requirements.missing:
        yield f"  missing: {', '.join(report.requirements.missing)}"
    for title, sets in (("extras", report.extras), ("backends", report.backends)):
        yield title
        yield from _pairs({each.name: _packages_line(each) for each in sets})
    yield "importers"
    yield from _pairs(report.importers)
    yield "profiling of programs"
    width = max(len(check.name) for check in report.checks)
    for check in report.checks:
        yield f"  {check.state:<7}  {check.name:<{width}}  {check.found}"
        if check.advice:
            yield f"  {'':<7}  {'':<{width}}  {check.advice}"
    if report.problems:
        yield f"Programs are not profiled: {report.problems[0].found}."
    elif any(check.state is State.OFF for check in report.checks):
        yield "Programs are not profiled unless RBLN_PROFILER=1 is set where they start."
    else:
        yield "Programs that start in this environment are profiled."


def _pairs(values: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, values), default=0)
    for name, value in values.items():
        yield f"  {name:<{width}}  {value}"


def _packages_line(given: Packages) -> str:
    there = ", ".join(
        f"{name} {version}" + (f" (needs {given.needed[name]})" if name in given.needed else "")
        for name, version in given.installed.items()
    )
    lacking = f"missing: {', '.join(given.missing)}" if given.missing else ""
    return "; ".join(part for part in (there, lacking) if part)


SUBCOMMAND = Subcommand(doctor, place=105)


# --- The checks of `profile-sd3 doctor`: the installation, and whether it would profile a program.
#
# `diagnose` returns values; the command prints them. No checked library is imported: versions come
# from the packages' metadata.


_HOOK = "_profile_sd3_startup"
_EXTRAS_OF_DEVELOPERS = frozenset({"dev", "docs", "browser", "test"})


class State(StrEnum):
    """Whether a check found what profiling needs."""

    OK = "ok"
    OFF = "off"  # not a fault: profiling is not switched on
    SLOW = "slow"  # works, but takes longer than it must
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: what was found, and for a problem what to do about it."""

    name: str
    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages of an extra or a backend: versions of installed ones, names of missing ones, and
    the required versions (`>=0.35,<0.40`) of those installed in another version."""

    name: str
    installed: Mapping[str, str]
    missing: tuple[str, ...]
    needed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The report of doctor: versions by package, what profile-sd3 itself needs, extras, backends,
    importers (what each accepts, by name), and checks in order of dependency."""

    versions: Mapping[str, str]
    requirements: Packages
    extras: tuple[Packages, ...]
    backends: tuple[Packages, ...]
    importers: Mapping[str, str]
    checks: tuple[Check, ...]

    @property
    def problems(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.state is State.PROBLEM)


def diagnose(environment: Mapping[str, str]) -> Report:
    """Look at this interpreter's installation, as a program started with `environment` finds it."""
    from packaging.requirements import Requirement

    from profiler.capture.backend import backends
    from profiler.capture.run_info import versions
    from profiler.importers.importing import importers

    texts = requirements()
    needed = list(map(Requirement, texts))
    of_backends = tuple(
        _of_backend(backend.name, backend.packages, needed) for backend in backends()
    )
    return Report(
        versions={**versions(), DISTRIBUTION: __version__},
        requirements=_find_packages(DISTRIBUTION, map(Requirement, added_by("", texts))),
        extras=tuple(_extras(texts)),
        backends=of_backends,
        importers={importer.name: importer.accepts for importer in importers()},
        checks=(
            _core(),
            _byte_code(),
            _runtimes(of_backends),
            _hook_installed(),
            _hook_runs(),
            *_switched_on(environment),
        ),
    )


def _extras(texts: list[str]) -> Iterator[Packages]:
    """Yield the extras of the installed package, without those for developers."""
    from importlib import metadata

    from packaging.requirements import Requirement

    if not texts:
        return
    named = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    for extra in sorted(set(named) - _EXTRAS_OF_DEVELOPERS):
        added = map(Requirement, added_by(extra, texts))
        if ordered := sorted(added, key=lambda each: each.name):
            yield _find_packages(extra, ordered)


def _find_packages(name: str, requirements: Iterable[Requirement]) -> Packages:
    found = {each.name: (_version(each.name), each) for each in requirements}
    return Packages(
        name,
        {package: version for package, (version, _) in found.items() if version},
        tuple(package for package, (version, _) in found.items() if not version),
        {
            package: ",".join(sorted(map(str, each.specifier), reverse=True))
            for package, (version, each) in found.items()
            if version and not _fits(version, each)
        },
    )


def _of_backend(
    name: str, packages: Iterable[str], requirements: Iterable[Requirement]
) -> Packages:
    """Check a backend's packages. If extras require several versions of one, any is fine."""
    from packaging.requirements import Requirement

    bounds: dict[str, list[Requirement]] = {}
    for each in requirements:
        bounds.setdefault(each.name, []).append(each)
    chosen = []
    for package in packages:
        known = bounds.get(package, [Requirement(package)])
        version = _version(package)
        chosen.append(next((each for each in known if version and _fits(version, each)), known[0]))
    return _find_packages(name, chosen)


def _fits(version: str, requirement: Requirement) -> bool:
    """Whether an installed version meets the requirement; an unreadable version does."""
    from packaging.version import InvalidVersion

    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return True


def _version(package: str) -> str:
    """Return the installed version of a package, or of one that provides its library under another
    name (onnxruntime-gpu provides onnxruntime); "" if it cannot be imported."""
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    with suppress(ValueError):  # in sys.modules, but created by hand
        if package.isidentifier() and find_spec(package) is not None:
            bringing = metadata.packages_distributions().get(package, ())
            return metadata.version(bringing[0]) if bringing else ""
    return ""


def _core() -> Check:
    """Check that the compiled reader and writer of traces can be loaded."""
    name = "trace core"
    try:
        from profiler.trace import _core as core
    except (ImportError, ProfilerError) as error:
        advice = "install profile-sd3 with pip, and do not start Python in its source folder"
        return Check(name, State.PROBLEM, f"cannot be loaded ({error})", advice)
    return Check(name, State.OK, str(core.__file__))


def _byte_code() -> Check:
    """Check that Python finds the compiled modules of this package, or may keep them."""
    name, package = "byte code", Path(__file__).parents[2]
    sources = [package / "analysis" / "analyze.py", package / "cli" / "main.py"]
    kept = all(Path(cache_from_source(str(source))).is_file() for source in sources)
    if kept:
        return Check(name, State.OK, "kept")
    advice = "unset PYTHONDONTWRITEBYTECODE, or install without --no-compile"
    if not sys.dont_write_bytecode:
        if all(map(_can_be_kept, sources)):
            return Check(name, State.OK, "kept from the first use of each module on")
        advice = f"run `{sys.executable} -m compileall {package}` as a user who may write there"
    found = "is not kept, so each command compiles its modules again, for over a second"
    return Check(name, State.SLOW, found, advice)


def _can_be_kept(source: Path) -> bool:
    """Whether Python may write the byte code of a source."""
    folders = Path(cache_from_source(str(source))).parents
    return os.access(next(folder for folder in folders if folder.exists()), os.W_OK)


def _runtimes(backends: Iterable[Packages]) -> Check:
    """Check that a library is installed whose calls can be recorded."""
    name, wanted = "runtimes", [package for each in backends for package in each.missing]
    installed = [package for each in backends for package in each.installed]
    if not installed:
        found = f"none of {', '.join(wanted)} is installed for {sys.executable}"
        return Check(name, State.PROBLEM, found, "run doctor in the environment of the program")
    return Check(name, State.OK, ", ".join(installed))


def _hook_installed() -> Check:
    """Check that Python finds the files that switch profiling on at start-up."""
    name = "start-up hook"
    spec = find_spec(_HOOK)
    if spec is None or spec.origin is None:
        found = f"{_HOOK} is not installed for {sys.executable}"
        advice = f"run `{sys.executable} -m pip install` for profile-sd3 in this environment"
        return Check(name, State.PROBLEM, found, advice)
    folder = Path(spec.origin).parent
    files = [file for file in ("profile_sd3.pth", "profile_sd3.start") if (folder / file).is_file()]
    if not files:
        found = f"{folder} has neither profile_sd3.pth nor profile_sd3.start"
        return Check(name, State.PROBLEM, found, "install profile-sd3 again with pip")
    return Check(name, State.OK, f"{', '.join(files)} in {folder}")


def _hook_runs() -> Check:
    """Check that this Python reads start-up files, given how it was started."""
    name = "Python's start-up files"
    if sys.flags.no_site:
        found = "skipped, because Python was started with -S"
        return Check(name, State.PROBLEM, found, "start the program without -S or -I -S")
    import site

    spec = find_spec(_HOOK)
    folder = Path(spec.origin).parent if spec and spec.origin else None
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    if folder is not None and folder not in map(Path, (*site.getsitepackages(), *user)):
        found = f"Python reads no .pth files in {folder}, which is on its path by other means"
        advice = "install profile-sd3 in the environment of the program, or call profiler.start()"
        return Check(name, State.PROBLEM, found, advice)
    return Check(name, State.OK, "read")


def _switched_on(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check whether the environment variables switch profiling on, with valid settings."""
    from profiler.capture.settings import SWITCH, environment_settings, is_on

    try:
        asked = is_on(environment)
        if not asked:
            found = f"{SWITCH} is {environment[SWITCH]!r}" if SWITCH in environment else ""
            advice = f"set {SWITCH}=1 where the program starts, or use `profile-sd3 record`"
            yield Check("switch", State.OFF, found or f"{SWITCH} is not set", advice)
        else:
            yield Check("switch", State.OK, f"{SWITCH}={environment[SWITCH]}")
        settings = environment_settings(environment)
    except ProfilerError as error:
        yield Check("settings", State.PROBLEM, str(error), "a program would run unprofiled")
        return
    yield Check("settings", State.OK, settings.to_json())
    yield _writable(settings.absolute().out)


def _writable(out: Path) -> Check:
    """Check that bundles can be written below `out`, which is created when needed."""
    name = "output folder"
    existing = next((place for place in (out, *out.parents) if place.exists()), out)
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return Check(name, State.OK, str(out))
    what = "is not writable" if existing.is_dir() else "is no folder"
    return Check(name, State.PROBLEM, f"{existing} {what}", "set RBLN_PROFILER_DIR")
