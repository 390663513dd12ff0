"""Reversible patches of methods on objects and library classes.

    wraps = Wraps()
    wraps.around(scheduler, "step", lambda original, args, kwargs: original(*args, **kwargs))
    wraps.undo()   # the scheduler is as it was

Owners are referenced weakly. Several `Wraps` may wrap the same method and be undone in any
order. A patch that other code put on top stays in place, and our wrapper below it only forwards
calls.
"""

from __future__ import annotations

import copy
import copyreg
import functools
import inspect
import operator
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, TypeVar

from profiler.plugins import let_pass

# --- What is known of objects of the script's: by identity, since their classes may have no hash,
# or one that fails, and two objects may count as equal.


_Value = TypeVar("_Value")


class ByIdentity(Generic[_Value]):
    """A value for each of some objects, while these live. Setting one raises TypeError for an
    object that cannot be referenced weakly."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], _Value]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, owner: Any) -> bool:
        return id(owner) in self._known

    def __setitem__(self, owner: Any, value: _Value) -> None:
        here, key = weakref.ref(self), id(owner)

        def forget(_: Any) -> None:
            known = here()
            if known is not None:
                known._known.pop(key, None)  # noqa: SLF001 - of this object

        self._known[key] = weakref.ref(owner, forget), value

    def get(self, owner: Any) -> _Value | None:
        """The object's value; None if it has none."""
        known = self._known.get(id(owner))
        return None if known is None else known[1]

    def pop(self, owner: Any) -> _Value | None:
        """Forget an object; returns as `get`."""
        known = self._known.pop(id(owner), None)
        return None if known is None else known[1]

    def items(self) -> list[tuple[Any, _Value]]:
        """The live objects with their values, in the order in which they came."""
        pairs = [(reference(), value) for reference, value in list(self._known.values())]
        return [(owner, value) for owner, value in pairs if owner is not None]


# --- Methods that capture replaces on library classes, and restores at the end.


_MISSING = object()


