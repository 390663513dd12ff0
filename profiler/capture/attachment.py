"""One pipeline attached to a session: its hooks, and the sources of its operators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profiler.capture.operator_source import OperatorSource, SourceRequest, open_source
from profiler.capture.options import Options
from profiler.capture.pipeline import PipelineHooks
from profiler.capture.recorder import Recorder
from profiler.capture.run_info import PipelineFacts, pipeline_facts
from profiler.capture.shapes import Entry, device_of, entries, part_of, present_entries
from profiler.capture.wraps import weakly
from profiler.errors import InputError

__all__ = ["Attachment", "check_devices"]


class Attachment:
    """One pipeline that reports to a session. `facts` is what the manifest says of it, `traced`
    are the submodules whose calls a source may trace."""

    def __init__(
        self,
        pipeline: Any,
        recorder: Recorder,
        options: Options,
        folder: Path,
        event_cap: int,
    ) -> None:
        self.facts: PipelineFacts = pipeline_facts(pipeline, options)
        self.traced: set[str] = set()
        self._recorder = recorder
        self._options = options
        self._folder = folder
        self._event_cap = event_cap
        self._sources: dict[Entry, OperatorSource] = {}  # of the parts that are there now
        self._parts: dict[Entry, Callable[[], Any]] = {}
        self._opened: list[tuple[str, OperatorSource]] = []
        self._hooks = PipelineHooks(pipeline, recorder, self._sources.get, self._renew_sources)

    def attach(self, pipeline: Any) -> None:
        """Open the operators' sources and hook the pipeline; after an error it is as it was."""
        try:
            self._open_sources(pipeline)
            self._hooks.attach()
        except BaseException:
            self.detach()
            raise

    def _renew_sources(self, pipeline: Any) -> None:
        """Before a call of the pipeline: parts that were replaced get sources of their own, where
        they can have one."""
        with contextlib.suppress(InputError):
            self._open_sources(pipeline)

    def _open_sources(self, pipeline: Any) -> None:
        by_part: dict[int, OperatorSource | None] = {}
        here = list(present_entries(pipeline))
        if not any(self._options.traces_operators(entry.submodule) for entry in here):
            return
        for entry in here:  # also what is not traced: who traces pipeline calls rests meanwhile
            part = part_of(pipeline, entry)
            part = getattr(part, "_orig_mod", part)  # torch.compile's wrapper is no other part
            if self._parts.get(entry, lambda: None)() is part:
                continue
            self._parts[entry] = weakly(part)
            self._sources.pop(entry, None)
            if by_part.get(id(part)) is None:  # of submodules that have one part, one traces it
                owner = getattr(pipeline, entry.submodule)
                device = device_of(pipeline, entry)
                by_part[id(part)] = self._open_source(entry, owner, part, device)
            source = by_part[id(part)]
            if source is not None:
                self._sources[entry] = source
                self.traced.add(entry.submodule)

    def _open_source(
        self, entry: Entry, owner: Any, part: Any, device: str
    ) -> OperatorSource | None:
        self._folder.mkdir(exist_ok=True)
        request = SourceRequest(
            entry.submodule,
            part,
            device,
            self._folder,
            self._recorder,
            self._event_cap,
            self._options.selection(entry.submodule),
            owner,
        )
        source = open_source(request)
        if source is not None:
            self._opened.append((entry.submodule, source))
        return source

    def detach(self) -> None:
        """Leave the pipeline exactly as it was; what was recorded stays. Again without effect."""
        self._hooks.detach()
        for _, source in self._opened:
            source.close()

    def abandon(self) -> None:
        """Take the hooks off in a forked child; the sources, whose files are the parent's, stay
        as they are."""
        self._hooks.detach()

    def sources(self) -> list[tuple[str, OperatorSource]]:
        """All sources of operators that were opened, with their submodules."""
        return list(self._opened)


def check_devices(pipeline: Any, options: Options) -> None:
    """Refuse, with InputError, a configuration that names another device than a submodule runs
    on."""
    for entry in entries(pipeline):
        wanted = options.of(entry.submodule).device
        actual = device_of(pipeline, entry)
        if wanted is not None and wanted not in (actual, actual.partition(":")[2]):
            raise InputError(
                f"{entry.submodule} is configured for device {wanted} but runs on {actual}: "
                f"place it there when the pipeline is loaded, or leave out its device"
            )
