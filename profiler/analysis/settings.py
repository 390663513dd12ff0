"""The settings of a run: schedulers, caches and arguments by submodule and pipeline call.

Settings are pairs of a name and a value that two runs can be compared by: `transformer cache` →
`FirstBlockCache threshold=0.05`. Names and values are the objects' own. A setting that changed
during the run has all its values, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from profiler.analysis.result import SettingNote
from profiler.analysis.table_text import Sentences
from profiler.text import Note, said
from profiler.trace.manifest_fields import (
    Adapter,
    Attention,
    Compiled,
    Generation,
    Offload,
    Setting,
    SubmoduleSettings,
    WeightType,
)

# --- How submodules and pipeline calls were set up, as pairs of a name and a value that two runs
# can be compared by: `transformer cache` → `FirstBlockCache threshold=0.05`.
#
# Names and values are the objects' own. What changed while the run went on has all its values, in
# order.


ARGUMENTS: Mapping[str, str] = {
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "true_cfg_scale": "true CFG",
    "height": "resolution",
    "width": "resolution",
    "num_frames": "frames",
}
"""Arguments of pipeline calls that say the same as one of the `generation_pairs`."""

_OPTIONAL = ("cache", "offload", "compile", "adapters")
_NUMBERS = (
    ("steps", "steps"),
    ("guidance", "guidance_scale"),
    ("true CFG", "true_cfg_scale"),
    ("frames", "frames"),
    ("batch", "batch"),
    ("passes a step", "denoiser_passes"),
)


def generation_pairs(generations: Iterable[Generation]) -> dict[str, str]:
    """Return the values of each setting over all pipeline calls, each value once."""
    return _joined(pair for one in generations for pair in _of_generation(one))


def setting_pairs(
    settings: Mapping[str, Sequence[SubmoduleSettings]], without: str = ""
) -> dict[str, str]:
    """Return the settings of all submodules; `without`, if given, stands for optional settings that
    a submodule lacks."""
    pairs = [
        (f"{name} {key}", value)
        for name, known in settings.items()
        for one in known
        for key, value in (dict.fromkeys(_OPTIONAL, without) | dict(_of_submodule(one))).items()
    ]
    kernels = [
        ("sdpa kernels", ", ".join(one.attention.sdpa))
        for known in settings.values()
        for one in known
        if one.attention is not None and one.attention.sdpa
    ]
    return _joined((key, value) for key, value in (*pairs, *kernels) if value)


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for key, value in pairs:
        found.setdefault(key, {})[value] = None
    return {key: ", ".join(values) for key, values in found.items()}


def _of_generation(one: Generation) -> Iterator[tuple[str, str]]:
    for name, field in _NUMBERS:
        value = getattr(one, field)
        if value is not None:
            yield name, f"{value:g}"
    if one.width is not None and one.height is not None:
        yield "resolution", f"{one.width}×{one.height}"
    if one.scheduler is not None:
        yield "scheduler", _with(one.scheduler.name, one.scheduler.config)


def _of_submodule(one: SubmoduleSettings) -> Iterator[tuple[str, str]]:
    weights = {name: found for name, found in one.weights.items() if found.share >= 0.0005}
    if weights:
        yield "dtype", ", ".join(_dtype(*pair) for pair in weights.items())
    if one.attention is not None and (text := _attention(one.attention)):
        yield "attention", text
    if one.cache is not None:
        yield "cache", _with(one.cache.name, one.cache.parameters)
    if one.offload is not None:
        yield "offload", _offload(one.offload)
    if one.compiled is not None:
        yield "compile", _compiled(one.compiled)
    if one.adapters:
        yield "adapters", ", ".join(_adapter(*pair) for pair in one.adapters.items())
    if one.inputs:
        yield "inputs", _with("", one.inputs).strip()
    if one.providers:
        yield "providers", ", ".join(_with(*pair) for pair in one.providers.items())


def _dtype(name: str, found: WeightType) -> str:
    return name if found.share >= 0.9995 else f"{name} {100 * found.share:.1f} %"


def _attention(found: Attention) -> str:
    chosen = ", ".join([*found.backends, *found.implementations])
    processors = ", ".join(found.processors)
    return f"{chosen} ({processors})" if chosen and processors else chosen or processors


def _offload(found: Offload) -> str:
    known = {"on": found.execution_device} if found.execution_device else {}
    return _with(found.kind.value, {**known, **found.device_map, **found.parameters})


def _compiled(found: Compiled) -> str:
    parts = {"modules": found.modules} if found.modules else {}
    named = {"backend": found.backend, "mode": found.mode}
    switches = {"dynamic": found.dynamic, "fullgraph": found.fullgraph}
    options = {
        key: value for key, value in {**named, **switches}.items() if value not in ("", None)
    }
    return _with("whole" if found.whole else "parts", {**parts, **options})


def _adapter(name: str, found: Adapter) -> str:
    known: dict[str, object] = {
        "rank": "/".join(map(str, found.ranks)),
        "scaling": "/".join(f"{scaling:g}" for scaling in found.scalings),
    }
    states = {"fused": True} if found.fused else {} if found.active else {"active": False}
    return _with(name, {**{key: text for key, text in known.items() if text}, **states})


def _with(name: str, parameters: Mapping[str, object]) -> str:
    """`name key=value key=value`."""
    return " ".join([name, *(f"{key}={_text(value)}" for key, value in parameters.items())])


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- The settings of a run as one reads them: what all its pipeline calls share, and what differs.


def run_settings(
    shared: Mapping[str, Setting], by_call: Mapping[str, Mapping[str, Setting]]
) -> dict[str, Setting | Note]:
    """`RunInfo.settings`, and those of `RunInfo.pipeline_settings`: the value, or if it differs a
    note with the range of numbers, or that it differs. If not all calls have it, the note says how
    many."""
    values: dict[str, list[Setting]] = {}
    for own in by_call.values():
        for key, value in own.items():
            values.setdefault(key, []).append(value)
    differing = {key: _differing(found, len(by_call)) for key, found in values.items()}
    return {**differing, **shared}


def _differing(values: Sequence[Setting], calls: int) -> Setting | Note:
    found: Setting | Note = Note.of(SettingNote.DIFFERS)
    if len({repr(value) for value in values}) == 1:
        found = values[0]
    elif len(numbers := [v for v in values if _is_number(v)]) == len(values):
        found = Note.of(SettingNote.RANGE, least=min(numbers), most=max(numbers))
    if len(values) == calls:
        return found
    stated = found if isinstance(found, Note) or _is_number(found) else str(found)
    return Note.of(SettingNote.IN_SOME_CALLS, value=stated, of=len(values), calls=calls)


def _is_number(value: Setting) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --- Sentences about settings that differ between the pipeline calls of a run.


SENTENCES: Sentences = {
    SettingNote: {
        SettingNote.RANGE: said("{least} to {most}"),
        SettingNote.IN_SOME_CALLS: said("{value} in {of} of {calls} pipeline calls"),
    }
}
