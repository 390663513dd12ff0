"""The recorded result of the sweep, and the page that lists it."""

from __future__ import annotations


def write(results):
    raise NotImplementedError
