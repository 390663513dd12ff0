"""torch modules: call hooks, module ranges, offloading, entry points.

`forward` is never replaced, because diffusers' and accelerate's own hooks do that.
torch.compile guards the hooks of a module by their ids. Hooks are therefore never put inside
compiled modules, and a module's hooks keep the same ids. Offloading is captured at the methods
of accelerate (`AlignDevicesHook`, `CpuOffload`) and diffusers (`ModuleGroup`) that move
weights.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import inspect
import os
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from profiler.capture.patching import (
    ByIdentity,
    ClassPatches,
    Wrapper,
    Wraps,
    attributes,
    is_function,
)
from profiler.capture.torch.events import MODULE, WEIGHTS, Activity, TorchEvents
from profiler.capture.torch.model_settings import (
    child,
    children,
    every,
    packed_shapes,
    with_paths,
)
from profiler.capture.torch.script_profilers import PROFILERS
from profiler.plugins import let_pass
from profiler.trace.columns import Counter, Int64s


def is_compiled(module: Any) -> bool:
    """Whether `module.compile()` has been called: its hooks run inside the compiled code."""
    return getattr(module, "_compiled_call_impl", None) is not None


def outermost(modules: Iterable[Any]) -> list[Any]:
    """Those that none of the others has as a child, once."""
    by_id = {id(module): module for module in modules}
    below = {id(child) for module in by_id.values() for _, child in children(module)}
    return [module for key, module in by_id.items() if key not in below]


# --- Copies of modules whose methods are wrapped: a shallow copy, such as a replica of
# DataParallel, gets its module's attributes, and with them the wrappers.


class _ShallowCopies:
    """Patches what fills shallow copies, while methods of modules are wrapped."""

    def __init__(self) -> None:
        self._patches = ClassPatches()
        self._users: weakref.WeakSet[Wraps] = weakref.WeakSet()

    def watch(self, wraps: Wraps) -> None:
        """Watch for copies until `wraps` is undone."""
        from torch.nn import Module

        if wraps not in self._users:
            wraps.on_undo(lambda: self._leave(wraps))  # first: what follows may be interrupted
            self._users.add(wraps)
        for name in ("__setstate__", "_replicate_for_data_parallel"):
            if (Module, name) not in self._patches:
                self._patches.replace(Module, name, _leaving(vars(Module)[name]))

    def _leave(self, wraps: Wraps) -> None:
        self._users.discard(wraps)
        if not self._users:
            self._patches.undo()


SHALLOW_COPIES = _ShallowCopies()


def _leaving(original: Callable[..., Any]) -> Callable[..., Any]:
    """The method, after which the copy that it fills or returns has no wrappers."""

    @functools.wraps(original)
    def method(module: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(module, *args, **kwargs)
        own = attributes(module if made is None else made)
        for name, value in [*own.items()]:
            if isinstance(value, Wrapper):
                if value.own:
                    own[name] = value.original
                else:
                    del own[name]
        return made

    return method


# --- Memory allocated by torch over time, from the allocations that a session recorded.


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMemory:
    """The allocated memory of a device: `values[i]` bytes from `times_ns[i]` on, `before` bytes
    until then. Both int64 [n]."""

    device: str
    before: int
    times_ns: Int64s
    values: Int64s

    @property
    def after(self) -> int:
        """Bytes after the last change."""
        return int(self.values[-1]) if len(self.values) else self.before

    def between(self, start_ns: int, end_ns: int) -> Counter:
        """The counter of one invocation: the level at its start, then every change during it.

        On the CPU torch reports only changes: the counter starts at 0 with the pipeline call.
        """
        first, last = np.searchsorted(self.times_ns, (start_ns, end_ns)).tolist()
        level = int(self.values[first - 1]) if first else self.before
        name = "torch allocated"
        if self.device.startswith("cpu"):
            name += " since the pipeline began"
        times = np.concatenate(([start_ns], self.times_ns[first:last])).astype(np.int64)
        values = np.concatenate(([level], self.values[first:last])).astype(np.int64)
        return Counter(self.device, name, "bytes", times, values)


def device_memory(events: TorchEvents, before: Mapping[str, int]) -> list[DeviceMemory]:
    """The memory of each device over time, from the levels `before` the session; devices without a
    change are left out."""
    rows = events.rows_of(Activity.MEMORY)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    by_device: dict[str, list[int]] = {}
    for row in rows.tolist():
        by_device.setdefault(events.device[row], []).append(row)
    found = []
    for device, changes in sorted(by_device.items()):
        level = before.get(device, 0)
        sizes = np.array([events.nbytes[row] for row in changes], dtype=np.int64)
        times = events.start_ns[np.array(changes, dtype=np.int64)]
        found.append(DeviceMemory(device, level, times, level + np.cumsum(sizes)))
    return found


# --- Methods of accelerate's and diffusers' hooks that move offloaded weights, and how many bytes
# each call moves.
#
# accelerate's `AlignDevicesHook` (sequential offload, `device_map`) loads a module's weights before
# it runs; dropping them afterwards moves nothing. Its `CpuOffload` loads a whole model, after the
# one before it has made room. diffusers' `ModuleGroup` (group offload) moves a group of modules
# both ways.
#
# Both libraries look up these methods on their objects each time, so they can be wrapped there.


_ONLOAD, _OFFLOAD = "onload", "offload"
_ACCELERATE, _DIFFUSERS = "_hf_hook", "_diffusers_hook"  # attributes with their hooks
_GROUPED = "group_offloading"  # the hook's name in diffusers' registries


@dataclass(frozen=True, slots=True)
class Move:
    """A method `owner.method` that moves `nbytes()` of the weights of the module at `path`; `kind`
    is the direction."""

    owner: Any
    method: str
    kind: str
    path: str
    nbytes: Callable[[], int]


def moves(
    modules: Mapping[str, Any], *, closed: Callable[[Any], bool] = lambda _: False
) -> Iterator[Move]:
    """The methods that move weights of these modules, given by path; each hook and group once.
    Modules that are `closed` are skipped."""
    paths = {id(module): path for path, module in modules.items()}
    groups: set[int] = set()
    for path, module in modules.items():
        if vars(module).keys().isdisjoint((_ACCELERATE, _DIFFUSERS)) or closed(module):
            continue
        hook = vars(module).get(_ACCELERATE)
        for one in getattr(hook, "hooks", None) or (hook,):
            yield from _of_accelerate(one, module, path)
        registry = vars(module).get(_DIFFUSERS)
        group = getattr(getattr(registry, "hooks", {}).get(_GROUPED), "group", None)
        if group is not None and id(group) not in groups:
            groups.add(id(group))
            yield from _of_group(group, paths.get(id(next(iter(group.modules), module)), path))


def _of_accelerate(hook: Any, module: Any, path: str) -> Iterator[Move]:
    if getattr(hook, "offload", False) is True:

        def absent() -> int:
            within = hook.place_submodules
            buffers = module.buffers(recurse=within) if hook.offload_buffers else ()
            weights = chain(module.parameters(recurse=within), buffers)
            return _bytes_of_tensors(one for one in weights if one.device.type == "meta")

        yield Move(hook, "pre_forward", _ONLOAD, path, absent)
    elif type(hook).__name__ == "CpuOffload":
        yield Move(hook, "pre_forward", _ONLOAD, path, _elsewhere(module, hook.execution_device))
        before = hook.prev_module_hook
        if before is not None:
            name = type(before.model).__name__
            yield Move(before, "offload", _OFFLOAD, name, _elsewhere(before.model, "cpu"))


def _of_group(group: Any, path: str) -> Iterator[Move]:
    def weights() -> Iterator[Any]:
        for module in group.modules:
            yield from chain(module.parameters(), module.buffers())
        yield from chain(group.parameters, group.buffers)

    def to_onload() -> int:
        if group.offload_to_disk_path is not None:
            return _bytes_of_tensors(weights())
        return _bytes_of_tensors(one for one in weights() if not _is_at(one, group.onload_device))

    def to_offload() -> int:
        if group.stream is not None or group.offload_to_disk_path is not None:
            return 0  # the earlier copy is used again, or none is kept
        return _bytes_of_tensors(one for one in weights() if not _is_at(one, group.offload_device))

    yield Move(group, "onload_", _ONLOAD, path, to_onload)
    yield Move(group, "offload_", _OFFLOAD, path, to_offload)


def _elsewhere(model: Any, device: Any) -> Callable[[], int]:
    def nbytes() -> int:
        weights = chain(model.parameters(), model.buffers())
        return _bytes_of_tensors(one for one in weights if not _is_at(one, device))

    return nbytes


def _is_at(tensor: Any, device: Any) -> bool:
    """Whether a tensor is on a device, which may be an index or have none."""
    import torch

    wanted = torch.device(device)
    same = wanted.index is None or wanted.index == tensor.device.index
    return bool(tensor.device.type == wanted.type and same)


def _bytes_of_tensors(tensors: Iterable[Any]) -> int:
    """The bytes of the tensors, each counted once."""
    each = {id(tensor): tensor for tensor in tensors}.values()
    return sum(tensor.numel() * tensor.element_size() for tensor in each)


# --- torch's profiler as we use it, and torch's flag that one is running.


@dataclass(slots=True)
class _Running:
    """The number of our session that was started last, counted from 1."""

    session: int = 0


_RUNNING = _Running()
_OURS = 1  # torch's flag while our session runs; a profiler of the script's sets it to True
_LOG_LEVEL, _QUIET = "KINETO_LOG_LEVEL", "6"


def is_ours() -> bool:
    """Whether torch is recording a session of ours now."""
    import torch.autograd.profiler as torch_profiler

    return torch_profiler._is_profiler_enabled is _OURS  # noqa: SLF001


def say_running(*, ours: bool) -> None:
    """Set torch's flag: a new session of ours is running, or no profiler is."""
    import torch.autograd.profiler as torch_profiler

    if ours:
        _RUNNING.session += 1
    torch_profiler._is_profiler_enabled = _OURS if ours else False  # noqa: SLF001


