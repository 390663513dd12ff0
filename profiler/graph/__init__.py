"""ONNX graphs: export, check, split, optimize, compare, annotate; see ADR 0013.

Independent of the rest of the project, except for its errors and basic modules, so that each part
works on any ONNX model, profiled or not. If onnx or onnx_ir is missing, an error says so in one
sentence.
"""

from profiler.errors import require
from profiler.plugins import lazy_names

require("graph-base", __name__)

__getattr__ = lazy_names(
    __name__,
    {
        "check": "check_model",
        "export": "export_pipeline",
        "model": "COMMAND_INDEX LAYER read_graph read_model",
        "optimize.files": "Optimizer optimize_files",
        "shapes": "random_inputs",
        "split": "split_model",
        "split_parts": "Target",
        "verify": "run_model",
    },
)
