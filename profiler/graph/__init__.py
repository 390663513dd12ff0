"""ONNX graphs: export, check, split, optimize, compare, annotate; see ADR 0013.

Stands alone: errors and leaves are all it uses of the project, so that each part works on any ONNX
model, profiled or not. Everything here needs onnx and onnx_ir, which is said in one sentence.
"""

from profiler.errors import require
from profiler.plugins import lazy_names

require("graph-base", __name__)

__getattr__ = lazy_names(
    __name__,
    {
        "check": "check_model",
        "export": "export_pipeline",
        "model": "COMMAND_INDEX LAYER random_inputs read_graph read_model",
        "optimize.files": "Optimizer optimize_files",
        "split": "split_model",
        "split_parts": "Target",
        "verify": "run_model",
    },
)
