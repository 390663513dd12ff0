"""Each question that docs/questions.md calls answered is asked of a trace that has it: what must be
said, with figures beside those of a few lines over the raw file, and what must not be."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from statistics import median

import pytest

from profiler.importers import import_trace
from tests.cli.test_damaged import KERNELS, LENGTH_US, write_trace
from tests.command_line import run_command
from tests.docs.pages import REPOSITORY
from tests.evidence.recorded import FOLDER as H200
from tests.importers.kineto.traces import Trace
from tests.importers.onnxruntime.test_profiles import node, written
from tests.importers.onnxruntime.test_profiles import run as session_run

PAGE = REPOSITORY / "docs" / "questions.md"
_ROW = re.compile(
    r"^\| (\d+) \| .* \| (?:`profile-sd3 (.*)`|.*) \| (answered|partly|no|cannot be known)\b.* \|$",
    re.M,
)
TRUTH = json.loads((H200 / "truth.json").read_text())


@dataclass(frozen=True)
class Figure:
    """A number of the answer, the group of `pattern`, and the same found in another way."""

    pattern: str
    truth: Callable[[], float]
    within: float = 0.005  # of it


@dataclass(frozen=True)
class Asked:
    """A command, with names of traces in braces; what must be said, and what must not."""

    command: str
    says: tuple[str, ...]
    never: tuple[str, ...]
    figures: tuple[Figure, ...] = ()
    code: int = 0


# --- Traces that have what is asked for: recorded on an H200, or written by hand.


def _copying(folder: Path) -> Path:
    """Two copies to the device of 100 µs: one beneath a kernel, one with nothing beside it."""
    trace = Trace()
    trace.module("Transformer2DModel_0", 0, 1000)
    trace.kernel("gemm", 100, 300, launched=10)
    for start in (200, 600):
        trace.kernel(
            "Memcpy HtoD (Pinned -> Device)",
            *(start, 100),
            launched=start - 5,
            cat="gpu_memcpy",
            stream=9,
            bytes=1 << 20,
        )
    trace.kernel("gemm", 720, 100, launched=610)
    return trace.write(folder)


PEAK = 3 << 20


def _allocating(folder: Path) -> Path:
    """The decoder allocates twice as much as the encoder left."""
    trace = Trace()
    trace.module("T5EncoderModel_0", 0, 100)
    trace.module("Decoder_0", 200, 100)
    for start, (changed, held) in ((50, (1 << 20, 1 << 20)), (250, (2 << 20, PEAK))):
        trace.kernel("gemm", start, 10, launched=start - 5)
        told = {"Bytes": changed, "Device Type": 1, "Device Id": 0, "Total Allocated": held}
        event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t"}
        trace.events.append({**event, "pid": 1, "tid": 1, "ts": start, "args": told})
    return trace.write(folder)


def _first_conv(folder: Path) -> Path:
    """Three runs of a session: the first takes 90 µs longer than the others, in its Conv; 25 µs of
    each are in no node."""
    events = []
    for start, conv in ((0, 120), (300, 30), (400, 30)):
        events += [
            node("conv", start + 10, conv, op="Conv"),
            node("add", start + conv + 15, 5, op="Add"),
            session_run(start, conv + 30),
        ]
    return written(folder / "vae_decoder_2026-05-01_10-12-12_301.json", *events)


def _falling_back(folder: Path, device: str = "VitisAI") -> Path:
    """A node of the CPU, between copies, among those of a device: 40 of 260 µs."""
    gpu = {"provider": f"{device}ExecutionProvider"}
    events = [
        node("matmul", 0, 100, **gpu),
        node("Memcpy_0", 100, 10, op="MemcpyToHost", **gpu),
        node("nonzero", 110, 40, op="NonZero"),
        node("Memcpy_1", 150, 10, op="MemcpyFromHost", **gpu),
        node("add", 160, 100, op="Add", **gpu),
    ]
    return written(folder / "unet.json", *events, session_run(0, 260))


def _recompiling(folder: Path) -> Path:
    """A denoiser whose third call compiles again, as dynamo says why."""
    from profiler.run.run import write_parquet
    from tests.analysis.test_compilations import AGAIN, FIRST, run_with

    write_parquet(run_with(FIRST, AGAIN), folder / "recompiled")
    return folder / "recompiled"


MADE: dict[str, Callable[[Path], Path]] = {
    "copies": _copying,
    "memory": _allocating,
    "first_conv": _first_conv,
    "fallback": _falling_back,
    "fallback_gpu": lambda folder: _falling_back(folder, "CUDA"),
    "recompiled": _recompiling,
    "sound": lambda folder: write_trace(folder / "sound.json", damaged=False),
    "damaged": lambda folder: write_trace(folder / "damaged.json", damaged=True),
}


# --- The same figures from the files themselves.


@cache
def _events(name: str) -> list[dict]:
    with gzip.open(H200 / f"{name}.json.gz") as file:
        return json.load(file)["traceEvents"]


_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def _on_device(name: str) -> list[dict]:
    return [one for one in _events(name) if one.get("cat", "") in _DEVICE]


def _kernels_ms(name: str, text: str) -> float:
    """The sum of the kernels whose name has a text."""
    return sum(one["dur"] for one in _on_device(name) if text in one["name"]) / 1e3


def _longest_gap_ms(name: str) -> float:
    rows = sorted((one["ts"], one["ts"] + one["dur"]) for one in _on_device(name))
    longest, until = 0.0, rows[0][0]
    for start, end in rows:
        longest, until = max(longest, start - until), max(until, end)
    return longest / 1e3


def _events_ms(model: str, stage: str, submodule: str) -> float:
    """What CUDA events around its calls said."""
    calls = TRUTH[model][stage]["calls"]
    return sum(end - begin for name, begin, end in calls if name == submodule)


def _by_operator(name: str, operator: str) -> dict[str, tuple[list[list[int]], float]]:
    """Dims and the kernels' µs of each operator of a name."""
    ops = {
        one["args"]["External id"]: one["args"]["Input Dims"]
        for one in _events(name)
        if one.get("cat") == "cpu_op" and one["name"] == operator
    }
    took = dict.fromkeys(ops, 0.0)
    for one in _on_device(name):
        if one["args"].get("External id") in ops:
            took[one["args"]["External id"]] += one["dur"]
    return {number: (ops[number], took[number]) for number in ops}


