"""Names of submodules: the attribute that diffusers would have, from class and place in the run.

Classes are hints only. They choose between names that the structure leaves open (`transformer` or
`unet`, `text_encoder` or `image_encoder`); what is a call, and in which stage, they decide only
where the trace shows no denoising loop at all. Where nothing tells of diffusion, a submodule has
the name of its class.
"""

from __future__ import annotations

import re

from profiler.importers.kineto.calls import CallRange, Ran

__all__ = [
    "SubmoduleNames",
    "is_controlnet",
    "is_decoder",
    "is_denoiser",
    "is_encoder",
    "tells_of_diffusion",
]

_HINTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("vae", re.compile(r"Autoencoder|VAE|Vae|VQ|^Decoder\w*$")),
    ("controlnet", re.compile(r"Control")),
    ("image_encoder", re.compile(r"Vision|Image\w*Encoder|Siglip|Dino")),
    ("safety_checker", re.compile(r"SafetyChecker")),
    ("text_encoder", re.compile(r"Text\w*Model|Text\w*Encoder|T5|EncoderModel|CausalLM|Bert")),
    ("unet", re.compile(r"UNet|Unet")),
    ("transformer", re.compile(r"Transformer|DiT|Flux")),
)
_DIFFUSION = re.compile(r"Autoencoder|UNet|Unet|DiT|Flux|Transformer\w*[23]D")  # of no other model
_WARM_UP = "warm-up"
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _hint(call: CallRange) -> str:
    if call.is_autoencoder:
        return "vae"
    return next((name for name, hint in _HINTS if hint.search(call.class_name)), "")


def is_encoder(call: CallRange) -> bool:
    """Whether the class is that of a text or image encoder."""
    return _hint(call) in ("text_encoder", "image_encoder")


def is_denoiser(call: CallRange) -> bool:
    """Whether the class is that of a denoiser."""
    return _hint(call) in ("transformer", "unet")


def is_decoder(call: CallRange) -> bool:
    """Whether it is an autoencoder, or what checks its images."""
    return _hint(call) in ("vae", "safety_checker")


def is_controlnet(call: CallRange) -> bool:
    """Whether the class is that of a ControlNet, which runs in the loop beside the denoiser."""
    return _hint(call) == "controlnet"


def tells_of_diffusion(call: CallRange) -> bool:
    """Whether only a diffusion pipeline has such a part: a denoiser, or an image's autoencoder."""
    return call.is_autoencoder or bool(_DIFFUSION.search(call.class_name))


class SubmoduleNames:
    """Gives every module instance of a trace one name, that of its first call.

    Instances that would share a name are numbered in order of their first call: `text_encoder`,
    `text_encoder_2`, `text_encoder_3`.
    """

    def __init__(self) -> None:
        self._of_instance: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def name(self, call: CallRange, role: str) -> str:
        """The submodule's name. `role` is what its place in the pipeline says it is:
        `text_encoder`, `denoiser`, `vae`, "" where that says nothing, or `class` where it is no
        diffusion pipeline. Warm-ups of a graph's capture have a name of their own."""
        name = self._name(call, role)
        return f"{name} {_WARM_UP}" if call.ran is Ran.WARM_UP else name

    def _name(self, call: CallRange, role: str) -> str:
        known = self._of_instance.get(call.instance)
        if known is not None:
            return known
        base = call.class_name if role == "class" else _base_name(call, role)
        count = self._counts[base] = self._counts.get(base, 0) + 1
        name = base if count == 1 else f"{base}_{count}"
        self._of_instance[call.instance] = name
        return name


def _base_name(call: CallRange, role: str) -> str:
    hint = _hint(call)
    if hint:
        return hint
    if role == "text_encoder" or (role and call.class_name == "OptimizedModule"):
        return role
    return _snake(call.class_name)


def _snake(class_name: str) -> str:
    """`AudioUpsampler2` → `audio_upsampler_2`, `ResNet` → `resnet`."""
    words = _WORD.findall(class_name.replace("Net", "net"))
    return "_".join(words).lower() or "module"
