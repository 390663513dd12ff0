"""The torch backend: module hooks, torch.profiler, GPU event marks and GPU hardware.

Times between CUDA events have a resolution of 0.5 µs and are returned in ms.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

from profiler.capture.backend import (
    Backend,
    CallHooks,
    CompilationLog,
    DeviceMarks,
    StepCache,
    Watcher,
    Watching,
    device_name,
    notice,
)
from profiler.capture.imports import (
    collection_waits,
    import_ahead,
    tracked_instances,
    with_subclasses,
)
from profiler.capture.patching import (
    DETOUR,
    Around,
    ByIdentity,
    ClassPatches,
    Wraps,
    wraps_method,
)
from profiler.capture.torch.script_profilers import AUTOGRAD, KINETO, PROFILERS
from profiler.plugins import let_pass
from profiler.trace.events import ROOT_DEVICE

if TYPE_CHECKING:
    from profiler.capture.operator_source import Gaps, OperatorSource, SourceRequest
    from profiler.capture.overhead import EventCost
    from profiler.trace.manifest_fields import Device, SubmoduleSettings


# --- Calls of torch modules through their own hooks, and their devices.
#
# A module's `forward` is never replaced: hooks of diffusers and accelerate (offload, caching, group
# offload) replace it, before or after us, and must find the module unchanged. A module compiled by
# `module.compile()` is wrapped outside its compiled code, and our hooks do nothing while torch
# compiles through them.


_Begin = Callable[[tuple[Any, ...], Mapping[str, Any], FrameType], None]
_End = Callable[[Any], None]


def is_module(value: Any) -> bool:
    """Whether `value` is a torch module; does not import torch."""
    torch = sys.modules.get("torch")
    module = getattr(getattr(torch, "nn", None), "Module", None)
    return module is not None and isinstance(value, module)


def hook_module(wraps: Wraps, module: Any, begin: _Begin, end: _End, around: Around) -> None:
    """Call `begin(args, kwargs, caller)` and `end(output)` around each call of `module`. If the
    call failed, its exception is being handled at the end. torch reports no end for a BaseException
    such as KeyboardInterrupt: then the frame `caller` has ended, too.

    `around(original, args, kwargs)` replaces both if the module is compiled, or TorchScript. Undone
    with `wraps`.
    """
    from profiler.capture.torch.modules import is_compiled

    if is_compiled(module):
        wraps.around(module, "_compiled_call_impl", around)
        return
    if _is_script(module):  # which refuses hooks, and calls its instance's attribute
        wraps.around(module, "forward", around)
        return
    not_compiled(_Before.__call__, _After.__call__, inside=True)
    before, after = _Before(module, begin), _After(module, end)
    wraps.on_undo(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True).remove)
    wraps.on_undo(module.register_forward_hook(after, always_call=True).remove)


def not_compiled(*functions: Any, inside: bool = False) -> None:
    """Have dynamo start no graph at frames of these functions, nor, with `inside`, at frames that
    these call: its globals in our modules would keep the script's `__main__` alive at exit."""
    frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    if not hasattr(frames, "set_code_exec_strategy"):  # an older torch
        return
    skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT  # noqa: SLF001
    strategy = frames._FrameExecStrategy(skip, skip if inside else default)  # noqa: SLF001
    for function in functions:
        frames.set_code_exec_strategy(function.__code__, strategy)


def _is_script(module: Any) -> bool:
    """Whether the module is TorchScript."""
    script = getattr(sys.modules.get("torch.jit"), "ScriptModule", None)
    return script is not None and isinstance(module, script)


