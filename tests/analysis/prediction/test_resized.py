"""Images of another size: shapes, work and time of operators."""

import dataclasses

import pytest
from msgspec import structs

import profiler
from profiler.analysis import call_costs, parse_shapes, worded_note, work_of
from profiler.analysis.flops import CallCosts, KindCost
from profiler.errors import InputError
from profiler.prediction import Assumption, ImageSize, Resizing, Scenario, Unknown
from profiler.prediction.predict import predict
from profiler.prediction.scenario import (
    parse_size,
    recorded_size,
    resized,
    size_by_decoder,
    size_by_settings,
)
from profiler.trace import Generation
from tests.analysis.asked import asked
from tests.analysis.prediction.told_shapes import told
from tests.runs import tiny_run

SD3 = (  # Stable Diffusion 3.5 at 1024 pixels: 4096 patches, 333 tokens of text, T5's 4096 channels
    "aten::addmm in: bfloat16[1536] bfloat16[8192,1536] bfloat16[1536,1536]",
    "aten::addmm in: bfloat16[1536] bfloat16[666,4096] bfloat16[4096,1536]",
    "aten::_cudnn_attention_forward in: " + " ".join(["bfloat16[2,24,4429,64]"] * 3),
    "aten::native_layer_norm in: bfloat16[2,4096,1536] bfloat16[1536] bfloat16[1536]",
    "aten::native_layer_norm in: bfloat16[2,333,1536] bfloat16[1536] bfloat16[1536]",
    "aten::cudnn_convolution half[2,16,128,128] half[1536,16,2,2] -> half[2,1536,64,64]",
)
VAE = (
    "aten::cudnn_convolution half[1,128,1024,1024] half[3,128,3,3] -> half[1,3,1024,1024]",
    "aten::add in: bfloat16[1,512,128,128] bfloat16[512]",
    "aten::addmm in: bfloat16[512] bfloat16[16384,512] bfloat16[512,512]",
)
WAN = (  # 832x480, 33 frames are nine of latents
    "aten::addmm in: bfloat16[1536] bfloat16[14040,1536] bfloat16[1536,1536]",
    "aten::add_ in: bfloat16[1,1536,9,30,52] bfloat16[1,1536,1,1,1]",
    "aten::addmm in: bfloat16[1536] bfloat16[512,4096] bfloat16[4096,1536]",
)


def kind(text, total_ns=0.0):
    """A kind of one command: `aten::mm in: float[…] …`."""
    op_type, shapes = text.split(" ", 1)
    found = parse_shapes(shapes)
    return KindCost(1, total_ns, work_of(op_type, found), found, op_type)


def becomes(text, among, old, new):
    """The dims of its inputs with images of another size, and by how much its FLOPs grow."""
    one = kind(text)
    resizing = Resizing.of([*map(kind, among), one], parse_size(old), parse_size(new))
    then = resizing.kind(one)
    return [t.dims for t in then.shapes.inputs], then.flops / one.flops if one.flops else None


@pytest.mark.parametrize(
    ("text", "dims", "flops"),
    [
        ("aten::addmm in: float[64] float[8192,1536] float[1536,64]", (2048, 1536), 1 / 4),
        ("aten::bmm in: float[48,4429,64] float[48,64,4429]", (48, 1357, 64), (1357 / 4429) ** 2),
        ("aten::bmm in: float[48,4429,4429] float[48,4429,64]", (48, 1357, 1357), None),
        ("aten::_softmax in: float[2,24,4429,4429]", (2, 24, 1357, 1357), (1357 / 4429) ** 2),
        ("aten::mul in: float[2,4429,24,64] float[64]", (2, 1357, 24, 64), 1357 / 4429),
        ("aten::mul in: float[4096,1,64] float[64]", (1024, 1, 64), 1 / 4),
        ("aten::addmm in: float[64] float[666,4096] float[4096,64]", (666, 4096), 1),
        ("aten::mul in: float[2,333,4096] float[4096]", (2, 333, 4096), 1),
        ("aten::mul in: float[2,24,333,64] float[64]", (2, 24, 333, 64), 1),
    ],
)
def test_tokens_follow_the_image_and_text_does_not(text, dims, flops):
    """A quarter of the pixels: 1024 patches, alone, of two images, and beside 333 tokens of text;
    the 4096 channels that T5 has are no patches."""
    found, grown = becomes(text, SD3, "1024", "512")
    assert dims in found
    if flops is not None:
        assert grown == pytest.approx(flops)


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("aten::silu in: float[1,128,1024,1024]", [(1, 128, 512, 768)]),
        ("aten::silu in: float[1,64,64,128]", [(1, 32, 48, 128)]),
        ("aten::constant_pad_nd in: float[1,128,1026,1026]", [(1, 128, 514, 770)]),
        (
            "aten::cudnn_convolution half[1,512,128,128] half[512,512,3,3] -> half[1,512,128,128]",
            [(1, 512, 64, 96), (512, 512, 3, 3)],
        ),
        ("InstanceNormalization in: float[1,4,2097152]", [(1, 4, 786432)]),
        ("aten::softmax in: float[1,1,16384,16384]", [(1, 1, 6144, 6144)]),
    ],
)
def test_grids_follow_the_image(text, dims):
    """1024x1024 to 768x512: the image, its halvings, padded, ahead of channels, flattened with
    some; weights stay."""
    assert becomes(text, VAE, "1024", "768x512")[0] == dims


