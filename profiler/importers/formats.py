"""How files of each producer are recognized, described, and assigned to an importer.

Producers with a folder of their own have this there. Nothing here imports a library, because all of
it runs for each file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from profiler.importers.importer import SQLITE, Importer, Option, first_line, head_of, reader
from profiler.kineto import is_unitrace

_PACKAGE = "profiler.importers"

# --- Measurements of Qualcomm's AI Hub (`perf.yaml` of its models).


_AIHUB_KEYS = tuple(
    re.compile(rb"^\s*%s:\s*$" % key, re.MULTILINE)
    for key in (rb"precisions", rb"components", rb"performance_metrics")
)


def _is_aihub(_path: Path, head: bytes) -> bool:
    return head.lstrip()[:1] not in (b"{", b"[") and all(key.search(head) for key in _AIHUB_KEYS)


AIHUB = Importer(
    name="aihub",
    title="Qualcomm AI Hub",
    accepts="measurements of Qualcomm's AI Hub (a model's perf.yaml)",
    recognises=_is_aihub,
    read=reader(_PACKAGE, reads="aihub:read_run"),
    options=(
        Option("device", str, "the device whose measurements to take"),
        Option("runtime", str, "the runtime whose measurements to take"),
        Option("precision", str, "the precision whose measurements to take"),
        Option("steps", int, "denoising steps of the pipeline that the components make", least=1),
        Option("guidance", str, "the guidance scale: above 1 a step is two passes, with steps"),
    ),
    capabilities=frozenset({"averages"}),
    seen="those of qai-hub-models of 2025 and 2026",
)


# --- What Ascend's profilers write: torch_npu's `*_ascend_pt` folders, msprof's exports as text or
# database.


ASCEND_FOLDERS = ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output")
_LOOKED_INTO = 256  # subfolders, before a folder is none of Ascend's
_ASCEND_ENDINGS = (".json", ".json.gz", ".csv", ".db")
_ASCEND_STRINGS, _ASCEND_APIS = b"STRING_IDS", (b"PYTORCH_API", b"CANN_API")
_ASCEND_PHASE = re.compile(rb'"ph"\s*:\s*"[XM]"')
_ASCEND_MARKS = re.compile(rb'"Ascend Hardware"|"async_npu"|"async_task_queue"|"AscendCL@')
_ASCEND_TIME = re.compile(rb'"ts"\s*:\s*"\d{13,}(?:\.\d+)?"')
_NOT_ASCEND = re.compile(rb'"schemaVersion"|"deviceProperties"|"(?:cuda|hip)_runtime"')
_ASCEND_KERNELS = (
    frozenset({"Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)"}),
    frozenset({"Op Name", "OP Type", "Task Type", "Task Start Time(us)", "Task Duration(us)"}),
)


class AscendForm(StrEnum):
    """The form of an Ascend file."""

    TRACE = "trace"  # trace_view.json, msprof_*.json
    KERNELS = "kernels"  # kernel_details.csv, op_summary_*.csv
    DATABASE = "database"  # ascend_pytorch_profiler_*.db, msprof_*.db


def ascend_form(head: bytes) -> AscendForm | None:
    """The form of a file with this start, unpacked; None for another's."""
    if head.startswith(SQLITE):
        known = _ASCEND_STRINGS in head and any(table in head for table in _ASCEND_APIS)
        return AscendForm.DATABASE if known else None
    if head.lstrip()[:1] in (b"[", b"{"):
        ours = _ASCEND_MARKS.search(head) or (
            _ASCEND_TIME.search(head) and not _NOT_ASCEND.search(head)
        )
        return AscendForm.TRACE if ours and _ASCEND_PHASE.search(head) else None
    names = frozenset(name.strip(' "\r') for name in first_line(head).split(","))
    return AscendForm.KERNELS if any(some <= names for some in _ASCEND_KERNELS) else None