def running_session() -> int:
    """The number of our session if torch is recording it now; else 0."""
    return _RUNNING.session if is_ours() else 0


def leave(opened: Any, session: int) -> None:
    """Leave a range of torch that was entered in our `session`. If nothing was recorded at its
    start, and something is now, torch raises (2.13).

    If another profiler has been started since, torch has freed that session, and would write the
    end of the range into freed memory. Such a range is never left, nor destroyed, which would leave
    it.
    """
    if is_profiling() and running_session() != session:
        strand(opened)
        return
    with suppress(RuntimeError):
        opened.__exit__(None, None, None)


def strand(opened: Any) -> None:
    """Keep a range alive for ever."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened))


def is_profiling() -> bool:
    """Whether any profiler of torch is running, or one of the script's is prepared."""
    import torch.autograd.profiler as torch_profiler

    running = torch_profiler._is_profiler_enabled  # noqa: SLF001 - there is no public question
    return bool(running) or PROFILERS.waiting


TORCHS_OWN = ("cuda", "xpu")


def accelerator() -> str | None:
    """torch's name of the accelerator whose work a session records: "cuda", "xpu", or a PrivateUse1
    backend's ("rbln" of torch-rbln); None without one."""
    import torch

    for kind in (*TORCHS_OWN, torch._C._get_privateuse1_backend_name()):  # noqa: SLF001
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return kind
    return None


