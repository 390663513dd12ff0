"""What `graph export` is asked for: element type, opset, sizes, parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiler.errors import InputError

__all__ = ["DTYPES", "SIZE_NAMES", "ExportOptions", "StaticSizes", "check_sizes", "parse_static"]

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""What `--dtype` takes, and how torch, ONNX and NumPy call it."""

SIZE_NAMES = ("batch", "height", "width", "sequence")
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class StaticSizes:
    """Sizes that the graphs are made for alone; None stays free.

    `batch` counts images, `height` and `width` are pixels of the image, `sequence` counts the
    tokens of the prompt where a text encoder takes any number of them (T5, Qwen2.5-VL).
    """

    batch: int | None = None
    height: int | None = None
    width: int | None = None
    sequence: int | None = None

    def latents(self, scale: int, step: int = 1) -> tuple[int | None, int | None]:
        """Rows and columns of the latents, `scale` pixels each, in patches of `step` of them.

        Raises InputError where the image is not a whole number of patches.
        """
        patch = scale * step
        for name, size in (("height", self.height), ("width", self.width)):
            if size is not None and size % patch:
                raise InputError(
                    f"--static {name}={size} is no multiple of {patch} pixels, which this model "
                    f"asks for: give for instance {name}={-(-size // patch) * patch}"
                )
        rows = None if self.height is None else self.height // scale
        return rows, None if self.width is None else self.width // scale


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How a pipeline is exported.

    `dtype` is a key of DTYPES, `opset` ONNX's (None: 18, and 22 for bfloat16), `parts` are names
    of submodules (none: all that the pipeline has), `seed` is that of random weights and inputs.
    """

    dtype: str = "fp32"
    opset: int | None = None
    static: StaticSizes = StaticSizes()
    random_weights: bool = False
    seed: int = 0
    layernorm_fix: bool = True
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InputError(f"--dtype {self.dtype} is not known: give one of {', '.join(DTYPES)}")
        if self.opset is not None and not 15 <= self.opset <= 30:
            raise InputError(f"--opset {self.opset} cannot be exported: give 15 to 30, at best 18")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed} is negative: give 0 or more")

    @property
    def opset_version(self) -> int:
        """The opset of the graphs: Conv takes bfloat16 from 22 on."""
        return self.opset or (22 if self.dtype == "bf16" else 18)

    @property
    def torch_dtype(self) -> Any:
        """The element type as torch's."""
        import torch

        return getattr(torch, DTYPES[self.dtype])


def parse_static(text: str) -> StaticSizes:
    """`height=1024,width=1024,batch=1` as sizes. Raises InputError for anything else."""
    sizes: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = entry.partition("=")
        if name not in SIZE_NAMES or name in sizes or not (number.isascii() and number.isdigit()):
            raise InputError(
                f"--static {entry} is no size: give for instance --static "
                f"height=1024,width=1024,batch=1 (of {', '.join(SIZE_NAMES)}, each once)"
            )
        sizes[name] = int(number[:9])
    return check_sizes(sizes)


def check_sizes(sizes: Mapping[str, int]) -> StaticSizes:
    """The sizes by name. Raises InputError for one below 1 or beyond 2²⁰."""
    for name, size in sizes.items():
        if not 0 < size <= _MOST:
            raise InputError(f"--static {name}={size} is out of range: give 1 to {_MOST}")
    return StaticSizes(**sizes)
