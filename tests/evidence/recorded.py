"""What was recorded on an H200, and what is asked of it: for the tests and `gpu_compare.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "h200"
TIMED = {  # by trace: the model and the stage whose events were in the very run that was traced
    "sd35-eager": ("sd35", "trace_marked"),
    "sd35-graphs": ("sd35", "trace_graphs"),
    "sd35-streams": ("sd35", "trace_streams"),
    "flux-eager": ("flux", "trace_marked"),
    "flux-compiled": ("flux-compiled", "trace_compiled"),
    "wan-eager": ("wan", "trace_marked"),
}
PREDICTED: dict[str, dict[str, dict[str, Any]]] = {  # by trace and stage: what is asked
    "sd35-eager": {
        "steps_8": {"steps": 8},
        "steps_2": {"steps": 2},
        "guidance_off": {"guidance": False},
        "graphs": {"cuda_graph": True},
        "graphs_guidance_off": {"cuda_graph": True, "guidance": False},
        "graphs_steps_8": {"cuda_graph": True, "steps": 8},
        "batch_2": {"batch": 2},
    },
    "flux-eager": {
        "batch_2": {"batch": 2},
        "steps_8": {"steps": 8},
        "graphs": {"cuda_graph": True},
        "graphs_steps_8": {"cuda_graph": True, "steps": 8},
    },
    "wan-eager": {"steps_8": {"steps": 8}, "guidance_off": {"guidance": False}},
}
