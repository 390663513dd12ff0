"""What scenarios make of workloads, by hand."""

import dataclasses

import polars as pl
import pytest
from msgspec import structs

import profiler.prediction.report  # noqa: F401 - the sentences of notes
from profiler.analysis import DeviceProfile, call_costs, worded_note
from profiler.errors import InputError
from profiler.prediction import Assumption, Scenario, Unknown
from profiler.prediction.predict import predict
from profiler.prediction.scenario import at_precision, parse_places, precision
from profiler.text import Note
from profiler.trace import Device
from tests.analysis.asked import asked
from tests.analysis.prediction.requested import WARM, guided_run, stepped_run
from tests.runs import Command, tiny_run

_COND = [("transformer", "cond", 300)], [("transformer", "cond", 200)]
_PROFILE = DeviceProfile(
    hardware="",
    peak_flops={"float32": 1e12, "float16": 2e12},
    memory_bandwidth=1e12,
    launch_ns=None,
    source="by hand",
    measured=True,
    device="rbln",
)


def _predict(run, profiles=(), **scenario):
    return predict(run, asked(run, measured=profiles), Scenario(**scenario))


def _parts(parts):
    return {part.name: (part.before_ns, part.after_ns) for part in parts}


def test_nothing_changed_is_what_was_measured():
    """1000 ns before and after, in every part; stages as the analysis has them."""
    found = _predict(tiny_run())
    assert found.request.ns == found.measured.ns == 1000
    assert _parts(found.stages) == {
        "encode": (100, 100),
        "denoise": (660, 660),
        "decode": (240, 240),
    }
    stages = asked(tiny_run()).stages
    assert {name: before for name, (before, _) in _parts(found.stages).items()} == dict(
        zip(stages["stage"], stages["elapsed_ns"], strict=True)
    )
    assert _parts(found.submodules)["host"] == (330, 330)


def test_steps():
    """Four steps: the first of 300 ns once, three steady ones of 200 with the 50 before each; what
    lies before the first and behind the last stays."""
    found = _predict(tiny_run(), steps=4)
    assert found.request.ns == 210 + 300 + 3 * 250 + 240
    assert _parts(found.submodules)["transformer"] == (500, 300 + 3 * 200)
    assert _predict(tiny_run(), steps=1).request.ns == 210 + 300 + 240


def test_guidance_with_calls_of_its_own():
    """uncond and negative-prompt calls go, and the 10 ns of the host before each."""
    found = _predict(guided_run(), guidance=False)
    before = (10 + 100 + 10 + 80 + 10) + (3 * 30 + 2 * 720) + (10 + 50 + 10)
    after = (10 + 100 + 10) + (3 * 20 + 720) + (10 + 50 + 10)
    assert (found.measured.ns, found.request.ns) == (before, after)
    assert _parts(found.submodules)["text_encoder"] == (180, 100)


def test_guidance_work_of_the_host_goes_too():
    """`apply_guidance` of 4 ns in the first step."""
    run = guided_run()
    start = run.spans.filter(pl.col("name").cast(pl.String) == "step 1")["start_ns"][0] - 6
    row = Command(-1, "cpu:0", "Host", "host", "apply_guidance", 0, 4, "", "denoise", 0, 0)
    work = stepped_run([[]], commands=[row]).commands.with_columns(start_ns=pl.lit(start))
    with_work = dataclasses.replace(run, commands=work)
    plain, less = (_predict(r, guidance=False).request.ns for r in (run, with_work))
    assert (_predict(with_work).request.ns, plain - less) == (_predict(run).request.ns, 4)


def test_a_dropped_submodule_takes_its_tokenizer_with_it():
    """The tiny run without its encoder: 90 ns and the 10 of the tokenizer less."""
    found = _predict(tiny_run(), drop=("text_encoder",))
    assert found.request.ns == 900
    assert _parts(found.submodules)["text_encoder"] == (90, 0)
    assert found.assumes[-1] == Note.of(Assumption.WITHOUT_SUBMODULES, submodules=("text_encoder",))


def test_what_a_phase_begins_with_stays_when_its_first_call_goes():
    """10 ns of the host before the VAE are not known to be the VAE's."""
    assert _predict(tiny_run(), drop=("vae",)).request.ns == 920


def _shaped(run, shapes):
    """The run with the shapes of its commands, by layer."""
    layer = pl.col("layer").cast(pl.String)
    text = layer.replace_strict(shapes, default=None, return_dtype=pl.String).cast(pl.Categorical)
    return dataclasses.replace(run, commands=run.commands.with_columns(shapes=text))


