"""Unusual uses of ONNX Runtime's sessions."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession, OrtValue, RunOptions, SessionOptions

CPU = ["CPUExecutionProvider"]
x = np.ones((2, 3), np.float32)


class Counting(InferenceSession):
    """A subclass with a `run` of its own and further state, whose instances are equal and have no
    hash."""

    __hash__ = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.count = 0

    def __eq__(self, other):
        return isinstance(other, Counting)

    def run(self, output_names, input_feed, run_options=None):
        self.count += 1
        return super().run(output_names, {k: v * 2 for k, v in input_feed.items()}, run_options)


class Model:
    """Holds a session and calls what it kept of it."""

    def __init__(self):
        self.session = InferenceSession(Path("encoder.onnx").read_bytes(), providers=CPU)
        self.kept = self.session.run
        self.part = functools.partial(self.session.run, ["y"])

    def __call__(self, x):
        return self.kept(None, {"x": x})[0].sum() + self.part({"x": x})[0].sum()


counting, model = Counting("encoder.onnx", providers=CPU), Model()
for _ in range(2):
    print(
        counting.run(None, {"x": x})[0].sum(),
        counting.run(output_names=["y"], input_feed={"x": x})[0].sum(),
    )
    print(counting.count, type(counting).__name__, isinstance(counting, Counting), model(x))
options = SessionOptions()
options.intra_op_num_threads = 2
options.log_severity_level = 3
bound = InferenceSession("encoder.onnx", options, providers=CPU)
binding, value = bound.io_binding(), OrtValue.ortvalue_from_numpy(x.copy())
binding.bind_ortvalue_input("x", value)
binding.bind_ortvalue_output("y", value)  # in place
for _ in range(3):
    bound.run_with_iobinding(binding)
    print(value.numpy().tolist())
stopped = RunOptions()
stopped.terminate = True
for call in (
    lambda: bound.run(None, {"x": x}, stopped),
    lambda: bound.run(["z"], {"x": x}),
    lambda: bound.run(None, {"x": x.astype(np.float64)}),
    lambda: bound.run(None, {}),
    bound.run,
    lambda: bound.run(None, [x]),
    lambda: bound.run(None, {"x": x}, stopped, 1),
):
    try:
        print(call())
    except Exception as error:  # noqa: BLE001 - of every kind
        print(type(error).__name__, str(error)[:150])
results = []
done = threading.Event()
bound.run_async(
    None,
    {"x": x},
    lambda out, data, err: (results.append((out[0].sum(), data, err)), done.set()),
    "data",
)
done.wait()
print(results)
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(lambda n: float(bound.run(None, {"x": x * n})[0].sum()), range(40))))
bound.set_providers(CPU)
print(bound.run(None, {"x": x})[0].sum(), bound.get_providers())
original = InferenceSession.run


def replaced(self, *args, **kwargs):
    return original(self, *args, **kwargs)


InferenceSession.run = replaced
print(bound.run(None, {"x": x})[0].sum(), model(x))
InferenceSession.run = original
print(
    bound.run(None, {"x": x})[0].sum(),
    [n.name for n in bound.get_inputs()],
    bound.get_session_options().intra_op_num_threads,
)
print(sorted(vars(bound)) == sorted(vars(model.session)), sorted(vars(counting)))
bound.disable_fallback()
print(bound.get_modelmeta().graph_name, bound.get_profiling_start_time_ns() > 0)