class ClassPatches:
    """The replaced methods of library classes; false if there are none."""

    def __init__(self) -> None:
        self._replaced: list[tuple[type, str, Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._replaced)

    def __contains__(self, place: tuple[type, str]) -> bool:
        return place in [replaced[:2] for replaced in self._replaced]

    def replace(self, owner: type, name: str, value: Any) -> None:
        """Replace `name` in `owner`, the class that defines it; KeyError if a base class does."""
        self._replaced.append((owner, name, value, vars(owner)[name]))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Restore the classes; methods that other code has replaced since stay replaced."""
        while self._replaced:
            owner, name, ours, before = self._replaced.pop()
            if vars(owner).get(name, _MISSING) is ours:
                setattr(owner, name, before)


# --- Reversible replacements of methods: all changes to a pipeline except its hooks.


WRAPPED = "_profile_sd3_wrapped"  # marks the classes that we created
DETOUR = "_profile_sd3_original"  # of a function that replaces a class's method for a time: its id
# (functools.wraps copies attributes to the user's functions), and the function that it calls

Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class _Arounds:
    """The wrappers around one original, the outermost first. For an attribute of an instance,
    `restore` puts the original back."""

    def __init__(self) -> None:
        self.current: tuple[Around, ...] = ()
        self.restore: Callable[[], None] = lambda: None

    def add(self, around: Around) -> None:
        self.current = (around, *self.current)

    def remove(self, around: Around) -> None:
        self.current = tuple(other for other in self.current if other is not around)

    def call(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call `original` through all wrappers."""
        arounds = self.current
        if not arounds:
            return original(*args, **kwargs)
        for around in reversed(arounds[1:]):
            original = functools.partial(_call, around, original)
        return arounds[0](original, args, kwargs)


def _call(around: Around, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return around(original, args, kwargs)


class Wrapper:
    """Replaces the method `original` in an instance, whose `own` it was or its class's. A deep copy
    or pickle of the instance gets the original."""

    def __init__(self, original: Callable[..., Any], *, own: bool) -> None:
        functools.update_wrapper(self, original)
        self.original = original
        self.arounds = _Arounds()
        self.own = own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.arounds.call(self.original, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.original, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduced_to(self.original)


def wraps_method(value: Any, function: Any) -> bool:
    """Whether `value` replaces the method `function` of an instance, and nothing else."""
    return isinstance(value, Wrapper) and getattr(value.original, "__func__", None) is function


class _CallableProxy:
    """Replaces a callable object whose class cannot be changed: calls go through `around`, all
    other access to the object."""

    def __init__(self, target: Any, around: Around) -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_around", around)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._around(self._target, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduced_to(self._target)


def callable_itself(value: Any) -> Any:
    """The callable object that a proxy of ours replaces; any other value as it is."""
    return object.__getattribute__(value, "_target") if type(value) is _CallableProxy else value


def _reduced_to(value: Any) -> tuple[Any, ...]:
    """Return the `__reduce__` value of a wrapper that is pickled as `value`."""
    return operator.itemgetter(0), ((value,),)


class _Methods(dict[str, _Arounds]):
    """The wrapped methods of one object; its class may create others."""

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self.owner = weakly(owner)


class Wraps:
    """A stack of replacements, undone in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def around(self, owner: Any, name: str, around: Around) -> None:
        """Run calls of `owner.name`, a method or a callable object (`pipe.tokenizer(...)`), as
        `around(original, args, kwargs)`."""
        original = getattr(owner, name)
        if not hasattr(owner, "__dict__"):
            self.around_method(owner, name, around)
            return
        if is_function(original):
            self._around_function(owner, name, around)
            return
        try:
            self.around_method(original, "__call__", around)
        except (TypeError, AttributeError) as error:  # its class cannot be changed
            let_pass(error)
            self._replace(owner, name, _CallableProxy(original, around))

    def _around_function(self, owner: Any, name: str, around: Around) -> None:
        wrapper = vars(owner).get(name)
        if not isinstance(wrapper, Wrapper):
            wrapper = Wrapper(_without_detour(getattr(owner, name)), own=name in vars(owner))
            wrapper.arounds.restore = _set(owner, name, wrapper)
        arounds, here, weak = wrapper.arounds, weakly(wrapper), weakly(owner)

        def undo() -> None:
            arounds.remove(around)
            if not arounds.current and attributes(weak()).get(name, _MISSING) is here():
                arounds.restore()

        self._undo.append(undo)  # registered first: what follows may be interrupted
        arounds.add(around)

    def around_method(self, owner: Any, name: str, around: Around) -> None:
        """Wrap a method on the class: `owner` becomes an instance of a subclass of its class.

        Python looks `__call__` up on the type, so an attribute of the instance cannot do it; a
        subclass changes this object only, keeps `isinstance` results, and creates no reference
        cycle. Raises TypeError if the class of `owner` cannot be changed, AttributeError of a mock.
        """
        known = _methods_of(owner)
        methods = _Methods(owner) if known is None else known
        subclass = _subclass(type(owner), methods) if known is None else type(owner)

        def undo() -> None:
            if name in methods:
                methods[name].remove(around)
            owner = methods.owner()
            if type(owner) is subclass and not any(m.current for m in methods.values()):
                _change_class(owner, subclass.__bases__[0])

        self._undo.append(undo)  # registered first: what follows may be interrupted
        if known is None:
            _change_class(owner, subclass)
        if name not in methods:
            wrapper = _method_wrapper(subclass.__bases__[0], name, methods)
            methods[name] = _Arounds()
            setattr(subclass, name, wrapper)
        methods[name].add(around)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        restore, weak = _set(owner, name, value), weakly(owner)
        self._undo.append(lambda: restore() if attributes(weak()).get(name) is value else None)

    def on_undo(self, action: Callable[[], None]) -> None:
        """Run `action` when the wraps are undone, in reverse order with the others."""
        self._undo.append(action)

    def undo(self) -> None:
        """Undo everything, the last first; again without effect."""
        while self._undo:
            try:
                self._undo[-1]()
            except Exception as error:
                let_pass(error)  # interrupted: it stays, to be undone by the next call
                self._undo.pop()
                raise
            self._undo.pop()


def _without_detour(method: Any) -> Any:
    """The method itself, if its class has a detour in its place for now."""
    function = getattr(method, "__func__", None)
    mark: Any = getattr(function, DETOUR, (None, None))
    return MethodType(mark[1], method.__self__) if mark[0] == id(function) else method


def _set(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Set an attribute of the instance itself, bypassing a `__setattr__` that keeps a record
    (diffusers' pipelines have one). Returns a function that restores or removes it."""
    before = vars(owner).get(name, _MISSING)
    vars(owner)[name] = value
    weak = weakly(owner)

    def restore() -> None:
        if before is _MISSING:
            attributes(weak()).pop(name, None)
        else:
            attributes(weak())[name] = before

    return restore


def attributes(owner: Any) -> dict[str, Any]:
    """The instance's own attributes; empty if it has no `__dict__`, or is gone."""
    return getattr(owner, "__dict__", {})


def is_function(value: Any) -> bool:
    """Whether `value` is a function or method, not an object that can be called."""
    return inspect.isroutine(value) or isinstance(value, (functools.partial, Wrapper))


def weakly(owner: Any) -> Callable[[], Any]:
    """Return a function that returns `owner` while it lives: undoing keeps no object alive."""
    try:
        return weakref.ref(owner)
    except TypeError as error:  # it cannot be referenced weakly
        let_pass(error)
        return lambda: owner


def _change_class(owner: Any, new: type) -> None:
    object.__setattr__(owner, "__class__", new)  # frozen dataclasses refuse it on themselves


def _method_wrapper(base: type, name: str, methods: _Methods) -> Callable[..., Any]:
    original = getattr(base, name)

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if methods.owner() is not self:
            return original(self, *args, **kwargs)
        return methods[name].call(functools.partial(original, self), args, kwargs)

    return wrapper


def _methods_of(owner: Any) -> _Methods | None:
    """The wrapped methods of `owner`, None if its class was not created by us."""
    methods = vars(type(owner)).get(WRAPPED)
    return methods if isinstance(methods, _Methods) and methods.owner() is owner else None


def call_wrapped(
    owner: Any, name: str, original: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Call `original`, a method that runs on behalf of `owner.name`, through the wrappers around
    that. A method of a subclass that called it by `super()` does not begin again."""
    wrapper, methods = attributes(owner).get(name), _methods_of(owner)
    arounds = methods.get(name) if methods is not None else None
    if arounds is None:
        arounds = wrapper.arounds if isinstance(wrapper, Wrapper) else _Arounds()
    return arounds.call(functools.partial(original, owner), args, kwargs)


def is_wrapped(owner: Any) -> bool:
    """Whether calls of `owner` itself are wrapped."""
    methods = _methods_of(owner)
    return methods is not None and "__call__" in methods and bool(methods["__call__"].current)


def _subclass(base: type, methods: _Methods) -> type:
    """Create a subclass with its base's name, and without slots of its own, so that the layout is
    the same."""
    namespace = {
        WRAPPED: methods,
        "__slots__": (),
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__reduce_ex__": functools.partialmethod(_reduced, base),
    }
    return type(base)(base.__name__, (base,), namespace)


def _reduced(self: Any, base: Any, protocol: Any) -> Any:
    """`__reduce_ex__` of an object whose class we derived from `base`: copies and pickles have the
    class `base` and need no code of ours."""
    known = copyreg.dispatch_table.get(base)
    reduced = known(self) if known is not None else base.__reduce_ex__(self, protocol)
    if not isinstance(reduced, tuple):
        return reduced
    make, arguments, *state = reduced
    arguments = tuple(base if value is type(self) else value for value in arguments)
    if make is copyreg.__newobj__:  # type: ignore[attr-defined]
        make = base.__new__  # pickle requires the object's class
    elif make is copyreg.__newobj_ex__:  # type: ignore[attr-defined]
        _, positional, named = arguments
        make, arguments = functools.partial(base.__new__, base, *positional, **named), ()
    return make, arguments, *state