def _batched(op_type="Tanh"):
    """Three steps of a batched call of 1000 ns: 10 of one layer, 790 of another, 200 of none."""
    steps = [[("transformer", "batched", 1000)]] * 3
    run = stepped_run([steps], traced=True)
    calls = run.calls.filter(pl.col("submodule").cast(pl.String) == "transformer")
    first = run.calls["start_ns"].min() - 10
    commands = []
    for call, start in calls.select("call", "start_ns").iter_rows():
        at = start - first
        for index in range(10):
            row = Command(call, "rbln:0", "C", "compute", "tiny", at + index, 1, "Relu")
            commands.append(row)
        commands.append(Command(call, "rbln:0", "C", "compute", "mlp", at + 10, 790, op_type))
    return stepped_run([steps], traced=True, commands=commands)


def test_a_batched_call_is_halved_operator_by_operator():
    """Of 1000 ns 200 stay, and 1 ns of each of the 11 commands, the fixed part; the rest of the
    one that is of the batch is halved: 200 + 10 + 1 + 789 / 2."""
    run = _shaped(
        _batched(),
        {"mlp": "float[2,4096,64] -> float[2,4096,64]", "tiny": "float[64] -> float[64]"},
    )
    found = _predict(run, guidance=False)
    call = 200 + 10 + 1 + 789 / 2
    assert _parts(found.submodules)["transformer"][1] == pytest.approx(3 * call, abs=3)
    (note,) = [n for n in found.assumes if n.code == Assumption.HALF_BATCH_ESTIMATED]
    assert worded_note(note).replace("\N{NO-BREAK SPACE}", " ") == (
        "transformer takes 61 % (35 % to 61 %) of a batched call, by halving the batch of each "
        "operator"
    )
    assert "text_encoder" in _parts(found.submodules)


def test_weights_are_read_for_half_a_batch_too():
    """[2, 64] through weights of [64, 65536]: 16 MB of weights, less than a kB is of the batch."""
    run = _shaped(
        _batched("MatMul"),
        {"mlp": "float[2,64] float[64,65536] -> float[2,65536]", "tiny": "float[64] -> float[64]"},
    )
    analysis = asked(run, measured=(_PROFILE,))
    found = predict(run, analysis, Scenario(guidance=False))
    bytes_before = 4 * (2 * 64 + 64 * 65536 + 2 * 65536)
    bytes_after = 4 * (64 + 64 * 65536 + 65536)
    call = 200 + 10 + 1 + 789 * bytes_after / bytes_before
    assert _parts(found.submodules)["transformer"][1] == pytest.approx(3 * call, abs=3)


def test_calls_for_the_prompt_alone_tell_what_half_a_batch_takes():
    """Batched calls of 1000 ns beside cond ones of 600: 60 %, measured."""
    steps = [[("transformer", "batched", 1000)]] * 4 + [[("transformer", "cond", 600)]] * 3
    found = _predict(stepped_run([steps]), guidance=False)
    assert _parts(found.submodules)["transformer"] == (5800, pytest.approx(7 * 600))
    (note,) = [n for n in found.assumes if n.code == Assumption.HALF_BATCH_MEASURED]
    assert note.values == {"submodule": "transformer", "share": pytest.approx(0.6)}


def test_half_a_batch_of_calls_without_operators_is_a_guess_that_says_so():
    """Half, and what is not known is named."""
    steps = [[("transformer", "batched", 1000)]] * 4
    found = _predict(stepped_run([steps]), guidance=False)
    assert _parts(found.submodules)["transformer"] == (4000, 2000)
    assert Note.of(Unknown.HALF_BATCH_GUESSED, submodule="transformer") in found.unknown
    assert found.request.high > 2800


def test_a_larger_batch_grows_operator_by_operator():
    """Three times the batch: of 1000 ns 200 stay, 1 ns of each of the 11 commands, and what is of
    no batch; the rest of the one that is takes three times as long. Prompts are encoded as before.
    """
    run = _shaped(_batched(), _SHAPES)
    before, found = _predict(run), _predict(run, batch=3)
    call = 200 + 10 + 1 + 789 * 3
    assert _parts(found.submodules)["transformer"][1] == pytest.approx(3 * call, abs=3)
    encoded = _parts(before.submodules)["text_encoder"]
    assert _parts(found.submodules)["text_encoder"] == encoded
    assert Note.of(Unknown.BATCH_GUESSED, submodule="vae") in found.unknown
    same = _predict(run, batch=1)
    assert same.request.ns == same.measured.ns


