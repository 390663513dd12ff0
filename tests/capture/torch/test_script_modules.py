"""Modules that a script calls outside pipelines: which are noticed, and under which names."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

import profiler

torch = pytest.importorskip("torch", reason="needs the torch extra")

from profiler.capture.patching import ClassPatches, Wraps  # noqa: E402
from profiler.capture.pipelines.script_objects import held_around, names_of  # noqa: E402
from profiler.capture.torch.backend import ScriptModules  # noqa: E402
from profiler.capture.torch.model_settings import is_whole  # noqa: E402
from profiler.capture.torch.modules import SHALLOW_COPIES  # noqa: E402

pytestmark = pytest.mark.torch

NETS = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.b(self.a(x))

    class Vae(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = Net()

        def decode(self, x):
            return self.decoder(x)

    class Sampler:
        timesteps = range(4)

        def step(self, x):
            return x / 2
"""


class Net(torch.nn.Module):
    """A module of the script's own, of two layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.b(self.a(x))


class Incomparable(Net):
    """A module that has no hash and cannot be compared: torch cannot list it."""

    def __eq__(self, other):
        raise RuntimeError("compared")

    def __hash__(self):
        raise RuntimeError("hashed")


class Process:
    """Notes what it is told of, with names."""

    def __init__(self):
        self.used, self.small = [], []

    def use_parts(self, parts, caller):
        self.used.append(names_of(parts, caller))

    def held(self, parts, caller):
        return held_around(parts, caller)

    def pass_over(self, parts, caller):
        self.small += names_of(parts, caller)


@pytest.fixture
def process():
    process = Process()
    watcher = ScriptModules(process)
    before = vars(torch.nn.Module)["__init__"], vars(torch.nn.Module)["__call__"]
    watcher.watch(torch.nn.modules.module)
    torch.nn.ReLU()(torch.ones(1))  # what other tests have left
    process.used.clear()
    process.small.clear()
    yield process
    watcher.undo()
    assert before == (vars(torch.nn.Module)["__init__"], vars(torch.nn.Module)["__call__"])


def test_the_outermost_are_noticed_on_the_first_call(process):
    """Under their variables' names, all at once; later calls find nothing of ours."""

    def script(seen):
        reader, writer = Net(), Net()
        seen.append(torch.nn.Module.__call__)
        reader(torch.ones(1, 4))
        seen.append(torch.nn.Module.__call__)
        return writer(writer(torch.ones(1, 4)))

    call, seen = torch.nn.Module.__call__, []
    script(seen)
    assert [list(found) for found in process.used] == [["reader", "writer"]]
    assert [found is call for found in seen] == [False, True]


def test_what_is_put_into_a_known_module_later_is_part_of_it(process):
    """As adapters are."""

    def script():
        net = Net()
        net(torch.ones(1, 4))
        net.a = torch.nn.Sequential(net.a, Net())
        net(torch.ones(1, 4))

    script()
    assert [list(found) for found in process.used] == [["net"]]


def test_a_known_module_that_later_holds_one_without_a_hash(process):
    """It and modules that are made after it are recorded as others are, and nobody asks whether
    two are equal."""

    def script():
        net, x = Net(), torch.ones(1, 4)
        net(x)
        net.a = Incomparable()
        later, alone, twin = Net(), Incomparable(), Incomparable()
        return torch.equal(twin(alone(later(net(x)))), twin.b(twin.a(alone(later(net(x))))))

    assert script()
    assert [list(found) for found in process.used] == [["net"], ["later", "alone", "twin"]]


def test_what_is_too_small_is_not_handed_over(process):
    """A container of torch's with one model in it is looked into; a layer alone is none."""
    layer, holder = torch.nn.Linear(4, 4), torch.nn.Sequential(Net(), torch.nn.ReLU())
    holder(layer(torch.ones(1, 4)))
    torch.nn.Tanh()(torch.ones(1))
    assert process.small == ["Linear", "ReLU", "Tanh"]
    assert [list(found) for found in process.used] == [["Net"]]
    assert process.used[0]["Net"] is holder[0]
    assert is_whole(torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)))
    assert not is_whole(torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU()))


class Waiting(Process):
    """Calls a module of its own while it is told of some, and waits for `awaited()`."""

    def __init__(self, awaited):
        super().__init__()
        self.awaited, self.own = awaited, Net()

    def use_parts(self, parts, caller):
        super().use_parts(parts, caller)
        self.own(torch.ones(1, 4))
        self.awaited()


