"""On how many examples a property is tried: fewer with each change than at night."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples", "examples_of_reports"]

_AT_NIGHT = 100  # examples of a profile that is not that of each change


def examples(count: int) -> int:
    """`count` in a profile of 100 examples, and as much more or fewer in others, at least five;
    tests/conftest.py has the profiles."""
    return max(5, count * settings().max_examples // 100)


def examples_of_reports(count: int) -> int:
    """As many at night as `examples` gives, and a third with each change: of properties whose every
    example analyzes or reports a whole run."""
    found = examples(count)
    return found if settings().max_examples >= _AT_NIGHT else max(5, found // 3)
