"""Diffusion pipelines on ONNX Runtime: parts, prompts, scheduler, latents and images."""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from profiler.errors import InputError, ProfilerError, needing
from profiler.pipelines.model_folder import (
    DEFAULT_DEVICE,
    Device,
    ModelFolder,
    PackedSizes,
    PatchedSizes,
    Placement,
    ProviderSpec,
    Settings,
    check_part_name,
    check_providers,
    pinned,
)
from profiler.pipelines.model_layouts import check_widths

with needing("run", "profiler.pipelines"):
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors
    from PIL import Image

# --- A part of a pipeline that runs on ONNX Runtime: one graph, one device, one session.
#
# The session opens on first use. A profiler replaces it (`part.session = …`) or wraps `forward` on
# the instance; both are made for that.


Array = NDArray[Any]

_INPUT_NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden_states": ("sample", "latents", "latent_model_input"),
    "encoder_hidden_states": ("prompt_embeds",),
    "pooled_projections": ("pooled_prompt_embeds",),
    "timestep": ("timesteps", "t"),
    "latent_sample": ("sample", "latents", "z"),
    "input_ids": ("text_input_ids",),
}
"""For inputs as optimum-onnx names them, the names that other exporters use."""

_DTYPES: Mapping[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}

_LOAD_ERRORS = (
    ort_errors.EPFail,
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NoSuchFile,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)


