"""YAML of untrusted files: plain values alone, bounded in depth."""

from __future__ import annotations

from typing import Any

__all__ = ["plain_yaml"]

_DEEPEST = 20  # mappings and lists in each other


def plain_yaml(data: bytes, deepest: int = _DEEPEST) -> Any:
    """The document; ValueError where it is no plain YAML.

    Aliases and deep nesting are refused before anything is built: a few hundred bytes of the one
    expand without end, and the other takes time that grows with its square.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        for event in yaml.parse(data, loader):
            opens = isinstance(event, yaml.CollectionStartEvent)
            depth += opens - isinstance(event, yaml.CollectionEndEvent)
            if depth > deepest or isinstance(event, yaml.AliasEvent):
                raise ValueError("it nests too deeply or uses an alias (*name)")
        return yaml.load(data, loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