def test_tokens_of_a_video_are_those_of_all_its_frames():
    """Nine frames of 30x52 patches to nine of 15x26; 512 tokens of text stay."""
    attention = "aten::_flash_attention_forward in: " + " ".join(["float[1,12,14040,128]"] * 3)
    assert becomes(attention, WAN, "832x480", "416x240")[0] == [(1, 12, 3510, 128)] * 3
    assert becomes("aten::mul in: float[1,512,1536]", WAN, "832x480", "416x240")[0] == [
        (1, 512, 1536)
    ]


ANIMATEDIFF = (  # 512 pixels, two times 16 frames
    "aten::addmm in: float[320] float[131072,320] float[320,320]",
    "aten::native_layer_norm in: float[32,4096,320] float[320] float[320]",
    "aten::cudnn_convolution float[32,320,64,64] float[320,320,3,3] -> float[32,320,64,64]",
    "aten::native_group_norm in: float[2,320,16,64,64] float[320] float[320]",
)


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("aten::native_layer_norm in: float[8192,16,320] float[320]", (32768, 16, 320)),
        ("aten::_softmax in: float[8192,8,16,16]", (32768, 8, 16, 16)),
        ("aten::add in: float[32,4096,320]", (32, 16384, 320)),
    ],
)
def test_attention_along_frames_is_in_more_places_not_of_more_frames(text, dims):
    """Of two videos of 64x64 patches, at twice their sides; 16 frames are not 4x4 patches, which
    no tensor has as rows and columns."""
    assert becomes(text, ANIMATEDIFF, "512", "1024")[0][0] == dims


COGVIDEOX = (  # 720x480, 13 latent frames, which the patches' convolution takes as a batch
    "aten::cudnn_convolution float[26,16,60,90] float[1920,16,2,2] -> float[26,1920,30,45]",
    "aten::native_layer_norm in: float[2,17550,1920] float[1920] float[1920]",
    "aten::native_layer_norm in: float[2,226,1920] float[1920] float[1920]",
    "aten::_flash_attention_forward in: " + " ".join(["float[2,30,17776,64]"] * 3),
)


def test_frames_may_be_flattened_with_the_batch():
    """13 frames of 30x45 patches beside 226 tokens of text to 13 of 15x20."""
    attention, dims = COGVIDEOX[-1], (2, 30, 13 * 15 * 20 + 226, 64)
    assert becomes(attention, COGVIDEOX, "720x480", "320x240")[0] == [dims] * 3