class OnnxPart:
    """One submodule: `name`, `model_path`, `device` (`kind:index`), `providers` and `config`, the
    part's config.json. One part may be called from one thread at a time."""

    def __init__(
        self,
        name: str,
        model_path: Path,
        device: str = DEFAULT_DEVICE,
        *,
        providers: Sequence[ProviderSpec] | None = None,
        placement: Placement | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Describe the part; nothing is loaded yet.

        `providers` replaces those that follow from the device. `placement` says which cores a
        CPU device has; without it, all that the process may use. Raises `InputError` if this ONNX
        Runtime lacks a provider.
        """
        self.name = name
        self.model_path = Path(model_path)
        self.device = str(Device.parse(device))
        chosen = Device.parse(device).providers() if providers is None else list(providers)
        check_providers(chosen)
        self.providers: tuple[ProviderSpec, ...] = tuple(chosen)
        self.share = (placement or Placement.plan([self.device])).of(self.device)
        self.config: Mapping[str, object] = MappingProxyType(dict(config or {}))
        self._session: Any = None
        self._inputs: list[Any] = []
        self._outputs: list[str] = []
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"OnnxPart({self.name!r}, {str(self.model_path)!r}, {self.device!r})"

    @property
    def session(self) -> Any:
        """The ONNX Runtime session; opened on first use. May be set; `del` makes it lazy again."""
        with self._lock:
            if self._session is None:
                self._keep(self.open_session(self.session_options()))
            return self._session

    @session.setter
    def session(self, session: Any) -> None:
        with self._lock:
            self._keep(session)

    @session.deleter
    def session(self) -> None:
        with self._lock:
            self._session = None

    @property
    def opened_session(self) -> Any | None:
        """The session if one is open, else None; never opens one."""
        with self._lock:
            return self._session

    def _keep(self, session: Any) -> None:
        self._session = session
        self._inputs = list(session.get_inputs())
        self._outputs = [output.name for output in session.get_outputs()]

    def session_options(self) -> onnxruntime.SessionOptions:
        """Return new options for this part: as many threads as its device has cores, on them.

        A pinned device with n cores has n - 1 pool threads on its cores but the first; the thread
        that calls `forward` is the n-th and stays on the first.
        """
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # The threads of the submodule that ran before would spin on this one's cores.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        cores = self.share.cores
        if cores:
            options.intra_op_num_threads = len(cores)
        if self.share.pinned and len(cores) > 1:
            # ONNX Runtime counts processors from 1.
            affinities = ";".join(str(core + 1) for core in cores[1:])
            options.add_session_config_entry("session.intra_op_thread_affinities", affinities)
        return options

    def open_session(self, options: onnxruntime.SessionOptions) -> Any:
        """Load the graph with `options` on this part's providers and return the new session.

        The part's own session stays as it is. Raises `InputError` if the file is missing or ONNX
        Runtime cannot load it.
        """
        try:
            return onnxruntime.InferenceSession(
                str(self.model_path), sess_options=options, providers=list(self.providers)
            )
        except _LOAD_ERRORS as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"ONNX Runtime cannot load {self.name} from {self.model_path}: {reason}; "
                "check that the export is complete, external data included"
            ) from error

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        """Run the part through `forward`, which may have been replaced on the instance."""
        return self.forward(**inputs)

    def forward(self, **inputs: Array) -> dict[str, Array]:
        """Run the graph; inputs by optimum-onnx's names, outputs by the graph's own.

        Arrays are cast to the types that the graph declares. Raises `InputError` if the graph
        wants an input that is not given, or does not know one that is.
        """
        session, feeds = self.session, self._feeds(inputs)
        with pinned(self.share.cores[:1] if self.share.pinned else ()):
            try:
                values = session.run(None, feeds)
            except _LOAD_ERRORS as error:
                shapes = ", ".join(f"{name} {list(v.shape)}" for name, v in feeds.items())
                reason = " ".join("".join(c for c in str(error) if c.isprintable()).split())
                raise ProfilerError(
                    f"ONNX Runtime failed in {self.name} with {shapes}: {reason}; try another "
                    "image size or device, or export the model again"
                ) from error
        return dict(zip(self._outputs, values, strict=True))

    def _feeds(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Match `inputs` to the graph's inputs by name and cast them to its types and ranks."""
        declared = {argument.name: argument for argument in self._inputs}
        feeds: dict[str, Array] = {}
        for name, value in inputs.items():
            names = (name, *_INPUT_NAMES.get(name, ()))
            found = next((other for other in names if other in declared), None)
            if found is None:
                raise InputError(
                    f"{self.name} ({self.model_path}) has no input {name!r}, only "
                    f"{', '.join(declared)}; export it with optimum-onnx's names"
                )
            feeds[found] = self._fitted(value, declared[found])
        if "attention_mask" in declared and "attention_mask" not in feeds and "input_ids" in feeds:
            mask = np.ones_like(feeds["input_ids"])
            feeds["attention_mask"] = self._fitted(mask, declared["attention_mask"])
        if missing := [name for name in declared if name not in feeds]:
            raise InputError(
                f"{self.name} ({self.model_path}) wants the input {', '.join(missing)}, which its "
                "pipeline does not give; export it with optimum-onnx's names"
            )
        return feeds

    def _fitted(self, value: Array, declared: Any) -> Array:
        """Return `value` in the declared type; a declared scalar takes the first element."""
        dtype = _DTYPES.get(declared.type)
        if dtype is None:
            raise InputError(
                f"input {declared.name} of {self.name} has type {declared.type}, which NumPy "
                "lacks; export the model in float32 or float16"
            )
        scalar = not declared.shape and value.ndim == 1
        return np.asarray(value[0] if scalar else value, dtype=dtype)


class OnnxVae:
    """The VAE in the form of diffusers'; `decode` calls the part `decoder`."""

    def __init__(self, decoder: OnnxPart) -> None:
        """Wrap the decoder."""
        self.decoder = decoder

    @property
    def config(self) -> Mapping[str, object]:
        """The decoder's config.json."""
        return self.decoder.config

    def decode(self, latents: Array) -> Array:
        """Turn latents [batch, 16, height/8, width/8] into images [batch, 3, height, width]; with
        an axis of frames before the height, also of the images.

        Pixel values are about -1 to 1, in the graph's float type.
        """
        return pick(self.decoder(latent_sample=latents), "sample")


def pick(outputs: Mapping[str, Array], *names: str) -> Array:
    """Return the output under the first of `names` that exists, or else the first output."""
    return outputs[next((name for name in names if name in outputs), next(iter(outputs)))]


# --- From the VAE's pixels to images, as diffusers' `VaeImageProcessor` does it.


class ImageProcessor:
    """Turns decoded pixels into PIL images or arrays."""

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


# --- From prompts to the embeddings that transformers take.


POOLED_NAMES = ("text_embeds", "pooler_output", "pooled_output")
"""Names of a CLIP text encoder's pooled output."""


class PromptEmbeddings(NamedTuple):
    """Embeddings of prompts, [batch, tokens, width], and their pooled ones, [batch, pooled width],
    in diffusers' order. Those of negative prompts are None without guidance."""

    prompt_embeds: Array
    negative_prompt_embeds: Array | None
    pooled_prompt_embeds: Array
    negative_pooled_prompt_embeds: Array | None


def t5_embeddings(part: OnnxPart, ids: Array) -> Array:
    """Run the T5 encoder on ids [batch, length]; returns [batch, length, width]."""
    return pick(part(input_ids=ids), "last_hidden_state")


# --- The flow-matching Euler scheduler of diffusers, in NumPy.
#
# Schedule, step and precision are those of `diffusers.FlowMatchEulerDiscreteScheduler`: the
# schedule is computed in float64 and stored in float32.


_log = logging.getLogger(__name__)

_KNOWN_KEYS = frozenset(
    {
        "num_train_timesteps",
        "shift",
        "use_dynamic_shifting",
        "base_shift",
        "max_shift",
        "base_image_seq_len",
        "max_image_seq_len",
        "invert_sigmas",
        "shift_terminal",
        "use_karras_sigmas",
        "use_exponential_sigmas",
        "use_beta_sigmas",
        "time_shift_type",
        "stochastic_sampling",
    }
)
_REFUSED = {"use_beta_sigmas": "beta sigmas", "stochastic_sampling": "stochastic sampling"}


class FlowMatchEulerDiscreteScheduler:
    """Noise schedule and Euler step of flow matching.

    After `set_timesteps`: `timesteps` float32 [steps] and `sigmas` float32 [steps + 1];
    `step_index` is the number of steps done, None before the first. Raises `InputError` for
    settings of the wrong type and for unsupported ones (beta sigmas, stochastic sampling).
    """

    def __init__(
        self, config: Mapping[str, object] | None = None, source: Path | None = None
    ) -> None:
        """Take the content of scheduler_config.json; `source` is named in errors."""
        self.config = Settings(source or Path("scheduler_config.json"), dict(config or {}))
        self._check()
        self.num_train_timesteps = self.config.integer("num_train_timesteps", 1000)
        self.shift = self.config.number("shift", 1.0)
        self.use_dynamic_shifting = self.config.flag("use_dynamic_shifting")
        sigmas = np.arange(self.num_train_timesteps, 0, -1, dtype=np.float32)
        sigmas = sigmas / np.float32(self.num_train_timesteps)
        if not self.use_dynamic_shifting:
            sigmas = np.float32(self.shift) * sigmas / (1 + np.float32(self.shift - 1) * sigmas)
        self.sigma_max, self.sigma_min = float(sigmas[0]), float(sigmas[-1])
        self.sigmas: NDArray[np.float32] = sigmas
        self.timesteps: NDArray[np.float32] = sigmas * np.float32(self.num_train_timesteps)
        self.step_index: int | None = None

    def _check(self) -> None:
        """Raise for unsupported settings, and log unknown ones."""
        settings = self.config
        for key, words in _REFUSED.items():
            if settings.flag(key):
                raise InputError(
                    f"{settings.source} asks for {words} ({key}), which this scheduler does not "
                    "do; set it to false"
                )
        if settings.flag("use_karras_sigmas") and settings.flag("use_exponential_sigmas"):
            raise InputError(
                f"{settings.source} asks for Karras and exponential sigmas at once; keep one"
            )
        kind = settings.values.get("time_shift_type", "exponential")
        if kind not in ("exponential", "linear"):
            raise InputError(
                f"time_shift_type in {settings.source} must be exponential or linear, not {kind!r}"
            )
        given = (key for key in settings.values if not key.startswith("_"))
        if unknown := sorted(key for key in given if key not in _KNOWN_KEYS):
            _log.warning("%s: settings not known and ignored: %s", settings.source, unknown)

    def mu(self, image_tokens: int) -> float:
        """Return the shift that `use_dynamic_shifting` needs for that many image tokens."""
        low = self.config.integer("base_image_seq_len", 256)
        high = self.config.integer("max_image_seq_len", 4096)
        base = self.config.number("base_shift", 0.5)
        slope = (self.config.number("max_shift", 1.15) - base) / (high - low)
        return image_tokens * slope + (base - slope * low)

    def set_timesteps(
        self, num_inference_steps: int, mu: float | None = None, sigmas: Array | None = None
    ) -> None:
        """Compute the schedule and restart at its first step.

        `mu` is needed with dynamic shifting, see `mu`. `sigmas` [steps] takes the place of even
        steps from the first sigma to the last; it is shifted in float32, as diffusers does. Raises
        `InputError` if `mu` is missing or there are no steps.
        """
        if num_inference_steps < 1:
            raise InputError(
                f"a run needs at least one denoising step, not {num_inference_steps}; "
                "give num_inference_steps of 1 or more"
            )
        scale = self.num_train_timesteps
        if sigmas is None:
            first, last = self.sigma_max * scale, self.sigma_min * scale
            given = np.linspace(first, last, num_inference_steps) / scale
        else:
            given = np.asarray(sigmas, np.float32)
        kept = self._respaced(self._shifted(given, mu)).astype(np.float32)
        end = np.zeros(1, dtype=np.float32)
        if self.config.flag("invert_sigmas"):
            kept, end = 1 - kept, end + 1
        self.timesteps = kept * np.float32(scale)
        self.sigmas = np.concatenate([kept, end])
        self.step_index = None

    def _shifted(self, sigmas: Array, mu: float | None) -> Array:
        """Apply shift, dynamic shifting and shift_terminal to the sigmas."""
        if self.use_dynamic_shifting:
            if mu is None:
                raise InputError(
                    f"{self.config.source} asks for dynamic shifting, which needs mu; "
                    "pass scheduler.mu(image_tokens) to set_timesteps"
                )
            linear = self.config.values.get("time_shift_type") == "linear"
            weight = mu if linear else math.exp(mu)
            sigmas = weight / (weight + (1 / sigmas - 1))
        else:
            sigmas = self.shift * sigmas / (1 + (self.shift - 1) * sigmas)
        if terminal := self.config.number("shift_terminal", 0.0):
            rest = 1 - sigmas
            if rest[-1] <= 0:
                raise InputError(
                    f"shift_terminal in {self.config.source} cannot stretch a schedule of one "
                    "step; use two steps or more"
                )
            sigmas = 1 - rest / (rest[-1] / (1 - terminal))
        return sigmas

    def _respaced(self, sigmas: Array) -> Array:
        """Respace the sigmas between their ends as Karras or exponential sigmas, if configured."""
        last, first, steps = float(sigmas[-1]), float(sigmas[0]), len(sigmas)
        if self.config.flag("use_karras_sigmas"):
            start, end = first ** (1 / 7), last ** (1 / 7)
            karras: Array = (start + np.linspace(0, 1, steps) * (end - start)) ** 7.0
            return karras
        if self.config.flag("use_exponential_sigmas"):
            return np.exp(np.linspace(math.log(first), math.log(last), steps))
        return sigmas

    def step(self, noise_pred: Array, t: float | np.float32, latents: Array) -> Array:
        """Move `latents` one step along `noise_pred`, both [batch, channels, height, width].

        `t` is one of `timesteps`; it places the first step, later ones follow. Returns float32
        latents. Raises `InputError` if `t` is not in the schedule or the schedule is used up.
        """
        if self.step_index is None:
            self.step_index = self._index_of(t)
        if self.step_index + 1 >= len(self.sigmas):
            raise InputError("the schedule is used up; call set_timesteps before the next run")
        delta = self.sigmas[self.step_index + 1] - self.sigmas[self.step_index]
        moved: Array = latents.astype(np.float32) + delta * noise_pred.astype(np.float32)
        self.step_index += 1
        return moved

    def _index_of(self, t: float | np.float32) -> int:
        """Return the index of `t` in the schedule; if there are several, the second, as
        diffusers."""
        places = np.flatnonzero(self.timesteps == np.float32(t)).tolist()
        if not places:
            raise InputError(f"{t} is not a timestep of this schedule; pass one of timesteps")
        return int(places[:2][-1])


# --- From a model folder to the components of a pipeline.


@dataclass(frozen=True)
class Components:
    """The components of a pipeline: its parts by name, its scheduler, and its folder, for
    tokenizers and sizes."""

    parts: Mapping[str, OnnxPart]
    scheduler: FlowMatchEulerDiscreteScheduler
    placement: Placement
    folder: ModelFolder


def load_components(
    path: Path | str,
    class_name: str,
    submodules: Sequence[str],
    optional: Collection[str],
    devices: Mapping[str, str],
    providers: Sequence[ProviderSpec] | None,
) -> Components:
    """Read the model folder of a `class_name` and place its submodules; no session is opened.

    See `OnnxPipeline.from_folder` for the arguments. Raises `InputError` if a file is missing or
    malformed, parts do not fit together, or a device or provider cannot be used.
    """
    folder = ModelFolder(path, class_name)
    present = [name for name in submodules if name not in optional or folder.has(name)]
    for name in devices:
        check_part_name(name, present)
    default = str(Device.of_provider(providers[0])) if providers else DEFAULT_DEVICE
    placed = {name: str(Device.parse(devices.get(name, default))) for name in present}
    placement = Placement.plan(placed.values())
    parts: dict[str, OnnxPart] = {}
    for name in present:
        subfolder = "vae_decoder" if name == "vae" else name
        parts[name] = OnnxPart(
            name,
            folder.model_path(subfolder),
            placed[name],
            providers=providers if providers and name not in devices else None,
            placement=placement,
            config=folder.settings(subfolder).values,
        )
    check_widths(class_name, {name: part.config for name, part in parts.items()})
    return Components(parts, _scheduler(folder), placement, folder)


def _scheduler(folder: ModelFolder) -> FlowMatchEulerDiscreteScheduler:
    """Make the scheduler; raises `InputError` if the folder asks for one of another class."""
    settings = folder.settings("scheduler", "scheduler_config.json")
    name = settings.values.get("_class_name") or folder.class_name("scheduler")
    own = FlowMatchEulerDiscreteScheduler.__name__
    if name not in (None, own):
        raise InputError(f"{settings.source} asks for {name!r}; this pipeline has {own}")
    return FlowMatchEulerDiscreteScheduler(settings.values, settings.source)


# --- The base of the pipelines: parts on ONNX Runtime, noise, and the interface of diffusers'
# pipelines.
#
# Each has the attributes and the order of calls of diffusers' pipeline of its name, so that it can
# be wrapped in the same way.


StepCallback = Callable[[Any, int, float, dict[str, Array]], Mapping[str, Array] | None]
"""Called after each step with pipeline, step, timestep and {"latents": …}; may return new
latents."""


@dataclass(frozen=True)
class PipelineOutput:
    """The output of a run: PIL images (`pil`), float32 [batch, height, width, 3] from 0 to 1 (`np`)
    or float32 latents as the denoiser takes them (`latent`)."""

    images: list[Image.Image] | NDArray[np.float32]


class OnnxPipeline:
    """Text to image, by calling it with a prompt. Make one with `from_folder`; use it from one
    thread at a time."""

    CLASS: ClassVar[str]
    """The pipeline's class in model_index.json, with or without the prefix ORT."""
    SUBMODULES: ClassVar[tuple[str, ...]]
    """The submodules, in the order in which a run calls them."""
    sizes: PatchedSizes | PackedSizes
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()
    """The submodules that a folder may lack."""
    __call__: Callable[..., PipelineOutput]

    def __init__(self, components: Components) -> None:
        """Take loaded components."""
        self.folder: Path = components.folder.path
        self.placement: Placement = components.placement
        self.scheduler: FlowMatchEulerDiscreteScheduler = components.scheduler
        self.image_processor = ImageProcessor()
        self.transformer = components.parts["transformer"]
        self.vae = OnnxVae(components.parts["vae"])

    @classmethod
    def from_folder(
        cls,
        path: Path | str,
        devices: Mapping[str, str] | None = None,
        providers: Sequence[ProviderSpec] | None = None,
    ) -> Self:
        """Load a folder in the diffusers/optimum ONNX layout; sessions open on first use.

        `devices` maps submodules to `kind:index`. `providers` are the ONNX Runtime providers, in
        order, for submodules that `devices` does not name (default: the CPU, `cpu:0`). Raises
        `InputError` for a folder, device or provider that cannot be used.
        """
        of_class = cls.CLASS, cls.SUBMODULES, cls.OPTIONAL
        return cls(load_components(path, *of_class, devices or {}, providers))

    @property
    def name_or_path(self) -> str:
        """The name of the model folder, as diffusers calls it."""
        return self.folder.resolve().name

    @property
    def parts(self) -> dict[str, OnnxPart]:
        """Submodule name → part, in the order in which a run calls them; `vae` is its decoder."""
        named = {name: getattr(self, name) for name in self.SUBMODULES}
        named["vae"] = self.vae.decoder
        return {name: part for name, part in named.items() if part is not None}

    @property
    def components(self) -> dict[str, object]:
        """Component name → object, as diffusers has it: parts, VAE, tokenizers, scheduler."""
        tokenizers = {k: v for k, v in vars(self).items() if k.startswith("tokenizer")}
        return {**self.parts, "vae": self.vae, **tokenizers, "scheduler": self.scheduler}

    def guidance_arguments(
        self, scale: float | None, negative_prompt: str | None
    ) -> dict[str, object]:
        """The arguments of a run for a guidance scale and a negative prompt; None means the model's
        own. Raises `InputError` for arguments that the model does not take."""
        raise NotImplementedError

    def check(
        self, *, height: int | None, width: int | None, seed: int | None, **scales: float
    ) -> None:
        """Raise `InputError` for arguments that a run would refuse before it calls a submodule."""
        check_request("pil", 1, **scales)
        self.sizes.image_size(height, width)
        noise_source(seed, None)

    def _denoise(
        self,
        latents: Array,
        predict: Callable[[Array, np.float32], Array],
        callback: StepCallback | None,
    ) -> Array:
        """Move `latents` over all timesteps along the predictions of `predict`, float32."""
        for step, timestep in enumerate(self.scheduler.timesteps):
            latents = self.scheduler.step(predict(latents, timestep), timestep, latents)
            if callback is not None:
                changed = callback(self, step, float(timestep), {"latents": latents}) or {}
                latents = changed.get("latents", latents)
        return latents


def check_request(output_type: str, images: int, **scales: float) -> None:
    """Raise `InputError` for an unknown kind of output, a number of images below one, or scales
    that are not finite."""
    if output_type not in ("pil", "np", "latent"):
        raise InputError(f"{output_type!r} is not an output type; use pil, np or latent")
    if images < 1:
        raise InputError(f"num_images_per_prompt is {images}; give 1 or more")
    for name, scale in scales.items():
        if not math.isfinite(scale):
            raise InputError(f"{name} is {scale}; give a finite number")


def noise_source(seed: int | None, generator: np.random.Generator | None) -> np.random.Generator:
    """The generator of noise that the caller gave, one by the given seed, or a random one. Raises
    `InputError`."""
    if seed is not None and generator is not None:
        raise InputError("both seed and generator are given; keep one")
    if seed is not None and seed < 0:
        raise InputError(f"the seed is {seed}; use 0 or more")
    return generator if generator is not None else np.random.default_rng(seed)


def latents_of(
    shape: tuple[int, ...], source: np.random.Generator | None, given: Array | None
) -> NDArray[np.float32]:
    """Float32 latents of `shape`: those that were given, or fresh noise.

    Raises `InputError` if given latents have another shape.
    """
    if given is None:
        return (source or np.random.default_rng()).standard_normal(shape, dtype=np.float32)
    if given.shape != shape:
        raise InputError(f"the given latents have shape {given.shape}; this run needs {shape}")
    return np.asarray(given, dtype=np.float32)


# --- The pipeline class of a model folder.


MODULES = {
    "StableDiffusion3Pipeline": "profiler.pipelines.sd3",
    "FluxPipeline": "profiler.pipelines.flux",
    "QwenImagePipeline": "profiler.pipelines.qwen_image",
}
"""Modules of the pipelines by class, as model_index.json names it."""


def pipeline_class(path: Path | str) -> type[OnnxPipeline]:
    """The class of the pipeline in a folder. Raises `InputError` if it is not one of ours."""
    folder = ModelFolder(path)
    name = folder.pipeline_class
    if name not in MODULES:
        held = str(folder.index.get("_class_name"))[:80]
        raise InputError(
            f"{folder.path} holds a {held!r}: give a folder of one of {', '.join(MODULES)}"
        )
    found: type[OnnxPipeline] = getattr(import_module(MODULES[name]), name)
    return found
