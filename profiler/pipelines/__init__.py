"""Pipelines that the project runs itself."""

from profiler.plugins import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "model_folder": "Placement",
        "sd3": "StableDiffusion3Pipeline",
        "tiny": "default_model_folder",
    },
)
