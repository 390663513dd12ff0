"""Make `tiny_two_devices/` again: `python sample_traces/make_tiny.py` from the repository's root.

Two steps of the embedded Stable Diffusion 3 at 128x128 with guidance, the T5 encoder on a second
CPU device: 6 + 2 + 1 call files.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from profiler.capture.profile import profile
from profiler.pipelines.sd3 import StableDiffusion3Pipeline
from profiler.pipelines.tiny import default_model_folder

FOLDER = Path(__file__).resolve().parent
NAME = "tiny_two_devices"


def main() -> None:
    shutil.rmtree(FOLDER / NAME, ignore_errors=True)
    sys.argv = ["sample_traces/make_tiny.py"]
    pipeline = StableDiffusion3Pipeline.from_folder(
        default_model_folder(), devices={"text_encoder_3": "cpu:1"}
    )
    arguments = {"prompt": "a cat", "height": 128, "width": 128, "seed": 0}
    with profile(pipeline, out=FOLDER, name=NAME) as run:
        with run.warmup():
            pipeline(**arguments, num_inference_steps=1)
        pipeline(**arguments, num_inference_steps=2)


if __name__ == "__main__":
    main()