def test_half_of_a_larger_batch():
    """Without guidance three times the batch are 1.5 of what a batched call had: the shares of
    half and of three times multiply, and the prediction says to what."""
    found = _predict(_shaped(_batched(), _SHAPES), guidance=False, batch=3)
    (note,) = [n for n in found.assumes if n.code == Assumption.SHARES_MULTIPLY]
    before, after = _parts(found.submodules)["transformer"]
    half, thrice = (200 + 10 + 1 + 789 * factor for factor in (0.5, 3))
    share = half / 1000 * thrice / 1000
    assert after / before == pytest.approx(share, rel=2e-3)
    assert note.values["submodules"][0].values["share"] == pytest.approx(share, rel=2e-3)
    told = worded_note(note).replace("\N{NO-BREAK SPACE}", " ")
    assert told.endswith(": batched calls of transformer 156 % (91 % to 244 %)")


def test_a_larger_batch_through_weights_reads_them_once():
    """[4, 8, 64] through weights of [64, 65536]: they are read as often with twice the batch."""
    shapes = "float[4,8,64] float[64,65536] -> float[4,8,65536]"
    run = _shaped(_batched("MatMul"), {"mlp": shapes, "tiny": "float[64] -> float[64]"})
    profile = dataclasses.replace(_PROFILE, peak_flops={"float32": 1e18})  # bytes are the limit
    found = predict(run, asked(run, measured=(profile,)), Scenario(batch=2))
    weights, rest = 64 * 65536, 4 * 8 * (64 + 65536)
    call = 200 + 10 + 1 + 789 * (weights + 2 * rest) / (weights + rest)
    assert _parts(found.submodules)["transformer"][1] == pytest.approx(3 * call, abs=3)


_SHAPES = {"mlp": "float[2,4096,64] -> float[2,4096,64]", "tiny": "float[64] -> float[64]"}
_BATCHED = [[("transformer", "batched", 1000)]] * 4


@pytest.mark.parametrize(
    ("run", "estimated"),
    [
        (_shaped(_batched(), _SHAPES), True),
        (stepped_run([_BATCHED]), True),
        (stepped_run([_BATCHED + [[("transformer", "cond", 600)]] * 3]), False),
        (stepped_run([_BATCHED + [[("transformer", "cond", 600)]] * 2]), True),
    ],
)
def test_guidance_costs_what_a_prediction_without_it_saves(run, estimated):
    """Operator by operator, by half, or as measured: the table and the prediction agree."""
    (row,) = asked(run).guidance.rows(named=True)
    before, after = _parts(_predict(run, guidance=False).submodules)["transformer"]
    assert row["estimated"] is estimated
    assert row["elapsed_ns"] == pytest.approx(before - after, abs=3)


def test_precision_goes_by_the_rates_of_both_types():
    """Twice the rate, half the bytes: half of what is not fixed, of calls whose types are known."""
    run = _shaped(
        _batched(),
        {"mlp": "float[2,4096,64] -> float[2,4096,64]", "tiny": "float[64] -> float[64]"},
    )
    found = _predict(run, (_PROFILE,), precision="fp16")
    call = 200 + 10 + 1 + 789 / 2
    assert _parts(found.submodules)["transformer"][1] == pytest.approx(3 * call, abs=3)
    assert Note.of(Unknown.PRECISION_OF, submodule="vae", dtype="float16") in found.unknown
    same = _predict(run, (_PROFILE,), precision="fp32")
    assert same.request.ns == same.measured.ns


@pytest.mark.parametrize(
    ("run", "scenario", "says"),
    [
        (tiny_run(), {"steps": 0}, "--steps 0"),
        (tiny_run(), {"steps": 20_000}, "1 to 10,000"),
        (tiny_run(), {"batch": 0}, "--batch 0"),
        (tiny_run(), {"untraced_ns": 5}, "recorded no launches"),
        (stepped_run([_COND[:1]]), {"steps": 2}, "has one step"),
        (tiny_run(), {"drop": ("unet",)}, "'unet' is no submodule that the run called: text_enc"),
        (tiny_run(), {"drop": ("text_encoder", "transformer", "vae")}, "leaves nothing"),
        (tiny_run(), {"place": {"unet": "rbln:0"}}, "--place 'unet'"),
        (tiny_run(), {"place": {"vae": "cuda:0"}}, "cuda:0"),
        (tiny_run(), {"place": {"vae": "rbln:1"}, "drop": ("vae",)}, "both name vae"),
        (tiny_run(), {"concurrency": 0}, "--concurrency 0"),
        (tiny_run(), {"order": "random"}, "--order 'random'"),
        (tiny_run(), {"precision": "int3"}, "fp16"),
        (tiny_run(), {"precision": "fp16"}, "record"),
        (stepped_run([_COND]), {"guidance": False}, "without guidance"),
    ],
)
def test_what_a_run_cannot_answer(run, scenario, says):
    """One sentence each, with what to do."""
    with pytest.raises(InputError, match=says):
        _predict(run, **scenario)