def test_a_look_that_waits_for_a_thread_that_waits_for_it(monkeypatch):
    """The other thread's calls go on after a time, the first that waits alone; the looking thread
    itself may call modules meanwhile."""
    monkeypatch.setattr("profiler.capture.torch.backend._PATIENCE_S", 0.01)
    done = []

    def other():
        done.extend(net(torch.ones(1, 4)) for _ in range(3))

    thread = threading.Thread(target=other)
    net = Net()

    def awaited():
        thread.start()
        thread.join(timeout=120)
        assert len(done) == 3

    process = Waiting(awaited)
    watcher = ScriptModules(process)
    before = vars(torch.nn.Module)["__init__"], vars(torch.nn.Module)["__call__"]
    try:
        watcher.watch(torch.nn.modules.module)
        net(torch.ones(1, 4))
    finally:
        watcher.undo()
    assert len(process.used) == 1
    assert not thread.is_alive()
    assert before == (vars(torch.nn.Module)["__init__"], vars(torch.nn.Module)["__call__"])


def test_names_are_attributes_then_variables_then_classes():
    """A key of a dict is as good as an attribute."""

    class Holder:
        def __init__(self):
            self.painter = Net()

    def script():
        holder, models, alone = Holder(), {"thinker": Net()}, Net()
        aliased = holder.painter
        return list(names_of([models["thinker"], aliased, alone, Net()], sys._getframe()))

    assert script() == ["thinker", "painter", "alone", "Net"]


def test_looking_for_names_keeps_nothing_and_changes_no_locals():
    """What a function deletes is freed, and what it got from `locals()` stays as it was."""

    def deleting():
        net = Net()
        names_of([net], sys._getframe())
        gone = weakref.ref(net)
        del net
        return gone

    def asking():
        before = locals()
        net = Net()
        return list(names_of([net], sys._getframe())), list(before)

    assert deleting()() is None
    assert asking() == (["Net"], [])