class _Hook:
    """A forward hook of `module`. A pickle or copy contains a function that does nothing instead,
    and needs no code of ours."""

    def __init__(self, module: Any, tell: Callable[..., None]) -> None:
        import torch

        self.compiling = torch.compiler.is_compiling
        self.module = weakref.ref(module)
        self.tell = tell

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class _Before(_Hook):
    def __call__(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.compiling() and called is self.module():
            self.tell(args, kwargs, sys._getframe(1))  # noqa: SLF001 - inspect's, without a check


class _After(_Hook):
    def __call__(self, called: Any, _: Any, output: Any) -> None:
        if not self.compiling() and called is self.module():
            self.tell(output)


def transparent(around: Around) -> Around:
    """Make `around` do nothing while torch compiles through it."""
    import torch

    compiling = torch.compiler.is_compiling

    def outside(original: Any, args: Any, kwargs: Any) -> Any:
        if compiling():
            return original(*args, **kwargs)
        return around(original, args, kwargs)

    return outside


def execution_device(module: Any) -> str:
    """The device of a module: its offload hook's, which may be an index, else that of its first
    weight."""
    hook = getattr(module, "_hf_hook", None)  # accelerate's
    for candidate in (hook, *getattr(hook, "hooks", ())):
        device = getattr(candidate, "execution_device", None)
        if device is not None:
            return _indexed(f"cuda:{device}" if isinstance(device, int) else device)
    from profiler.capture.torch.model_settings import every, own_tensors

    for kind in ("_parameters", "_buffers"):
        for one in every(module):
            for tensor in own_tensors(one, (kind,)):
                return device_name(tensor.device)
    return ROOT_DEVICE


def _holder(owner: Any, name: str) -> tuple[Any, str]:
    """The module that has a method, and its name there: `model.get_image_features`."""
    *path, method = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    return owner, method


def _indexed(device: Any) -> str:
    """A device as `kind:index`; `cuda` is this process's current one."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if str(device) == "cuda" and cuda is not None and cuda.is_initialized():
        return device_name(f"cuda:{cuda.current_device()}")
    return device_name(device)


# --- torch: modules, which report through forward hooks, and torch.profiler.


class Torch(Backend):
    """The backend of torch modules."""

    name = "torch"
    packages = ("torch",)
    whole = True
    allocations = True
    order = 1

    def owns(self, part: Any, owner: Any = None) -> bool:  # noqa: ARG002
        return is_module(part)

    def inside(self, part: Any) -> Iterable[Any]:
        from profiler.capture.torch.model_settings import every

        return every(part)

    def entry_points(self, part: Any) -> tuple[str, ...]:
        from profiler.capture.torch.modules import entry_points

        return entry_points(part)

    def open(self, request: SourceRequest) -> OperatorSource | None:
        """Open the source of a module. An untraced one has a source, too: it pauses the sessions of
        others during its calls."""
        from profiler.capture.torch.operators import TorchOperators, TorchPause

        if request.selection.nothing:
            return TorchPause(request.recorder)
        return TorchOperators.of(request)

    def event_cost(self, gaps: Gaps) -> EventCost | None:  # noqa: ARG002
        from profiler.capture.torch.operators import torch_event_cost

        return torch_event_cost()

    def step_cache(self) -> StepCache:
        from profiler.capture.torch.model_settings import StepCaches

        return StepCaches()

    def compilation_log(self) -> CompilationLog:
        from profiler.capture.torch.compile import DynamoLog

        return DynamoLog()

    def device(self, part: Any, owner: Any, name: str) -> str:  # noqa: ARG002
        return execution_device(part)

    def device_marks(self) -> DeviceMarks:
        from profiler.capture.torch.operators import StreamMarks

        return StreamMarks()

    def device_facts(self, device: str) -> Device | None:
        from profiler.capture.torch.model_settings import gpu

        return gpu(device)

    def unobserved(self) -> AbstractContextManager[Any]:
        """Without `__torch_function__` of the script's modes and classes of tensors."""
        import torch

        none: AbstractContextManager[Any] = torch._C.DisableTorchFunction()  # noqa: SLF001 - no public name
        return none

    def weight_bytes(self, part: Any) -> int | None:
        """Of its parameters and buffers, each once, and of what is packed."""
        from profiler.capture.torch.model_settings import every, is_lazy, own_tensors, stored_bytes

        if any(is_lazy(tensor) for module in every(part) for tensor in own_tensors(module)):
            return None
        return sum(stored_bytes(every(part)).values())

    def settings(self, part: Any) -> SubmoduleSettings | None:
        from profiler.capture.torch.model_settings import module_settings

        return module_settings(part)

    def method(self, owner: Any, name: str) -> Any:
        """The method `name`, of the original module if torch.compile has wrapped it; for
        `get_encoder` the encoder's `forward`."""
        inner = self._entered(owner, name)
        if inner is not None:
            owner, name = inner, "forward"
        owner, name = _holder(owner, name)
        return getattr(getattr(owner, "_orig_mod", owner), name)

    def seen(self, owner: Any, name: str) -> Any:
        from profiler.capture.torch.modules import is_compiled

        inner = self._entered(owner, name)
        if inner is not None:
            return inner if inner is not owner else is_compiled(owner)
        return super().seen(*_holder(owner, name))

    def hook_calls(self, wraps: Wraps, owner: Any, name: str, hooks: CallHooks) -> None:
        inner = self._entered(owner, name)
        if inner is not None:
            hook_module(wraps, inner, hooks.begin, hooks.end, hooks.around)
        else:
            self.hook_method(wraps, owner, name, hooks.around)

    def _entered(self, owner: Any, name: str) -> Any:
        """The module whose calls are calls of the method `name`: the owner for `forward`, its
        encoder for `get_encoder`; None if the method must be wrapped."""
        if name == "forward":
            return owner
        from profiler.capture.torch.modules import ENCODER, encoder_of

        return encoder_of(owner) if name == ENCODER else None

    def hook_method(self, wraps: Wraps, owner: Any, name: str, around: Around) -> None:
        """Wrap a method on the instance; the wrapper does nothing while torch compiles through
        it."""
        from profiler.capture.torch.modules import SHALLOW_COPIES

        SHALLOW_COPIES.watch(wraps)
        wraps.around(*_holder(owner, name), transparent(around))

    def executed_kinds(self) -> Sequence[type]:
        known = getattr(sys.modules.get("torch.nn"), "Module", None)
        return (known,) if isinstance(known, type) else ()

    def outside(
        self, captured: Mapping[str, Any], alive: Sequence[Any]
    ) -> Iterable[tuple[str, str, Any]]:
        if "torch.nn" not in sys.modules:
            return ()
        from profiler.capture.torch.modules import outside

        return outside(captured, alive)

    def watch(self, process: Watching) -> Watcher | None:

        return ScriptModules(process)


BACKEND = Torch()


# --- Modules that a switched-on script calls directly, outside pipelines: detected on the first
# call.
#
# New modules are noted. The next call of any module looks at all new ones: the outermost, and
# schedulers beside them, are passed on under the names of their variables, before the call
# continues. Other threads that call a module meanwhile wait, so that they find its hooks. Until the
# next new module, no code of ours runs.


_MODULE = "torch.nn.modules.module"  # defines Module
_AHEAD = ("profiler.capture.torch.operators", "profiler.capture.torch.model_settings")
_OWN = "profiler."
_OF_TORCH = "torch."
_COMPILER_AND_EXPORT_MODULES = ("torch.fx.", "torch._", "torch.onnx.", "torch.export.")
_EXPORTED = "ONNXTracedModule"  # torch.onnx.export calls this function of torch.jit._trace
_COMPILED = "torch._dynamo.eval_frame"  # defines what torch.compile returns
_GRAPHS = "torch.fx.graph_module"  # of a script that exports or traces, or of a compiler
_OTHER_WAYS = re.compile(r"(encode|decode)\w*|[a-z]\w*_features|generate")  # into a model
_MOST_LOOKS = 200  # at new modules; then the script is no longer watched
_PATIENCE_S = 10.0  # other threads wait this long for a look, which may in turn wait for them


class ScriptModules:
    """Watches torch's `Module` and reports to `process` what a script calls outside pipelines."""

    def __init__(self, process: Watching) -> None:
        self._process = process
        self._base: Any = None
        self._before: tuple[Any, Any] = (None, None)  # the original `__init__` and `__call__`
        self._new: list[weakref.ref[Any]] = []
        self._known: ByIdentity[bool] = ByIdentity()  # outermost ones, passed on
        self._ways = ClassPatches()  # methods that enter a module before every `__call__`
        self._classes: set[type] = set()
        self._looks = 0
        self._armed = False
        self._lock = threading.RLock()  # held during a look
        self._arming = threading.RLock()  # held while the classes are changed
        self._too_long = False  # a thread has stopped waiting for this look

    @property
    def libraries(self) -> dict[str, Callable[[Any], None]]:
        return {_MODULE: self.watch, AUTOGRAD: self._watch_profilers, KINETO: self._watch_profilers}

    def _watch_profilers(self, _: Any) -> None:
        PROFILERS.watch(self)

    def watch(self, module: Any) -> None:
        """Note new modules from now on, and existing ones; `module` defines `Module`."""
        if self._base is not None:
            return
        base = self._base = module.Module
        made = base.__init__
        self._before = (made, base.__call__)
        self._new = [weakref.ref(one) for one in tracked_instances(with_subclasses([base]))]

        @functools.wraps(made)
        def __init__(new: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            made(new, *args, **kwargs)
            if _is_compilers(new) and not _may_be_scripts(new):
                return  # in the middle of a call
            self._new.append(weakref.ref(new))
            import_ahead(*_AHEAD)
            if not self._armed:
                self._arm()
            if self._armed:
                self._arm_ways(type(new))

        not_compiled(__init__)
        not_compiled(ScriptModules._look, _is_compilers, _is_graph, inside=True)
        base.__init__ = __init__
        if self._new:
            self._arm()
            for kind in {type(found) for one in self._new if (found := one()) is not None}:
                self._arm_ways(kind)

    def forget(self) -> None:
        """Forget all modules, so that each is passed on at its next call."""
        self._lock, self._arming = threading.RLock(), threading.RLock()
        self._new += [weakref.ref(known) for known, _ in self._known.items()]
        self._known = ByIdentity()
        if self._new and self._base is not None:
            self._arm()

    def undo(self) -> None:
        """Restore the classes."""
        PROFILERS.leave(self)
        if self._base is not None:
            self._base.__init__, self._base.__call__ = self._before
            self._leave_ways()
            self._base, self._armed = None, False
            self._new, self._known = [], ByIdentity()

    def _arm(self) -> None:
        """Have the next call of any module look at the new ones."""
        if self._looks >= _MOST_LOOKS:
            self._new.clear()
            return
        original = self._before[1]

        @functools.wraps(original)
        def __call__(called: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            import torch  # complete by now

            traces = torch.compiler.is_compiling() or torch.jit.is_tracing()
            if not (traces or (_is_compilers(called) and not _is_graph(called))):
                self._look(sys._getframe(1))  # noqa: SLF001 - inspect's, without a check
            return original(called, *args, **kwargs)

        not_compiled(__call__)
        with self._arming:
            self._armed = True
            self._base.__call__ = __call__

    def _arm_ways(self, kind: type) -> None:
        """Make the next call of methods that bypass `__call__` look at new modules, too: their
        first module call would come too late."""
        if kind in self._classes:
            return
        self._classes.add(kind)
        for base in kind.__mro__:
            if f"{base.__module__}.".startswith(_OF_TORCH) or base is object:
                continue
            for name, method in list(vars(base).items()):
                known = base in self._classes and base is not kind
                if inspect.isfunction(method) and _OTHER_WAYS.fullmatch(name) and not known:
                    self._ways.replace(base, name, self._looking(name, method))
            self._classes.add(base)

    def _looking(self, name: str, original: Any) -> Any:
        @functools.wraps(original)
        def way(called: Any, *args: Any, **kwargs: Any) -> Any:
            import torch  # complete by now

            if torch.compiler.is_compiling() or torch.jit.is_tracing():
                return original(called, *args, **kwargs)
            self._look(sys._getframe(1))  # noqa: SLF001 - as above
            hooked = vars(called).get(name)
            if wraps_method(hooked, original):  # else it is the user's, and may call this
                return hooked(*args, **kwargs)  # `way` may be kept: `decode = vae.decode`
            return original(called, *args, **kwargs)

        not_compiled(way)
        setattr(way, DETOUR, (id(way), original))
        return way

    def _leave_ways(self) -> None:
        self._ways.undo()
        self._classes.clear()

    def _disarm(self) -> None:
        """Restore `__call__` and the other ways, unless another thread has made a module since."""
        with self._arming:
            if not self._armed and self._base is not None:
                self._base.__call__ = self._before[1]
                self._leave_ways()

    def _look(self, caller: FrameType) -> bool:
        """Pass on the new modules, since a module is called; returns whether that was done now, by
        this thread or by another one that it waited for."""
        looks = self._looks
        if not self._may_look():
            return False
        try:
            if not self._armed or self._base is None:
                return self._looks > looks
            self._armed = False
            references, self._new = self._new, []
            try:
                return self._passed_on(references, caller)
            finally:
                self._looks += 1
                self._too_long = False
                self._disarm()
        finally:
            self._lock.release()

    def _may_look(self) -> bool:
        """Take the lock of looks. A thread whose call is part of a recorded one does not wait for
        the look of another; False also if that one takes too long."""
        if self._lock.acquire(blocking=False):
            return True
        from profiler.capture.calls import scope

        if scope().call is not None or self._too_long:
            return False
        self._too_long = not self._lock.acquire(timeout=_PATIENCE_S)
        return not self._too_long

    def _passed_on(self, references: Iterable[weakref.ref[Any]], caller: FrameType) -> bool:
        if str(caller.f_globals.get("__name__")).startswith(_OWN):
            return False
        try:
            with collection_waits():
                alive = [found for r in references if (found := r()) is not None]
                self._hand_over(alive, caller)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            notice(f"modules outside pipelines are not recorded: {error}")
        return True

    def _hand_over(self, new: list[Any], caller: FrameType) -> None:
        from profiler.capture.torch.model_settings import every, small_modules, whole_modules
        from profiler.capture.torch.modules import outermost

        graphs = [module for module in new if _is_graph(module)]
        if graphs:
            scripts = {id(module) for module in self._process.held(graphs, caller)}
            new = [module for module in new if not _is_graph(module) or id(module) in scripts]
        held = {id(below) for module, _ in self._known.items() for below in every(module)}
        roots = [one for one in outermost(new) if id(one) not in held]
        for root in roots:
            self._known[root] = True
        found = [module for root in roots for module in whole_modules(root)]
        small = [module for root in roots for module in small_modules(root)]
        if found:
            self._process.use_parts(found, caller)
        if small:
            self._process.pass_over(small, caller)


def _is_compilers(module: Any) -> bool:
    """Whether a module is one that torch.compile, a tracer or an export makes around the user's."""
    where, name = type(module).__module__, type(module).__name__
    return (
        where.startswith(_COMPILER_AND_EXPORT_MODULES) and where != _COMPILED
    ) or name == _EXPORTED


def _is_graph(module: Any) -> bool:
    """Whether a module is a traced graph: `torch.export` and `torch.fx` return one to a script, and
    torch.compile creates some itself."""
    return type(module).__module__ == _GRAPHS


def _may_be_scripts(module: Any) -> bool:
    """Whether a new graph may be the script's: nothing is being compiled or exported now, and a
    script gets its graph only after that."""
    import torch
    from torch._guards import CompileContext, TracingContext

    busy = torch.compiler.is_compiling() or CompileContext.try_get() or TracingContext.try_get()
    return _is_graph(module) and not busy
