"""New pipelines: attached on their first use, seen once, their classes left as they were."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace

import pytest

from profiler.capture.patching import Wraps
from profiler.capture.pipelines.discovery import NewPipelines


@pytest.fixture
def diffusers():
    """A module with a base class as diffusers' pipelines have it, and a pipeline below it."""

    class DiffusionPipeline:
        def register_modules(self, **modules):
            vars(self).update(modules)

    class Base(DiffusionPipeline):
        def __init__(self):
            self.register_modules(vae="vae")
            self.complete = True

        def __call__(self, prompt):
            """Draw."""
            return ("image", prompt)

        def encode_prompt(self, prompt):
            return ("embedding", prompt)

        @staticmethod
        def helper():
            return "static"

    class Pipeline(Base):
        pass

    return SimpleNamespace(DiffusionPipeline=DiffusionPipeline, Base=Base, Pipeline=Pipeline)


def attributes(module):
    return {
        cls: dict(vars(cls)) for cls in (module.DiffusionPipeline, module.Base, module.Pipeline)
    }


class Attaching:
    """Notes what is attached, and hooks `__call__` as a session does: on a class of its own."""

    def __init__(self):
        self.seen = []

    def __call__(self, pipeline):
        self.seen.append((type(pipeline).__name__, pipeline.complete))
        base = type(pipeline)
        pipeline.__class__ = type(
            base.__name__,
            (base,),
            {"__call__": lambda self, *a: ("hooked", base.__call__(self, *a))},
        )
        return True


def test_attached_on_the_first_use(diffusers):
    """The first call finds the pipeline complete and runs through the hooks, as later ones do."""
    attaching = Attaching()
    NewPipelines(attaching).watch_diffusers(diffusers)
    pipe = diffusers.Pipeline()
    assert attaching.seen == []
    assert [pipe("a"), pipe("b")] == [("hooked", ("image", "a")), ("hooked", ("image", "b"))]
    assert attaching.seen == [("Pipeline", True)]


def test_encoding_alone_is_a_use(diffusers):
    """A script that encodes its prompts ahead of the call is recorded from there on."""
    attaching = Attaching()
    NewPipelines(attaching).watch_diffusers(diffusers)
    pipe = diffusers.Pipeline()
    assert pipe.encode_prompt("a") == ("embedding", "a")
    assert pipe("a") == ("hooked", ("image", "a"))
    assert len(attaching.seen) == 1


def test_classes_made_later(diffusers):
    """A class that appears after watching began shows itself when its first pipeline is made."""
    attaching = Attaching()
    NewPipelines(attaching).watch_diffusers(diffusers)

    class Later(diffusers.Base):
        def __call__(self, prompt):
            return ("later", super().__call__(prompt))

    assert Later()("a") == ("hooked", ("later", ("image", "a")))
    assert attaching.seen == [("Later", True)]


def hooked(noted):
    """Attach as a session does, noting the arguments of calls."""

    def noting(original, args, kwargs):
        noted.append(args)
        return original(*args, **kwargs)

    def attach(pipeline):
        Wraps().around_method(pipeline, "__call__", noting)
        return True

    return attach


def test_a_subclass_that_is_not_watched_changes_the_arguments(diffusers):
    """Its own method does not begin again with the arguments that it gives to `super()`."""

    class Late(diffusers.Base):
        def __call__(self):
            return ("late", super().__call__("a"))

    noted = []
    NewPipelines(hooked(noted)).watch_class(diffusers.Base)
    pipe = Late()
    assert pipe() == ("late", ("image", "a"))
    assert noted == [("a",)]  # the first call is recorded from there on
    assert pipe() == ("late", ("image", "a"))
    assert noted == [("a",), ()]


def test_a_patch_over_ours_is_called_once(diffusers):
    """What another tool put over the method of a class runs once in the first call, too."""
    noted = []
    NewPipelines(hooked(noted)).watch_diffusers(diffusers)
    ours = diffusers.Base.__call__
    diffusers.Base.__call__ = lambda self, prompt: ours(self, prompt + "!")
    assert diffusers.Pipeline()("a") == ("image", "a!")
    assert noted == [("a!",)]


def test_undoing_leaves_the_classes(diffusers):
    """Signatures and documentation show through while watched; afterwards nothing is left."""
    before = attributes(diffusers)
    pipelines = NewPipelines(lambda pipeline: False)
    pipelines.watch_diffusers(diffusers)
    assert diffusers.Base.__call__.__doc__ == "Draw."
    assert attributes(diffusers) != before
    pipelines.undo()
    assert attributes(diffusers) == before


def test_what_somebody_else_patched_meanwhile_stays(diffusers):
    """Undoing keeps a patch that another tool put over ours; what is ours below it steps aside."""
    pipelines = NewPipelines(lambda pipeline: None)
    pipelines.watch_diffusers(diffusers)
    ours = diffusers.Base.__call__

    def theirs(self, *args):
        return ("theirs", ours(self, *args))

    diffusers.Base.__call__ = theirs
    pipelines.undo()
    assert diffusers.Base.__call__ is theirs
    assert diffusers.Pipeline()("a") == ("theirs", ("image", "a"))


def test_what_cannot_be_attached_runs(diffusers, capsys):
    """Where attaching fails the pipeline runs without hooks, and that is said once."""

    def refuse(pipeline):
        raise ValueError("no known submodule")

    NewPipelines(refuse).watch_diffusers(diffusers)
    pipe = diffusers.Pipeline()
    assert [pipe("a"), pipe("b")] == [("image", "a"), ("image", "b")]
    assert capsys.readouterr().err == "profile-sd3: Pipeline is not profiled: no known submodule\n"


def test_not_now_is_asked_again(diffusers):
    """None from `attach` (the script profiles the pipeline itself) is no answer for ever."""
    answers = iter([None, None, False])
    asked = []

    def attach(pipeline):
        asked.append(pipeline)
        return next(answers)

    NewPipelines(attach).watch_diffusers(diffusers)
    pipe = diffusers.Pipeline()
    for _ in range(5):
        pipe("a")
    assert len(asked) == 3


def test_pipelines_are_not_kept(diffusers):
    """`del pipe` frees the pipeline, attached or not."""
    NewPipelines(lambda pipeline: False).watch_diffusers(diffusers)
    pipe = diffusers.Pipeline()
    pipe("a")
    gone = weakref.ref(pipe)
    del pipe
    gc.collect()
    assert gone() is None


def test_threads_that_use_it_meanwhile_wait(diffusers):
    """A thread whose first use comes while another attaches runs through the hooks as well."""
    attaching, entered, go_on = Attaching(), threading.Event(), threading.Event()

    def slow(pipeline):
        entered.set()
        go_on.wait()
        return attaching(pipeline)

    NewPipelines(slow).watch_diffusers(diffusers)
    pipe, results = diffusers.Pipeline(), []
    threads = [threading.Thread(target=lambda: results.append(pipe("a"))) for _ in range(2)]
    threads[0].start()
    entered.wait()
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert results == [("hooked", ("image", "a"))] * 2
    assert len(attaching.seen) == 1
