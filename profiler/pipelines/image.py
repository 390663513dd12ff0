"""From the VAE's pixels to images, as diffusers' `VaeImageProcessor` does it."""

from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from profiler.errors import InputError, needing
from profiler.pipelines.onnx_submodule import Array

with needing("run", "profiler.pipelines"):
    from PIL import Image

__all__ = ["ImageProcessor"]


class ImageProcessor:
    """Turns decoded pixels into PIL images or arrays."""

    @overload
    def postprocess(
        self, image: Array, output_type: Literal["pil"] = "pil"
    ) -> list[Image.Image]: ...

    @overload
    def postprocess(self, image: Array, output_type: Literal["np"]) -> NDArray[np.float32]: ...

    @overload
    def postprocess(
        self, image: Array, output_type: str
    ) -> list[Image.Image] | NDArray[np.float32]: ...

    def postprocess(
        self, image: Array, output_type: str = "pil"
    ) -> list[Image.Image] | NDArray[np.float32]:
        """Turn pixels [batch, 3, height, width] from -1..1 into images.

        `pil` gives a list of RGB images; `np` an array float32 [batch, height, width, 3] from 0
        to 1. Values outside the range are clipped. Raises `InputError` for another output type.
        """
        if output_type not in ("pil", "np"):
            raise InputError(f"{output_type!r} is not an output type; use pil, np or latent")
        scaled = np.clip(image.astype(np.float32) / 2 + np.float32(0.5), 0, 1)
        array: NDArray[np.float32] = np.ascontiguousarray(scaled.transpose(0, 2, 3, 1))
        if output_type == "np":
            return array
        return [Image.fromarray(pixels) for pixels in (array * 255).round().astype(np.uint8)]
