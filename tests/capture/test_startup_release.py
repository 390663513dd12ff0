"""What a switched-on process holds: its locks, one after the other, and nothing of an ended run."""

from __future__ import annotations

import threading

from profiler.capture import FakeClock, Options, Session, Settings, SwitchedOn
from tests.capture.toy import ToyPipeline


class Overlapping(SwitchedOn):
    """One pipeline is released while another is used for the first time, as far as that is
    possible: each of the two has begun before the other goes on."""

    def __init__(self, out):
        self.clock = FakeClock()
        self.attaching, self.detaching = threading.Event(), threading.Event()
        super().__init__(self._open)
        self.settings = Settings(out=out)
        self._pipelines.watch_class(Pipeline)

    def _open(self, settings, title):
        session = Session.open(Options("none"), settings.out, "toy", clock=self.clock)
        attach = session.attach

        def attached(pipeline):
            attachment = attach(pipeline)
            detach = attachment.detach

            def after_the_first_use_has_begun():
                self.detaching.set()
                self.attaching.wait()
                detach()

            attachment.detach = after_the_first_use_has_begun
            return attachment

        session.attach = attached
        return session

    def _attach(self, pipeline):
        if pipeline.waits:  # the lock of the new pipelines is held here
            self.detaching.wait()
            self.attaching.set()
        return super()._attach(pipeline)


class Pipeline(ToyPipeline):
    waits = False

    def __call__(self, steps):
        return super().__call__(steps)


def test_a_release_during_a_first_use(tmp_path):
    """A thread that puts its pipeline under a `profile` block of its own and one that uses another
    pipeline for the first time do not wait for each other."""
    process = Overlapping(tmp_path)
    try:
        known, new = Pipeline(process.clock), Pipeline(process.clock)
        known(1)
        new.waits = True
        threads = [
            threading.Thread(target=process.release, args=(known,), daemon=True),
            threading.Thread(target=new, args=(1,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert [thread.is_alive() for thread in threads] == [False, False]
        new.waits = False
        known(1)
        assert len(process._session.recorder.finished()) == 3 * 8
    finally:
        process._pipelines.undo()
    assert process.switch_off() == tmp_path / "toy"
    assert type(known) is type(new) is Pipeline


ENDED = """
    import gc
    import profiler
    from profiler.capture.pipelines.pipeline_hooks import Attachment
    from profiler.capture.recorder import Recorder
    from profiler.capture.session import Session
    from profiler.pipelines.sd3 import StableDiffusion3Pipeline
    from profiler.pipelines.tiny import default_model_folder

    pipe = StableDiffusion3Pipeline.from_folder(default_model_folder())
    def left():
        gc.collect()
        kinds = (Session, Recorder, Attachment)
        return [sum(type(found) is kind for found in gc.get_objects()) for kind in kinds]
    pipe("a cat", num_inference_steps=1, seed=1, height=64, width=64)
    print(left())
    profiler.done()
    print(left())
"""


def test_nothing_is_left_of_an_ended_run(scripts):
    """With `done()` all that was recorded goes, though the pipeline lives on."""
    ended = scripts.run(ENDED)
    assert ended.out == "[1, 1, 1]\n[0, 0, 0]\n", ended.err