def ascend_outputs(folder: Path) -> list[Path]:
    """The folders with exports: the folder itself, or those up to two levels below, by name, else
    its subfolders with such files."""
    if folder.name in ASCEND_FOLDERS:
        return [folder]
    for pattern in ("*", "*/*"):
        found = sorted(
            one for one in folder.glob(pattern) if one.name in ASCEND_FOLDERS and one.is_dir()
        )
        if found:
            return found
    if ascend_files(folder):
        return [folder]
    folders = sorted(one for one in folder.iterdir() if one.is_dir())
    first = [one for one in folders[:_LOOKED_INTO] if ascend_files(one)]
    return first + [one for one in folders[_LOOKED_INTO:] if first and ascend_files(one)]


def ascend_files(folder: Path) -> dict[AscendForm, list[Path]]:
    """The files of each form in a folder, by name."""
    found: dict[AscendForm, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        form = (
            ascend_form(head_of(path))
            if path.name.endswith(_ASCEND_ENDINGS) and path.is_file()
            else None
        )
        if form is not None:
            found.setdefault(form, []).append(path)
    return found


def _is_ascend(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return any(one.name in ASCEND_FOLDERS or ascend_files(one) for one in ascend_outputs(path))
    return ascend_form(head) is not None


ASCEND = Importer(
    name="ascend",
    title="Ascend",
    accepts="a folder of torch_npu's profiler (*_ascend_pt) or of msprof's exports, or one of its "
    "files",
    recognises=_is_ascend,
    read=reader(_PACKAGE, reads="ascend:read_run"),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes"}),
    seen="torch_npu of 2024 and 2025 by real traces and databases, msprof's exports by "
    "documentation",
)


# --- Bundles of ours that are ranks of one job: together they are one run.


def ranks_in(path: Path) -> list[Path]:
    """The bundles of one run at a path: itself if it is of a rank, those in a folder if the newest
    is; empty for other paths."""
    from profiler.trace.bundle import search
    from profiler.trace.manifest import job_of, ranks_of_newest

    if job_of(path) is not None:
        return [path]
    whole = search(path).whole if path.is_dir() else ()
    found = ranks_of_newest(whole) if whole else []
    return found if len(found) > 1 else []


BUNDLES = Importer(
    name="bundles",
    title="ranks of a job, of profile-sd3",
    accepts="the bundles of a job's ranks, which profile-sd3 recorded, or their folder",
    recognises=lambda path, _head: bool(ranks_in(path)),
    read=reader(_PACKAGE, reads="bundles:read_run"),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes", "memory"}),
    seen="bundles of format 2",
)


# --- The table of times that diffusers' own benchmarks write.


_CSV_COLUMNS = {"scenario", "model_cls", "time_plain_s"}


def _is_diffusers_csv(_path: Path, head: bytes) -> bool:
    return {name.strip(' "\r') for name in first_line(head).split(",")} >= _CSV_COLUMNS


DIFFUSERS_CSV = Importer(
    name="diffusers_csv",
    title="diffusers' benchmarks",
    accepts="the CSV of diffusers' benchmarks (benchmarks/benchmarking_*.py)",
    recognises=_is_diffusers_csv,
    read=reader(_PACKAGE, reads="stage_times:read_diffusers_csv"),
    capabilities=frozenset({"stages"}),
    seen="those of diffusers 0.35 and 0.36",
)


# --- What FastVideo writes of its performance: records of its tests, benchmarks, stage logging.


_FASTVIDEO_RECORD = re.compile(rb'"avg_generation_time_s"\s*:')
_FASTVIDEO_BENCHMARK = re.compile(rb'"stage_means_ms"\s*:')
_FASTVIDEO_STAGES = re.compile(rb'"stages"\s*:\s*\{[^{}]*\{[^{}]*"execution_time"\s*:')


def _is_fastvideo(_path: Path, head: bytes) -> bool:
    forms = _FASTVIDEO_RECORD, _FASTVIDEO_BENCHMARK, _FASTVIDEO_STAGES
    return head.lstrip()[:1] == b"{" and any(form.search(head) for form in forms)


FASTVIDEO = Importer(
    name="fastvideo",
    title="FastVideo",
    accepts="stage times of FastVideo (perf_*.json, its benchmark's JSON, stages that it logged)",
    recognises=_is_fastvideo,
    read=reader(_PACKAGE, reads="stage_times:read_fastvideo"),
    capabilities=frozenset({"stages"}),
    seen="those of 2026, by their source",
)


# --- Exports of Nsight Systems: the SQLite file that `nsys export --type sqlite` writes.


_NSYS_ACCEPTS = "an export of Nsight Systems (nsys export --type sqlite)"
_NSYS_TABLES = (b"CUPTI_ACTIVITY_KIND_", b"NVTX_EVENTS", b"TARGET_INFO_SESSION_START_TIME")


def _is_nsys(_path: Path, head: bytes) -> bool:
    return head.startswith(SQLITE) and any(name in head for name in _NSYS_TABLES)


NSYS = Importer(
    name="nsys",
    title="Nsight Systems",
    accepts=_NSYS_ACCEPTS,
    recognises=_is_nsys,
    read=reader(_PACKAGE, _NSYS_ACCEPTS, reads="nsys:read_run"),
    options=(
        Option(
            "submodules",
            str,
            "the NVTX ranges that are calls of submodules, with commas (text_encoder,dit,vae); "
            "ranges with the names that diffusers gives to components if it is left out",
        ),
    ),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes", "metrics", "memory"}),
    together=lambda paths: [[path] for path in paths],
    seen="2025.5 to 2026.2 (export schemas 3.24 and 3.25)",
)


# --- Profiles that ONNX Runtime wrote without us: a file a session, or a folder of them.


_ORT_SESSION = (b'"model_loading', b'"session_initialization"', b'"model_run"')
_ORT_NODE = (b'"op_name"', b'"provider"')


def ort_profiles_in(folder: Path) -> list[Path]:
    """The ONNX Runtime profiles in a folder, by name."""
    files = (path for path in folder.iterdir() if path.is_file())
    named = (path for path in files if path.name.endswith((".json", ".json.gz")))
    return sorted(path for path in named if _is_ort_profile(head_of(path)))


def _is_ort_profile(head: bytes) -> bool:
    array = head.lstrip()[:1] == b"[" and b'"cat"' in head
    return array and (
        any(name in head for name in _ORT_SESSION) or all(n in head for n in _ORT_NODE)
    )


def _is_ort(path: Path, head: bytes) -> bool:
    return bool(ort_profiles_in(path)) if path.is_dir() else _is_ort_profile(head)


ONNXRUNTIME = Importer(
    name="onnxruntime",
    title="ONNX Runtime",
    accepts="a profile of ONNX Runtime (.json or .json.gz), or a folder with those of a run",
    recognises=_is_ort,
    read=reader(_PACKAGE, reads="onnxruntime:read_run"),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes"}),
    seen="1.32, and a build of 2022 with fences; kernels of GPUs by their sources alone",
)


# --- Counters of layers that OpenVINO's benchmark_app writes (`-report_type average_counters`), and
# metrics of OpenVINO GenAI's pipelines.


_GENAI_METRICS = re.compile(rb'"generate_duration"\s*:')
_GENAI_STEPS = re.compile(rb'"(?:iteration|unet_inference|transformer_inference)_durations"\s*:')
OPENVINO_HEADER = b"layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)"


def _is_openvino(_path: Path, head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf\r\n \t").startswith(OPENVINO_HEADER) or is_genai_metrics(head)


def is_genai_metrics(head: bytes) -> bool:
    """Whether a file starts as the JSON of an OpenVINO GenAI pipeline's metrics."""
    known = _GENAI_METRICS.search(head) and _GENAI_STEPS.search(head)
    return head.lstrip()[:1] == b"{" and bool(known)


def _beside_counters(path: Path) -> Sequence[Path]:
    from profiler.importers.openvino import report_beside

    beside = report_beside(path)
    return () if beside is None else (beside,)


OPENVINO = Importer(
    name="openvino",
    title="OpenVINO",
    accepts="layers of OpenVINO's benchmark_app (-report_type average_counters or "
    "detailed_counters), GenAI metrics",
    recognises=_is_openvino,
    read=reader(_PACKAGE, reads="openvino:read_run"),
    beside=_beside_counters,
    capabilities=frozenset({"averages", "stages"}),
    seen="those of an NPU, of 2025; GenAI metrics by the names of its object of 2026.4",
)


# --- Perfetto and Chrome traces of any producer, if somebody says which tracks are devices.


_PERFETTO_ACCEPTS = "a Perfetto or Chrome trace of any producer, with --import device=REGEX"


def _is_any_trace(_path: Path, head: bytes) -> bool:
    from profiler.kineto import is_chrome_of_another
    from profiler.trace.compression import begins_with_packet

    return begins_with_packet(head) or is_chrome_of_another(head)


PERFETTO = Importer(
    name="perfetto",
    title="Perfetto/Chrome: device=REGEX",
    accepts=_PERFETTO_ACCEPTS,
    recognises=_is_any_trace,
    read=reader(_PACKAGE, _PERFETTO_ACCEPTS, reads="perfetto:read_run"),
    options=(
        Option(
            "device",
            str,
            "a regular expression that finds the tracks of devices by their names; its first "
            "group, if it has one, is the number of the device: GPU ([0-9]+)",
        ),
        Option(
            "submodules",
            str,
            "the slices that are calls of submodules, with commas; slices with the names that "
            "diffusers gives to components if it is left out",
        ),
    ),
    capabilities=frozenset({"timeline", "launches"}),
    seen="traces of track events; those with GPU render stages are read as torch.profiler's; "
    "TensorFlow's timelines",
    if_asked=True,
)


# --- Profiles of Qualcomm's QNN: CSV of ONNX Runtime or of qnn-profile-viewer, and HTP summaries.


QNN_HEADER = re.compile(rb"\s*\"?Msg Timestamp\"?\s*,\s*\"?Message\"?\s*,\s*\"?Time\"?\s*,")
_QNN_LINES = 10  # above the header, of qnn-profile-viewer
_QNN_SUMMARY = re.compile(rb'"artifact_type"\s*:\s*"QHAS"')


def is_qnn_csv(head: bytes) -> bool:
    """Whether a file is a QNN profile as CSV."""
    return any(QNN_HEADER.match(line) for line in head.split(b"\n", _QNN_LINES)[:_QNN_LINES])


def is_qnn_summary(head: bytes) -> bool:
    """Whether a file is a QNN summary of an HTP."""
    return head.lstrip()[:1] == b"{" and _QNN_SUMMARY.search(head[:4096]) is not None


QNN = Importer(
    name="qnn",
    title="Qualcomm QNN",
    accepts="a profile of Qualcomm's QNN (CSV of ONNX Runtime or qnn-profile-viewer), an HTP "
    "summary (QHAS), or both",
    recognises=lambda _path, head: is_qnn_csv(head) or is_qnn_summary(head),
    read=reader(_PACKAGE, reads="qnn:read_run"),
    capabilities=frozenset({"averages", "cycles", "bytes"}),
    seen="those of ONNX Runtime with QAIRT 2.4x on Snapdragon X (HTP)",
)


# --- What SGLang's diffusion runtime writes of requests: `--perf-dump-path` and `performance.log`.


_SGLANG_DUMP = re.compile(rb'"denoise_steps_ms"\s*:')
_SGLANG_RECORD = re.compile(rb'"tag"\s*:\s*"pipeline_stage_metrics"')
_SGLANG_TOTAL = re.compile(rb'"total_duration_ms"\s*:')


def _is_sglang(_path: Path, head: bytes) -> bool:
    if head.lstrip()[:1] != b"{" or not _SGLANG_TOTAL.search(head):
        return False
    return bool(_SGLANG_DUMP.search(head) or _SGLANG_RECORD.search(head))


SGLANG = Importer(
    name="sglang",
    title="SGLang diffusion",
    accepts="stage times of SGLang's diffusion runtime (--perf-dump-path, performance.log)",
    recognises=_is_sglang,
    read=reader(_PACKAGE, reads="stage_times:read_sglang"),
    capabilities=frozenset({"stages"}),
    seen="those of 2026, by their source",
)


# --- What trtexec exports of a TensorRT engine: profile, times, layers, summary; or folders of it.


_TENSORRT_LAYERS = re.compile(rb"\s*\{\s*\"Layers\"\s*:\s*\[")


class TensorRtKind(StrEnum):
    """The kind of an export of trtexec."""

    PROFILE = "profile"  # average time of each layer
    TIMES = "times"  # start and end of each inference
    LAYERS = "layers"  # types, tensors and kernels of the layers
    SUMMARY = "summary"  # what trtexec was asked for, and the device


def tensorrt_kind(head: bytes) -> TensorRtKind | None:
    """The kind of a trtexec export, from its first MiB; None for other files."""
    if head.lstrip()[:1] == b"[":
        if b'"startEnqMs"' in head:
            return TensorRtKind.TIMES
        return TensorRtKind.PROFILE if b'"averageMs"' in head and b'"percentage"' in head else None
    if _TENSORRT_LAYERS.match(head) and b'"LayerType"' in head:
        return TensorRtKind.LAYERS
    return (
        TensorRtKind.SUMMARY if head.lstrip()[:40].startswith(b'{"performance_summary"') else None
    )


def tensorrt_exports(folder: Path) -> list[Path]:
    """The trtexec exports in a folder, by name; empty if it is only a summary."""
    files = (path for path in folder.iterdir() if path.is_file())
    named = sorted(path for path in files if path.name.endswith((".json", ".json.gz")))
    kinds = {path: tensorrt_kind(head_of(path)) for path in named}
    found = [path for path, kind in kinds.items() if kind is not None]
    return found if any(kinds[path] is not TensorRtKind.SUMMARY for path in found) else []


def _is_tensorrt(path: Path, head: bytes) -> bool:
    return bool(tensorrt_exports(path)) if path.is_dir() else tensorrt_kind(head) is not None


TENSORRT = Importer(
    name="tensorrt",
    title="TensorRT",
    accepts="what trtexec exports of an engine (--exportProfile, --exportTimes, "
    "--exportLayerInfo), or a folder with it",
    recognises=_is_tensorrt,
    read=reader(_PACKAGE, reads="tensorrt:read_run"),
    options=(
        Option(
            "warmup",
            int,
            "the milliseconds at the start of the times that are warm-up (trtexec --warmUp); what "
            "the summary beside them says where it is left out, else 200",
        ),
    ),
    capabilities=frozenset({"timeline", "averages", "shapes", "bytes"}),
    seen="those of NVIDIA's trt-engine-explorer (A100 and RTX 3090)",
)


# --- Traces of the Triton Inference Server (`--trace-config triton,file=…`).


_TRITON_ID = re.compile(rb'"id"\s*:\s*\d')
_TRITON_STAMP = re.compile(rb'"timestamps"\s*:\s*\[\s*(?:\{\s*"(?:name|ns)"|\])')
_TRITON_MODEL = re.compile(rb'"(?:model_name|activity)"\s*:\s*"')


def _is_triton(_path: Path, head: bytes) -> bool:
    if head.lstrip()[:1] != b"[":
        return False
    return all(pattern.search(head) for pattern in (_TRITON_ID, _TRITON_STAMP, _TRITON_MODEL))


TRITON = Importer(
    name="triton",
    title="Triton Inference Server",
    accepts="a trace of the Triton Inference Server (mode triton, level TIMESTAMPS), or its "
    "numbered files",
    recognises=_is_triton,
    read=reader(_PACKAGE, reads="triton:read_run"),
    options=(
        Option(
            "rate",
            int,
            "the server's rate (--trace-config rate=N): one of N requests was recorded",
            least=1,
        ),
    ),
    capabilities=frozenset({"timeline", "requests"}),
    seen="those of 1.x and 2.x, by their documentation",
)


# --- Chrome JSON of Intel's unitrace (`--chrome-kernel-logging`, `--chrome-call-logging`).


_UNITRACE_ACCEPTS = (
    "a trace of Intel's unitrace (JSON of --chrome-kernel-logging and --chrome-call-logging)"
)


UNITRACE = Importer(
    name="unitrace",
    title="unitrace",
    accepts=_UNITRACE_ACCEPTS,
    recognises=lambda _, head: is_unitrace(head),
    read=reader(_PACKAGE, _UNITRACE_ACCEPTS, reads="unitrace:read_run"),
    capabilities=frozenset({"timeline", "launches", "bytes"}),
    seen="by its documentation alone",
)


# --- What vLLM-Omni tells of requests with --log-stats: `*.stats.jsonl`, and its log.


_OMNI_MARK = re.compile(
    rb"""["']type["']:\s*["'](?:stage_request_stats|Request_stage_stats|orchestrator_request_e2e)["']"""
    rb"|\[StageRequestStats \[request_id=|\[OmniTiming\] req=|={12} Omni Metrics Summary ={12}"
)
_OMNI_ARRAY = re.compile(rb"\s*\[\s*[\[{\]]")


def _is_vllm_omni(_path: Path, head: bytes) -> bool:
    return _OMNI_ARRAY.match(head) is None and _OMNI_MARK.search(head) is not None


VLLM_OMNI = Importer(
    name="vllm_omni",
    title="vLLM-Omni",
    accepts="stage times of vLLM-Omni (--log-stats: *.stats.jsonl, or its log)",
    recognises=_is_vllm_omni,
    read=reader(_PACKAGE, reads="vllm_omni:read_run"),
    capabilities=frozenset({"stages"}),
    seen="those of 2025 and 2026, by their source",
)


# --- Profiles of XLA's profiler (`*.xplane.pb`, or the view of it in `*.trace.json.gz`): JAX,
# TensorFlow and torch_xla on GPUs and TPUs.


# The first plane: its length, perhaps its id, and its name. Perfetto's traces start with 0x0a, too.
_FIRST_PLANE = re.compile(
    rb"\x0a.{1,5}?(?:\x08.{1,9}?)?\x12.(?:/host:|/device:|Task Environment)", re.DOTALL
)
_PLANE_NAME = re.compile(rb'"name"\s*:\s*"(?:/host:CPU|/device:[A-Z]+:\d+)')


def is_xplane_view(head: bytes) -> bool:
    """Whether a file with this start is what XLA's profiler writes for its viewer."""
    text = head.lstrip()
    return text[:1] == b"{" and b'"process_name"' in text and bool(_PLANE_NAME.search(text))


def newest_profile(folder: Path) -> list[Path]:
    """The XSpaces of the newest profile in a folder of logs (`plugins/profile/DATE`), one per host,
    or their views; empty if there is none."""
    for profile in sorted(folder.glob("plugins/profile/*"), reverse=True):
        for names in ("*.xplane.pb", "*.trace.json.gz"):
            if found := sorted(profile.glob(names)):
                return found
    return []


def _is_xplane(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return bool(newest_profile(path))
    return _FIRST_PLANE.match(head) is not None or is_xplane_view(head)


XPLANE = Importer(
    name="xplane",
    title="XPlane",
    accepts="an XSpace of XLA's profiler (*.xplane.pb), its view (*.trace.json.gz), or a folder of "
    "logs",
    recognises=_is_xplane,
    read=reader(_PACKAGE, reads="xplane:read_run"),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes"}),
    seen="those of JAX on TPU v6 Lite and MI300X",
)


# The last line: it collects what stands above.
IMPORTERS = tuple(one for one in [*vars().values()] if isinstance(one, Importer))