FLUX = (  # 1024x768: 3072 patches of 3072 channels, and 512 tokens of text, which are not 16x32
    "aten::addmm in: float[3072] float[3072,3072] float[3072,3072]",
    "aten::addmm in: float[3072] float[512,4096] float[4096,3072]",
    "aten::addmm in: float[3072] float[512,3072] float[3072,3072]",
    "aten::_cudnn_attention_forward in: " + " ".join(["float[1,24,3584,128]"] * 3),
)


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("aten::addmm in: float[64] float[3072,3072] float[3072,64]", (12288, 3072)),
        ("aten::mul in: float[1,3072,3072] float[1,1,3072]", (1, 12288, 3072)),
        ("aten::mul in: float[1,1,3072] float[3072]", (1, 1, 3072)),
        ("aten::mul in: float[1,3072,1,1]", (1, 3072, 1, 1)),
        ("aten::rsqrt in: float[1,3072,1]", (1, 12288, 1)),
        ("aten::rsqrt in: float[1,24,3072,1]", (1, 24, 12288, 1)),
        ("aten::mul in: float[1,3072,2048]", (1, 12288, 2048)),
        ("aten::mul in: float[1,24,512,128] float[128]", (1, 24, 512, 128)),
        ("aten::mul in: float[1,3072,24,128] float[128]", (1, 12288, 24, 128)),
        ("aten::bmm in: float[24,3072,128] float[24,128,3072]", (24, 128, 12288)),
        ("aten::bmm in: float[24,3072,3072] float[24,3072,128]", (24, 12288, 12288)),
        ("aten::bmm in: float[2,3072,3072] float[2,3072,3072]", (2, 12288, 3072)),
    ],
)
def test_as_many_channels_as_tokens_stay(text, dims):
    """Four times the pixels where patches and channels are 3072: last dims are channels but in the
    parts of attention, and text of 512 tokens stays."""
    assert dims in becomes(text, FLUX, "1024x768", "2048x1536")[0]


def test_channels_of_a_grid_stay_though_they_are_a_number_of_tokens():
    """Stable Diffusion 1.5 at 512x640 has 1280 patches of 640 channels, and 1280 channels."""
    among = (
        "aten::native_layer_norm in: float[2,1280,640] float[640] float[640]",
        "aten::cudnn_convolution float[2,640,40,32] float[1280,640,3,3] -> float[2,1280,20,16]",
    )
    group_norm = "aten::native_group_norm in: float[2,1280,20,16] float[1280]"
    assert becomes(group_norm, among, "512x640", "1024x1280")[0][0] == (2, 1280, 40, 32)


def test_time_goes_with_the_work():
    """800 of 1000 ns in a product of patches, a quarter of them; 200 in none of the commands."""
    product = kind("aten::addmm in: float[64] float[8192,1536] float[1536,64]", 800.0)
    costs = CallCosts((*map(kind, SD3), product), 1000.0, 200.0, None)
    wall, busy = resized(costs, ImageSize(1024, 1024), ImageSize(512, 512), 1.0)
    assert wall.value == pytest.approx((200 + 800 * busy.value) / 1000)
    assert busy.value == pytest.approx(1 / 4, rel=0.1)  # weights are read as before
    assert busy.low < busy.value <= busy.high
    same, _ = resized(costs, ImageSize(1024, 1024), ImageSize(1024, 1024), 1.0)
    assert (same.value, same.low, same.high) == (1.0, 1.0, 1.0)


def test_operators_of_no_image_tell_nothing():
    """An encoder of text has no grid, so nothing is known of it."""
    costs = CallCosts((kind("aten::addmm in: float[64] float[77,64] float[64,64]"),), 1.0, 0, None)
    assert resized(costs, ImageSize(1024, 1024), ImageSize(512, 512), 1.0) is None


def test_the_size_is_that_of_the_settings_else_of_the_decoder():
    """Settings of the pipeline calls asked for; a decoder's largest convolution makes its image."""
    two = [
        Generation(pipelines=(0,), width=832, height=480),
        Generation(pipelines=(1,), width=512, height=512),
    ]
    assert size_by_settings(two, (1,)) == ImageSize(512, 512)
    assert size_by_settings([Generation(pipelines=(0,))], (0,)) is None
    with pytest.raises(InputError, match=r"512×512, 832×480.*--pipeline"):
        size_by_settings(two, (0, 1))
    assert size_by_decoder(map(kind, VAE)) == ImageSize(1024, 1024)
    small, large = ([Generation(width=side, height=side)] for side in (512, 2048))
    vae = [*map(kind, VAE)]
    assert recorded_size(small, (0,), vae) == ImageSize(1024, 1024)  # the pipeline made it larger
    assert recorded_size(large, (0,), vae) == ImageSize(2048, 2048)  # the decoder works in tiles
    assert recorded_size([], (0,), vae) == ImageSize(1024, 1024)
    assert recorded_size(small, (0,), []) == ImageSize(512, 512)
    assert size_by_decoder(map(kind, SD3[:2])) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512", (512, 512)), ("832x480", (832, 480)), (" 64×128 ", (64, 128))],
)
def test_sizes_are_read(text, expected):
    """Width first; one number is a square."""
    assert parse_size(text) == ImageSize(*expected)


