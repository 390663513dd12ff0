"""Methods replaced on classes are put back; what somebody else has patched since stays."""

from __future__ import annotations

import pytest

from profiler.capture.patching import ClassPatches


def test_classes_are_left_as_they_were():
    """Each method has the value from before the first of several replacements, by identity."""

    class Watched:
        def run(self):
            return "run"

        def stop(self):
            return "stop"

    before, patches = dict(vars(Watched)), ClassPatches()
    assert not patches
    patches.replace(Watched, "run", lambda self: "ours")
    patches.replace(Watched, "run", lambda self: "ours again")
    patches.replace(Watched, "stop", lambda self: "ours")
    assert patches
    assert (Watched().run(), Watched().stop()) == ("ours again", "ours")
    patches.undo()
    assert dict(vars(Watched)) == before
    assert not patches


@pytest.mark.parametrize("theirs", [None, lambda self: "theirs"])
def test_a_later_patch_of_somebody_else_stays(theirs):
    """What stands where ours stood is not touched, be it None; the other method is put back."""

    class Watched:
        def run(self):
            return "run"

        def stop(self):
            return "stop"

    patches = ClassPatches()
    stop = Watched.stop
    patches.replace(Watched, "run", lambda self: "ours")
    patches.replace(Watched, "stop", lambda self: "ours")
    Watched.run = theirs
    patches.undo()
    assert (Watched.run, Watched.stop) == (theirs, stop)


def test_a_method_removed_since_stays_removed():
    """Somebody who deletes what stands there does not get the method back."""

    class Watched:
        def run(self):
            return "run"

    patches = ClassPatches()
    patches.replace(Watched, "run", lambda self: "ours")
    del Watched.run
    patches.undo()
    assert "run" not in vars(Watched)


def test_only_the_class_that_defines_a_method_is_patched():
    """A class that inherits it is refused: putting back would leave it with a method of its own."""

    class Base:
        def run(self):
            return "run"

    class Derived(Base):
        pass

    patches = ClassPatches()
    with pytest.raises(KeyError):
        patches.replace(Derived, "run", lambda self: "ours")
    patches.undo()
    assert "run" not in vars(Derived)
