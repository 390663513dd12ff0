"""A model folder (diffusers, optimum ONNX), its image sizes, and the devices and targets of models.

model_index.json only says which parts exist and their classes. No path is made from it.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from profiler.errors import InputError, needing
from profiler.files import read_file
from profiler.trace import manifest_fields

# --- Devices, and the cores of each CPU device.
#
# A device is written `kind:index`. The CPU devices `cpu:0`, `cpu:1`, … divide the cores that the
# process may use, so that submodules on different ones do not compete. Other kinds name an ONNX
# Runtime execution provider and the index of its device.


ProviderSpec = str | tuple[str, Mapping[str, str]]
"""An ONNX Runtime execution provider by name, alone or with its options."""

DEFAULT_DEVICE = "cpu:0"

PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "CPUExecutionProvider",
        "cuda": "CUDAExecutionProvider",
        "tensorrt": "TensorrtExecutionProvider",
        "rocm": "ROCMExecutionProvider",
        "migraphx": "MIGraphXExecutionProvider",
        "dml": "DmlExecutionProvider",
        "cann": "CANNExecutionProvider",
    }
)
"""Device kind to the ONNX Runtime execution provider that serves it."""


@dataclass(frozen=True, order=True)
class Device:
    """A place that executes commands; `str()` gives `kind:index`."""

    kind: str
    index: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    @classmethod
    def parse(cls, text: str) -> "Device":
        """Read `kind:index`; raises `InputError` for another form or an unknown kind."""
        match = re.fullmatch(r"([a-z]+):([0-9]{1,4})", text)
        if match is None or match[1] not in PROVIDERS:
            kinds = ", ".join(PROVIDERS)
            raise InputError(
                f"{text!r} is not a device; write kind:index such as cpu:1, with one of {kinds}"
            )
        return cls(match[1], int(match[2]))

    def providers(self) -> list[ProviderSpec]:
        """Return the ONNX Runtime providers for this device, in order of preference."""
        if self.kind == "cpu":
            return [PROVIDERS["cpu"]]
        return [(PROVIDERS[self.kind], {"device_id": str(self.index)}), PROVIDERS["cpu"]]

    @classmethod
    def of_provider(cls, spec: ProviderSpec) -> "Device":
        """Return the device that an ONNX Runtime provider stands for; the inverse of `providers`.

        Raises `InputError` for a provider that no device kind names.
        """
        name, options = (spec, {}) if isinstance(spec, str) else spec
        for kind, provider in PROVIDERS.items():
            if provider == name:
                return cls.parse(f"{kind}:{options.get('device_id', '0')}")
        known = ", ".join(PROVIDERS.values())
        raise InputError(f"{name!r} is not a provider that devices can name; use one of {known}")


def parse_device_options(options: Iterable[str], known_parts: Collection[str]) -> dict[str, str]:
    """Read `submodule=kind:index` options into submodule → device.

    Raises `InputError` for a submodule that is not in `known_parts`, one named twice, or a
    malformed device.
    """
    devices: dict[str, str] = {}
    for option in options:
        name, separator, device = option.partition("=")
        if not separator:
            raise InputError(
                f"{option!r} does not say which submodule goes where; "
                "write submodule=kind:index such as text_encoder_3=cpu:1"
            )
        check_part_name(name, known_parts)
        if name in devices:
            raise InputError(f"{name} is placed twice, on {devices[name]} and {device}; keep one")
        devices[name] = str(Device.parse(device))
    return devices


def check_part_name(name: str, known_parts: Collection[str]) -> None:
    """Raise `InputError` unless `name` is one of `known_parts`."""
    if name not in known_parts:
        known = ", ".join(known_parts)
        raise InputError(f"{name!r} is not a submodule of this pipeline; it has {known}")


def check_providers(providers: Iterable[ProviderSpec]) -> None:
    """Raise `InputError` if this ONNX Runtime lacks one of `providers`."""
    with needing("run", "profiler.pipelines", "onnxruntime"):
        import onnxruntime

    available: list[str] = onnxruntime.get_available_providers()
    for spec in providers:
        name = spec if isinstance(spec, str) else spec[0]
        if name not in available:
            raise InputError(
                f"this onnxruntime has no {name}, only {', '.join(available)}; "
                "install the onnxruntime package that brings it or choose another device"
            )


def usable_cores() -> tuple[int, ...]:
    """Return the processors that this process may use, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class DeviceShare:
    """One device's share of this machine.

    `cores` are OS processor numbers, empty for a device that is not a CPU; `pinned`: its threads
    stay on them; `shared_with` are CPU devices on the same cores.
    """

    device: str
    cores: tuple[int, ...]
    pinned: bool
    shared_with: tuple[str, ...] = ()

    def described(self) -> manifest_fields.Device:
        """The description of the device in the trace's manifest."""
        device = Device.parse(self.device)
        if device.kind != "cpu":
            return manifest_fields.Device(provider=PROVIDERS[device.kind])
        return manifest_fields.Device(
            cores=self.cores, pinned=self.pinned, shared_with=self.shared_with
        )


