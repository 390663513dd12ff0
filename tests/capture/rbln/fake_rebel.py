"""A `rebel` and pipelines of optimum-rbln as they are documented, on a hand-moved clock.

Nothing here was held against RBLN's own software: there is no NPU to run it on. It follows its
public documentation and optimum-rbln's source: `Runtime` with `device` and `activate_profiler`,
`capture_reports`, `profiler.start` and `profiler.done`, which writes one file a runtime call of a
profiled runtime and one of all; submodules that are no torch modules and call `self.model[0]`; a
VAE that calls `decoder.runtime`.

    rebel = FakeRebel(clock, tmp_path)
    rebel.install(monkeypatch)
    pipeline = RBLNStableDiffusion3Pipeline(rebel, {"text_encoder_3": {"device": 1}})
    pipeline(num_inference_steps=2)
    rebel.profiler.done()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from profiler.capture import FakeClock
from tests.importers.rbln.generator import STEM, Command, runtime_call, trace_bytes

__all__ = [
    "FakeRebel",
    "RBLNKandinskyV22ControlnetPipeline",
    "RBLNStableDiffusion3Pipeline",
    "Runtime",
]

HOST_US, DEVICE_US = 20, 70  # of each runtime call, which takes 100 µs
RUNTIME_NS = 100_000
PREPARE_NS, OUTPUT_NS = 30, 7  # before and after it, in the submodule's `forward`


class FakeRebel:
    """The module `rebel` of one process. `reports` False is an older one, without
    `capture_reports`; `counts_all` tells whether calls of runtimes that are not profiled consume
    numbers too, which the documentation leaves open."""

    def __init__(
        self, clock: FakeClock, folder: Path, *, reports: bool = True, counts_all: bool = True
    ) -> None:
        self.clock, self.folder, self.counts_all = clock, folder, counts_all
        self.device_us: float = DEVICE_US  # what a report tells
        self.profiler = SimpleNamespace(start=self.files_begin, done=self.write_files)
        self._reports: list[list[dict[str, int]]] = []
        self._calls: list[tuple[int, str, tuple[Command, ...]]] = []
        self._number = 0
        if reports:
            self.capture_reports = self._capture_reports

    def install(self, monkeypatch: Any) -> None:
        """Make it what `import rebel` gives."""
        module = ModuleType("rebel")
        for name in ("profiler", "capture_reports"):
            if hasattr(self, name):
                setattr(module, name, getattr(self, name))
        monkeypatch.setitem(__import__("sys").modules, "rebel", module)

    def executed(self, runtime: Runtime) -> None:
        """A runtime has been called: its time passes, its report and its file are noted."""
        start = self.clock.now_ns()
        self.clock.advance(RUNTIME_NS)
        for reports in self._reports:
            reports.append({"total_host": HOST_US, "total_device": self.device_us, "total_ccl": 0})
        if runtime.activate_profiler:
            layers = [f"linear_{sum(map(ord, runtime.model)) % 90}", "conv_1"]
            commands = runtime_call(runtime.device, start, layers)
            self._calls.append((self._number, runtime.model, commands))
        self._number += runtime.activate_profiler or self.counts_all

    def files_begin(self) -> None:
        """`profiler.start()`."""
        self._calls.clear()

    def write_files(self) -> None:
        """`profiler.done()`: the numbered files, and the one that holds them all."""
        for number, _, commands in self._calls:
            path = self.folder / f"{STEM}_{number}.pb"
            path.write_bytes(trace_bytes([commands], first_call=number))
        models = [model for _, model, _ in self._calls]
        instances = [list(dict.fromkeys(models)).index(model) for model in models]
        whole = trace_bytes([commands for *_, commands in self._calls], instances=instances)
        (self.folder / f"{STEM}.pb").write_bytes(whole)

    @contextmanager
    def _capture_reports(self) -> Iterator[list[dict[str, int]]]:
        reports: list[dict[str, int]] = []
        self._reports.append(reports)
        yield reports
        self._reports.remove(reports)


class Runtime:
    """`rebel.Runtime`: a compiled model on a device."""

    def __init__(
        self, rebel: FakeRebel, model: str, *, device: int, activate_profiler: bool
    ) -> None:
        self.rebel, self.model, self.device = rebel, model, device
        self.activate_profiler = activate_profiler

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        self.rebel.executed(self)
        return np.zeros((1, 4), dtype=np.float32)


class RBLNModel:
    """A submodule: no torch module; says that it is on the CPU, as optimum-rbln's do."""

    device = "cpu"

    def __init__(self, rebel: FakeRebel, name: str, config: Mapping[str, Any]) -> None:
        device = config.get("device", 0)
        self.rbln_config = SimpleNamespace(
            device=device,
            device_map={"compiled_model": device},
            activate_profiler=config.get("activate_profiler", True),
        )
        self.clock = rebel.clock
        self.model = [
            Runtime(
                rebel,
                name,
                device=device,
                activate_profiler=self.rbln_config.activate_profiler,
            )
        ]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.clock.advance(PREPARE_NS)
        output = self.model[0](*args, **kwargs)
        self.clock.advance(OUTPUT_NS)
        return output


