"""Errors that a user can see, and how to install a missing extra.

    ProfilerError
    ├── InputError     an input cannot be read or used as requested
    │   └── MissingPackageError   ... because a package is not installed; an ImportError, too
    └── OutputError    the result cannot be written to the requested place

Every message says in one sentence what is wrong, in which place, and what to do. `cli` turns it
into exit code 2. Install hints name the packages, not `profile-sd3[query]`: the project is on
no registry, so that name could be taken by a stranger.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module

# --- Errors, as the module docstring has them.


class ProfilerError(Exception):
    """Base of every error that profile-sd3 raises on purpose."""


class InputError(ProfilerError):
    """An input (a path, a trace, a model folder, an option) cannot be used."""


class MissingPackageError(InputError, ImportError):
    """The requested operation needs a package that is not installed."""


class OutputError(ProfilerError):
    """A result cannot be written to the requested place."""


# --- What to install for an extra, from the metadata of the installed package.


DISTRIBUTION = "profile-sd3"

_RUNTIME = "onnxruntime"
_LIBRARIES = {
    "run": (_RUNTIME, "tokenizers", "PIL"),
    "graph": (_RUNTIME, "onnx", "onnx_ir"),
    "graph-base": ("onnx", "onnx_ir"),
    "torch": ("torch", "diffusers", "transformers"),
}
"""The libraries that the modules of an extra import."""
_WITHOUT_RUNTIME = {"run": "run-gpu", "graph": "graph-base"}


def require(extra: str, what: str, *libraries: str) -> None:
    """Raise MissingPackageError if `what` lacks one of `libraries`, by default all of the extra;
    InputError if one is installed and cannot be imported.

    The check imports them, since ONNX Runtime comes from several distributions, and installing one
    over another breaks both. The command names it only if it is missing.
    """
    missing = []
    for library in libraries or _LIBRARIES[extra]:
        try:
            import_module(library)
        except ImportError as error:
            if not isinstance(error, ModuleNotFoundError) or error.name != library:
                raise InputError(
                    f"{what} needs {library}, which cannot be imported ({error}): install what "
                    "brought it again"
                ) from error
            missing.append(library)
    if missing:
        wanted = extra if _RUNTIME in missing else _WITHOUT_RUNTIME.get(extra, extra)
        command = install_command(wanted)
        raise MissingPackageError(f"{what} needs {' and '.join(missing)}: `{command}`")


@contextmanager
def needing(extra: str, what: str, *libraries: str) -> Iterator[None]:
    """Turn an ImportError inside the block into the error of `require`."""
    try:
        yield
    except MissingPackageError:
        raise
    except ImportError:
        require(extra, what, *libraries)
        raise


def install_command(extra: str) -> str:
    """The command that installs an extra's packages, or one that works in a clone if nothing is
    installed."""
    packages = sorted({_named(each) for each in added_by(extra, requirements())})
    if not packages:
        return f"pip install '.[{extra}]' in a clone of {DISTRIBUTION}"
    return f"pip install {' '.join(map(shlex.quote, packages))}"


def requirements() -> list[str]:
    """The requirements of the installed package; empty if it is not installed."""
    # This import takes as long as all of typer; few commands need it.
    from importlib import metadata

    try:
        return metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []


def added_by(extra: str, of_all: Iterable[str]) -> Iterator[str]:
    """The requirements in `of_all` that an extra adds on this Python and system, including extras
    that it names; for extra "" those of the package itself."""
    from packaging.requirements import Requirement

    known = list(of_all)
    for text in known:
        each = Requirement(text)
        always = each.marker is None or each.marker.evaluate({"extra": ""})
        for_extra = each.marker is not None and each.marker.evaluate({"extra": extra})
        if always == bool(extra) or not (always or for_extra):
            continue
        if each.name == DISTRIBUTION:
            for nested in sorted(each.extras):
                yield from added_by(nested, known)
        else:
            yield text


def _named(requirement: str) -> str:
    """The part `duckdb>=2.0` of a requirement, without its conditions."""
    from packaging.requirements import Requirement

    each = Requirement(requirement)
    extras = f"[{','.join(sorted(each.extras))}]" if each.extras else ""
    return f"{each.name}{extras}{each.specifier}"