@pytest.mark.parametrize(
    "text", ["", "0", "x", "512x", "512 512", "1e3", "-8", "1001", "512x513", "99999", "9" * 40]
)
def test_what_is_no_size_is_refused(text):
    """In one sentence that names the option."""
    with pytest.raises(InputError, match="--size"):
        parse_size(text)


def test_a_run_that_tells_no_size_is_refused():
    """The tiny run has neither settings nor shapes."""
    with pytest.raises(InputError, match="how large its images are"):
        predict(tiny_run(), asked(tiny_run()), Scenario(size=ImageSize(64, 64)))


def test_without_operators_time_goes_with_the_pixels():
    """Twice the pixels by settings: transformer and VAE take twice as long, the encoder as long."""
    run = tiny_run()
    made = (Generation(width=64, height=64),)
    run = dataclasses.replace(run, info=structs.replace(run.info, generations=made))
    scenario = Scenario(size=ImageSize(128, 64), memory={"": 1 << 40})
    found = predict(run, asked(run), scenario)
    parts = {part.name: (part.before_ns, part.after_ns) for part in found.submodules}
    assert parts["text_encoder"][0] == parts["text_encoder"][1]
    for name in ("transformer", "vae"):
        assert parts[name][1] == 2 * parts[name][0]
    told = [note.code for note in found.unknown]
    assert told.count(Unknown.SIZE_GUESSED) == 2
    assert Unknown.ACTIVATIONS_AS_RECORDED in told
    assert not [note for note in found.assumes if note.code == Assumption.ANOTHER_SIZE]


def _together(run, **scenario):
    """What the prediction says of shares that multiply, and by how much parts grow."""
    found = predict(run, asked(run), Scenario(**scenario))
    told = [worded_note(note) for note in found.assumes if note.code == Assumption.SHARES_MULTIPLY]
    grown = {part.name: part.after_ns / part.before_ns for part in found.submodules}
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in told], grown


def test_shares_of_one_submodule_multiply():
    """Twice the pixels and three times the batch: of the transformer's 250 ns 85 are of no batch,
    so twice 1.34 times as long, which the prediction says; nothing where one of them is asked."""
    run = tiny_run()
    made = (Generation(width=64, height=64),)
    run = dataclasses.replace(run, info=structs.replace(run.info, generations=made))
    told, grown = _together(run, batch=3, size=ImageSize(128, 64))
    (text,) = told
    both = "transformer 2.68 times (1.00 to 16.5), vae 2.00 times (1.00 to 15.6)"
    assert text == f"what is said of one submodule multiplies: {both}"
    assert (grown["transformer"], grown["vae"], grown["text_encoder"]) == (2.68, 2, 1)
    assert _together(run, batch=3)[0] == []
    assert _together(run, batch=1, size=ImageSize(128, 64))[0] == []
    assert _together(run, size=ImageSize(128, 64), steps=4)[0] == []


def recorded_costs(pipeline, folder, side):
    """The costs of denoiser and decoder of a request for images of that size."""
    with profiler.profile(pipeline, ops="all", out=folder / str(side)) as recording:
        pipeline("a cat", num_inference_steps=1, height=side, width=side, seed=0)
    run = profiler.load(recording.path)
    analysis = asked(run)
    tables = (analysis.calls, analysis.kinds.table, analysis.device_profiles)
    return {name: call_costs(*tables, name) for name in ("transformer", "vae")}


@pytest.mark.parametrize("side", [192, 512])
def test_resized_shapes_are_those_of_a_real_run(tmp_path, side):
    """The embedded Stable Diffusion 3 at 384 pixels, resized, has the shapes that it has when it
    runs at another size: all of the decoder's, all but one of 100 of the denoiser's."""
    pytest.importorskip("onnxruntime", reason="needs the run extra")
    from profiler.pipelines import StableDiffusion3Pipeline, default_model_folder

    pipeline = StableDiffusion3Pipeline.from_folder(default_model_folder())
    before, after = (recorded_costs(pipeline, tmp_path, one) for one in (384, side))
    for name, costs in before.items():
        resizing = Resizing.of(costs.kinds, ImageSize(384, 384), ImageSize(side, side))
        ours, real = told(map(resizing.kind, costs.kinds)), told(after[name].kinds)
        assert (ours - real).total() <= (ours.total() // 100 if name == "transformer" else 0)
        assert (told(costs.kinds) - real).total() > ours.total() / 4