def run(tmp_path, script, *options):
    path = tmp_path / "script.py"
    path.write_text(dedent(NETS) + dedent(script), encoding="utf-8")
    command = [sys.executable, "-m", "profiler", "record", "--out", str(tmp_path / "traces")]
    done = subprocess.run(
        [*command, *options, "--", sys.executable, str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, profiler.load(tmp_path / "traces")


def test_a_loop_of_ones_own(tmp_path):
    """A transformer that is called four times beside a scheduler, and `vae.decode`: four calls and
    one, with steps; a module in another is part of that one."""
    script = """
        def main():
            sampler, transformer, vae = Sampler(), Net(), Vae()
            x = torch.ones(1, 4)
            for _ in sampler.timesteps:
                predicted = transformer(x)
                x = sampler.step(predicted)
            print(vae.decode(x).shape)

        main()
    """
    out, recorded = run(tmp_path, script, "--ops", "none")
    assert out == "torch.Size([1, 4])\n"
    assert recorded.calls.select("submodule", "stage", "step").rows() == [
        *(("transformer", "denoise", step) for step in range(4)),
        ("vae", "decode", -1),
    ]
    guess = [(drop.kind, drop.where, drop.count) for drop in recorded.drops]
    assert guess == [("doubtful_label", "transformer", 4)]  # its `step` is given no latents
    (made,) = recorded.info.generations
    assert (made.scheduler.name, made.steps, made.pipelines) == ("Sampler", 4, ())
    assert (made.batch, made.width, made.denoiser_passes) == (None, None, None)  # nobody tells


def test_what_is_too_small_is_stated_in_coverage(tmp_path):
    """A layer that the script holds beside a transformer, before and after that: with its calls,
    under its name; nothing is captured of it."""
    script = """
        class Engine:
            def __init__(self):
                self.proj_in, self.act = torch.nn.Linear(4, 4), torch.nn.SiLU()
                self.transformer = Net()

            def generate(self, x):
                return self.act(self.transformer(self.proj_in(x)))

        engine = Engine()
        for _ in range(3):
            engine.generate(torch.ones(1, 4))
    """
    _, recorded = run(tmp_path, script, "--ops", "none")
    assert recorded.calls["submodule"].to_list() == ["transformer"] * 3
    measured = recorded.info.coverage
    assert {one.name: one.calls for one in measured.uncaptured} == {"proj_in": 3, "act": 3}
    assert measured.captured_ns == recorded.calls["duration_ns"].sum()


def test_graphs_of_a_scripts_own(tmp_path):
    """What torch.export, torch.fx and torch.jit have made of a model is a submodule as the model
    was, compiled or not; what torch.compile makes for itself is none."""
    script = """
        x = torch.ones(1, 4)
        exported = torch.export.export(Net().eval(), (x,)).module()
        traced, scripted = torch.fx.symbolic_trace(Net()), torch.jit.script(Net())
        compiled = torch.compile(Net(), backend="aot_eager")
        graph = torch.export.export(Net().eval(), (x,)).module()
        wrapped = torch.compile(graph, backend="aot_eager")
        placed = torch.fx.symbolic_trace(Net())
        placed.compile(backend="aot_eager")
        for _ in range(2):
            for called in (exported, traced, scripted, compiled, wrapped, placed):
                called(x)
    """
    _, recorded = run(tmp_path, script, "--ops", "none")
    names = ["exported", "traced", "scripted", "compiled", "wrapped", "placed"]
    assert recorded.calls["submodule"].to_list() == names * 2
    assert set(recorded.info.submodules) == set(names)


def test_hooked_modules_are_traced_and_exported_but_not_scripted(tmp_path):
    """A known limit (docs/known-limits.md); afterwards they are scripted again."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    with profiler.profile({"net": net}, out=tmp_path, ops="none"):
        with pytest.raises(AttributeError):
            torch.jit.script(net)
        assert torch.jit.trace(net, torch.ones(1, 4)) is not None
        assert torch.export.export(net, (torch.ones(1, 4),)) is not None
    assert torch.jit.script(net) is not None


def test_compiled_modules_are_compiled_once(tmp_path):
    """Those in torch.compile, in place and as a function: dynamo's counters are those without us,
    and each call is one of the submodule."""
    script = """
        import sys
        from torch._dynamo.utils import counters

        class Other(Net):
            def forward(self, x):
                return self.a(x)

        class Third(Net):
            def forward(self, x):
                return self.b(x)

        wrapped, placed, inner = torch.compile(Net(), backend="eager"), Other(), Third()
        placed.compile(backend="eager")
        function = torch.compile(lambda x: inner(x), backend="eager")
        for _ in range(3):
            for called in (wrapped, placed, function):
                called(torch.ones(1, 4))
        found = {kind: dict(counters[kind]) for kind in ("stats", "frames", "graph_break")}
        print(found)
    """
    out, recorded = run(tmp_path, script, "--ops", "none")
    plain = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, check=True
    )
    assert out == plain.stdout
    assert recorded.calls["submodule"].to_list() == ["wrapped", "placed"] * 3


def test_what_runs_before_a_pipelines_first_call_is_not_seen(tmp_path):
    """A known limit (docs/known-limits.md): of two uses of the UNet alone that behind the pipeline
    call is recorded; `profiler.profile` hooks it at once."""
    script = """
        from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
        sizes = {"sample_size": 8, "block_out_channels": (8,), "norm_num_groups": 4}
        blocks = {"down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",)}
        pipe = DDPMPipeline(UNet2DModel(**sizes, **blocks, layers_per_block=1), DDPMScheduler())
        pipe.set_progress_bar_config(disable=True)
        once = lambda: pipe.unet(torch.ones(1, 3, 8, 8), 1)
        with torch.no_grad():
            once()
            pipe(num_inference_steps=2)
            once()
            import profiler
            with profiler.profile(pipe, out="mine", ops="none"):
                once()
    """
    pytest.importorskip("diffusers", reason="needs the torch extra")
    _, recorded = run(tmp_path, script, "--ops", "none")
    assert recorded.calls["pipeline"].to_list() == [0, 0, -1]
    assert len(profiler.load(tmp_path / "mine").calls) == 1


class Codec(Net):
    """A module with further ways into it, and a setting that is no weight."""

    scale = 1.0

    def encode(self, x):
        return self.a(x) * self.scale

    def decode(self, x):
        return self.b(self.a(x)) * self.scale


def test_a_copy_of_a_hooked_module_is_not_recorded(tmp_path):
    """A known limit (docs/known-limits.md), of copies and pickles of every kind and the replicas of
    DataParallel; they compute by their own settings, with their own methods."""
    codec, x = Codec(), torch.ones(1, 4)
    codec.encode = replaced = functools.partial(Codec.encode, codec)
    with profiler.profile({"codec": codec}, out=tmp_path, ops="none") as recorded:
        expected = codec(x)
        shallow = [copy.copy(codec), codec._replicate_for_data_parallel()]
        assert [one.encode for one in shallow] == [replaced] * 2
        for copied in (*shallow, copy.deepcopy(codec), pickle.loads(pickle.dumps(codec))):
            copied.scale = 2.0
            assert torch.equal(copied(x), expected)
            assert torch.equal(copied.decode(x), 2 * expected)
    assert vars(codec)["encode"] is replaced
    assert len(profiler.load(recorded.path).calls) == 1


def test_a_module_without_a_hash_beside_a_pipeline(tmp_path):
    """It costs the recording of others nothing."""
    net, x, beside = Net(), torch.ones(1, 4), Incomparable()
    with profiler.profile({"net": net}, out=tmp_path, ops="none") as recorded:
        net(x)
        beside(x)
    loaded = profiler.load(recorded.path)
    assert (loaded.calls["submodule"].to_list(), list(loaded.drops)) == (["net"], [])


@dataclass  # which compares its instances by their parts, and gives them no hash
class Pair:
    """A pipeline of two modules."""

    reader: torch.nn.Module
    writer: torch.nn.Module

    def __call__(self, x):
        return self.writer(self.reader(x))


def test_a_pipeline_with_parts_without_a_hash(tmp_path, capsys):
    """All of it is recorded: parts, modules in them, and what replaces one between two calls."""
    pair, x = Pair(Net(), Incomparable()), torch.ones(1, 4)
    pair.reader.b = torch.nn.Sequential(Incomparable(), Incomparable())
    pair.encode_prompt = Incomparable()  # a module in place of a method
    plain = pair(x)
    with profiler.profile(pair, out=tmp_path) as recorded:
        same = torch.equal(pair(x), plain)
        pair.writer = Incomparable()
        pair(x)
    assert same
    loaded = profiler.load(recorded.path)
    parts, inside = ["reader", "writer"], ["a", "b.0.a", "b.0.b", "b.1.a", "b.1.b", "a", "b"]
    assert loaded.calls["submodule"].to_list() == parts * 2
    assert loaded.commands["module"].to_list() == inside * 2
    assert list(loaded.drops) == []
    assert loaded.info.submodules["writer"].weight_bytes == 2 * 4 * (4 * 4 + 4)
    assert Incomparable.__name__ not in capsys.readouterr().err


def test_equal_pipelines_are_recorded_apart(tmp_path):
    """Each under its own name, although they and their modules count as equal."""

    class Same(Net):
        def __eq__(self, other):
            return isinstance(other, Same)

        def __hash__(self):
            return 1

    first, second = Pair(Same(), Same()), Pair(Same(), Same())
    assert first == second
    with profiler.profile([first, second], out=tmp_path, ops="none") as recorded:
        second(first(torch.ones(1, 4)))
    calls = profiler.load(recorded.path).calls
    own = ["reader", "writer"]
    assert calls["submodule"].to_list() == own + [f"{name}@Pair" for name in own]


class Named(Codec):
    """A module that passes its state on by name."""

    def __setstate__(self, state):
        super().__setstate__(state=state)


def test_other_modules_are_copied_as_ever(tmp_path):
    """While a module's methods are hooked, those that are not profiled take what they took, and
    nothing stays replaced, also if the hooking was interrupted between two methods."""
    named, before = Named(), dict(vars(torch.nn.Module))
    wraps, replace = Wraps(), ClassPatches.replace

    def interrupted(patches, owner, name, value):
        if patches:
            raise KeyboardInterrupt
        replace(patches, owner, name, value)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ClassPatches, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SHALLOW_COPIES.watch(wraps)
    assert dict(vars(torch.nn.Module)) != before
    wraps.undo()
    assert dict(vars(torch.nn.Module)) == before
    with profiler.profile({"codec": Codec()}, out=tmp_path, ops="none"):
        changed = [name for name, value in before.items() if vars(torch.nn.Module)[name] != value]
        for copied in (copy.copy(named), copy.deepcopy(named), pickle.loads(pickle.dumps(named))):
            assert torch.equal(copied.a.weight, named.a.weight)
    assert changed == ["__setstate__", "_replicate_for_data_parallel"]
    assert dict(vars(torch.nn.Module)) == before


def test_what_a_hooked_method_shows(tmp_path):
    """A known limit (docs/known-limits.md): our frames are between the script's. Its module is
    freed at the latest when garbage is collected."""
    codec = Codec()
    given = {"codec": codec}
    with profiler.profile(given, out=tmp_path, ops="none"):
        given.clear()
        with pytest.raises(TypeError) as failed:
            codec.decode(None)
        files = [Path(entry.path) for entry in failed.traceback]
        assert any("capture" in file.parts for file in files[1:-1])
        kept = weakref.ref(codec)
        del codec, failed, files
        gc.collect()
        assert kept() is None


@pytest.mark.parametrize(("before", "graphs"), [(False, [1, 1]), (True, [0, 0])])
def test_a_function_that_is_compiled_in_a_run_is_compiled_in_each(tmp_path, before, graphs):
    """A known limit (docs/known-limits.md), of functions that call a submodule's modules; one that
    was compiled before the runs is not compiled again."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    net, x = Net(), torch.ones(1, 4)
    function = torch.compile(lambda given: net.b(net.a(given)), backend="eager")
    if before:
        function(x)
    found = []
    for ops in ("all", "every:2"):
        counters.clear()
        with profiler.profile({"net": net}, out=tmp_path, ops=ops):
            for _ in range(4):
                function(x)
                net(x)
        found.append(counters["stats"]["unique_graphs"])
    assert found == graphs