class RBLNRuntimeVAEDecoder:
    """What the VAE's decoder is: it takes the runtime when it is made."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.runtime(*args, **kwargs)

    def decode(self, z: Any) -> Any:
        return self.forward(z)


class RBLNAutoencoderKL(RBLNModel):
    """A VAE for text-to-image: without an encoder. Decodes a large image in two tiles."""

    def __init__(self, rebel: FakeRebel, name: str, config: Mapping[str, Any]) -> None:
        super().__init__(rebel, name, config)
        self.rbln_config.device_map = {"decoder": self.rbln_config.device}
        self.decoder = RBLNRuntimeVAEDecoder(self.model[-1])
        self.tiles = 1

    def encode(self, x: Any) -> Any:
        return self.encoder.encode(x)  # type: ignore[attr-defined]

    def decode(self, z: Any) -> Any:
        self.clock.advance(PREPARE_NS)
        for _ in range(self.tiles):
            image = self.decoder.decode(z)
        self.clock.advance(OUTPUT_NS)
        return image


class _Scheduler:
    step_index: int | None = None

    def set_timesteps(self, steps: int) -> None:
        self.step_index = None

    def step(self, latents: Any) -> Any:
        self.step_index = (self.step_index or 0) + 1
        return latents


class RBLNStableDiffusion3Pipeline:
    """Text to image with guidance: six encoder calls, the steps, the VAE. `rbln_config` is by
    submodule, as optimum-rbln's."""

    do_classifier_free_guidance = True

    def __init__(
        self, rebel: FakeRebel, rbln_config: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        config = rbln_config or {}
        for name in ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer"):
            setattr(self, name, RBLNModel(rebel, name, config.get(name, {})))
        self.vae = RBLNAutoencoderKL(rebel, "vae", config.get("vae", {}))
        self.scheduler = _Scheduler()

    def encode_prompt(self, prompt: str = "a cat", negative_prompt: str = "") -> None:
        ids = np.zeros((1, 77), dtype=np.int64)
        for _ in (prompt, negative_prompt):
            for encoder in self._encoders():
                encoder(ids)

    def _encoders(self) -> Sequence[Any]:
        return [getattr(self, f"text_encoder{n}") for n in ("", "_2", "_3")]

    def __call__(self, num_inference_steps: int = 2) -> Any:
        self.encode_prompt()
        self.scheduler.set_timesteps(num_inference_steps)
        latents = np.zeros((2, 16, 4, 4), dtype=np.float32)
        for _ in range(num_inference_steps):
            self.transformer(hidden_states=latents)  # type: ignore[attr-defined]
            latents = self.scheduler.step(latents)
        return self.vae.decode(latents)


class RBLNMultiControlNetModel:
    """Several ControlNets as one: calls each, and knows neither runtimes nor configuration."""

    def __init__(self, nets: Sequence[RBLNModel]) -> None:
        self.nets = list(nets)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, sample: Any, timestep: Any) -> Any:
        return [net(sample=sample, timestep=timestep) for net in self.nets][-1]


class RBLNKandinskyV22ControlnetPipeline:
    """Embeddings to image: two ControlNets and a UNet a step, and a VQ model called `movq`, whose
    calls go past its list of runtimes."""

    def __init__(
        self, rebel: FakeRebel, rbln_config: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        config = rbln_config or {}
        nets = [RBLNModel(rebel, f"net_{n}", config.get("controlnet", {})) for n in range(2)]
        self.controlnet = RBLNMultiControlNetModel(nets)
        self.unet = RBLNModel(rebel, "unet", config.get("unet", {}))
        self.movq = RBLNAutoencoderKL(rebel, "movq", config.get("movq", {}))
        self.scheduler = _Scheduler()

    def __call__(self, num_inference_steps: int = 2) -> Any:
        self.scheduler.set_timesteps(num_inference_steps)
        latents = np.zeros((2, 16, 4, 4), dtype=np.float32)
        for step in range(num_inference_steps):
            self.controlnet(latents, step)
            self.unet(sample=latents, timestep=step)
            latents = self.scheduler.step(latents)
        return self.movq.decode(latents)
