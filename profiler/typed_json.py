"""JSON and plain values as types of msgspec, whichever threads ask.

    decoded(text, Manifest)
    decoder = decoder_of(Event)     # for many texts

msgspec learns what a struct's fields are when the struct is first read, and lets other threads read
it while it has learned half of them: the process dies of that. Here one thread learns, the others
wait, a fork among them, whose child would keep half of it for ever.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar, cast

import msgspec

__all__ = ["converted", "decoded", "decoder_of"]

_Type = TypeVar("_Type")
_DECODERS: dict[tuple[Any, bool], msgspec.json.Decoder[Any]] = {}
_LEARNING = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_LEARNING.acquire,
        after_in_parent=_LEARNING.release,
        after_in_child=_LEARNING.release,
    )


def decoder_of(kind: type[_Type], *, strict: bool = True) -> msgspec.json.Decoder[_Type]:
    """The decoder of JSON as `kind`, the same one each time."""
    known = _DECODERS.get((kind, strict))
    if known is None:
        with _LEARNING:
            known = _DECODERS.get((kind, strict)) or msgspec.json.Decoder(kind, strict=strict)
            _DECODERS[kind, strict] = known
    return cast("msgspec.json.Decoder[_Type]", known)


def decoded(text: bytes | bytearray | str, kind: type[_Type], *, strict: bool = True) -> _Type:
    """JSON as `kind`. Raises what `msgspec.json.decode` does."""
    return decoder_of(kind, strict=strict).decode(text)


def converted(value: object, kind: type[_Type]) -> _Type:
    """Plain values as `kind`. Raises ValidationError where they are none."""
    decoder_of(kind)
    return msgspec.convert(value, kind)