def _conv_ms(name: str, first: list[int]) -> float:
    """The kernels of the convolutions of an input's dims to as many channels."""
    found = _by_operator(name, "aten::cudnn_convolution").values()
    return sum(us for (dims, us) in found if dims[0] == first and dims[1][0] == first[1]) / 1e3


def _compute_share(name: str, elapsed_ms: float) -> float:
    """FLOPs of products, attention and convolutions ÷ the H200's published peak, as part of a run,
    in %."""
    flops = 0.0
    for operator, first in (("aten::addmm", 1), ("aten::mm", 0)):
        for dims, _ in _by_operator(name, operator).values():
            (rows, inner), (_, columns) = dims[first : first + 2]
            flops += 2 * rows * inner * columns
    for dims, _ in _by_operator(name, "aten::_cudnn_attention_forward").values():
        batch, heads, length, size = dims[0]
        flops += 4 * batch * heads * length * length * size
    for dims, _ in _by_operator(name, "aten::cudnn_convolution").values():
        image, weight = dims[:2]
        flops += 2 * prod(image[-2:]) * prod(weight) * image[0]
    return 100 * flops / 989.4e12 / (elapsed_ms / 1e3)


def _span_ms(model: str, stage: str) -> float:
    """From the first call to the end of the last, by CUDA events in the recorded run."""
    calls = TRUTH[model][stage]["calls"]
    return calls[-1][2] - calls[0][1]


def _untraced_ms(model: str) -> float:
    return TRUTH[model]["eager"]["span_ms"][1]


def _step_ms(model: str, stage: str) -> float:
    """The median of the denoiser's calls but the first."""
    calls = TRUTH[model][stage]["calls"]
    return median([end - start for name, start, end in calls if name == "transformer"][1:])


def _of_graphs(name: str) -> int:
    """Kernels, copies and fills that launches of graphs launched."""
    launches = {
        one["args"]["correlation"] for one in _events(name) if one["name"] == "cudaGraphLaunch"
    }
    return sum(one["args"].get("correlation") in launches for one in _on_device(name))


def _encoders_share() -> float:
    """Of the pipeline's call, in %: what it took in modules of text encoders."""
    took = {"pipeline": 0.0, "encoders": 0.0}
    for one in _events("sd35-stacks"):
        if re.search(r"pipeline_stable_diffusion_3.py\(\d+\): __call__", one["name"]):
            took["pipeline"] += one["dur"]
        if re.match(r"nn.Module: (CLIPTextModelWithProjection|T5EncoderModel)_", one["name"]):
            took["encoders"] += one["dur"]
    return 100 * took["encoders"] / took["pipeline"]


