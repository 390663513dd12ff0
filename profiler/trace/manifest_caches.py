"""What a manifest says of calls that a step cache of diffusers' let skip blocks.

`docs/file-format.md` describes the keys.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from profiler.trace.manifest_fields import LARGEST, Fields

__all__ = ["CachedCall"]

_CallIndex = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_Count = Annotated[int, Meta(ge=0, le=LARGEST)]
_Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class CachedCall(Fields, frozen=True, kw_only=True):
    """The call of index `call`, made under `cache`, which may skip so many `blocks`: paths of those
    that it skipped. `without_uncond`: the unconditional half of the batch was left out.
    `residual_ratio` is what FirstBlockCache held against its threshold."""

    call: _CallIndex
    cache: str
    blocks: _Count = 0
    skipped: tuple[str, ...] = ()
    without_uncond: bool = False
    residual_ratio: _Real | None = None
