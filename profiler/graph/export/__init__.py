"""A diffusers pipeline → ONNX graphs in the folder layout of optimum, verified against torch.

    pipeline.export_pipeline(source, out, options.ExportOptions(dtype="fp16"))

`profile-sd3 run --model OUT` runs what comes of a Stable Diffusion 3. Needs the `torch` extra.
"""
