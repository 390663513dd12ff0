"""Requests to the embedded SD3 for real: one after another, or a closed loop of several at once.

Devices run calls as a server does: one worker a device, first come first served. Each request in
flight has a thread and a pipeline of its own; sessions are shared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from profiler.pipelines.pipeline import (
    Array,
    FlowMatchEulerDiscreteScheduler,
    OnnxPart,
    PromptEmbeddings,
    load_components,
    t5_embeddings,
)
from profiler.pipelines.sd3 import StableDiffusion3Pipeline, clip_embeddings, join_embeddings
from profiler.pipelines.tiny import default_model_folder
from profiler.pipelines.tokenizer import as_prompts

PROMPT = "a photograph of an astronaut riding a horse"
_WARMUP_ROUNDS = 1  # of as many requests as are in flight


@dataclass(frozen=True)
class Request:
    """What a request asks for; `size` are pixels."""

    steps: int
    size: int
    guidance: float = 7.0

    def run(self, pipeline: StableDiffusion3Pipeline) -> float:
        """Seconds that it took."""
        begin = time.perf_counter()
        pipeline(
            PROMPT,
            num_inference_steps=self.steps,
            guidance_scale=self.guidance,
            height=self.size,
            width=self.size,
            max_sequence_length=512,
            seed=0,
        )
        return time.perf_counter() - begin


class EnsemblePipeline(StableDiffusion3Pipeline):
    """All encoder calls of a request start with it: none needs what another makes."""

    encoders: ThreadPoolExecutor

    def encode_prompt(
        self,
        prompt: Any,
        negative_prompt: Any = "",
        *,
        num_images_per_prompt: int = 1,
        do_classifier_free_guidance: bool = True,
        max_sequence_length: int = 256,
    ) -> PromptEmbeddings:
        assert num_images_per_prompt == 1
        texts = [as_prompts(prompt, "prompt")]
        if do_classifier_free_guidance:
            texts.append(as_prompts(negative_prompt, "negative_prompt", batch=len(texts[0])))
        begun = [self._begin(text, max_sequence_length) for text in texts]
        done = [self._joined(*(future.result() for future in futures)) for futures in begun]
        embeds, pooled = done[0]
        negative_embeds, negative_pooled = done[1] if len(done) > 1 else (None, None)
        return PromptEmbeddings(embeds, negative_embeds, pooled, negative_pooled)

    def _begin(self, texts: list[str], t5_length: int) -> list[Future[Any]]:
        length = self.tokenizer.model_max_length
        submit = self.encoders.submit
        return [
            submit(lambda: clip_embeddings(self.text_encoder, self.tokenizer(texts, length))),
            submit(lambda: clip_embeddings(self.text_encoder_2, self.tokenizer_2(texts, length))),
            submit(lambda: t5_embeddings(self.text_encoder_3, self.tokenizer_3(texts, t5_length))),
        ]

    def _joined(self, first: Any, second: Any, third: Array) -> tuple[Array, Array]:
        pooled = np.concatenate([first[1], second[1]], axis=-1).astype(np.float32)
        return join_embeddings(first[0], second[0], third), pooled


@dataclass(frozen=True)
class Loop:
    """A closed loop as measured: requests/s, and seconds of each request in the window."""

    throughput: float
    latencies: tuple[float, ...]


class Server:
    """The embedded model placed on devices, ready for several requests at once."""

    def __init__(self, devices: Mapping[str, str], order: str, most: int) -> None:
        kind = EnsemblePipeline if order == "graph" else StableDiffusion3Pipeline
        components = load_components(
            default_model_folder(), kind.CLASS, kind.SUBMODULES, kind.OPTIONAL, devices, None
        )
        self._threads = ThreadPoolExecutor(6 * most)
        self.pipelines = []
        for _ in range(most):
            scheduler = FlowMatchEulerDiscreteScheduler(components.scheduler.config.values)
            pipeline = kind(replace(components, scheduler=scheduler))
            pipeline.encoders = self._threads
            self.pipelines.append(pipeline)
        self._workers = {device: ThreadPoolExecutor(1) for device in set(devices.values())}
        for part in self.pipelines[0].parts.values():
            self._queue(part)

    def _queue(self, part: OnnxPart) -> None:
        """Let the worker of its device run the part's calls."""
        submit, forward = self._workers[part.device].submit, part.forward
        part.forward = lambda **inputs: submit(forward, **inputs).result()  # type: ignore[method-assign]

    def loop(self, request: Request, concurrency: int, measured: int) -> Loop:
        """Keep `concurrency` requests in flight until `measured` are done after the warm-up."""
        clock = _Window(_WARMUP_ROUNDS * concurrency, measured)
        threads = [
            threading.Thread(target=clock.repeat, args=(lambda p=pipeline: request.run(p),))
            for pipeline in self.pipelines[:concurrency]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return clock.result()

    def close(self) -> None:
        for executor in (self._threads, *self._workers.values()):
            executor.shutdown()


class _Window:
    """Counts requests that end in the window: the first `warmup` and those in flight at its end
    do not. Requests go on until the window has ended, so that the loop stays closed."""

    def __init__(self, warmup: int, measured: int) -> None:
        self._warmup = warmup
        self._last = warmup + measured
        self._lock = threading.Lock()
        self._ends: list[float] = []
        self._latencies: list[float] = []

    def repeat(self, run: Callable[[], float]) -> None:
        while len(self._ends) < self._last:
            latency = run()
            with self._lock:
                self._ends.append(time.perf_counter())
                self._latencies.append(latency)

    def result(self) -> Loop:
        window = self._ends[self._last - 1] - self._ends[self._warmup - 1]
        latencies = self._latencies[self._warmup : self._last]
        return Loop(len(latencies) / window, tuple(latencies))