@dataclass(frozen=True)
class Placement:
    """The devices of one pipeline, each with its share of the machine."""

    shares: tuple[DeviceShare, ...]

    @classmethod
    def plan(cls, devices: Iterable[str], cores: Iterable[int] | None = None) -> "Placement":
        """Divide `cores` (default: all usable ones) evenly among the CPU devices.

        The order of the devices' indices is the order of the cores. One CPU device has all cores
        and is not pinned. More CPU devices than cores have one core each and share it. Raises
        `InputError` for a malformed device.
        """
        wanted = sorted({Device.parse(device) for device in devices})
        pool = tuple(cores) if cores is not None else usable_cores()
        if not pool:
            raise InputError("no cores to place CPU devices on; give at least one")
        cpus = [str(device) for device in wanted if device.kind == "cpu"]
        others = [str(device) for device in wanted if device.kind != "cpu"]
        chosen = {name: _cores_of(i, len(cpus), pool) for i, name in enumerate(cpus)}
        shares = [
            DeviceShare(
                device=name,
                cores=mine,
                pinned=len(cpus) > 1,
                shared_with=tuple(
                    other for other in cpus if other != name and chosen[other] == mine
                ),
            )
            for name, mine in chosen.items()
        ]
        shares += [DeviceShare(device=name, cores=(), pinned=False) for name in others]
        return cls(tuple(shares))

    def of(self, device: str) -> DeviceShare:
        """Return the share of `device`; raises `InputError` if the placement lacks it."""
        for share in self.shares:
            if share.device == device:
                return share
        known = ", ".join(share.device for share in self.shares)
        raise InputError(f"{device!r} is not a device of this placement; it has {known}")

    def described(self) -> dict[str, manifest_fields.Device]:
        """The descriptions of the devices in the trace's manifest."""
        return {share.device: share.described() for share in self.shares}


def _cores_of(position: int, count: int, pool: tuple[int, ...]) -> tuple[int, ...]:
    """Return the cores of the device at `position` of `count`: a run of `pool`, or one shared."""
    if count > len(pool):
        return (pool[position % len(pool)],)
    start = position * len(pool) // count
    return pool[start : (position + 1) * len(pool) // count]


@contextmanager
def pinned(cores: Collection[int]) -> Iterator[None]:
    """Keep the calling thread on `cores` inside the block, and restore its former cores afterwards.

    Does nothing without cores, or if the system cannot pin threads.
    """
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# --- A model folder in the diffusers/optimum ONNX layout: model_index.json and a folder per part.


MOST_BYTES = 256 << 20
"""The most bytes of a file of settings or words."""
_RUNTIME = "ORT"  # prefix of the names of optimum's classes


def read_json(path: Path) -> dict[str, object]:
    """Return the JSON object in `path`; raises `InputError` if it is missing or something else."""
    try:
        content = json.loads(read_file(path, MOST_BYTES).decode())
    except FileNotFoundError:
        raise InputError(f"{path} is missing; export the model again or copy it whole") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); fetch it again") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object; fetch it again")
    return content


@dataclass(frozen=True)
class Settings:
    """The content of one JSON settings file, read with checks; `source` is named in errors."""

    source: Path
    values: Mapping[str, object]

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Read the file; raises `InputError` as `read_json` does."""
        return cls(path, read_json(path))

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a positive integer; raises `InputError` if it is absent without default."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{key} in {self.source} must be a positive integer, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number; raises `InputError` if it is absent without default."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{key} in {self.source} must be a number, not {value!r}")
        return float(value)

    def flag(self, key: str) -> bool:
        """Return a truth value, false if absent; raises `InputError` for anything else."""
        value = self.values.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise InputError(f"{key} in {self.source} must be true or false, not {value!r}")
        return value


class ModelFolder:
    """A model folder of the pipeline `class_name`, "" for any.

    Raises `InputError` if the folder does not exist, or model_index.json is missing, malformed or
    of another pipeline.
    """

    def __init__(self, path: Path | str, class_name: str = "") -> None:
        """Read model_index.json; nothing else is opened."""
        self.path = Path(path)
        if not self.path.is_dir():
            raise InputError(f"{self.path} is not a folder; name one that holds model_index.json")
        index_path = self.path / "model_index.json"
        if not index_path.is_file():
            raise InputError(
                f"{index_path} is missing; name a folder in the layout that "
                "`optimum-cli export onnx --model … FOLDER` writes"
            )
        self.index = read_json(index_path)
        if class_name and self.pipeline_class != class_name:
            held = str(self.index.get("_class_name"))[:80]
            raise InputError(f"{self.path} holds a {held!r}; this pipeline runs {class_name} only")

    @property
    def pipeline_class(self) -> str:
        """The pipeline's class as diffusers names it, "" if model_index.json has none."""
        name = self.index.get("_class_name")
        return name.removeprefix(_RUNTIME) if isinstance(name, str) else ""

    def has(self, component: str) -> bool:
        """Say whether model_index.json lists `component`, rather than null or nothing."""
        entry = self.index.get(component)
        return isinstance(entry, list) and len(entry) == 2 and entry[1] is not None

    def class_name(self, component: str) -> str | None:
        """Return the class that model_index.json gives for `component`, if any."""
        entry = self.index.get(component)
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str):
            return entry[1]
        return None

    def model_path(self, part: str) -> Path:
        """Return `<part>/model.onnx`; raises `InputError` if there is no such file."""
        path = self.path / part / "model.onnx"
        if not path.is_file():
            raise InputError(
                f"{part}/model.onnx is missing from {self.path}; export the model again with "
                "`optimum-cli export onnx`, or copy the folder whole"
            )
        return path

    def settings(self, part: str, name: str = "config.json") -> Settings:
        """Read `<part>/<name>`; raises `InputError` if it is missing or malformed."""
        return Settings.read(self.path / part / name)


