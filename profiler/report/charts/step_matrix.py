"""The step matrix as a heat map: each part of a step against its median, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.report.charts.style import Chart, draws, escaped, layout, shortened
from profiler.report.palette import IDLE, SERIES, TEXT, Theme
from profiler.report.sections.matrix import FARTHEST, Matrix
from profiler.text import duration, said

__all__ = ["matrix_chart"]


@draws("step_matrix")
def matrix_chart(matrix: Matrix | None, theme: Theme = "light") -> Chart:
    """The heat map: a row a part, a column a step, the colour its time against the row's median."""
    made = layout(theme)
    if matrix is None:
        return {"data": [], "layout": made | {"height": 100}}
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = matrix.time / matrix.median[:, None]
        shade = np.clip(np.log2(ratio) / np.log2(FARTHEST), -1, 1)
    rows, columns = matrix.time.shape
    trace = {
        "type": "heatmap",
        "x": [*range(columns)],
        "y": [*range(rows)],
        "z": [[None if np.isnan(v) else round(float(v), 2) for v in row] for row in shade],
        "text": [[*_texts(matrix, row, ratio)] for row in range(rows)],
        "hovertemplate": said("%{y}<br>step %{text}<extra></extra>"),
        "hoverongaps": False,
        "colorscale": _scale(theme),
        "zmin": -1,
        "zmax": 1,
        "xgap": 1 if columns <= 60 else 0,
        "ygap": 1,
        "colorbar": _colorbar(theme),
        "picks": {"rows": matrix.row_picks, "columns": matrix.column_picks},
    }
    made["yaxis"] |= {
        "tickvals": [*range(rows)],
        "ticktext": [escaped(shortened(name, 40)) for name in matrix.names],
        "range": [rows - 0.5, -0.5],
        "tickfont": {"size": 12, "color": TEXT.on(theme)},
    }
    shown = range(0, columns, max(1, -(-columns // 28)))
    made["xaxis"] |= {"tickvals": [*shown], "ticktext": [matrix.columns[i] for i in shown]}
    made["xaxis"]["title"] = made["xaxis"]["title"] | {"text": said("step")}
    made["margin"] |= {"t": 8}
    made["meta"] = {"narrow": [escaped(shortened(name, 18)) for name in matrix.names]}
    return {"data": [trace], "layout": made | {"height": 74 + 19 * rows, "showlegend": False}}


def _texts(matrix: Matrix, row: int, ratio: npt.NDArray[np.float64]) -> Iterator[str]:
    for column, ns in enumerate(matrix.time[row]):
        if np.isnan(ns):
            yield ""
        else:
            times = f", {ratio[row, column]:.2f} x" if matrix.median[row] > 0 else ""
            yield f"{matrix.columns[column]}: {duration(ns)}{times}"


def _scale(theme: Theme) -> list[list[Any]]:
    fast, slow = SERIES[0], SERIES[4]
    return [[0, fast.on(theme)], [0.5, IDLE.on(theme)], [1, slow.on(theme)]]


def _colorbar(theme: Theme) -> dict[str, Any]:
    low, high = f"{1 / FARTHEST:.2f}", f"{FARTHEST:g}"
    return {
        "tickvals": [-1, 0, 1],
        "ticktext": [f"{low} x", said("median"), f"{high} x"],
        "thickness": 10,
        "len": 1,
        "outlinewidth": 0,
        "tickfont": {"size": 11, "color": TEXT.on(theme)},
    }
