"""The trace format: codec, bundle, manifest. Its loops are compiled: `_core`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from profiler.errors import ProfilerError
from profiler.plugins import lazy_names

__version__ = "0.1.0"

_named = lazy_names(
    __name__,
    {
        "bundle": "BundleWriter HOST_NAME JOURNAL_NAME Journal MERGED_NAME call_files "
        "find_bundles merge_bundle read_journal",
        "columns": "CommandBuilder CommandColumns Counter TraceColumns read_bytes read_trace",
        "events": "CATEGORIES Call Drop DropKind DropReason HOST_TRACK NO_CALL NO_PIPELINE "
        "NO_STEP ROOT_DEVICE Span Track UNKNOWN",
        "manifest": "MANIFEST_NAME RunInfo read_manifest",
        "manifest_fields": "ActivityKind ClockName Device Generation HostActivity Offload "
        "OffloadKind Overhead Recording Scheduler Submodule SubmoduleSettings Warmup",
        "writer": "encode_call encode_host text_table",
    },
)


def __getattr__(name: str) -> Any:
    """Import a name of this package on first use. If the compiled core is missing, as in a clone
    that was not built, raise an error that says what to do."""
    if name != "_core":
        return _named(name)
    try:
        return import_module(f"{__name__}._core")
    except ImportError as error:
        raise ProfilerError(
            f"the compiled core of profile-sd3 cannot be loaded ({error}): what is imported is the "
            f"source in {__path__[0]}; install it (`pip install .` there) and start Python in "
            "another folder, or install it with `pip install -e .`"
        ) from error
