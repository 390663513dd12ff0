"""One pipeline attached to a session: its hooks, and the sources of its operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from profiler.capture.operator_source import OperatorSource, SourceRequest
from profiler.capture.options import Options
from profiler.capture.pipelines.configured import options_for
from profiler.capture.pipelines.hooks import PipelineHooks
from profiler.capture.pipelines.submodules import (
    Entry,
    device_of,
    entries,
    owner_of,
    part_of,
    present_entries,
)
from profiler.capture.recorder import Recorder
from profiler.capture.registry import open_source
from profiler.capture.run_info import PipelineFacts, pipeline_facts
from profiler.capture.wraps import weakly
from profiler.interruptions import let_pass

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
        event_cap: int | None,
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
            self._open_sources(pipeline, self._open_source)
            self._hooks.attach()
        except BaseException:
            self.detach()
            raise

    def _renew_sources(self, pipeline: Any) -> None:
        """Before a call of the pipeline: parts that were replaced get sources of their own. One
        that can have none runs without, which is a drop."""

        def open_or_lose(entry: Entry, *of: Any) -> OperatorSource | None:
            try:
                return self._open_source(entry, *of)
            except Exception as error:  # noqa: BLE001 - the pipeline's call must not fail of us
                let_pass(error)
                self._recorder.lose(entry.submodule, error, for_good=True)
                return None

        self._open_sources(pipeline, open_or_lose)

    def _open_sources(self, pipeline: Any, open_one: Callable[..., OperatorSource | None]) -> None:
        by_part: dict[int, OperatorSource | None] = {}
        here = list(present_entries(pipeline))
        if not self._parts and not any(
            self._options.traces_operators(entry.submodule)
            and options_for(pipeline, entry, self._options).traces_operators(entry.submodule)
            for entry in here
        ):
            return
        for entry in here:  # also what is not traced: who traces pipeline calls rests meanwhile
            part = part_of(pipeline, entry)
            if self._parts.get(entry, lambda: None)() is part:
                continue
            self._parts[entry] = weakly(part)
            self._sources.pop(entry, None)
            if by_part.get(id(part)) is None:  # of submodules that have one part, one traces it
                owner = owner_of(pipeline, entry)
                device = device_of(pipeline, entry)
                options = options_for(pipeline, entry, self._options)
                by_part[id(part)] = open_one(entry, owner, part, device, options)
            source = by_part[id(part)]
            if source is not None:
                self._sources[entry] = source
        self.traced = {entry.submodule for entry in self._sources}

    def _open_source(
        self, entry: Entry, owner: Any, part: Any, device: str, options: Options
    ) -> OperatorSource | None:
        self._folder.mkdir(exist_ok=True)
        request = SourceRequest(
            entry.submodule,
            part,
            device,
            self._folder,
            self._recorder,
            self._event_cap,
            options.selection(entry.submodule),
            owner,
        )
        source = open_source(request)
        if source is not None:
            self._opened.append((entry.submodule, source))
        return source

    def renew(self, pipeline: Any) -> None:
        """The pipeline holds something new, which no call of it will show: hook that as well."""
        known = self.facts
        self.facts = pipeline_facts(pipeline, self._options)
        self.facts.seen = known.seen
        self.facts.submodules = {**known.submodules, **self.facts.submodules}
        self.facts.devices = {**known.devices, **self.facts.devices}
        self.facts.settings = {**known.settings, **self.facts.settings}
        self._hooks.renew()

    def measure(self, found: Mapping[str, Any]) -> None:
        """State in coverage what of these is called by itself."""
        self._hooks.measure(found)

    def covers(self, owner: Any) -> bool:
        """Whether a submodule of the pipeline is `owner`."""
        return self._hooks.covers(owner)

    def detach(self) -> None:
        """Leave the pipeline exactly as it was; what was recorded stays. Again without effect."""
        self._hooks.detach()
        for _, source in self._opened:
            source.close()

    def abandon(self) -> None:
        """Take the hooks off in a forked child; the sources, whose files are the parent's, stay
        as they are."""
        self._hooks.abandon()

    def sources(self) -> list[tuple[str, OperatorSource]]:
        """All sources of operators that were opened, with their submodules."""
        return list(self._opened)


def check_devices(pipeline: Any, options: Options) -> None:
    """Refuse, with InputError, a configuration, ours or the pipeline's own, that names another
    device than a submodule runs on."""
    for entry in entries(pipeline):
        actual = device_of(pipeline, entry)
        options_for(pipeline, entry, options).check_device(
            entry.submodule, actual, "place it there when the pipeline is loaded"
        )