# --- Sizes of images, latents and tokens, from the configurations of denoiser and VAE.


_PATCH = 2  # rows and columns of latents in a token of FLUX and Qwen-Image
_DEFAULT = 128  # rows and columns of latents, as diffusers has it


@dataclass(frozen=True)
class PatchedSizes:
    """The sizes of Stable Diffusion 3, whose denoiser makes patches of latents itself.

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
        """Return the pixels of an image, the default if None.

        Raises `InputError` for a size that is not a multiple of a patch, or larger than the model's
        position embeddings.
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
    """The sizes of FLUX and Qwen-Image, whose denoisers take patches of 2 by 2 latents as tokens.

    `latent_scale` is pixels per latent, `latent_channels` those of a latent.
    """

    latent_scale: int
    latent_channels: int

    @classmethod
    def read(cls, folder: ModelFolder, latent_scale: int) -> "PackedSizes":
        """Read the denoiser's config; raises `InputError` if its channels are not those of
        patches."""
        transformer = folder.settings("transformer")
        channels = transformer.integer("in_channels", 64)
        if channels % _PATCH**2:
            raise InputError(
                f"in_channels in {transformer.source} must be a multiple of 4, not {channels}"
            )
        return cls(latent_scale, channels // _PATCH**2)

    def image_size(self, height: int | None, width: int | None) -> tuple[int, int]:
        """Return the pixels of an image, the default if None.

        Raises `InputError` for a size that is not a multiple of a patch.
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
    """Pixels per latent of an AutoencoderKL; raises `InputError` if its config does not contain
    that."""
    blocks = vae.values.get("block_out_channels")
    if not isinstance(blocks, list) or not blocks:
        raise InputError(f"block_out_channels in {vae.source} must be a list of integers")
    return int(2 ** (len(blocks) - 1))


# --- The operator sets that targets support, according to public sources.
#
# Rebellions' compiler is not listed: its documentation (docs.rbln.ai, v0.12) compiles PyTorch and
# TensorFlow and names no ONNX operator set.


@dataclass(frozen=True, slots=True)
class Target:
    """A compiler or runtime: its lowest and highest ONNX opset, its other operator domains
    (prefixes), and sources. `fixed_sizes` is the source that it supports no dynamic shapes, "" if
    it does."""

    name: str
    title: str
    lowest: int
    highest: int
    domains: tuple[str, ...]
    source: str
    fixed_sizes: str = ""


_ORT_DOMAINS = ("com.microsoft", "ai.onnx.ml", "ai.onnx.preview")
TARGETS = {
    target.name: target
    for target in (
        Target(
            "onnxruntime",
            "ONNX Runtime 1.31",
            7,
            26,
            _ORT_DOMAINS,
            "onnxruntime.ai/docs/reference/compatibility.html (from opset 7); its own message on a "
            "later one (official support till opset 26)",
        ),
        Target(
            "tensorrt-10.0",
            "TensorRT 10.0",
            9,
            20,
            (),
            "github.com/onnx/onnx-tensorrt, docs/operators.md of branch 10.0-GA",
        ),
        Target(
            "tensorrt-11",
            "TensorRT 11",
            9,
            25,
            (),
            "docs.nvidia.com/deeplearning/tensorrt/latest/reference/onnx-opset-guide.html",
        ),
        Target(
            "qnn",
            "Qualcomm AI Runtime 2.39",
            1,
            22,
            (),
            "Qualcomm AI Runtime SDK 2.39 documentation, “Qairt Converter”: up to opset 22",
            "onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html: models with "
            "dynamic shapes are not supported",
        ),
    )
}


def find_target(name: str) -> Target:
    """The target of that name. Raises InputError if there is none."""
    if name not in TARGETS:
        raise InputError(f"no target is called {name!r}: give one of {', '.join(TARGETS)}")
    return TARGETS[name]
