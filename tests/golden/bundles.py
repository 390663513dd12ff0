"""The bundles: what each of them is, how it is made, and what is asked of it.

Makers write what no file holds; what hypothesis draws was drawn once and lies in `drawn/`, for its
draws change with the source code around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.corpus import CORPUS
from tests.golden import makers, public
from tests.golden.more_questions import (
    ask_bad_inputs,
    ask_conformance,
    ask_diffs,
    ask_documents,
    ask_fleet,
    ask_predictions,
    ask_selections,
)
from tests.golden.questions import Asked

__all__ = ["BUNDLES", "Bundle"]

ROOT = Path(__file__).resolve().parents[2]
H200 = ROOT / "tests" / "evidence" / "h200"
ROLES = ROOT / "tests" / "analysis" / "roles" / "recorded"


@dataclass(frozen=True)
class Bundle:
    """What is asked, in `says` what its golden proves, and from where its files are; `weight` is
    about how many seconds it takes."""

    name: str
    says: str
    ask: Callable[[Asked], None]
    sources: Sequence[Path] = ()
    weight: float = 3

    @property
    def possible(self) -> bool:
        """Whether its files are there: those of the corpus may not be."""
        return all(source.exists() for source in self.sources)


@dataclass(frozen=True)
class _Copied:
    """Asks about copies of files, which have the same names in every working folder."""

    sources: Sequence[Path]
    foreign: bool
    options: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, asked: Asked) -> None:
        names = [makers.copied(source, asked.folder) for source in self.sources]
        path = asked.bring_in(names[:1], self.options) if self.foreign else names[0]
        if (asked.folder / path).exists():
            asked.analyze(path)


def _own(name: str, says: str, source: Path) -> Bundle:
    return Bundle(name, says, _Copied((source,), foreign=False), (source,))


def _foreign(name: str, *sources: Path, weight: float = 4, **options: str) -> Bundle:
    says = f"An import of {sources[0].name} makes the same run, and its reports stay the same."
    return Bundle(name, says, _Copied(sources, foreign=True, options=options), sources, weight)


def _made(name: str, says: str, make: Callable[[Path], str]) -> Bundle:
    """Bundles and runs that a maker writes; what it returns is the path below the folder."""
    return Bundle(name, says, lambda asked: asked.analyze(make(asked.folder)))


def _made_foreign(name: str, make: Callable[[Path], str], **options: str) -> Bundle:
    says = f"What {make.__name__} writes is imported as before, and its reports stay the same."

    def ask(asked: Asked) -> None:
        path = asked.bring_in([make(asked.folder)], options)
        if (asked.folder / path).exists():
            asked.analyze(path)

    return Bundle(name, says, ask)


_SAMPLES = [
    _own(f"sample-{name}", f"Reports of the sample trace {name} stay the same.", path)
    for name in ("tiny_two_devices", "sd35_mi300x")
    for path in (ROOT / "sample_traces" / name,)
]
_RECORDED = [
    _own(f"roles-{name}", f"Roles in a recorded step of {name} stay the same.", ROLES / name)
    for name in ("flux", "qwen", "sd35", "sdxl")
]
_EVIDENCE = [
    *(
        _foreign(f"h200-{name}", H200 / f"{name}.json.gz", weight=12)
        for name in ("sd35-eager", "sd35-compiled", "sd35-streams", "sd35-stacks")
    ),
    *(
        _foreign(f"h200-{name}", H200 / f"{name}.json.gz", weight=15)
        for name in ("flux-eager", "flux-compiled", "wan-eager")
    ),
    _foreign(
        "h200-sd35-graphs",
        H200 / "sd35-graphs.json.gz",
        H200 / "sd35-capture.json.gz",
        capture="sd35-capture.json.gz",
    ),
]
_MADE = [
    _made("made-tiny", "The tiny run with numbers that fit in a head stays so.", makers.tiny),
    _made("made-empty", "A run that ended before its first call says so.", makers.empty),
    _made("made-queued", "A GPU that runs behind its host is told as before.", makers.queued),
    _made("made-graphs", "Calls that are one graph launch are told as before.", makers.graphs),
    _made("made-split", "Operators split over devices are told as before.", makers.split),
    _made("made-npu", "28 steps of an NPU with split operators stay the same.", makers.npu),
    _made("made-gpu", "Launches with kernels that follow later stay the same.", makers.gpu),
    *(
        _made(f"drawn-{name}", f"A run drawn by tests, {name}, stays the same.", make)
        for name in makers.DRAWN
        for make in (partial(makers.drawn, name),)
    ),
]
_FOREIGN = [
    _foreign("kineto-pair", CORPUS / "torch_pairs/Qwen_Qwen1.5-0.5B-Chat__h100.json.gz"),
    _foreign("kineto-hta", CORPUS / "hta/benchmark_result_2869224_1695835535_trace.json.gz"),
    _foreign("kineto-ranks", CORPUS / "torch_multirank/trace_filter"),
    _foreign("kineto-moe", CORPUS / "wild/switch_moe_cpu.json.gz"),
    _foreign("kineto-gpu-metrics", CORPUS / "wild/kineto_tb_gpu_metrics.json.gz"),
    _foreign("kineto-replayed", CORPUS / "torch_graph/vllm_decode_full/graph_execution.json.gz"),
    _foreign("nsys", CORPUS / "nsys/flameox_nsight-2025.5.2.sqlite"),
    _foreign("nsys-mock", CORPUS / "nsys/mock.sqlite"),
    _foreign("rocprofv3", CORPUS / "rocprofv3/ruv_decode"),
    _foreign("tensorrt", CORPUS / "tensorrt/RTX-3090_fp16"),
    _foreign("qnn", CORPUS / "qnn"),
    _foreign(
        "aihub",
        CORPUS / "aihub/stable_diffusion_v1_5.perf.yaml",
        device="Samsung Galaxy S24",
        runtime="qnn_context_binary",
    ),
    _foreign(
        "openvino",
        CORPUS / "openvino/winml_resnet_intel_npu__benchmark_average_counters_report.csv",
    ),
    _foreign("onnxruntime", CORPUS / "ort/ucb_resnet_inference_gemmini.json.gz"),
    _foreign("xplane", CORPUS / "xplane/jax_conv_minimal_08.xplane.pb"),
    _made_foreign("rbln", makers.rbln, pipeline="sd3", steps="4"),
    _made_foreign("triton", makers.triton),
    _made_foreign("sglang", makers.sglang),
    _made_foreign("vllm-omni", makers.vllm_omni),
    _made_foreign("diffusers-csv", makers.diffusers_csv),
    _made_foreign("mixed-folder", makers.mixed),
    _made_foreign("archive", makers.archive),
]
_MORE = [
    Bundle(
        "selections", "Sections, stages, steps and devices are chosen as before.", ask_selections
    ),
    Bundle("documents", "query, dump, share, export and merge say the same.", ask_documents),
    Bundle("conformance", "Foreign Perfetto traces are read and dumped alike.", ask_conformance),
    Bundle("diffs", "Comparisons of pairs of runs stay the same.", ask_diffs, weight=40),
    Bundle(
        "predictions", "Predictions of eight scenarios stay the same.", ask_predictions, weight=15
    ),
    Bundle(
        "fleet", "A data set of runs is added to, compared and gated alike.", ask_fleet, weight=8
    ),
    Bundle("bad-inputs", "What cannot be used is refused with the same sentence.", ask_bad_inputs),
    Bundle("help", "Every command explains itself in the same words.", public.ask_help, weight=6),
    Bundle("names", "Public names have the same signatures.", public.ask_names),
    Bundle("plug-ins", "Paths that plug-in authors were told are there.", public.ask_plugins),
]
BUNDLES: tuple[Bundle, ...] = (
    *_SAMPLES,
    *_RECORDED,
    *_EVIDENCE,
    *_MADE,
    *_FOREIGN,
    *_MORE,
)
