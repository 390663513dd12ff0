"""On how many examples a property is tried: fewer with each change than at night."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]


def examples(count: int) -> int:
    """`count` in a profile of 100 examples, and as much more or fewer in others, at least five;
    tests/conftest.py has the profiles."""
    return max(5, count * settings().max_examples // 100)
