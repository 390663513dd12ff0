"""What the runner of the docs' commands must know beside them; each entry gives its reason."""

from __future__ import annotations

__all__ = ["ELSEWHERE", "ENDS_WITH", "NEEDS", "PRELUDES", "SKETCHES", "WITHOUT_INPUTS"]

_CI = "a fresh environment: .ci/run"
_NOISE = "equal code, recorded twice: noise decides on a busy machine"
_NSYS = "needs a GPU and NVIDIA's Nsight Systems"
_ONCE = "docs/how-to/"
_NPU = "needs an NPU, or files that RBLN's profiler wrote"

ELSEWHERE = {
    "$ python3 -m venv": _CI,
    "$ .venv/bin/": _CI,
    "$ .venv-optimum/bin/": _CI,
    "$ .ci/run": _CI,
    "$ pip install": "needs a package index: .ci/run installs the same extras",
    "$ PROFILE_SD3_REQUIRE_OPTIMUM=1": _CI,
    "$ profile-sd3 run --ops ": "28 steps: tests/capture/onnxruntime/test_selection.py",
    "$ for run in 1 2 3; do profile-sd3 run ": f"recorded once: {_ONCE}slower-over-time.md",
    "$ profile-sd3 record --ops first,last --out operators/": f"once: {_ONCE}diffusers-script.md",
    "$ profile-sd3 benchmark-device": "takes seven seconds: tests/cli/test_benchmark_device.py",
    "$ nsys ": _NSYS,
    "$ python benchmarks/gpu_record.py ": "needs a CUDA GPU",
    "$ python benchmarks/gpu_compare.py": "held by tests/evidence",
    "$ pytest tests/evidence": _CI,
    "$ profile-sd3 diff qwen_h100.json.gz ": "of two GPUs: tests/report/test_brief_comparison.py",
    "$ profile-sd3 diff resnet.profile.json ": "of an engine: tests/analysis/comparison",
    "$ trtexec ": "needs a GPU and NVIDIA's TensorRT",
    "$ benchmark_app ": "needs OpenVINO",
    "$ tritonserver ": "needs the Triton Inference Server",
    "$ rocprofv3 ": "needs a GPU and AMD's rocprofv3",
    "$ profile-sd3 analyze host.trace.json.gz": "alone: tests/importers/test_other_views.py",
    "$ profile-sd3 fleet gate ": "needs a history of runs: tests/fleet/test_gate.py",
    "$ profile-sd3 fleet history ": "the same",
    "$ profile-sd3 fleet accept ": "the same",
    "$ RBLN_PROFILER=1 torchrun ": "needs torch: tests/programs/test_ranks.py",
    "$ profile-sd3 analyze traces/20261121-093000-sd3-2": "the same",
    "$ profile-sd3 view": "serves until Ctrl-C: tests/browser/test_view.py opens it",
    "$ profile-sd3 graph view": "serves until Ctrl-C: tests/browser/test_netron.py opens it",
    "$ profile-sd3 import FOLDER_OF_RBLN_FILES": f"{_NPU}: tests/capture/rbln/test_shards.py",
}
"""Commands that begin so do not run here: why, and what does instead."""

_TORCH = ("torch", "diffusers", "transformers", "onnxscript")

NEEDS = {
    "profile-sd3 query": ("duckdb",),
    "profile-sd3 graph export": _TORCH,
    "stable-diffusion-3.5/": _TORCH,
}
"""Packages of extras that a page needs which says so; without them it is skipped."""

ENDS_WITH: dict[str, tuple[set[int], str]] = {
    "$ profile-sd3 diff baselines/ new/": ({0, 1}, _NOISE),
    "$ profile-sd3 diff baseline/ candidate/": ({0, 1}, _NOISE),
    "$ profile-sd3 predict sd35.json.gz": (
        {2},
        "the small trace has no GPU",
    ),
    **dict.fromkeys(
        (
            "$ profile-sd3 analyze snapshot.pickle",
            "$ profile-sd3 analyze report.nsys-rep",
            "$ profile-sd3 predict unet.profile.json",
            "$ profile-sd3 predict trace.json --steps 4",
            "$ profile-sd3 predict sample_traces/tiny_two_devices --cuda-graph",
            "$ profile-sd3 predict sample_traces/tiny_two_devices --precision fp16",
            "$ profile-sd3 predict sample_traces/sd35_mi300x --untraced 100",
            "$ profile-sd3 diff sample_traces/tiny_two_devices sample_traces/sd35_mi300x --fail",
            "$ profile-sd3 graph split opset9.onnx",
        ),
        ({2}, "what is refused"),
    ),
    "$ profile-sd3 graph check legacy.onnx\n": ({1}, "the fault is an error"),
    "$ profile-sd3 graph check unet/model.onnx vae/": ({1}, "the models have dynamic shapes"),
    "$ profile-sd3 graph check unet/model.onnx --target qnn": ({1}, "the model has dynamic shapes"),
}
"""Exit codes other than 0 that commands which begin so may have, and why."""

_PIPE = """
import profiler
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder
class Short(StableDiffusion3Pipeline):
    def __call__(self, prompt, **_):
        return super().__call__(prompt, num_inference_steps=2, height=64, width=64)
pipe = Short.from_folder(default_model_folder())
"""
_ANALYSIS = """
import profiler
analysis = profiler.analyze("sample_traces/tiny_two_devices")
"""

_COMFYUI = """
import sys, types
nodes = types.ModuleType("nodes")
nodes.NODE_CLASS_MAPPINGS = {}
sys.modules["nodes"] = nodes
"""

_GENAI = """
from types import SimpleNamespace
_known = {
    "get_generate_duration": lambda: 1000.0,
    "get_text_encoder_infer_duration": lambda: {"text_encoder": 40.0},
    "get_vae_encoder_infer_duration": lambda: 0.0,
    "get_vae_decoder_infer_duration": lambda: 100.0,
    "raw_metrics": SimpleNamespace(
        iteration_durations=[300_000.0],
        unet_inference_durations=[290_000.0],
        transformer_inference_durations=[],
    ),
}
pipe = SimpleNamespace(get_performance_metrics=lambda: SimpleNamespace(**_known))
"""

PRELUDES = {
    "README.md": _PIPE,
    "docs/capture.md": _PIPE,
    "docs/capture-ops.md": _PIPE,
    "docs/rbln.md": _PIPE,
    "docs/diff.md": "import profiler\n",
    "docs/comfyui.md": _COMFYUI,
    "docs/findings.md": "import profiler\n",
    "docs/html-report.md": _ANALYSIS,
    "docs/openvino.md": _GENAI,
}
"""What a reader of the page has before its Python begins: a pipeline, an analysis."""

WITHOUT_INPUTS = {"docs/start.md"}
"""Pages that start from nothing, whatever they name."""

SKETCHES = {
    "docs/how-to/slower-over-time.md": "MLflow and W&B are no extras, and want an account",
    "docs/architecture.md": "excerpts of files: tests/test_one_place_each.py adds some of each",
}
"""Pages whose Python blocks are no programs."""