def _quicker(model: str, stage: str, other: str, its_stage: str) -> float:
    """How much less a recorded run took than another, in %, by CUDA events."""
    return 100 * (1 - _span_ms(other, its_stage) / _span_ms(model, stage))


ASKED: dict[int, Asked] = {
    1: Asked(
        "analyze {sd35-stacks} --section idle",
        ("launch-bound", "sync-bound", "the host was in", "_get_clip_prompt_embeds"),
        ("cause not recorded",),
        (Figure(r"Longest gaps.*?\n +[\d.]+ +([\d.]+)", lambda: _longest_gap_ms("sd35-stacks")),),
    ),
    3: Asked(
        "diff {flux-eager} {flux-compiled}",
        ("measured once", "faster (204 ms → 131 ms)", "rope", "TFLOP/s", "same kernel: cudnn"),
        ("within noise", "not the same devices"),
        (
            Figure(
                r"end to end .([\d.]+) %",
                lambda: _quicker("flux", "trace_marked", "flux-compiled", "trace_compiled"),
                0.02,
            ),
        ),
    ),
    4: Asked(
        "diff {sd35-eager} {sd35-compiled} --by kernel --top 300",
        ("Kernels, by difference", "triton_poi_fused_gelu_view_17 - "),
        ("not the same devices",),
        (
            Figure(
                r"\n.*RowwiseMomentsCUDAKernel\S* +([\d.]+) ms",
                lambda: _kernels_ms("sd35-eager", "RowwiseMomentsCUDAKernel<c10::BFloat16>"),
            ),
            Figure(
                r"\ntriton_poi_fused_gelu_view_17 +- +([\d.]+) ms",
                lambda: _kernels_ms("sd35-compiled", "triton_poi_fused_gelu_view_17") / 4,
                0.01,
            ),
        ),
    ),
    5: Asked(
        "diff {sd35-compiled} {sd35-eager} --fail-over 5% --metric denoise.step",
        ("FAILED: denoise.step", "slower by more than +5.0 %"),
        ("within noise", "faster"),
        (Figure(r"slower \([\d.]+ ms → ([\d.]+) ms", lambda: _step_ms("sd35", "trace_marked")),),
        code=1,
    ),
    6: Asked(
        "diff {sd35-compiled} {sd35-eager} --by role",
        ("Roles, by difference", "transformer norm", "slower"),
        ("not the same devices",),
    ),
    8: Asked(
        "analyze {recompiled} --section findings",
        ("First call of transformer", "1 recompile: size mismatch"),
        ("2 recompiles", "vae"),
    ),
    9: Asked(
        "analyze {sd35-stacks} --section findings",
        ("The first call of text_encoder takes", "Warm up"),
        ("transformer takes 77",),
        (
            Figure(
                r"the host launched nothing for ([\d.]+) ms", lambda: _longest_gap_ms("sd35-stacks")
            ),
        ),
    ),
    12: Asked(
        "analyze {flux-eager} --section roofline",
        ("If it took no time, the run would take at least",),
        ("without attention of vae",),
        (
            Figure(
                r"([\d.]+) ms without attention of transformer",
                lambda: (
                    _span_ms("flux", "trace_marked")
                    - _kernels_ms("flux-eager", "cudnn_generated_fort_native_sdpa")
                ),
                0.01,
            ),
        ),
    ),
    16: Asked(
        "analyze {flux-eager} --full",
        ("ms in its calls: they return before it is done",),
        ("vae decode cuda:0 1 15.6",),
        (
            Figure(
                r"\nvae +decode +cuda:0 +1 +([\d.]+)",
                lambda: _events_ms("flux", "trace_marked", "vae"),
            ),
        ),
    ),
    19: Asked(
        "analyze {copies} --section idle",
        ("Copies, whole run", "overlapped %"),
        ("device to host",),
        (Figure(r"host to device[^\n]* ([\d.]+)\n", lambda: 50.0),),
    ),
    23: Asked(
        "analyze {memory} --section memory",
        ("What held memory at the peak", "Decoder cuda:0 2.00 MiB"),
        ("T5EncoderModel cuda:0 2.00 MiB",),
        (Figure(r"cuda:0.*? ([\d.]+) MiB", lambda: PEAK / (1 << 20)),),
    ),
    26: Asked(
        "analyze {wan-eager} --submodule vae --section shapes",
        ("conv 1×96×6×482×834 → 96 3×3×3 bf16 takes the most time", "of its device's work"),
        ("attention B1 H12",),
        (
            Figure(
                r"\nconv 1×96×6×482×834 → 96 .*? vae +\d+ +([\d.]+)",
                lambda: _conv_ms("wan-eager", [1, 96, 6, 482, 834]),
            ),
        ),
    ),
    27: Asked(
        "analyze {sd35-stacks}",
        ("1.18 s for 2 steps", "text encoders take 74 %, transformer 15 %, vae 7.3 %"),
        ("transformer takes",),
        (Figure(r"text encoders take (\d+) %", _encoders_share, 0.01),),
    ),
    29: Asked(
        "predict {flux-eager} --drop vae",
        ("(without vae)", "nothing stands in for what they made"),
        ("transformer 816.2 0",),
        (
            Figure(
                r"→ ([\d.]+) ms",
                lambda: (
                    _span_ms("flux", "trace_marked") - _events_ms("flux", "trace_marked", "vae")
                ),
                0.01,
            ),
        ),
    ),
    30: Asked(
        "diff {sd35-eager} {flux-eager} {wan-eager} --by role",
        ("Roles, by difference", "transformer attention", "vae convolution"),
        ("only in",),
        (
            Figure(
                r"transformer attention +[\d.]+ ms +([\d.]+) ms",
                lambda: _kernels_ms("flux-eager", "cudnn_generated_fort_native_sdpa") / 4,
                0.02,
            ),
        ),
    ),
    31: Asked(
        "analyze {first_conv} --section time",
        ("idle inside µs",),
        ("residual 75",),
        (Figure(r"vae_decoder +cpu:0 [^\n]* ([\d.]+) +6 +2\n", lambda: 3 * 25.0),),
    ),
    32: Asked(
        f"predict {{sd35-eager}} --cuda-graph --untraced {_untraced_ms('sd35')}",
        ("without the profiling overhead", "(each call as a graph)"),
        ("542 ms →",),
        (Figure(r"→ ([\d.]+) ms", lambda: TRUTH["sd35"]["graphs"]["span_ms"][1], 0.02),),
    ),
    33: Asked(
        "analyze {first_conv} --section time",
        ("first call µs shortest steady µs median µs",),
        ("105.0",),
        (
            Figure(r"\nvae_decoder +cpu:0 +3 +[\d.]+ +[\d.]+ +([\d.]+)", lambda: 150.0),
            Figure(r"\nvae_decoder +cpu:0 +3(?: +[\d.]+){4} +([\d.]+)", lambda: 60.0),
        ),
    ),
    35: Asked(
        "analyze {fallback} --section idle",
        ("CPU fallback between copies", "nonzero unet NonZero CPUExecutionProvider 1", "VitisAI"),
        ("matmul unet", "add unet"),
        (Figure(r"nonzero [^\n]* ([\d.]+)\n", lambda: 40.0),),
    ),
    41: Asked(
        f"predict {{sd35-eager}} --steps 2 --untraced {_untraced_ms('sd35')}",
        ("(2 steps)", "encode", "decode"),
        ("542 ms →",),
        (Figure(r"→ ([\d.]+) ms", lambda: TRUTH["sd35"]["steps_2"]["span_ms"][1], 0.03),),
    ),
    42: Asked(
        "analyze {sd35-graphs} --full",
        ("14,694 of 14,694 kernels", "aten::addmm", "transformer"),
        ("no operators",),
        (
            Figure(
                r"of ([\d,]+) kernels have operators",
                lambda: _of_graphs("sd35-graphs"),
                0,
            ),
        ),
    ),
    43: Asked(
        "analyze {flux-eager}",
        ("Peak use", "over the whole run"),
        ("compute 77 %",),
        (
            Figure(
                r"compute (\d+) %, memory",
                lambda: _compute_share("flux-eager", _span_ms("flux", "trace_marked")),
                0.02,
            ),
        ),
    ),
    44: Asked(
        "analyze {damaged} --full",
        ("damaged recording: 4.96 ms for 1 call", "recorded as running past the next one's start"),
        ("2.00 s for", "End to end 2"),
        (Figure(r"\n\s+gemm\s+([\d.]+)", lambda: KERNELS * LENGTH_US / 1e3),),
    ),
}
"""By the number of the question."""


