"""The methods by which a module is entered beside `forward`: those that call its children.

`encode` and `decode` of a VAE, `get_image_features` of a language model, a sampler's `sample`:
what a method calls stands in its source. A method that calls the module itself (`generate`) is
none: what it calls is `forward`. Nothing is executed for that. But a model of transformers' that
generates may call its encoder past `forward`: that is entered by `get_encoder`, which gives it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from profiler.capture.torch.children import child
from profiler.capture.torch.modules import is_one_piece
from profiler.interruptions import let_pass

__all__ = ["ENCODER", "encoder_of", "entry_points"]

ENCODER = "get_encoder"

_FRAMEWORK = "torch."  # whose classes have no methods that we look for
_DEEPEST = 6  # methods that call one another
_SUPER = "super()"
_OWN_WAYS = ("encode", "decode")  # in which a `forward` that calls them is never used
_FEATURES = "_features"


def entry_points(module: Any) -> tuple[str, ...]:
    """`forward`, and the public methods of the module's class that call one of its children, but
    the steps of `forward` itself: torch.compile would have to go through what hooks them."""
    inner = getattr(module, "_orig_mod", module)
    kind: Any = type(inner)
    steps = _called_by(kind, "forward", set())
    methods = (
        name
        for name in _public_methods(kind)
        if (name not in steps or name.startswith(_OWN_WAYS) or name.endswith(_FEATURES))
        and _calls_child(inner, name, 0)
    )
    found = ("forward", *(name for name in methods if name != ENCODER))
    return (*found, ENCODER) if encoder_of(module) is not None else found


def encoder_of(module: Any) -> Any:
    """The encoder that the module's `generate` calls by itself; None where it has none, or where
    what torch.compile has made of the module encloses it."""
    if not callable(getattr(module, "generate", None)) or is_one_piece(module):
        return None
    try:
        found = getattr(module, ENCODER)()
    except Exception as error:  # noqa: BLE001 - the user's own method
        let_pass(error)
        return None
    below = found is not module and any(found is one for one in module.modules())
    return found if below and callable(found) else None


def _called_by(kind: Any, name: str, found: set[str]) -> set[str]:
    """The methods of a class that one of them calls, itself or through others."""
    function = _function(kind, name)
    for path in _called(function) if function is not None else ():
        if len(path) == 1 and path[0] not in found and path[0] in _all_methods(kind):
            found.add(path[0])
            _called_by(kind, path[0], found)
    return found


@lru_cache(maxsize=512)
def _public_methods(kind: Any) -> tuple[str, ...]:
    """Methods that a class outside torch defines, in order of their names."""
    names = set()
    for base in kind.__mro__:
        if f"{base.__module__}.".startswith(_FRAMEWORK) or base is object:
            continue
        names |= {n for n, value in vars(base).items() if inspect.isfunction(value)}
    return tuple(sorted(n for n in names if not n.startswith("_") and n != "forward"))


def _calls_child(module: Any, name: str, depth: int, kind: type | None = None) -> bool:
    """Whether the method `name` of `module` calls a module below it, itself or through another of
    its methods. `kind`: the class whose method it is, where that is not the module's own."""
    function = _function(kind or type(module), name)
    if function is None or depth > _DEEPEST or not _may_reach(module, function, {name}):
        return False
    return any(_reaches(module, path, depth, name) for path in _called(function))


def _function(kind: type, name: str) -> Any:
    """A method as it was written, without its decorators; None where it is none of Python."""
    method = getattr(kind, name, None)
    function = inspect.unwrap(method) if inspect.isfunction(method) else None
    return function if hasattr(function, "__code__") else None


def _may_reach(module: Any, function: Any, seen: set[str]) -> bool:
    """Whether a method, or what it may call of the same class, has the name of a child in it: else
    its source is not worth reading."""
    names, kind = function.__code__.co_names, _class_of(module)
    if any(name in module._modules for name in names):  # noqa: SLF001
        return True
    for name in names:
        if name in seen or name not in _all_methods(kind):
            continue
        seen.add(name)
        further = _function(kind, name)
        if further is not None and _may_reach(module, further, seen):
            return True
    return "super" in names


def _class_of(module: Any) -> Any:
    return type(module)


@lru_cache(maxsize=512)
def _all_methods(kind: Any) -> frozenset[str]:
    """Names of the methods that classes outside torch define, but those that are hooked anyway."""
    bases = [base for base in kind.__mro__ if not f"{base.__module__}.".startswith(_FRAMEWORK)]
    names = {n for b in bases for n, value in vars(b).items() if inspect.isfunction(value)}
    return frozenset(names - {"forward", "__init__", "__call__"})


def _reaches(module: Any, path: tuple[str, ...], depth: int, caller: str) -> bool:
    """Whether calling `self.a.b` (the path `a`, `b`) from the method `caller` of `module` calls a
    module below it."""
    *owners, last = path
    if owners == [_SUPER]:
        bases = type(module).__mro__[1:]
        return any(_calls_child(module, last, depth + 1, base) for base in bases)
    owner = module
    for name in owners:
        owner = child(owner, name)
        if owner is None:
            return False
    if child(owner, last) is not None:  # which is called
        return True
    if owner is module:
        return last not in ("forward", caller) and _calls_child(owner, last, depth + 1)
    return last == "forward" or _calls_child(owner, last, depth + 1)


@lru_cache(maxsize=4_096)
def _called(function: Any) -> tuple[tuple[str, ...], ...]:
    """What a method calls on `self`, as paths of attributes; children that it goes through in a
    loop, and calls, are paths as well. None where its source is not there."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()
    definition = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), None)
    if definition is None or not definition.args.args:
        return ()
    return tuple(dict.fromkeys(_paths(definition, definition.args.args[0].arg)))


def _paths(definition: ast.FunctionDef, own: str) -> Iterator[tuple[str, ...]]:
    called = {
        node.func.id
        for node in ast.walk(definition)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    for node in ast.walk(definition):
        if isinstance(node, ast.Call):
            yield from _path(node.func, own)
        elif isinstance(node, ast.For) and called & _names(node.target):
            for value in ast.walk(node.iter):
                yield from _path(value, own)


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _path(value: ast.AST, own: str) -> Iterator[tuple[str, ...]]:
    """`self.a.b` and `self.a[0].b` as `a`, `b`; `super().a` as `super()`, `a`."""
    names: list[str] = []
    while isinstance(value, (ast.Attribute, ast.Subscript)):
        if isinstance(value, ast.Attribute):
            names.append(value.attr)
        value = value.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and len(names) == 1:
        if value.func.id == "super":
            yield (_SUPER, *names)
    elif names and isinstance(value, ast.Name) and value.id == own:
        yield tuple(reversed(names))
