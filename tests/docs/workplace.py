"""What the commands of the docs find in their folder, made once a session, and how they run.

workplace = Workplace(folder)
work = workplace.folder_for(page)        # with the inputs that the page's commands name
workplace.run("profile-sd3 analyze traces/", work)
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array

from tests.capture.switched_on import Environment
from tests.command_line import run_command
from tests.docs.declared import PRELUDES, WITHOUT_INPUTS
from tests.docs.pages import REPOSITORY, Page
from tests.evidence.recorded import FOLDER as H200
from tests.graph.test_fix import legacy_layernorms
from tests.importers.aihub.test_perf import as_yaml
from tests.importers.aihub.test_perf import document as perf_document
from tests.importers.ascend.test_ascend import TABLE as ASCEND_TABLE
from tests.importers.ascend.test_ascend import generated as ascend_rows
from tests.importers.kineto.jobs import Job
from tests.importers.kineto.traces import flux
from tests.importers.mixed.runs import Run as OneRun
from tests.importers.nsys.generated import Call, Kernel, Range, export
from tests.importers.onnxruntime.test_profiles import node, run, written
from tests.importers.openvino.test_counters import HEADER as COUNTERS_HEADER
from tests.importers.openvino.test_counters import ROWS as COUNTERS
from tests.importers.openvino.test_counters import TOTAL as COUNTERS_TOTAL
from tests.importers.qnn.test_profiles import COLUMNS as QNN_COLUMNS
from tests.importers.qnn.test_profiles import execution
from tests.importers.rbln.generator import write_sd3
from tests.importers.rocprofv3.generated import Call as HipCall
from tests.importers.rocprofv3.generated import Kernel as Dispatch
from tests.importers.rocprofv3.generated import Mark, Told, as_csv, as_json
from tests.importers.serving.test_stage_times import DUMP, RECORD
from tests.importers.tensorrt.test_exports import PROFILE
from tests.importers.triton.simulated_server import (
    SD3_ENSEMBLE,
    Server,
    fragments,
    open_loop,
    trace,
)
from tests.importers.xplane.spaces import E, L, plane, space

__all__ = ["Ended", "Workplace"]

_PATIENCE_S = 300  # until a command counts as hanging
_OF_THE_SHELL = re.compile(r"[|&;<>$`*?~{}\\\n]")
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")  # what a shell leaves as it is
_IN_THIS_PROCESS = re.compile(
    r"profile-sd3 (analyze|diff|dump|import|merge|predict|query|fleet \w+"
    r"|graph (annotate|check|compare|optimize|split)) (?!.*--watch)"
)
"""Commands whose process does not matter here: to import everything anew would be most of their
time. Those that need more of a shell than a filter or a file, that record or that measure get a
process of their own, as do others."""
_FILTERED = re.compile(r"(?P<command>[^|]+?)(?P<rest> \| sed -n ('[^']+'|\w+)| > \S+)?")
_COMPARED = 6  # runs that are there to be compared


@dataclass(frozen=True)
class Ended:
    """A command that has ended; `out` is what it wrote to stdout and stderr, in their order."""

    code: int
    out: str


class Workplace:
    """A folder of inputs, of which each page gets copies, and a shell in an environment of its own.

    `profile-sd3` and `python` are this Python with the start-up files of an installation.
    """

    def __init__(self, folder: Path) -> None:
        self._inputs = folder / "inputs"
        self._inputs.mkdir(parents=True)
        self._folder = folder
        self._environment = Environment(folder)
        self._bin = Path(self._environment.python).parent
        self._script("profile-sd3", f'exec {self._environment.python} -m profiler "$@"')
        self._script("less", "exec cat")  # what it is without a terminal

    def _script(self, name: str, text: str) -> None:
        (self._bin / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (self._bin / name).chmod(0o755)

    def folder_for(self, page: Page) -> Path:
        """A new folder with every input that a command or a Python block of the page names, and
        with the files that it shows."""
        work = self._folder / re.sub(r"\W", "_", page.name)
        work.mkdir()
        blocks = [block.text for block in page.blocks if block.language in ("console", "python")]
        text = "\n".join((*blocks, PRELUDES.get(page.name, "")))
        for name, make in INPUTS.items() if page.name not in WITHOUT_INPUTS else ():
            if re.search(rf"(?<![\w/.-]){re.escape(name)}", text):
                self._copy(name, make, work)
        for block in page.blocks:
            if block.file:
                (work / block.file).write_text(block.text, encoding="utf-8")
        return work

    def _copy(self, name: str, make: Callable[[Workplace, Path], None], work: Path) -> None:
        made = self._inputs / name.rstrip("/")
        if not made.exists():
            make(self, made)
        if made.is_dir():
            shutil.copytree(made, work / made.name)
        else:
            shutil.copy(made, work / made.name)

    def run(self, text: str, work: Path) -> Ended:
        """What a shell makes of a command line; a command that hangs raises TimeoutExpired."""
        line = re.sub(r"\s+#.*|\\\n\s*", "", text)
        found = _FILTERED.fullmatch(line)
        if (
            found
            and _IN_THIS_PROCESS.match(f"{line} ")
            and not _OF_THE_SHELL.search(_QUOTED.sub("", found["command"]))
        ):
            return self._run_here(found["command"], found["rest"] or "", work)
        return self._in_a_shell(text, work)

    def _in_a_shell(self, text: str, work: Path, given: str = "") -> Ended:
        path = f"{self._bin}{os.pathsep}{os.environ['PATH']}"
        settings = {"PATH": path, "COLUMNS": None, "GITHUB_STEP_SUMMARY": "summary.md"}
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", text],
            cwd=work,
            env=self._environment.variables({**settings, "OMP_NUM_THREADS": "2"}),
            check=False,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE_S,
        )
        return Ended(done.returncode, done.stdout)

    def _run_here(self, command: str, rest: str, work: Path) -> Ended:
        """The same of a command that needs no process, and of `rest`, which filters or keeps what
        it writes to stdout."""
        written, filtered = io.BytesIO(), io.BytesIO()
        both = io.TextIOWrapper(written, "utf-8", write_through=True)
        out = io.TextIOWrapper(filtered, "utf-8", write_through=True) if rest else both
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(work)
            for name in [name for name in os.environ if name.startswith(("RBLN_", "COLUMNS"))]:
                patch.delenv(name)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(both):
                code = run_command(*shlex.split(command)[1:])
        ended = Ended(code, written.getvalue().decode())
        if not rest:
            return ended
        after = self._in_a_shell(f"cat {rest}", work, filtered.getvalue().decode())
        return Ended(code or after.code, ended.out + after.out)

    def must(self, text: str, work: Path) -> None:
        """Run what an input is made by."""
        ended = self.run(text, work)
        assert ended.code == 0, f"{text}: {ended.out}"

    def record(self, made: Path, *, steps: int, options: str = "") -> None:
        """A run of the embedded pipeline, in the folder of bundles `made`."""
        small = f"--steps {steps} --warmup 1 --height 128 --width 128"
        self.must(f"profile-sd3 run {small} --out {made} {options}", made.parent)


def _traces(place: Workplace, made: Path) -> None:
    """A run on two devices, with what a step costs measured."""
    place.record(made, steps=16, options="--device text_encoder_3=cpu:1 --measure-overhead")


_RECORDING = """
import sys
from pathlib import Path