def new_profiler(*, all_threads: bool = False, memory: bool = False) -> Any:
    """torch.autograd's profiler. torch.profiler's, which wraps it, imports torch's compiler when it
    starts: 800 modules, 2 s. With `memory` it records allocations, which costs 5 %."""
    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile

    return PROFILERS.own(
        profile(
            use_device=accelerator(),
            use_kineto=True,
            record_shapes=True,
            profile_memory=memory,
            experimental_config=_ExperimentalConfig(profile_all_threads=all_threads),
        )
    )


def started(profiler: Any) -> bool:
    """Start a profiler without output. False if torch refuses, since this thread has one that
    torch's flag does not show."""
    try:
        with quiet():
            profiler.__enter__()
    except RuntimeError:
        say_running(ours=False)
        return False
    return True


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the two lines that Kineto prints per session in torch 2.13; must be set before the
    first one."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = _QUIET
    try:
        yield
    finally:
        del os.environ[_LOG_LEVEL]


def allocated() -> dict[str, int]:
    """Bytes that torch has allocated now on each CUDA device."""
    import torch

    if not torch.cuda.is_available():
        return {}
    return {f"cuda:{i}": torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count())}


# --- Ranges around module calls inside a submodule, so that operators find their module's path.
#
# Hooks exist only while a pipeline call is traced. A range is opened only inside an invocation that
# is being traced on the same thread (`open_range` has been called there).
#
# torch.compile guards the hooks of the modules that it compiles by their ids. So nothing is hooked
# inside a compiled module, and a module's hooks keep the same ids, for functions that call modules
# and that the script has compiled itself.


