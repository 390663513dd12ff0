"""What of a run's manifest decides whether two runs are comparable, as columns of `runs`.

A field that nobody recorded is None. `NONE` and 0 say that a run is known to have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from profiler.analysis.recorded_settings import setting_pairs
from profiler.analysis.result import Analysis, RunSummary
from profiler.fleet.columns import NONE
from profiler.trace.manifest_fields import Generation

__all__ = ["recorded_identity"]

_OPTIONAL = ("adapters", "cache", "compile", "offload")
_BESIDE_SPEED = frozenset(("python", "profile-sd3", "numpy"))
_ARGUMENTS = {
    "steps": ("num_inference_steps",),
    "batch_size": ("num_images_per_prompt", "num_videos_per_prompt"),
    "frames": ("num_frames",),
    "guidance": ("guidance_scale",),
}


def recorded_identity(analysis: Analysis) -> dict[str, str | int | float | None]:
    """The identity columns of a run by name."""
    run = analysis.run
    return {
        "pipeline": run.pipeline or None,
        "model": run.model or None,
        **_of_submodules(run),
        **_recipe(run),
        "hardware": _hardware(analysis),
        "software": _software(run.versions),
    }


def _of_submodules(run: RunSummary) -> dict[str, str | None]:
    pairs = setting_pairs(run.submodule_settings, without=NONE)
    names = sorted(run.submodule_settings)
    found: dict[str, str | None] = {}
    for column in _OPTIONAL:
        told = [f"{name} {pairs[f'{name} {column}']}" for name in names]
        used = [text for text in told if not text.endswith(f" {NONE}")]
        found[column] = "; ".join(used) or (NONE if told else None)
    found["weights"] = _told(pairs, names, "dtype") or _weight_bytes(run)
    attention = _told(pairs, names, "attention"), pairs.get("sdpa kernels")
    providers = _told(pairs, names, "providers")  # of ONNX Runtime: they decide it
    found["attention"] = "; ".join(text for text in (*attention, providers) if text) or None
    return found


def _told(pairs: Mapping[str, str], names: Iterable[str], setting: str) -> str | None:
    told = ((name, pairs.get(f"{name} {setting}")) for name in names)
    return "; ".join(f"{name} {value}" for name, value in told if value) or None


def _weight_bytes(run: RunSummary) -> str | None:
    """Bytes of the weights where nobody recorded their types: half as many are another type."""
    told = sorted((n, s.weight_bytes) for n, s in run.submodules.items() if s.weight_bytes)
    return "; ".join(f"{name} {size} bytes" for name, size in told) or None


def _recipe(run: RunSummary) -> dict[str, str | int | float | None]:
    """Steps, resolution and the like: what pipeline calls made, else what they were given. Where
    calls differ there is no one value, so it is unknown."""
    of = run.generations
    sizes = {(one.width, one.height) for one in of}
    given = _given(run)
    width, height = next(iter(sizes)) if len(sizes) == 1 else (None, None)
    if not of:
        width, height = given.get("width"), given.get("height")
    found: dict[str, str | int | float | None] = {
        "steps": _common(of, "steps", given),
        "resolution": f"{width}×{height}" if width and height else None,
        "batch_size": _common(of, "batch", given, "batch_size"),
        "frames": _common(of, "frames", given),
        "guidance": _guidance(of, given),
    }
    if of and found["frames"] is None and {one.frames for one in of} == {None} and width:
        found["frames"] = 0
    return found


def _common(
    of: Iterable[Generation], field: str, given: Mapping[str, int], argument: str = ""
) -> int | None:
    values = {getattr(one, field) for one in of}
    if not values:
        return given.get(argument or field)
    value = values.pop()
    return None if values else value


def _guidance(of: Iterable[Generation], given: Mapping[str, float]) -> float | None:
    """The guidance scale; 0 where pipeline calls were recorded and have none."""
    scales = {one.guidance_scale for one in of}
    true_scales = {one.true_cfg_scale for one in of} - {None}
    if not scales:
        return given.get("guidance")
    if len(scales) > 1 or len(true_scales) > 1:
        return None
    scale = scales.pop()
    return float(scale if scale is not None else next(iter(true_scales), None) or 0.0)


def _given(run: RunSummary) -> dict[str, int]:
    """Numbers that the pipeline was given, by column."""
    names = {**_ARGUMENTS, "width": ("width",), "height": ("height",)}
    found: dict[str, int] = {}
    for column, arguments in names.items():
        for argument in arguments:
            value = run.settings.get(argument)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[column] = int(value) if column != "guidance" else value  # type: ignore[assignment]
    return found


def _hardware(analysis: Analysis) -> str | None:
    """`2 × AMD Instinct MI300X`; unknown where nobody said of a device what it is."""
    devices = analysis.devices.select("device", "hardware", "calls", "commands").rows()
    used = [row for row in devices if row[2]] or [row for row in devices if row[3]]
    names = Counter(_named(analysis.run, device, hardware) for device, hardware, *_ in used)
    if not names or None in names:
        return None
    return " + ".join(f"{number} × {name}" for name, number in sorted(names.items(), key=str))


def _named(run: RunSummary, device: str, hardware: str | None) -> str | None:
    told = run.devices.get(device)
    name = hardware or (told.hardware if told is not None else "")
    cores = len(told.cores) if told is not None else 0
    if name and cores:
        return f"{name} ({cores} core{'s' if cores > 1 else ''})"
    return name or None


def _software(versions: Mapping[str, str]) -> str | None:
    told = sorted((name, of) for name, of in versions.items() if name not in _BESIDE_SPEED)
    return ", ".join(f"{name} {version}" for name, version in told) or None
