"""Pipelines that run here. `sd3` is Stable Diffusion 3 on ONNX Runtime and NumPy alone."""
