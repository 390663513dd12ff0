"""What lives in the process, by class."""

from __future__ import annotations

import gc
import sys
import threading
from types import SimpleNamespace

from profiler.capture.imports import tracked_instances
from profiler.capture.pipelines import script_objects
from profiler.capture.pipelines.discovery import Together
from profiler.capture.pipelines.script_objects import instances


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


def test_names_of_objects_that_no_pipeline_holds():
    """One keeps its name; the next of that name has the lowest number that no living one has."""
    first, second, third = (Kind() for _ in range(3))
    together = Together(net=first)
    assert [together.add("net", one) for one in (first, second, third)] == ["net", "net_2", "net_3"]
    assert together.add("net", second) == "net_2"
    del second
    gc.collect()
    fourth = Kind()
    assert together.add("net", fourth) == "net_2"
    assert together.alive() == {"net": first, "net_2": fourth, "net_3": third}


def test_tuples_that_another_thread_is_making():
    """A look at all objects lets no other thread go on while it holds the tuple that one makes."""
    errors, done = [], threading.Event()

    def make_tuples():
        while not done.is_set():
            try:
                tuple(number for number in range(200))
            except SystemError as error:
                errors.append(error)

    kept = [[number] for number in range(200_000)]  # a look takes longer than a thread's turn
    thread = threading.Thread(target=make_tuples)
    thread.start()
    for _ in range(3):
        tracked_instances({Kind})
    done.set()
    thread.join()
    assert len(kept) == 200_000
    assert errors == []


class Frozen:
    pass


HELD = SimpleNamespace(parts=[Frozen()])


def giving(value):
    return lambda: value


def looked_for():
    """What a variable leads to, and what is found; pytest's asserts ask for a frame's locals, and
    such frames are left alone."""
    outer = Frozen()
    outer.inner = Frozen()
    called = {"a": [giving(outer)], "b": outer}
    cycle = [Frozen()]
    cycle.append(cycle)
    del outer, cycle
    gc.freeze()  # for good: tests/conftest.py has frozen all that was collected
    return called["b"], instances([Frozen], sys._getframe())


def test_what_is_frozen_is_found_where_variables_lead_to_it(monkeypatch):
    """Of a frame, of a module, through attributes, containers and closures; once, and nothing
    behind what is found; what no variable leads to stays hidden."""
    # Other tests' modules lead to more than is looked at, in a process that has many of them;
    # pytest's own frames hold all tests.
    monkeypatch.setattr(script_objects, "_script_globals", lambda: iter([globals()]))
    monkeypatch.setattr(script_objects, "_MOST_FROZEN", 5_000_000)
    held, found = looked_for()
    assert sorted(map(id, found)) == sorted((id(held), id(HELD.parts[0])))


def test_a_look_at_too_much_is_told(monkeypatch, capfd):
    """Where variables lead to more objects than are looked at, stderr says what may be missing."""
    many = [[i, []] for i in range(20)]
    monkeypatch.setattr(script_objects, "_MOST_FROZEN", 10)
    gc.freeze()
    instances([Frozen], sys._getframe())
    assert "gc.freeze() hides objects" in capfd.readouterr().err
    assert many