_ATTACHED: weakref.WeakSet[ModuleRanges] = weakref.WeakSet()
_OPEN = threading.local()  # .ranges: those open on this thread, the invocation's first: name,
# torch's range, and the session that it was entered in


def open_range(name: str) -> None:
    """Open the range of an invocation on this thread: takes 0.7 µs in a session, torch's
    `record_function` 6 µs."""
    from torch._C._profiler import _RecordFunctionFast

    stack = getattr(_OPEN, "ranges", None)
    if stack is None:
        stack = _OPEN.ranges = []
    opened = _RecordFunctionFast(name)
    opened.__enter__()
    stack.append((name, opened, running_session()))


def close_range(name: str) -> None:
    """Close the range of that name, and every range that an exception left open in it; nothing if
    none is open on this thread."""
    stack = getattr(_OPEN, "ranges", ())
    if not any(entry[0] == name for entry in stack):
        return
    while stack:
        last, opened, session = stack.pop()
        leave(opened, session)
        if last == name:
            return


def leave_modules() -> None:
    """Remove all hooks of the parent in a forked child, and close this thread's ranges."""
    for ranges in list(_ATTACHED):
        ranges.detach()
    stack = getattr(_OPEN, "ranges", [])
    while stack:
        leave(*stack.pop()[1:])


@dataclass(frozen=True, slots=True)
class _Hooks:
    """Our hooks before and after a module's forward, with torch's handles of both."""

    name: str
    before: Callable[..., None]
    after: Callable[..., None]
    handles: tuple[Any, Any]

    @classmethod
    def on(cls, module: Any, name: str) -> _Hooks:
        """Hook a module for the first time."""
        before, after = _calls(name)
        first = module.register_forward_pre_hook(before, prepend=True)
        return cls(
            name, before, after, (first, module.register_forward_hook(after, always_call=True))
        )

    def put_back(self, module: Any) -> None:
        """Hook the module again under the same ids: torch has no public way to do so."""
        first, second = (handle.id for handle in self.handles)
        module._forward_pre_hooks[first] = self.before  # noqa: SLF001
        module._forward_pre_hooks.move_to_end(first, last=False)  # noqa: SLF001
        module._forward_hooks[second] = self.after  # noqa: SLF001
        module._forward_hooks_always_called[second] = True  # noqa: SLF001

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


