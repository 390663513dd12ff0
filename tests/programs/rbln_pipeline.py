"""Text to image on two NPUs with optimum-rbln: `rbln_pipeline.py WAY`."""

import hashlib
import multiprocessing
import os
import signal
import sys

import rebel
import torch
from optimum.rbln import RBLNStableDiffusion3Pipeline

from tests.capture import tiny_diffusers as tiny


def pipeline(**more):
    """Compiles a tiny Stable Diffusion 3."""
    tiny.sd3().save_pretrained("model")
    config = {
        "max_seq_len": 8,
        "image_size": (tiny.SIZE["height"], tiny.SIZE["width"]),
        "device": 1,
        "activate_profiler": True,
        "timeout": 60,
        "transformer": {"device": 0},
        "text_encoder_3": {"activate_profiler": False},
        "vae": {"device_map": {"decoder": 0}, "device": 1},
        **more,
    }
    made = RBLNStableDiffusion3Pipeline.from_pretrained("model", export=True, rbln_config=config)
    return tiny.quiet(made)


def image(pipe):
    """The hash of an image of two steps."""
    made = pipe(
        "a cat",
        negative_prompt="a dog",
        num_inference_steps=2,
        max_sequence_length=8,
        generator=torch.Generator().manual_seed(0),
        output_type="np",
    )
    return hashlib.sha256(made.images.tobytes()).hexdigest()


def here():
    pipe = pipeline()
    print(rebel.made)
    rebel.profiler.start()
    print(image(pipe))
    rebel.profiler.done()
    print(rebel.profiled)


def without_runtimes():
    pipe = pipeline(create_runtimes=False)
    try:
        image(pipe)
    except RuntimeError as error:
        print(str(error).splitlines()[0])


def serve(requests, answers):
    pipe = pipeline()
    while requests.get():
        answers.put(image(pipe))


def killed_worker():
    context = multiprocessing.get_context("spawn")
    requests, answers = context.Queue(), context.Queue()
    worker = context.Process(target=serve, args=(requests, answers), daemon=True)
    worker.start()
    for _ in range(2):
        requests.put(True)
        print(answers.get())
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
