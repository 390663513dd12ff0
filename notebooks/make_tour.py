"""Write `tour.ipynb` without outputs; `pytest tests/notebooks --refresh-notebooks` executes it.

Cells live here as text, so that a change of the notebook can be read in a diff.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

CELLS = [
    (
        "md",
        "# A tour of a run\n\n"
        "This notebook loads a sample that comes with profile-sd3: two denoising steps of a tiny "
        "Stable Diffusion 3 on ONNX Runtime, its T5 encoder on a second CPU device. Point `load` "
        "at your own `traces/` to look at your run instead.",
    ),
    (
        "code",
        "import polars as pl\n\nimport profiler\n\n"
        'run = profiler.load("../sample_traces/tiny_two_devices")\nrun',
    ),
    (
        "md",
        "## Calls\n\nOne row per submodule invocation: six encoder calls (prompt, then negative "
        "prompt), one transformer call per step, one VAE call.",
    ),
    (
        "code",
        'run.calls.select("call", "stage", "submodule", "branch", "step", "device", '
        '(pl.col("duration_ns") / 1e6).alias("ms"))',
    ),
    (
        "md",
        "## Where the time went\n\nThe analysis is a set of small tables; the figures of the HTML "
        "report draw them. The residual says what the accounting could not explain.",
    ),
    (
        "code",
        "from profiler.analysis.analyze import analyze\n"
        "from profiler.report import figures\n\n"
        "analysis = analyze(run)\n"
        'print(f"end to end {analysis.accounting.end_to_end_ns / 1e6:.1f} ms, "\n'
        '      f"residual {analysis.accounting.residual_share:.2%}")\n'
        "figures.stages(analysis)",
    ),
    ("code", "figures.timeline(run)"),
    (
        "md",
        "## Operators\n\nAn operator is all commands of a call that share a layer: what a split "
        "operation was before it was split.",
    ),
    (
        "code",
        'analysis.operators.select("submodule", "layer", "commands", "wall_union_ns", '
        '"busy_sum_ns", "share").head(10)',
    ),
    (
        "md",
        "## A question of your own\n\n`to_pandas()` gives one row per command joined with its "
        "call. For example: which kinds of operation cost the transformer most in its steady step, "
        "and how many bytes do they write per µs?",
    ),
    (
        "code",
        "df = run.to_pandas()\n"
        'step = df[(df.submodule == "transformer") & (df.step == 1)]\n'
        'kinds = step.groupby("op_type", observed=True).agg(\n'
        '    commands=("layer", "size"),\n'
        '    ms=("duration_ns", lambda ns: ns.sum() / 1e6),\n'
        '    written_mb=("bytes_written", lambda b: b.sum() / 1e6),\n'
        ")\n"
        'kinds["mb_per_ms"] = kinds.written_mb / kinds.ms\n'
        'kinds.sort_values("ms", ascending=False).head(10).round(3)',
    ),
]


def main() -> None:
    cells = [
        new_markdown_cell(text) if kind == "md" else new_code_cell(text) for kind, text in CELLS
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    notebook = new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(notebook, Path(__file__).with_name("tour.ipynb"))


if __name__ == "__main__":
    main()
