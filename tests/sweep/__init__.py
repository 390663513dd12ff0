"""Capture against pipelines of diffusers: `python -m tests.sweep`."""
