"""Make `recorded/`: one step of tiny denoisers on ONNX Runtime, which tests read.

    python -m tests.analysis.roles.record_onnxruntime

Exports the denoiser of each pipeline of `tiny_diffusers` with torch's exporter, which takes a
minute each, and records one call of it. Qwen-Image turns queries and keys by complex numbers, which
do not export: they are turned by cosines and sines instead.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import profiler
from profiler.tools.sources import load
from tests.capture import tiny_diffusers as tiny

from .expectation import HERE, write_reference

RECORDED = HERE / "recorded"
PIPELINES = {
    "flux": (tiny.flux, {}),
    "sd35": (
        lambda: tiny.sd3(qk_norm="rms_norm", dual_attention_layers=(0,)),
        {"negative_prompt": "b"},
    ),
    "sdxl": (tiny.sdxl, {"negative_prompt": "b"}),
    "qwen": (lambda: with_real_positions(tiny.qwen_image()), {}),
}
_TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


class _Part:
    """What runs a graph, as pipelines on ONNX Runtime have it."""

    def __init__(self, path: Path) -> None:
        self.model_path = path
        self.session = self.open_session(self.session_options())

    def session_options(self):
        return onnxruntime.SessionOptions()

    def open_session(self, options):
        provider = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(str(self.model_path), options, providers=provider)

    def forward(self, **inputs):
        return self.session.run(None, inputs)


class _Scheduler:
    step_index = None

    def set_timesteps(self, steps: int) -> None:
        self.step_index = None

    def step(self, latents):
        self.step_index = (self.step_index or 0) + 1
        return latents


class Denoising:
    """A pipeline of one submodule that takes one step."""

    def __init__(self, submodule: str, part: _Part) -> None:
        setattr(self, submodule, part)
        self._part = part
        self.scheduler = _Scheduler()

    def __call__(self) -> None:
        random = np.random.default_rng(0)
        self.scheduler.set_timesteps(1)
        inputs = {
            given.name: np.asarray(random.standard_normal(given.shape), dtype=_TYPES[given.type])
            for given in self._part.session.get_inputs()
        }
        self.scheduler.step(self._part.forward(**inputs))


def with_real_positions(pipe):
    """Qwen-Image with rotary positions in real numbers, the table a constant of the graph."""
    from diffusers.models.transformers import transformer_qwenimage

    def turned(x, positions, use_real=False):
        cosine, sine = (part.unsqueeze(1) for part in positions)
        first, second = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
        turned = (first * cosine - second * sine, first * sine + second * cosine)
        return torch.stack(turned, dim=-1).flatten(3).type_as(x)

    transformer_qwenimage.apply_rotary_emb_qwen = turned
    table = pipe.transformer.pos_embed
    compute, known = table.forward, []

    def positions(*args, **kwargs):
        if not known:
            known.extend(
                (p.real.contiguous(), p.imag.contiguous()) for p in compute(*args, **kwargs)
            )
        return tuple(known)

    table.forward = positions
    return pipe


def exported(pipe, folder: Path, **more) -> tuple[str, Path]:
    """The denoiser's name in its pipeline, and its graph, exported for the inputs of a step."""
    submodule = "unet" if hasattr(pipe, "unet") else "transformer"
    denoiser = getattr(pipe, submodule)
    given: dict = {}
    forward = denoiser.forward

    def noting(*args, **kwargs):
        given.update(args=args, kwargs=kwargs)
        return forward(*args, **kwargs)

    denoiser.forward = noting
    pipe("a cat", num_inference_steps=1, output_type="latent", **tiny.SIZE, **more)
    del denoiser.forward
    inputs = {name: value for name, value in given["kwargs"].items() if value is not None}
    inputs["return_dict"] = False
    with torch.no_grad():
        program = torch.onnx.export(denoiser, args=given["args"], kwargs=inputs, dynamo=True)
    program.save(folder / "model.onnx")
    return submodule, folder / "model.onnx"


def trimmed(bundle: Path, target: Path) -> None:
    """The bundle's call and a manifest that says nothing of this machine."""
    target.mkdir(parents=True)
    document = json.loads((bundle / "manifest.json").read_text())
    for key in ("hardware", "devices", "overhead", "settings", "command_line", "model"):
        document.pop(key, None)
    document |= {"files": {}, "drops": []}
    for known in document["submodules"].values():
        known.pop("model", None)
    for name in [*(call["file"] for call in document["calls"]), "host.pb"]:
        shutil.copy(bundle / name, target / name)
    document["files"]["host.pb"] = (target / "host.pb").stat().st_size
    (target / "manifest.json").write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    for name, (make, more) in PIPELINES.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            pipe = Denoising(*_opened(*exported(make(), folder, **more)))
            with profiler.profile(pipe, out=folder, name=name, compress="deflate") as profile:
                pipe()
            shutil.rmtree(RECORDED / name, ignore_errors=True)
            trimmed(profile.path, RECORDED / name)
        write_reference(load(RECORDED / name), HERE / "reference" / f"{name}_onnxruntime.tsv")


def _opened(submodule: str, path: Path) -> tuple[str, _Part]:
    return submodule, _Part(path)


if __name__ == "__main__":
    main()
