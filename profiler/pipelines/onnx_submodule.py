"""A part of a pipeline that runs on ONNX Runtime: one graph, one device, one session.

The session opens on first use. A profiler replaces it (`part.session = …`) or wraps `forward` on
the instance; both are made for that.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiler.errors import InputError, ProfilerError, needing
from profiler.pipelines.devices import (
    DEFAULT_DEVICE,
    Device,
    Placement,
    ProviderSpec,
    check_providers,
    pinned,
)

with needing("run", "profiler.pipelines"):
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

__all__ = ["Array", "OnnxPart", "OnnxVae", "pick"]

Array = NDArray[Any]

_INPUT_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "hidden_states": ("sample", "latents", "latent_model_input"),
        "encoder_hidden_states": ("prompt_embeds",),
        "pooled_projections": ("pooled_prompt_embeds",),
        "timestep": ("timesteps", "t"),
        "latent_sample": ("sample", "latents", "z"),
        "input_ids": ("text_input_ids",),
    }
)
"""Inputs as optimum-onnx names them to what other exporters call the same input."""

_DTYPES: Mapping[str, type[np.generic]] = MappingProxyType(
    {
        "tensor(float)": np.float32,
        "tensor(float16)": np.float16,
        "tensor(double)": np.float64,
        "tensor(int64)": np.int64,
        "tensor(int32)": np.int32,
        "tensor(bool)": np.bool_,
    }
)

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
    """One submodule: `name`, `model_path`, `device` (`kind:index`), `providers` and `config`.

    `config` is the part's config.json. Raises `InputError` if this ONNX Runtime lacks a provider
    that the device needs. One part may be called from one thread at a time.
    """

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
        CPU device has; without it, all that the process may use.
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
        session = self.session
        feeds = self._feeds(inputs)
        first_core = self.share.cores[:1] if self.share.pinned else ()
        with pinned(first_core):
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
        missing = [name for name in declared if name not in feeds]
        if missing:
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
        if not declared.shape and value.ndim == 1:
            value = value[0]
        return np.asarray(value, dtype=dtype)


class OnnxVae:
    """The VAE as diffusers shapes it; `decode` goes through the part `decoder`."""

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
    for name in names:
        if name in outputs:
            return outputs[name]
    return next(iter(outputs.values()))