def test_precision_without_rates_is_refused():
    """The sentence says which rates and how to measure them."""
    run = _shaped(_batched(), {"mlp": "float[2,4096,64] -> float[2,4096,64]"})
    with pytest.raises(InputError, match="rate of rbln:0 for float32 and float16 is not"):
        _predict(run, precision="fp16")


@pytest.mark.parametrize("name", ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2"])
def test_fp8_is_the_type_of_eight_bits_that_the_device_has(name):
    """Four times the rate, a quarter of the bytes: of products; attention stays as it is."""
    profile = dataclasses.replace(_PROFILE, peak_flops={"float32": 1e12, name: 4e12})
    shapes = {"mlp": "float[2,4096,64] float[64,64] -> float[2,4096,64]"}
    found = _predict(_shaped(_batched("MatMul"), shapes), (profile,), precision="fp8")
    call = 200 + 10 + 1 + 789 / 4
    assert _parts(found.submodules)["transformer"][1] == pytest.approx(3 * call, abs=3)
    assert Note.of(Assumption.PRODUCTS_ALONE, dtype="float8") in found.assumes
    attention = {"mlp": "float[2,8,4096,64] float[2,8,4096,64] float[2,8,4096,64]"}
    op = "aten::scaled_dot_product_attention"
    found = _predict(_shaped(_batched(op), attention), (profile,), precision="fp8")
    assert _parts(found.submodules)["transformer"] == (3000, 3000)


@pytest.mark.parametrize(
    ("device", "dtype", "recommendation"),
    [
        ("cuda:0", "fp16", "measure it with `profile-sd3 benchmark-device`"),
        ("cpu:0", "fp16", "give a --device-profile whose peak_flops has float32 and float16"),
        ("cuda:0", "fp8", "give a --device-profile whose peak_flops has float32 and float8e4m3fn"),
    ],
)
def test_rates_that_nobody_measures_are_to_be_given(device, dtype, recommendation):
    """benchmark-device measures float32 of CPUs and three types of GPUs: only then it is named."""
    run = _shaped(_batched(), {"mlp": "float[2,4096,64] -> float[2,4096,64]"})
    found = asked(run)
    costs = call_costs(found.calls, found.kinds.table, {}, "transformer")
    with pytest.raises(InputError, match=recommendation):
        at_precision(costs, device, precision(dtype), 1.0)


def test_scenarios_combine():
    """Two steps of cond alone, without the VAE."""
    found = _predict(guided_run(), steps=2, guidance=False, drop=("vae",))
    assert found.request.ns == (10 + 100 + 10) + (20 + 300) + (20 + 210) + (10 + 10)


def test_placement_and_concurrency_are_simulated():
    """Equal devices: the request takes what it took, and both are used."""
    info = structs.replace(WARM, devices={"rbln:0": Device(), "rbln:1": Device()})
    run = stepped_run([list(_COND)], info=info)
    found = _predict(run, place={"vae": "rbln:1"}, concurrency=2)
    assert found.request.ns == found.measured.ns
    assert found.simulation is not None
    assert found.simulation.concurrency == 2
    assert set(found.simulation.utilization) == {"host", "rbln:0", "rbln:1"}
    assert found.best is not None
    assert _predict(run, concurrency=2).best is None


def test_places():
    """Several with commas; a name alone, twice the same, or nothing is refused."""
    assert parse_places(["a=cpu:0,b=cpu:1", "c = cpu:2"]) == {
        "a": "cpu:0",
        "b": "cpu:1",
        "c": "cpu:2",
    }
    for text in ("a", "a=", "=cpu:0", "a=cpu:0,a=cpu:1"):
        with pytest.raises(InputError):
            parse_places([text])
