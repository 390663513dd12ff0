"""Settings as pairs of text, and what a comparison says of them."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from profiler.analysis.provenance import generation_pairs, setting_pairs
from profiler.compare import compare_runs
from profiler.compare.tables import ComparisonNote
from profiler.trace import Generation, Offload, OffloadKind, Scheduler, SubmoduleSettings
from profiler.trace.manifest_fields import Adapter, Attention, Compiled, StepCache, WeightType
from tests.runs import make_call, make_info, make_run

PLAIN = SubmoduleSettings(weights={"bfloat16": WeightType(bytes=10, share=1.0)})


def test_pairs_of_submodules():
    """Every setting under the submodule's name; what is absent does not stand there."""
    rich = SubmoduleSettings(
        weights={
            "bfloat16": WeightType(bytes=90, share=0.9),
            "float32": WeightType(bytes=10, share=0.1),
        },
        attention=Attention(backends=("flash",), processors={"P": 3}, sdpa=("math",)),
        cache=StepCache(name="FirstBlockCache", parameters={"threshold": 0.05}),
        offload=Offload(kind=OffloadKind.MODEL, execution_device="cuda:0"),
        compiled=Compiled(modules=2, backend="inductor", mode="default", fullgraph=True),
        adapters={"style": Adapter(modules=4, active=True, ranks=(8, 16), scalings=(0.5,))},
    )
    assert setting_pairs({"unet": (rich,), "vae": (PLAIN,)}) == {
        "unet dtype": "bfloat16 90.0 %, float32 10.0 %",
        "unet attention": "flash (P)",
        "unet cache": "FirstBlockCache threshold=0.05",
        "unet offload": "model on=cuda:0",
        "unet compile": "parts modules=2 backend=inductor mode=default fullgraph=true",
        "unet adapters": "style rank=8/16 scaling=0.5",
        "vae dtype": "bfloat16",
        "sdpa kernels": "math",
    }


def test_pairs_of_calls_that_differ():
    """Values in order of the calls, each once."""
    one = Generation(steps=28, guidance_scale=3.5, width=64, height=32, batch=1)
    two = structs.replace(one, steps=20, scheduler=Scheduler(name="Euler", config={"shift": 3.0}))
    assert generation_pairs((one, two)) == {
        "steps": "28, 20",
        "guidance": "3.5",
        "batch": "1",
        "resolution": "64×32",
        "scheduler": "Euler shift=3",
    }


def _run(name, steps, settings, given):
    info = make_info(
        "capture",
        settings={"num_inference_steps": given, "eta": 0.5},
        generations=[{"steps": steps}],
        submodule_settings={"unet": [settings]},
    )
    run = make_run([make_call(0, "unet", 0, 10, step=0)], info=info)
    return replace(run, run_id=name)


def test_comparison_says_which_settings_differ():
    """Steps once, though the call was given them as well; a cache that only one side has; nothing
    of what is the same."""
    plain = {"weights": {"float32": {"bytes": 8, "share": 1.0}}}
    cached = {**plain, "cache": {"name": "MagCache", "parameters": {"threshold": 0.06}}}
    notes = compare_runs([_run("a", 28, plain, 28)], [_run("b", 20, cached, 20)]).notes
    found = [note for note in notes if note.code is ComparisonNote.SETTINGS_DIFFER]
    pairs = [dict(pair.values) for pair in found[0].values["pairs"]]
    assert pairs == [
        {"name": "steps", "left": "28", "right": "20"},
        {"name": "unet cache", "left": "none", "right": "MagCache threshold=0.06"},
    ]
