"""What reports call the commands of devices: their producer's word.

Tables and data have the column `commands` whatever ran. A reader of a GPU's report has it headed
*kernels* where it counts these, as other tools call them.
"""

from __future__ import annotations

from dataclasses import replace

from profiler.analysis.result import Analysis
from profiler.messages import said
from profiler.report.model import Part

__all__ = ["on_gpus", "with_nouns"]

_GPUS = frozenset(("cuda", "rocm", "hip", "xpu", "mps", "gpu"))
_KERNELS, _BOTH = said("kernel launches"), said("kernels + copies")
_LABELS = {  # of the commands of tables, by their keys, that count work of devices alone
    "shapes": _KERNELS,
    **dict.fromkeys(("operators", "roles", "blocks", "roofline", "roofline_roles", "split"), _BOTH),
}


def on_gpus(analysis: Analysis) -> bool:
    """Whether the accelerators of a run are GPUs, all of them, as its producer told them."""
    kinds = {name.partition(":")[0] for name in analysis.run.devices} - {"cpu"}
    return bool(kinds) and kinds <= _GPUS


def with_nouns(part: Part, *, gpus: bool) -> Part:
    """A part with the columns of its table headed as readers of a run on `gpus` call things."""
    view = part.table
    if not gpus or view is None or view.key not in _LABELS:
        return part
    columns = tuple(
        replace(column, label=_LABELS[view.key]) if column.name == "commands" else column
        for column in view.columns
    )
    return replace(part, table=replace(view, columns=columns))
