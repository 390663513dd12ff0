"""Inputs that are written anew each time: each maker returns their path below the folder."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

from profiler.run import write_parquet
from tests.analysis.random_runs import pipeline_runs, runs
from tests.async_runs import machines
from tests.corpus import CORPUS
from tests.golden.masks import settle
from tests.importers.mixed.runs import Run as MixedRun
from tests.importers.rbln.generator import write_sd3
from tests.importers.serving import test_stage_times as serving
from tests.importers.triton import simulated_server
from tests.queued_runs import Machine, QueuedCall, QueuedPipeline
from tests.report.selections import split_run
from tests.runs import write_empty_bundle, write_tiny_bundle
from tests.shape_runs import shape_runs

HERE = Path(__file__).parent
_COMMANDS = 6_000  # of the runs that benchmarks make


def copied(source: Path, folder: Path) -> str:
    """A copy of a file or folder, and its name."""
    place = folder / source.name
    if source.is_dir():
        shutil.copytree(
            source, place, ignore=shutil.ignore_patterns("*.txt", "report*.html", "summary.json")
        )
    else:
        shutil.copy(source, place)
    return place.name


def tiny(folder: Path) -> str:
    """The tiny run as a bundle."""
    path = write_tiny_bundle(folder)
    settle(path)
    return path.name


def empty(folder: Path) -> str:
    """A bundle without calls."""
    return write_empty_bundle(folder, "20270115-080000-empty").name


def queued(folder: Path, *, graphs: bool = False) -> str:
    """A simulated GPU as a Parquet run."""
    step = [
        QueuedCall("transformer", branch="cond", kernels=40),
        QueuedCall("transformer", branch="uncond", kernels=40, waits=True, length=60_000),
    ]
    encode = [QueuedCall("text_encoder", waits_first=True)]
    decode = [QueuedCall("vae", length=90_000, apart=5_000, waits=True)]
    machine = Machine(between=1_000)
    made = QueuedPipeline(encode, [step] * 6, decode).simulated(graphs=graphs, machine=machine)
    return _written(made.run, folder)


def graphs(folder: Path) -> str:
    """The same with graph launches."""
    return queued(folder, graphs=True)


def split(folder: Path) -> str:
    """Three steps whose operators are split."""
    return _written(split_run(), folder)


def npu(folder: Path) -> str:
    """What benchmarks call the 28-step run."""
    return _written(_benchmark("npu_run"), folder)


def gpu(folder: Path) -> str:
    """Launches on the host and the kernels that follow."""
    return _written(_benchmark("gpu_run"), folder)


def drawn(name: str, folder: Path) -> str:
    """A run that was drawn once."""
    with zipfile.ZipFile(HERE / "drawn" / f"{name}.zip") as packed:
        packed.extractall(folder / name)
    return name


def rbln(folder: Path) -> str:
    """Files of RBLN's profiler, of one image of four steps."""
    write_sd3(folder / "rbln", steps=4)
    return "rbln"


def triton(folder: Path) -> str:
    """The trace of a Triton server with an ensemble."""
    server = simulated_server.Server(simulated_server.SD3_ENSEMBLE, seed=3)
    served = server.run(simulated_server.open_loop(12, 30_000_000))
    text = simulated_server.fragments(simulated_server.trace(served))
    (folder / "trace.json").write_text(text)
    return "trace.json"


def sglang(folder: Path) -> str:
    """The dump of one request."""
    (folder / "dump.json").write_text(json.dumps(serving.DUMP))
    return "dump.json"


def vllm_omni(folder: Path) -> str:
    """Stages of two requests."""
    (folder / "stages.jsonl").write_text(serving.omni("jsonl"))
    return "stages.jsonl"


def diffusers_csv(folder: Path) -> str:
    """A table of diffusers' benchmarks."""
    (folder / "flux.csv").write_text(serving.TABLE)
    return "flux.csv"


def mixed(folder: Path) -> str:
    """One run as torch, Nsight Systems and ONNX Runtime recorded it, in one folder."""
    place = folder / "mixed"
    place.mkdir()
    seen = MixedRun()
    seen.kineto(place, off_ns=40_000)
    seen.nsys(place)
    seen.onnxruntime(place)
    return "mixed"


def archive(folder: Path) -> str:
    """A torch trace of the same run in a zip."""
    path = MixedRun().kineto(folder)
    with zipfile.ZipFile(folder / "archive.zip", "w") as packed:
        packed.writestr(zipfile.ZipInfo("torch.json"), Path(path).read_bytes())
    Path(path).unlink()
    return "archive.zip"


def damaged(folder: Path) -> str:
    """The damaged files of the corpus, where it is there."""
    return copied(CORPUS / "damaged", folder)


def _written(run, folder: Path) -> str:
    write_parquet(run, folder / "run")
    return "run"


def _benchmark(name: str):
    sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))
    try:
        import made_runs
    finally:
        sys.path.pop(0)
    return getattr(made_runs, name)(_COMMANDS)


DRAWN = {
    "machine": machines,
    "machine-noted": lambda: machines(noted=True),
    "shapes": shape_runs,
    "random-1": runs,
    "random-2": runs,
    "pipelines": pipeline_runs,
}
"""Strategies of tests by name of their drawn run."""


def draw(name: str) -> None:
    """Draw a run anew, the largest of some, and keep it in `drawn/`; its goldens change."""
    import tempfile

    from hypothesis import HealthCheck, Phase, given, seed, settings

    found = []

    @seed(sum(map(ord, name)))
    @settings(
        max_examples=40,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(DRAWN[name]())
    def collect(made) -> None:
        run = getattr(made, "run", made)
        found.append(run() if callable(run) else run)

    collect()
    largest = max(found, key=lambda run: run.commands.height)
    (HERE / "drawn").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(largest, Path(folder) / "run")
        with zipfile.ZipFile(HERE / "drawn" / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted((Path(folder) / "run").iterdir()):
                packed.writestr(zipfile.ZipInfo(path.name), path.read_bytes())


if __name__ == "__main__":
    for each in sys.argv[1:] or DRAWN:
        draw(each)