class ModuleRanges:
    """Ranges around the calls of the modules below `root`, named by their path from it."""

    def __init__(self, root: Any) -> None:
        self._root = weakref.ref(root)
        self._attached = False
        self._known: ByIdentity[_Hooks] = ByIdentity()
        self._there: list[_Hooks] = []
        self._wraps = Wraps()
        self.classes: dict[str, str] = {}  # by path from the root, "" for the root
        self.packed: dict[str, str] = {}  # shapes of packed weights, likewise

    def __len__(self) -> int:
        return len(self._there)

    def attach(self) -> None:
        """Hook the root's current modules; nothing if they are hooked already."""
        root = self._root()
        if self._attached or root is None:
            return
        self._attached = True
        _ATTACHED.add(self)
        modules = {"": root}
        for path, module in _modules_below(root):
            self._hook(f"{MODULE}{path}", module)
            modules[path] = module
        self.classes = {path: class_name(module) for path, module in modules.items()}
        packed = {path: packed_shapes(module) for path, module in modules.items()}
        self.packed = {path: shapes for path, shapes in packed.items() if shapes}
        for move in moves(modules, closed=is_one_piece):
            self._wraps.around(move.owner, move.method, _around_move(move))

    def detach(self) -> None:
        """Restore the modules; again without effect."""
        while self._there:
            self._there.pop().remove()
        self._wraps.undo()
        self._attached = False
        _ATTACHED.discard(self)

    def _hook(self, name: str, module: Any) -> None:
        if is_compiled(module):
            self._wraps.around(module, "_compiled_call_impl", _around(name))
            return
        known = self._known.get(module)
        if known is not None and known.name == name:
            known.put_back(module)
        else:
            known = self._known[module] = _Hooks.on(module, name)
        self._there.append(known)


