"""Real diffusers pipelines through the environment variable alone, in a script of their own."""

from __future__ import annotations

import signal
import sys

import pytest

from profiler.events import NO_STEP
from tests.capture.switched_on import Environment, labels, losses, whole

pytest.importorskip("diffusers", reason="needs the torch extra")
pytest.importorskip("torch", reason="needs the torch extra")

pytestmark = pytest.mark.torch

SCRIPT = """
    import tests.capture.tiny_diffusers as tiny

    sd3, flux = tiny.quiet(tiny.sd3()), tiny.quiet(tiny.flux())
    classes = [type(sd3), type(flux)]
    sd3("a cat", num_inference_steps=2, output_type="np", **tiny.SIZE)
    flux("a cat", num_inference_steps=1, output_type="np", **tiny.SIZE)
    sd3.encode_prompt("a", "a", "a", do_classifier_free_guidance=False)

    import profiler
    print(profiler.done().name)
    print([type(pipe) is cls for pipe, cls in zip([sd3, flux], classes)])
    print([vars(cls)["__call__"].__code__.co_filename.count("profiler") for cls in classes])
    sd3("a cat", num_inference_steps=1, output_type="np", **tiny.SIZE)
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    return Environment(tmp_path_factory.mktemp("environment")).at(folder)


def encoded(count, *branches):
    names = ("text_encoder", "text_encoder_2", "text_encoder_3")[:count]
    return [(name, "encode", branch, NO_STEP) for branch in branches for name in names]


def test_two_pipelines_in_one_script(scripts):
    """Every call of both pipelines is in the run with its labels, a prompt encoded by itself too;
    with `done()` pipelines and classes are as they were, and nothing more is recorded."""
    ended = scripts.run(SCRIPT, RBLN_PROFILER_CONFIG='{"ops": "none"}')
    assert ended.code == 0, ended.err
    name, instances, classes = ended.out.splitlines()[-3:]
    assert name == ended.bundle.name
    assert (instances, classes) == ("[True, True]", "[0, 0]")
    assert labels(ended.bundle) == [
        *encoded(3, "prompt", "negative_prompt"),
        *(("transformer", "denoise", "batched", step) for step in range(2)),
        ("vae", "decode", "", NO_STEP),
        *encoded(2, "prompt"),
        ("transformer", "denoise", "cond", 0),
        ("vae", "decode", "", NO_STEP),
        *encoded(3, "prompt"),
    ]
    assert losses(ended.bundle) == []
    pipelines = "StableDiffusion3Pipeline, FluxPipeline"
    assert whole(ended.bundle).info.pipeline == pipelines


INTERRUPTED = """
    import os, signal
    import tests.capture.tiny_diffusers as tiny

    def after_step(pipe, step, timestep, arguments):
        if step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return arguments

    sd3 = tiny.quiet(tiny.sd3())
    sd3("a cat", num_inference_steps=4, callback_on_step_end=after_step, **tiny.SIZE)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_sigterm_in_the_middle_of_a_pipeline_call(scripts, tmp_path):
    """The calls that had ended are in a whole bundle with their operators, though torch's
    profiler was still running for the pipeline call that was cut short."""
    ended = scripts.run(INTERRUPTED, RBLN_PROFILER_DIR=str(tmp_path / "traces"))
    assert ended.code == -signal.SIGTERM
    (bundle,) = (tmp_path / "traces").iterdir()
    assert labels(bundle) == [
        *encoded(3, "prompt", "negative_prompt"),
        *(("transformer", "denoise", "batched", step) for step in range(2)),
    ]
    assert all(entry.commands > 0 for entry in whole(bundle).calls)
    assert losses(bundle) == [("aborted_run", "the run ended with SIGTERM")]