# --- Asking.


class Answers:
    """Traces, imported once, and what commands have said of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.given: dict[str, Path] = {}
        self.said: dict[str, tuple[int, str]] = {}

    def trace(self, name: str) -> Path:
        """What a command is given for a name."""
        if name not in self.given:
            place = self.folder / name
            place.mkdir()
            if name in MADE:
                self.given[name] = MADE[name](place)
            else:
                graphs = {"capture": str(H200 / "sd35-capture.json.gz")}
                options = graphs if name == "sd35-graphs" else {}
                source = [H200 / f"{name}.json.gz"]
                self.given[name] = import_trace(source, place, options=options)
        return self.given[name]

    def to(self, command: str) -> tuple[int, str]:
        """Exit code and output of a command, with names of traces in braces."""
        if command not in self.said:
            words = re.sub(r"\{(.*?)\}", lambda one: str(self.trace(one[1])), command).split()
            self.said[command] = self._run(words)
        return self.said[command]

    def _run(self, words: list[str]) -> tuple[int, str]:
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
            patch.chdir(self.folder)
            patch.setenv("COLUMNS", "220")
            code = run_command(*words, *(["--no-html"] if words[0] == "analyze" else []))
        return code, out.getvalue()


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return Answers(tmp_path_factory.mktemp("questions"))


@pytest.mark.parametrize("number", ASKED)
def test_it_is_answered(number, answers):
    """With what must be said and nothing that must not, and with the figures of the file."""
    asked = ASKED[number]
    code, text = answers.to(asked.command)
    assert code == asked.code, text
    words = " ".join(text.split())
    assert [one for one in asked.says if one not in words] == [], text
    assert [one for one in asked.never if one in words] == [], text
    for figure in asked.figures:
        found = re.search(figure.pattern, text, re.S)
        assert found, f"{figure.pattern} is not in\n{text}"
        value = float(found[1].replace(",", ""))
        assert value == pytest.approx(figure.truth(), rel=figure.within), text


def test_a_sound_recording_is_not_called_damaged(answers):
    """The same trace without the impossible kernel."""
    _, text = answers.to("analyze {sound} --full")
    assert "damaged" not in text


def test_nodes_fall_back_from_a_gpu_too(answers):
    """Whose nodes are what the host did, for the profile has no kernels: 40 µs, between copies."""
    _, text = answers.to("analyze {fallback_gpu} --section idle")
    assert re.search(r"nonzero +unet +NonZero +CPUExecutionProvider +1 +40.0\n", text)
    assert re.search(r"unet +CUDA +CPU +1 +1 +1 +10.0", text)


def test_the_page_and_the_tests_name_the_same_questions():
    """All forty-four in order; those that are answered are asked here, by the command there."""
    rows = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert [int(number) for number, *_ in rows] == list(range(1, 45))
    answered = {int(number): command for number, command, found in rows if found == "answered"}
    assert answered.keys() == ASKED.keys()
    for number, command in answered.items():
        of_page, here = command.split(), ASKED[number].command.split()
        assert of_page[0] == here[0]
        given = {word for word in of_page if word.startswith("--")} - {"--import"}
        assert given <= {*here}, f"{number}: {command}"


def test_readme_names_the_machine_of_the_evidence():
    """Its table and its last section name the GPU, version and date of the evidence, which are
    those of its traces, and repeat its figures."""
    evidence = (REPOSITORY / "docs" / "gpu-evidence.md").read_text(encoding="utf-8")
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    (gpu,) = {model["device"] for model in TRUTH.values() if "device" in model}
    (torch,) = {model["torch"].partition("+")[0] for model in TRUTH.values() if "torch" in model}
    (date,) = set(re.findall(r"\d{1,2} [A-Z][a-z]+ 20\d\d", evidence))
    for section in ("## What it costs", "## What it is not"):
        text = readme.split(section)[1].split("## ")[0]
        assert [one for one in (gpu, f"torch {torch}", date) if one not in text] == []
    level = dict(re.findall(r"^\| (\w+)[^|]*\| [^|]* \| ([\d.]+) \|$", evidence, re.M))
    assert f"[{(float(level['calls']) - 1) * 100:.0f} %]" in readme
    assert f"[{float(level['all']):.1f} times]" in readme
