"""Sizes of images, latents and tokens, from the configurations of denoiser and VAE."""

from dataclasses import dataclass

from profiler.errors import InputError
from profiler.pipelines.model_folder import ModelFolder, Settings

__all__ = ["PackedSizes", "PatchedSizes", "block_scale"]

_PATCH = 2  # rows and columns of latents in a token of FLUX and Qwen-Image
_DEFAULT = 128  # rows and columns of latents, as diffusers has it


@dataclass(frozen=True)
class PatchedSizes:
    """The numbers of Stable Diffusion 3, whose denoiser makes patches of latents itself.

    `sample_size` and `largest_size` are latent rows or columns; `latent_scale` is pixels per
    latent; `context_width` is the feature width of the transformer's text tokens.
    """

    sample_size: int
    largest_size: int
    patch_size: int
    latent_channels: int
    latent_scale: int
    context_width: int
    scaling_factor: float
    shift_factor: float

    @classmethod
    def read(cls, folder: ModelFolder) -> "PatchedSizes":
        """Read the configs of transformer and VAE; raises `InputError` if a number is missing."""
        transformer = folder.settings("transformer")
        vae = folder.settings("vae_decoder")
        patch = transformer.integer("patch_size", 2)
        return cls(
            sample_size=transformer.integer("sample_size", 128),
            largest_size=patch * transformer.integer("pos_embed_max_size", 96),
            patch_size=patch,
            latent_channels=transformer.integer("in_channels", 16),
            latent_scale=block_scale(vae),
            context_width=transformer.integer("joint_attention_dim", 4096),
            scaling_factor=vae.number("scaling_factor"),
            shift_factor=vae.number("shift_factor", 0.0),
        )

    def image_size(self, height: int | None, width: int | None) -> tuple[int, int]:
        """Return the pixels of an image, the default where None.

        Raises `InputError` for a size that is no multiple of a patch or larger than the model's
        position embeddings reach.
        """
        default = self.sample_size * self.latent_scale
        patch = self.patch_size * self.latent_scale
        smallest = 2 * patch  # exporters bake in sizes of one patch
        largest = self.largest_size * self.latent_scale
        for name, size in (("height", height), ("width", width)):
            if size is not None and (size < smallest or size % patch or size > largest):
                raise InputError(
                    f"{name} is {size}; this model makes images of {smallest} to {largest} pixels "
                    f"in steps of {patch}"
                )
        return height or default, width or default

    def image_tokens(self, height: int, width: int) -> int:
        """Return how many tokens the transformer makes of an image of that many pixels."""
        patch = self.patch_size * self.latent_scale
        return (height // patch) * (width // patch)

    def latent_shape(self, batch: int, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the shape of the latents of `batch` images of that many pixels."""
        scale = self.latent_scale
        return (batch, self.latent_channels, height // scale, width // scale)


@dataclass(frozen=True)
class PackedSizes:
    """The numbers of FLUX and Qwen-Image, whose denoisers take patches of 2 by 2 latents as tokens.

    `latent_scale` is pixels per latent, `latent_channels` those of a latent.
    """

    latent_scale: int
    latent_channels: int

    @classmethod
    def read(cls, folder: ModelFolder, latent_scale: int) -> "PackedSizes":
        """Read the denoiser's config; raises `InputError` where its channels are no patches."""
        transformer = folder.settings("transformer")
        channels = transformer.integer("in_channels", 64)
        if channels % _PATCH**2:
            raise InputError(
                f"in_channels in {transformer.source} must be a multiple of 4, not {channels}"
            )
        return cls(latent_scale, channels // _PATCH**2)

    def image_size(self, height: int | None, width: int | None) -> tuple[int, int]:
        """Return the pixels of an image, the default where None.

        Raises `InputError` for a size that is no multiple of a patch.
        """
        patch = _PATCH * self.latent_scale
        for name, size in (("height", height), ("width", width)):
            if size is not None and (size < 2 * patch or size % patch):
                raise InputError(
                    f"{name} is {size}; this model makes images of {2 * patch} pixels and more in "
                    f"steps of {patch}"
                )
        default = _DEFAULT * self.latent_scale
        return height or default, width or default

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of tokens of an image of that many pixels."""
        patch = _PATCH * self.latent_scale
        return height // patch, width // patch


def block_scale(vae: Settings) -> int:
    """Pixels per latent of an AutoencoderKL; raises `InputError` if its config does not say."""
    blocks = vae.values.get("block_out_channels")
    if not isinstance(blocks, list) or not blocks:
        raise InputError(f"block_out_channels in {vae.source} must be a list of integers")
    return int(2 ** (len(blocks) - 1))
