"""Make the embedded tiny model: `python -m profiler.pipelines.tiny.build [OUT]`.

Needs the `torch` extra (torch, diffusers, transformers, onnx, onnxscript). Without OUT it replaces
the folder that the package ships.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from profiler.graph.export.options import ExportOptions
from profiler.graph.export.pipeline import export_pipeline
from profiler.graph.export.torch_program import quiet_libraries
from profiler.pipelines.tiny import default_model_folder
from profiler.pipelines.tiny.source import write_source

__all__ = ["build_model", "main"]


def build_model(folder: Path) -> None:
    """Write the whole model folder; what `folder` held before is replaced."""
    with tempfile.TemporaryDirectory() as scratch:
        source, made = Path(scratch) / "source", Path(scratch) / "made"
        with quiet_libraries():
            write_source(source)
        export_pipeline(source, made, ExportOptions(layernorm_fix=False))
        if folder.exists():
            shutil.rmtree(folder)
        shutil.move(made, folder)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the embedded tiny Stable Diffusion 3.")
    parser.add_argument(
        "out",
        nargs="?",
        type=Path,
        default=default_model_folder(),
        help="folder to write, replaced if it exists (default: the one the package ships)",
    )
    folder: Path = parser.parse_args(arguments).out
    if folder.exists() and any(folder.iterdir()) and not (folder / "model_index.json").is_file():
        parser.error(f"{folder} is not a model folder; name an empty or new one")
    build_model(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    sys.stdout.write(f"{folder}: {size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