import profiler
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder

pipe = StableDiffusion3Pipeline.from_folder(default_model_folder())
size = {"height": 128, "width": 128}
for number in range(int(sys.argv[1])):
    with profiler.profile(pipe, out=Path(sys.argv[2]), name=f"run{number}") as run:
        with run.warmup():
            pipe("a lighthouse", num_inference_steps=1, **size)
        pipe("a lighthouse", num_inference_steps=8, **size)
"""
"""Runs of the embedded pipeline, in one process: that imports once, and reports on none of them."""


def _runs(*numbers: int) -> Callable[[Workplace, Path], None]:
    """Some of the runs that are there to be compared, which are recorded once."""

    def make(place: Workplace, made: Path) -> None:
        recorded = made.parent / "to_be_compared"
        if not recorded.exists():
            place.must(f"python -c {shlex.quote(_RECORDING)} {_COMPARED} {recorded}", made.parent)
        for number in numbers:
            shutil.copytree(recorded / f"run{number}", made / f"run{number}")

    return make


def _models(_: Workplace, made: Path) -> None:
    from profiler.pipelines import default_model_folder

    shutil.copytree(default_model_folder(), made)


def _model_of(part: str) -> Callable[[Workplace, Path], None]:
    def make(_: Workplace, made: Path) -> None:
        from profiler.pipelines import default_model_folder

        source = default_model_folder() / part
        shutil.copy(source, made) if source.is_file() else shutil.copytree(source, made)

    return make


def _diffusers(place: Workplace, made: Path) -> None:
    """A tiny pipeline as diffusers saves one."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); "
    program += "from tests.capture.tiny_diffusers import sd3; sd3().save_pretrained(sys.argv[2])"
    place.must(f"python -W ignore -c {shlex.quote(program)} {REPOSITORY} {made}", made.parent)


