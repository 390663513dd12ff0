"""Importers: one folder or file for each foreign format."""

from profiler.plugins import lazy_names

__getattr__ = lazy_names(__name__, {"importing": "import_trace recognised"})
