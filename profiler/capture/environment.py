"""Where a run was recorded: versions and hardware, as far as this machine tells."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

from profiler.capture.registry import backends
from profiler.interruptions import let_pass
from profiler.trace.manifest_fields import Hardware, quantity

__all__ = ["crowding", "hardware", "versions"]

_PACKAGES = ("profile-sd3", "numpy", "diffusers", "transformers")  # and those of backends


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that take part in a run."""
    of_backends = [package for backend in backends() for package in backend.packages]
    found = {
        package: _version(package) or _version_of_library(package)
        for package in (*_PACKAGES, *of_backends)
    }
    known = {package: version for package, version in found.items() if version}
    return {"python": platform.python_version(), **known}


@functools.cache  # of a process: looking takes longer than all else that the manifest needs
def _version(package: str) -> str:
    """The version of an installed package, "" where it is not. `metadata.version` would parse all
    of its METADATA as an e-mail, whose body is the README."""
    try:
        text = metadata.distribution(package).read_text("METADATA") or ""
    except (metadata.PackageNotFoundError, OSError, UnicodeDecodeError) as error:
        let_pass(error)
        return ""
    found = re.search(r"^Version:[ \t]*(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _version_of_library(name: str) -> str:
    """What an imported library of that name says of itself, "" where there is none: packages of
    other names bring it, too, as builds of a runtime for GPUs do."""
    found = getattr(sys.modules.get(name), "__version__", "")
    return found if isinstance(found, str) else ""


def hardware() -> Hardware:
    """CPU model, cores that the process may use, memory in bytes, operating system."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = sorted(affinity(0)) if affinity else list(range(os.cpu_count() or 1))
    return Hardware(
        cpu=_cpu_name(),
        cores=len(cores),
        memory_bytes=_memory_bytes(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
    )


def crowding() -> float:
    """How many threads wanted each of the machine's cores over the last minute, this process's
    among them; 1 where the system does not tell."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (OSError, AttributeError):
        return 1.0


@functools.cache
def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError as error:
        let_pass(error)
    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return quantity(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError) as error:
        let_pass(error)
        return None