def _large_model(_: Workplace, made: Path) -> None:
    """y = x W, W float32[1536,2048]: 12 MiB of weights."""
    weight = np.random.default_rng(0).standard_normal((1536, 2048), np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1536])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2048])
    node = helper.make_node("MatMul", ["x", "weight"], ["y"], name="proj")
    graph = helper.make_graph([node], "g", [x], [y], [from_array(weight, "weight")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    onnx.save(model, str(made))


def _settings(_: Workplace, made: Path) -> None:
    made.write_text('{"ops": "first,last"}', encoding="utf-8")


def _device_profiles(_: Workplace, made: Path) -> None:
    """Rates of a CPU in two types, as of a machine that computes float16."""
    rates = {"float32": 1e11, "float16": 2e11}
    profile = {"device": "cpu", "peak_flops": rates, "memory_bandwidth": 2e10}
    document = {"device_profiles": 1, "devices": [profile]}
    made.write_text(json.dumps(document), encoding="utf-8")


def _samples(_: Workplace, made: Path) -> None:
    shutil.copytree(REPOSITORY / "sample_traces", made)


def _evidence(_: Workplace, made: Path) -> None:
    """A trace that was recorded on an H200."""
    shutil.copy(H200 / made.name, made)


def _kineto(_: Workplace, made: Path) -> None:
    flux(guided=True).write(made.parent, made.name)


def _ranks(_: Workplace, made: Path) -> None:
    Job().write(made)


def _recorders(_: Workplace, made: Path) -> None:
    """What three recorders wrote of a run, and what is no trace."""
    made.mkdir()
    run = OneRun()
    run.nsys(made)
    run.kineto(made)
    run.onnxruntime(made)
    (made / "README.md").write_text("recorded on Tuesday", encoding="utf-8")
    (made / "report.nsys-rep").write_bytes(bytes(range(64)))


def _nsys(_: Workplace, made: Path) -> None:
    """A prompt, two steps and a decoder, with ranges of their names."""
    made.parent.mkdir(parents=True, exist_ok=True)
    names = ("encoder", "dit", "dit", "decoder")
    rows: list[object] = []
    for number, name in enumerate(names, 1):
        begin = number * 1_000_000
        rows += [
            Range(begin, begin + 900_000, name),
            Call(begin + 10_000, begin + 20_000, number),
            Kernel(begin + 30_000, begin + 800_000, number),
        ]
    export(made.parent, rows).rename(made)


def _recorded() -> Told:
    """The same as rocprofv3 records it."""
    names = ("encoder", "dit", "dit", "decoder")
    begins = [(number, number * 1_000_000) for number in range(1, len(names) + 1)]
    return Told(
        [Dispatch(begin + 30_000, begin + 800_000, number) for number, begin in begins],
        [HipCall(begin + 10_000, begin + 20_000, number) for number, begin in begins],
        marks=[
            Mark(begin, begin + 900_000, name)
            for (_, begin), name in zip(begins, names, strict=True)
        ],
    )


def _rocprof_json(_: Workplace, made: Path) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    as_json(_recorded(), made.parent, made.name)


def _rocprof_csv(_: Workplace, made: Path) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    as_csv(_recorded(), made)


def _ascend(_: Workplace, made: Path) -> None:
    """What torch_npu's profiler exported."""
    output = made / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (output / "trace_view.json").write_text(json.dumps(ascend_rows()), encoding="utf-8")


def _ascend_job(place: Workplace, made: Path) -> None:
    """Two ranks of it."""
    for rank in (0, 1):
        folder = made / f"host_{rank}_ascend_pt"
        output = folder / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        (folder / f"profiler_info_{rank}.json").write_text("{}", encoding="utf-8")
        rows = ascend_rows(device=rank, collectives=True)
        (output / "trace_view.json").write_text(json.dumps(rows), encoding="utf-8")


def _msprof(_: Workplace, made: Path) -> None:
    """The same as msprof exports it."""
    made.mkdir(parents=True)
    (made / "msprof_1.json").write_text(json.dumps(ascend_rows(device=1)), encoding="utf-8")


def _ascend_kernels(_: Workplace, made: Path) -> None:
    """The table of kernels alone."""
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(gzip.decompress(ASCEND_TABLE.read_bytes()))


def _ascend_database(_: Workplace, made: Path) -> None:
    """The database of one rank."""
    packed = ASCEND_TABLE.with_name("ascend_pytorch_profiler_0.db.gz")
    made.write_bytes(gzip.decompress(packed.read_bytes()))


def _ort_profile(_: Workplace, made: Path) -> None:
    """A session's profile: one run of two nodes."""
    made.parent.mkdir(parents=True, exist_ok=True)
    written(made, node("to_q", 10, 40), node("Add_1", 55, 5, op="Add"), run(0, 70))


def _ort_profiles(place: Workplace, made: Path) -> None:
    """The profiles of two sessions."""
    for name in ("text_encoder", "unet"):
        _ort_profile(place, made / f"{name}_2026-05-01_10-12-12_301.json")


def _tensorrt_profile(_: Workplace, made: Path) -> None:
    """Average times of an engine's layers."""
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(json.dumps(PROFILE), encoding="utf-8")


def _engines(place: Workplace, made: Path) -> None:
    """The profiles of two engines."""
    for name in ("unet", "vae"):
        _tensorrt_profile(place, made / f"{name}.profile.json")


def _xspace(_: Workplace, made: Path) -> None:
    """Two operations in one module of a TPU."""
    made.parent.mkdir(parents=True, exist_ok=True)
    ops = [E("dot.1", 1_000_000, 5_000_000), E("add.2", 7_000_000, 1_000_000)]
    lines = [L("XLA Modules", [E("jit_unet(1)", 0, 9_000_000)]), L("XLA Ops", ops)]
    made.write_bytes(space(plane("/device:TPU:0", lines)))


def _xla_logs(workplace: Workplace, made: Path) -> None:
    """A folder of logs with one profile."""
    _xspace(workplace, made / "plugins" / "profile" / "2026_01_02_10_00_00" / "host.xplane.pb")


def _openvino_counters(_: Workplace, made: Path) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text("\n".join((COUNTERS_HEADER, *COUNTERS, COUNTERS_TOTAL)), encoding="utf-8")


def _qnn_profile(_: Workplace, made: Path) -> None:
    """Two executions of three nodes."""
    made.parent.mkdir(parents=True, exist_ok=True)
    rows = (QNN_COLUMNS, *execution((10, 60, 30)), *execution((10, 50, 40)))
    made.write_text("\n".join(rows), encoding="utf-8")


def _qnn_summary(_: Workplace, made: Path) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    overall = {"data": [{"time_us": 100, "timeline_cycles": 1000}]}
    document = {"header": {"artifact_type": "QHAS"}, "data": {"htp_overall_summary": overall}}
    made.write_text(json.dumps(document), encoding="utf-8")


def _perf_yaml(_: Workplace, made: Path) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(as_yaml(perf_document()), encoding="utf-8")


def _triton_trace(_: Workplace, made: Path) -> None:
    """Ten requests of an ensemble."""
    made.parent.mkdir(parents=True, exist_ok=True)
    requests = Server(SD3_ENSEMBLE, seed=1).run(open_loop(10, 50_000_000))
    made.write_text(fragments(trace(requests)), encoding="utf-8")


def _sglang_dump(_: Workplace, made: Path) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(json.dumps(DUMP), encoding="utf-8")


def _sglang_log(_: Workplace, made: Path) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(json.dumps(RECORD) + "\n", encoding="utf-8")


def _snapshot(_: Workplace, made: Path) -> None:
    """What `torch.cuda.memory._dump_snapshot` writes."""
    made.write_bytes(pickle.dumps({"segments": [], "device_traces": []}))


def _nsys_report(_: Workplace, made: Path) -> None:
    made.write_bytes(bytes(range(64)))


def _rbln(_: Workplace, made: Path) -> None:
    write_sd3(made, steps=28)


def _old_opset(_: Workplace, made: Path) -> None:
    """A model of opset 9."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)]), str(made))


def _legacy(_: Workplace, made: Path) -> None:
    onnx.save(legacy_layernorms(), str(made))


def _script(_: Workplace, made: Path) -> None:
    """A script with one ONNX Runtime session, which needs no torch."""
    script = """
        import numpy as np
        import onnxruntime
        from profiler.pipelines.tiny import default_model_folder

        model = default_model_folder() / "text_encoder" / "model.onnx"
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        session.run(None, {session.get_inputs()[0].name: np.ones((1, 77), np.int64)})
    """
    made.write_text(dedent(script), encoding="utf-8")


def _pipeline_file(_: Workplace, made: Path) -> None:
    """The description that docs/rbln.md shows."""
    page = Page.read(REPOSITORY / "docs" / "rbln.md")
    made.write_text(next(b.text for b in page.blocks if b.language == "yaml"), encoding="utf-8")


INPUTS: dict[str, Callable[[Workplace, Path], None]] = {
    "traces/": _traces,
    "baseline/": _runs(0),
    "candidate/": _runs(3, 4, 5),
    "before/": _runs(0, 1, 2),
    "after/": _runs(3, 4, 5),
    "baselines/": _runs(0, 1, 2),
    "old/": _runs(0),
    "new/": _runs(3, 4, 5),
    "main1/": _runs(0),
    "main2/": _runs(1),
    "main3/": _runs(2),
    "branch/": _runs(3),
    "branch1/": _runs(2),
    "branch2/": _runs(3),
    "sample_traces/": _samples,
    "sd35.json.gz": _kineto,
    "flux-eager.json.gz": _evidence,
    "flux-compiled.json.gz": _evidence,
    "run.sqlite": _nsys,
    "ranks/": _ranks,
    "recorded/": _recorders,
    "run_results.json": _rocprof_json,
    "rocprofv3_out/": _rocprof_csv,
    "profiles/": _ort_profiles,
    "unet_2026-05-01_10-12-12_301.json": _ort_profile,
    "unet.profile.json": _tensorrt_profile,
    "host.xplane.pb": _xspace,
    "jax_logs/": _xla_logs,
    "host_123_ascend_pt/": _ascend,
    "ascend_job/": _ascend_job,
    "mindstudio_profiler_output/": _msprof,
    "kernel_details.csv": _ascend_kernels,
    "ascend_pytorch_profiler_0.db": _ascend_database,
    "benchmark_average_counters_report.csv": _openvino_counters,
    "qnn_profile.csv": _qnn_profile,
    "qhas.json": _qnn_summary,
    "perf.yaml": _perf_yaml,
    "trace.json": _triton_trace,
    "snapshot.pickle": _snapshot,
    "report.nsys-rep": _nsys_report,
    "perf.json": _sglang_dump,
    "performance.log": _sglang_log,
    "engines/": _engines,
    "rbln_traces/": _rbln,
    "sd3-onnx/": _models,
    "stable-diffusion-3.5/": _diffusers,
    "unet/": _model_of("transformer"),
    "vae/": _model_of("vae_decoder"),
    "model.onnx": _large_model,
    "legacy.onnx": _legacy,
    "opset9.onnx": _old_opset,
    "inference.py": _script,
    "device_profiles.json": _device_profiles,
    "settings.json": _settings,
    "mine.yaml": _pipeline_file,
}
"""What pages may name, by name; a folder ends in a slash. Each page that names it gets a copy."""