def _calls(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """Create the hooks before and after a module's forward. torch.compile compiles them to
    nothing."""
    import torch
    from torch._C._profiler import _RecordFunctionFast

    compiling = torch.compiler.is_compiling

    def before(_module: Any, _args: Any) -> None:
        if compiling():
            return
        stack = getattr(_OPEN, "ranges", None)
        if stack:
            session = running_session()
            if session:  # a profiler of the script may have been started in this call
                opened = _RecordFunctionFast(name)
                opened.__enter__()
                stack.append((name, opened, session))

    def after(_module: Any, _args: Any, _output: Any) -> None:
        if compiling():
            return
        stack = getattr(_OPEN, "ranges", None)
        if not stack:
            return
        if stack[-1][0] is name:
            leave(*stack.pop()[1:])
        else:
            close_range(name)

    return before, after


def _around(name: str) -> Callable[..., Any]:
    def around(original: Any, args: Any, kwargs: Any) -> Any:
        if not getattr(_OPEN, "ranges", None):
            return original(*args, **kwargs)
        open_range(name)
        try:
            return original(*args, **kwargs)
        finally:
            close_range(name)

    return around


def _around_move(move: Move) -> Callable[..., Any]:
    def around(original: Any, args: Any, kwargs: Any) -> Any:
        nbytes = _bytes_of(move) if getattr(_OPEN, "ranges", None) else 0
        if not nbytes:
            return original(*args, **kwargs)
        name = f"{WEIGHTS}{move.kind} {nbytes} {move.path}"
        open_range(name)
        try:
            return original(*args, **kwargs)
        finally:
            close_range(name)

    return around


def _bytes_of(move: Move) -> int:
    """The number of bytes that a move will move; 0 for an unknown version of a library's hook."""
    try:
        return move.nbytes()
    except Exception as error:  # noqa: BLE001 - the user's program goes on
        let_pass(error)
        return 0


def _modules_below(root: Any) -> Iterator[tuple[str, Any]]:
    """Path and module of everything called below `root`, each module once, under its first path.

    Modules that torch.compile has compiled, or a method of which, and TorchScript modules are one
    piece: nothing inside is called.
    """
    import torch

    never_called = (torch.nn.ModuleList, torch.nn.ModuleDict)
    for path, module in with_paths(root, is_one_piece):
        if path and not isinstance(module, never_called):
            yield path, module


def class_name(module: Any) -> str:
    """The class of a module, without torch.compile's wrapper."""
    return type(getattr(module, "_orig_mod", module)).__name__


def is_one_piece(module: Any) -> bool:
    """Whether nothing inside the module is called as a module: it is compiled, or TorchScript."""
    import torch

    wrapped = type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")
    if wrapped or is_compiled(module) or isinstance(module, torch.jit.ScriptModule):
        return True
    own = [value for value in vars(module).values() if is_function(value)]
    return any(_compiles(method) for method in (module.forward, *own))


def _compiles(method: Any) -> bool:
    """Whether torch.compile made `method`; torch.compiler.disable marks its results likewise."""
    made = hasattr(method, "_torchdynamo_orig_callable")
    return made and not getattr(method, "_torchdynamo_disable", False)


# --- The methods besides `forward` by which a module is entered: those that call its children.
#
# Examples are `encode` and `decode` of a VAE, `get_image_features` of a language model, a sampler's
# `sample`. What a method calls is read from its source; nothing is executed. A method that calls
# the module itself (`generate`) is not one: that enters by `forward`. But a generating model of
# transformers may call its encoder past `forward`, so its `get_encoder` is one.


ENCODER = "get_encoder"

_FRAMEWORK = "torch."  # whose classes have no such methods
_DEEPEST = 6  # methods that call one another
_SUPER = "super()"
_OWN_WAYS = ("encode", "decode")  # if it has these, `forward` is not used
_FEATURES = "_features"


def entry_points(module: Any) -> tuple[str, ...]:
    """`forward`, and the public methods of the module's class that call one of its children, except
    steps of `forward` itself, since torch.compile would have to compile through their hooks."""
    inner = getattr(module, "_orig_mod", module)
    kind: Any = type(inner)
    steps = _called_by(kind, "forward", set())
    methods = (
        name
        for name in _public_methods(kind)
        if (name not in steps or name.startswith(_OWN_WAYS) or name.endswith(_FEATURES))
        and _calls_child(inner, name, 0)
    )
    found = ("forward", *(name for name in methods if name != ENCODER), *_features_below(module))
    return (*found, ENCODER) if encoder_of(module) is not None else found


def _features_below(module: Any) -> Iterator[str]:
    """The methods of a generating model's base by which `generate` encodes images and sounds before
    its loop: `model.get_image_features`."""
    if not callable(getattr(module, "generate", None)) or is_one_piece(module):
        return
    try:
        base = module.base_model
    except Exception as error:  # noqa: BLE001 - the user's program goes on
        let_pass(error)
        return
    for name, below in children(module):
        if below is base and not is_one_piece(below):
            for method in _public_methods(_class_of(below)):
                if method.endswith(_FEATURES) and _calls_child(below, method, 0):
                    yield f"{name}.{method}"


def encoder_of(module: Any) -> Any:
    """The encoder that the module's `generate` calls directly; None if there is none, or the module
    is compiled."""
    if not callable(getattr(module, "generate", None)) or is_one_piece(module):
        return None
    try:
        found = getattr(module, ENCODER)()
    except Exception as error:  # noqa: BLE001 - the user's program goes on
        let_pass(error)
        return None
    below = found is not module and any(found is one for one in every(module))
    return found if below and callable(found) else None


def _called_by(kind: Any, name: str, found: set[str]) -> set[str]:
    """Add to `found` the methods of a class that the method `name` calls, directly or through
    others."""
    function = _function(kind, name)
    for path in _called(function) if function is not None else ():
        if len(path) == 1 and path[0] not in found and path[0] in _all_methods(kind):
            found.add(path[0])
            _called_by(kind, path[0], found)
    return found


@functools.lru_cache(maxsize=512)
def _public_methods(kind: Any) -> tuple[str, ...]:
    """The public methods that classes outside torch define, sorted by name."""
    names = set()
    for base in kind.__mro__:
        if f"{base.__module__}.".startswith(_FRAMEWORK) or base is object:
            continue
        names |= {n for n, value in vars(base).items() if inspect.isfunction(value)}
    return tuple(sorted(n for n in names if not n.startswith("_") and n != "forward"))


def _calls_child(module: Any, name: str, depth: int, kind: type | None = None) -> bool:
    """Whether the method `name` of `module` calls a module below it, directly or through other
    methods. `kind`: the class that defines it, if not the module's own."""
    function = _function(kind or type(module), name)
    if function is None or depth > _DEEPEST or not _may_reach(module, function, {name}):
        return False
    return any(_reaches(module, path, depth, name) for path in _called(function))


def _function(kind: type, name: str) -> Any:
    """The function of a method without its decorators; None if it is not a Python function."""
    method = getattr(kind, name, None)
    function = inspect.unwrap(method) if inspect.isfunction(method) else None
    return function if hasattr(function, "__code__") else None


def _may_reach(module: Any, function: Any, seen: set[str]) -> bool:
    """Whether a method, or a method of the same class that it may call, uses the name of a child.
    If not, its source need not be read."""
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


@functools.lru_cache(maxsize=512)
def _all_methods(kind: Any) -> frozenset[str]:
    """Names of the methods that classes outside torch define, except those that are hooked
    anyway."""
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
    if child(owner, last) is not None:  # a child, which is called
        return True
    if owner is module:
        return last not in ("forward", caller) and _calls_child(owner, last, depth + 1)
    return last == "forward" or _calls_child(owner, last, depth + 1)


@functools.lru_cache(maxsize=4_096)
def _called(function: Any) -> tuple[tuple[str, ...], ...]:
    """The calls of a method on `self`, as attribute paths, including children that it loops over
    and calls. Empty without its source."""
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
    """The path in `value`: `self.a.b` and `self.a[0].b` give `a`, `b`; `super().a` gives `super()`,
    `a`."""
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


# --- Modules that a pipeline call may execute outside captured calls: live modules, and pieces of
# captured ones.
#
# Nothing inside compiled code is hooked, and once anything is compiled, only whole compiled modules
# are: torch.compile guards hooks.


_DEPTH = 2  # levels of pieces below a captured module
_COMPILER_MODULES = ("torch.fx.", "torch._")
_GRAPHS = "torch.fx.graph_module"


def outside(captured: Mapping[str, Any], alive: Sequence[Any]) -> Iterator[tuple[str, str, Any]]:
    """Name, method and module of each uncaptured module among those `alive`, and of each piece of a
    captured one; the name is "" to use the script's variable."""
    import torch

    owners = {n: owner for n, owner in captured.items() if isinstance(owner, torch.nn.Module)}
    inside = {id(below) for owner in owners.values() for below in every(owner)}
    compiled = _has_compiled()
    for name, owner in owners.items():
        if not compiled and not is_one_piece(owner):
            entered = encoder_of(owner)
            yield from (one for one in _pieces(name, owner, _DEPTH) if one[2] is not entered)
    modules = [one for one in alive if issubclass(type(one), torch.nn.Module)]
    for module in outermost(modules):
        where = type(module).__module__
        own = where.startswith(_COMPILER_MODULES) and not is_one_piece(module)
        own = own and (compiled or where != _GRAPHS)  # else the script's: nothing else makes any
        if own or any(id(below) in inside for below in every(module)):
            continue
        if not compiled or is_one_piece(module):
            yield "", "forward", module


def _pieces(name: str, module: Any, depth: int) -> Iterator[tuple[str, str, Any]]:
    for child_name, below in children(module):
        path = f"{name}.{child_name}"
        yield path, "forward", below
        if depth > 1 and not (is_compiled(below) or is_one_piece(below)):
            yield from _pieces(path, below, depth - 1)


def _has_compiled() -> bool:
    """Whether torch.compile has compiled anything in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", None)
    return bool(counters and counters.get("frames"))
