"""ONNX graphs: export, check, split, optimize, compare, annotate; see ADR 0013.

Stands alone: `profiler.errors` is all it uses of the project, so that each part works on any ONNX
model, profiled or not.
"""
