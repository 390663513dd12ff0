"""Settings of a run's pipeline calls and submodules, each written once: those that a call shares
with the one before are that one's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from profiler.capture.invocations import Invocation
from profiler.capture.timeline import PipelineCall
from profiler.trace.manifest_caches import CachedCall
from profiler.trace.manifest_settings import Generation, SubmoduleSettings

__all__ = ["cached_calls", "generations", "settings_of"]


def generations(calls: Iterable[PipelineCall]) -> tuple[Generation, ...]:
    """What the calls made, in order of the first of each; calls that made the same are one."""
    found: dict[str, tuple[Generation, list[int]]] = {}
    for call in sorted(calls, key=lambda call: call.number):
        if call.generation is not None and call.generation != Generation():
            known = found.setdefault(repr(call.generation), (call.generation, []))
            known[1].append(call.number)
    return tuple(structs.replace(made, pipelines=tuple(of)) for made, of in found.values())


def settings_of(
    before: Mapping[str, SubmoduleSettings], calls: Iterable[PipelineCall]
) -> dict[str, tuple[SubmoduleSettings, ...]]:
    """The settings of each submodule as pipeline calls found them; where no call tells, those that
    were read `before` all calls, which may have been changed since."""
    told: dict[str, list[SubmoduleSettings]] = {}
    for call in sorted(calls, key=lambda call: call.number):
        for name, settings in call.submodules.items():
            known = told.setdefault(name, [])
            if known and _same(known[-1], settings):
                known[-1] = structs.replace(settings, since=known[-1].since)
            else:
                since = call.number if known else -1
                known.append(structs.replace(settings, since=since))
    found = {name: (settings,) for name, settings in before.items()}
    return found | {name: tuple(known) for name, known in told.items()}


def cached_calls(invocations: Iterable[Invocation]) -> tuple[CachedCall, ...]:
    """What step caches did, of the calls that had one on."""
    return tuple(
        CachedCall(
            call=one.index,
            cache=one.skipped.cache,
            blocks=one.skipped.blocks,
            skipped=one.skipped.paths,
            without_uncond=one.skipped.without_uncond,
            residual_ratio=one.skipped.residual_ratio,
        )
        for one in invocations
        if one.skipped is not None
    )


def _same(before: SubmoduleSettings, now: SubmoduleSettings) -> bool:
    """Whether nothing was changed; a session that has been opened since tells more."""
    if not (before.inputs or before.providers):
        before = structs.replace(before, inputs=now.inputs, providers=now.providers)
    return structs.replace(before, since=now.since) == now
