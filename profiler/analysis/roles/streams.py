"""Image or text: which of the two streams of a joint transformer a kind works on.

By names where the path has some (`ff_context`, `add_k_proj`, `txt_mlp`), else by the number of
tokens: that of the image is what named image kinds have, or what the patch convolution gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from profiler.analysis.roles.places import Place
from profiler.analysis.work.shapes import Shapes

__all__ = ["StreamKind", "streams_of"]

_IMAGE = frozenset(
    [
        "to_q",
        "to_k",
        "to_v",
        "to_out",
        "norm_q",
        "norm_k",
        "ff",
        "ff_net",
        "norm1",
        "norm2",
        "attn2",
        "img_mlp",
        "img_mod",
        "img_norm1",
        "img_norm2",
        "img_in",
        "x_embedder",
        "pos_embed",
        "proj_out",
        "norm_out",
        "img_attn",
    ]
)
_OUTSIDE = frozenset(["img_in", "x_embedder", "pos_embed", "proj_out", "norm_out"])


class StreamKind(Struct, frozen=True):
    """What is known of a kind, its role included."""

    submodule: str
    place: Place
    shapes: Shapes | None
    total_ns: int
    role: str


def streams_of(kinds: Sequence[StreamKind]) -> list[str | None]:
    """`image`, `text` or None for each kind."""
    found: list[str | None] = [None] * len(kinds)
    members: dict[str, list[int]] = {}
    for number, kind in enumerate(kinds):
        members.setdefault(kind.submodule, []).append(number)
    for numbers in members.values():
        named = {number: _by_name(kinds[number].place) for number in numbers}
        lengths = _lengths([kinds[n] for n in numbers], [named[n] for n in numbers])
        if "text" not in named.values() and "text" not in lengths.values():
            continue
        for number in numbers:
            if kinds[number].role != "rope":  # positions of both
                found[number] = named[number] or _by_length(kinds[number], lengths)
    return found


def _by_name(place: Place) -> str | None:
    if place.context:
        return "text"
    if place.names and place.names[0].startswith("single"):
        return None
    inside = place.names[2:] if place.block else place.names[:1]
    wanted = _IMAGE if place.block else _OUTSIDE
    return "image" if any(name in wanted for name in inside) else None


def _lengths(kinds: Sequence[StreamKind], named: Sequence[str | None]) -> dict[int, str]:
    """Number of tokens, alone and times the batch → stream; those of both streams are left out.
    The text of a prompt and of a negative prompt may differ in length."""
    found: dict[str, set[int]] = {"image": set(), "text": set()}
    batches = {1}
    for kind, stream in zip(kinds, named, strict=True):
        dims = _tokens(kind.shapes)
        if stream and dims and kind.place.block:
            found[stream].add(dims[1])
            batches.add(dims[0])
    if not all(found.values()):
        image, text, batch = _by_patches(kinds)
        found = {"image": {image}, "text": {text}}
        batches.add(batch)
    wide = {
        stream: {batch * length for batch in batches for length in lengths if length > 1}
        for stream, lengths in found.items()
    }
    both = wide["image"] & wide["text"]
    return {length: stream for stream, own in wide.items() for length in own - both}


def _by_patches(kinds: Sequence[StreamKind]) -> tuple[int, int, int]:
    """Image and text tokens and the batch, from the patch convolution and joint attention."""
    image = batch = 0
    for kind in kinds:
        if kind.role not in ("convolution", "embedding") or kind.shapes is None:
            continue
        x, w, *_ = (*(tensor.dims for tensor in kind.shapes.inputs), (), ())
        if len(x) == len(w) == 4 and w[1] == x[1] and w[2] == w[3] > 1 and not x[2] % w[2]:
            batch, image = x[0], (x[2] // w[2]) * (x[3] // w[3])
    if not image:
        return 0, 0, 1
    joint: Counter[int] = Counter()
    for kind in kinds:
        if kind.role == "attention" and kind.shapes and kind.shapes.inputs:
            joint.update(
                {n - image: kind.total_ns for n in kind.shapes.inputs[0].dims[1:3] if n > image}
            )
    return image, joint.most_common(1)[0][0] if joint else 0, batch


def _tokens(shapes: Shapes | None) -> tuple[int, ...]:
    """The dims of the largest tensor of three that goes in, () where there is none."""
    if shapes is None:
        return ()
    dims = [tensor.dims for tensor in shapes.inputs if len(tensor.dims) == 3]
    return max(dims, key=lambda d: d[1], default=())


def _by_length(kind: StreamKind, lengths: Mapping[int, str]) -> str | None:
    """The stream all of whose lengths stand first in the tensors that go in."""
    if kind.shapes is None or not lengths or kind.place.names[:1] == ("single_transformer_blocks",):
        return None
    streams = set()
    for tensor in kind.shapes.inputs:
        dims = tensor.dims
        if len(dims) == 3 or len(dims) == 4:
            streams.add(lengths.get(dims[1]) or lengths.get(dims[2] if len(dims) == 4 else -1))
        elif len(dims) == 2:
            streams.add(lengths.get(dims[0]))
    streams.discard(None)
    return streams.pop() if len(streams) == 1 else None
