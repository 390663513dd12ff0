"""VAE decoders as graphs: latents → image, under optimum-onnx's names."""

from __future__ import annotations

from typing import Any

from profiler.graph.export.options import StaticSizes
from profiler.graph.export.part_graph import PartGraph, Trial, free_sizes, shapes_of

__all__ = ["image_decoder", "qwen_decoder"]


def image_decoder(module: Any, static: StaticSizes, *, scale: int, dtype: Any) -> PartGraph:
    """AutoencoderKL: latents [batch_size, channels, height / 8, width / 8] → image."""
    return _decoder(module, static, scale, dtype, (), module.config.latent_channels)


def qwen_decoder(module: Any, static: StaticSizes, *, scale: int, dtype: Any) -> PartGraph:
    """AutoencoderKLQwenImage: latents [batch_size, channels, 1, height / 8, width / 8] → image of
    one frame."""
    return _decoder(module, static, scale, dtype, (1,), module.config.z_dim)


def _decoder(
    module: Any,
    static: StaticSizes,
    scale: int,
    dtype: Any,
    frames: tuple[int, ...],
    channels: int,
) -> PartGraph:
    rows, columns = static.latents(scale)
    inputs = {
        "latent_sample": (
            *(static.batch or "batch_size", channels, *frames),
            *(rows or "latent_height", columns or "latent_width"),
        )
    }

    def forward(latent_sample: Any) -> tuple[Any, ...]:
        return (module.decode(latent_sample, return_dict=False)[0],)

    def draw(random: Any, sizes: Trial) -> dict[str, Any]:
        import torch

        shape = shapes_of(inputs, sizes)["latent_sample"]
        return {"latent_sample": torch.from_numpy(random.standard_normal(shape)).to(dtype)}

    return PartGraph(
        module=module,
        forward=forward,
        inputs=inputs,
        outputs=("sample",),
        draw=draw,
        trials=free_sizes(
            {"batch_size": (2, 1), "latent_height": (4, 5), "latent_width": (6, 3)},
            {"batch_size": static.batch, "latent_height": rows, "latent_width": columns},
        ),
    )
