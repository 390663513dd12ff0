"""ONNX graphs: export, check, split, optimize, compare, annotate; see ADR 0013.

Stands alone: errors and leaves are all it uses of the project, so that each part works on any ONNX
model, profiled or not. Everything here needs onnx and onnx_ir, which is said in one sentence.
"""

from profiler.errors import require

require("graph-base", __name__)
