"""Whether the parts of a pipeline fit together, by what their config.json say of widths.

`graph export` asks before it exports all parts, `run` when it loads them: what one takes the other
takes as well. A width that a configuration does not state is not asked after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from profiler.errors import InputError

__all__ = ["check_widths"]

_Configurations = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class _Width:
    """A width as an error names it; None where the configurations do not state it."""

    said: str
    value: int | None


def check_widths(class_name: str, configurations: _Configurations) -> None:
    """Refuse parts of different models.

    `configurations` are the contents of config.json, by submodule; a pipeline may lack some.
    Raises InputError.
    """
    for given, wanted in _CHECKS[class_name](configurations):
        if given.value is not None and wanted.value is not None and given.value != wanted.value:
            raise InputError(
                f"{given.said} is {given.value} where {wanted.said} is {wanted.value}: the folder "
                "mixes parts of different models"
            )


def _sd3(parts: _Configurations) -> Iterator[tuple[_Width, _Width]]:
    text = _of(parts, "transformer", "joint_attention_dim")
    clips = _sum(parts, ("text_encoder", "text_encoder_2"), "hidden_size")
    t5 = _of(parts, "text_encoder_3", "d_model")
    room = t5 if t5.value is not None else text
    if clips.value is not None and room.value is not None and clips.value > room.value:
        raise InputError(
            f"{clips.said} is {clips.value}, more than {room.said}, which is {room.value}: the "
            "folder mixes parts of different models"
        )
    yield t5, text
    yield (
        _sum(parts, ("text_encoder", "text_encoder_2"), "projection_dim"),
        _of(parts, "transformer", "pooled_projection_dim"),
    )
    yield _of(parts, "vae", "latent_channels"), _of(parts, "transformer", "in_channels")


def _flux(parts: _Configurations) -> Iterator[tuple[_Width, _Width]]:
    pooled = _of(parts, "transformer", "pooled_projection_dim")
    yield _of(parts, "text_encoder", "hidden_size"), pooled
    yield _of(parts, "text_encoder_2", "d_model"), _of(parts, "transformer", "joint_attention_dim")
    yield _patched(_of(parts, "vae", "latent_channels")), _of(parts, "transformer", "in_channels")


def _qwen(parts: _Configurations) -> Iterator[tuple[_Width, _Width]]:
    text = _of(parts, "transformer", "joint_attention_dim")
    yield _of(parts, "text_encoder", "text_config.hidden_size"), text
    yield _of(parts, "text_encoder", "hidden_size"), text
    yield _patched(_of(parts, "vae", "z_dim")), _of(parts, "transformer", "in_channels")


_CHECKS: Mapping[str, Callable[[_Configurations], Iterator[tuple[_Width, _Width]]]] = {
    "StableDiffusion3Pipeline": _sd3,
    "FluxPipeline": _flux,
    "QwenImagePipeline": _qwen,
}


def _of(parts: _Configurations, name: str, key: str) -> _Width:
    """The width under `key`, with dots between nested ones."""
    value: object = parts.get(name)
    for step in key.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if not isinstance(value, int) or isinstance(value, bool):
        value = None
    return _Width(f"{key} of {name}", value)


def _sum(parts: _Configurations, names: tuple[str, ...], key: str) -> _Width:
    values = [_of(parts, name, key).value for name in names]
    known = [value for value in values if value is not None]
    return _Width(
        f"{key} of {' and '.join(names)} together",
        sum(known) if len(known) == len(values) else None,
    )


def _patched(channels: _Width) -> _Width:
    """The channels of a patch of 2 by 2 latents, as FLUX and Qwen-Image take them."""
    return _Width(f"4 × {channels.said}", None if channels.value is None else 4 * channels.value)
