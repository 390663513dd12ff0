"""From a model folder to the components of a Stable Diffusion 3 pipeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.errors import InputError
from profiler.pipelines.devices import (
    DEFAULT_DEVICE,
    Device,
    Placement,
    ProviderSpec,
    check_part_name,
)
from profiler.pipelines.model_folder import ModelFolder
from profiler.pipelines.parts import OnnxPart, OnnxVae
from profiler.pipelines.scheduler import FlowMatchEulerDiscreteScheduler
from profiler.pipelines.tokenizer import PromptTokenizer, clip_tokenizer, t5_tokenizer

__all__ = ["SUBMODULES", "Components", "ModelSizes", "load_components"]

SUBMODULES = ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae")
"""Submodules of the pipeline, in the order in which a run calls them."""

_SCHEDULER_CLASS = "FlowMatchEulerDiscreteScheduler"


@dataclass(frozen=True)
class ModelSizes:
    """The numbers of a model that the pipeline needs.

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
    def read(cls, folder: ModelFolder) -> "ModelSizes":
        """Read the configs of transformer and VAE; raises `InputError` if a number is missing."""
        transformer = folder.settings("transformer")
        vae = folder.settings("vae_decoder")
        channels = vae.values.get("block_out_channels")
        if not isinstance(channels, list) or not channels:
            raise InputError(f"block_out_channels in {vae.source} must be a list of integers")
        patch = transformer.integer("patch_size", 2)
        return cls(
            sample_size=transformer.integer("sample_size", 128),
            largest_size=patch * transformer.integer("pos_embed_max_size", 96),
            patch_size=patch,
            latent_channels=transformer.integer("in_channels", 16),
            latent_scale=2 ** (len(channels) - 1),
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
class Components:
    """Everything that a pipeline is made of; `text_encoder_3` and its tokenizer may be absent."""

    tokenizer: PromptTokenizer
    tokenizer_2: PromptTokenizer
    tokenizer_3: PromptTokenizer | None
    text_encoder: OnnxPart
    text_encoder_2: OnnxPart
    text_encoder_3: OnnxPart | None
    transformer: OnnxPart
    vae: OnnxVae
    scheduler: FlowMatchEulerDiscreteScheduler
    sizes: ModelSizes
    placement: Placement
    folder: Path


def load_components(
    path: Path | str,
    devices: Mapping[str, str],
    providers: Sequence[ProviderSpec] | None,
) -> Components:
    """Read a model folder and place its submodules; no session is opened.

    See `StableDiffusion3Pipeline.from_folder` for the arguments. Raises `InputError` if a file is
    missing or malformed, or a device or provider cannot be used.
    """
    folder = ModelFolder(path)
    present = [name for name in SUBMODULES if name != "text_encoder_3" or folder.has(name)]
    for name in devices:
        check_part_name(name, present)
    default = str(Device.of_provider(providers[0])) if providers else DEFAULT_DEVICE
    placed = {name: str(Device.parse(devices.get(name, default))) for name in present}
    placement = Placement.plan(placed.values())
    parts = {
        name: _part(
            folder,
            name,
            placed[name],
            providers=providers if providers and name not in devices else None,
            placement=placement,
        )
        for name in present
    }
    with_t5 = "text_encoder_3" in parts
    return Components(
        tokenizer=clip_tokenizer(folder.path / "tokenizer"),
        tokenizer_2=clip_tokenizer(folder.path / "tokenizer_2"),
        tokenizer_3=t5_tokenizer(folder.path / "tokenizer_3") if with_t5 else None,
        text_encoder=parts["text_encoder"],
        text_encoder_2=parts["text_encoder_2"],
        text_encoder_3=parts.get("text_encoder_3"),
        transformer=parts["transformer"],
        vae=OnnxVae(parts["vae"]),
        scheduler=_scheduler(folder),
        sizes=ModelSizes.read(folder),
        placement=placement,
        folder=folder.path,
    )


def _part(
    folder: ModelFolder,
    name: str,
    device: str,
    *,
    providers: Sequence[ProviderSpec] | None,
    placement: Placement,
) -> OnnxPart:
    """Describe one part; the VAE's folder is that of its decoder."""
    subfolder = "vae_decoder" if name == "vae" else name
    model_path = folder.model_path(subfolder)
    return OnnxPart(
        name,
        model_path,
        device,
        providers=providers,
        placement=placement,
        config=folder.settings(subfolder).values,
    )


def _scheduler(folder: ModelFolder) -> FlowMatchEulerDiscreteScheduler:
    """Make the scheduler; raises `InputError` if the folder asks for one of another class."""
    settings = folder.settings("scheduler", "scheduler_config.json")
    name = settings.values.get("_class_name") or folder.class_name("scheduler")
    if name not in (None, _SCHEDULER_CLASS):
        raise InputError(
            f"{settings.source} asks for {name!r}; this pipeline has {_SCHEDULER_CLASS}"
        )
    return FlowMatchEulerDiscreteScheduler(settings.values, settings.source)
