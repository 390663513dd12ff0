"""What lives in the process, by class."""

from __future__ import annotations

from profiler.capture.pipelines.alive import instances


class Kind:
    pass


class Further(Kind):
    pass


class Furthest(Further):
    pass


class Other:
    pass


def test_instances_of_classes_and_of_their_subclasses():
    """Those of the classes, of subclasses, and nothing else; without classes none."""
    kept = [Kind(), Further(), Furthest(), Other()]
    assert {id(one) for one in instances([Kind])} == {id(one) for one in kept[:3]}
    assert {id(one) for one in instances([Furthest, Other])} == {id(one) for one in kept[2:]}
    assert instances([]) == []
