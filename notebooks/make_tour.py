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
        "report draw them. `analysis.tables()` has all by name, `analysis.describe(name)` says "
        "what their columns mean. The residual says what the accounting could not explain.",
    ),
    (
        "code",
        "from profiler.report import figures\n\n"
        "analysis = profiler.analyze(run)\n"
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
        "## What the time is for\n\nEvery command has a role: what its operator is for in a "
        "diffusion model. `decided_by` says what the roles were told by.",
    ),
    (
        "code",
        'analysis.roles.filter(submodule="transformer").select(\n'
        '    "role", "commands", (pl.col("busy_ns") / 1e6).alias("ms"), "share", "decided_by"\n'
        ")",
    ),
    (
        "md",
        "## Step by step\n\nThe time of each operator in each step, with the largest changes "
        "first. `analysis.step_operators` says what warms up or drifts in longer runs.",
    ),
    (
        "code",
        "steps = (\n"
        '    analysis.step_times.filter(level="operator")\n'
        '    .with_columns(ms=pl.col("busy_ns") / 1e6)\n'
        '    .pivot("step", index="layer", values="ms")\n'
        ")\n"
        'steps.sort((pl.col("1") - pl.col("0")).abs(), descending=True).head(8)',
    ),
    (
        "md",
        "## Who waits for whom\n\nWhat each device waited for while it computed nothing. The "
        "causes add up to the waiting time.",
    ),
    (
        "code",
        'causes = "^(waiting|data|other_device|host|queued|between)_ns$"\n'
        'analysis.idle.select("device", (pl.col(causes) / 1e6).round(2).name.replace("ns", "ms"))',
    ),
    (
        "md",
        "The critical path is what the wall time of the pipeline call consists of: making anything "
        "else faster does not make it shorter.",
    ),
    (
        "code",
        'analysis.critical_path.select("submodule", "part", "device", '
        '(pl.col("path_ns") / 1e6).round(2).alias("ms"), pl.col("share").round(3))',
    ),
    (
        "md",
        "## A question of your own\n\n`to_pandas()` gives one row per command joined with its "
        "call, `analysis.to_pandas(name)` a table of the analysis. For example: which kinds of "
        "operation cost the transformer most in its steady step, and how many bytes do they "
        "write per µs?",
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
