"""Files of RBLN's profiler, named by our recording of the same run; on a fake `rebel`."""

from __future__ import annotations

import json

import polars as pl
import pytest

import profiler
from profiler.capture import FakeClock
from profiler.errors import InputError
from profiler.trace import Warmup
from tests.command_line import refused
from tests.importers.rbln.generator import STEM
from tests.importers.rbln.importing import import_rbln
from tests.runs import told

from .fake_rebel import FakeRebel, RBLNStableDiffusion3Pipeline

LABELS = [
    ("text_encoder", "encode", "prompt", -1, "rbln:0"),
    ("text_encoder_2", "encode", "prompt", -1, "rbln:0"),
    ("text_encoder_3", "encode", "prompt", -1, "rbln:1"),
    ("text_encoder", "encode", "negative_prompt", -1, "rbln:0"),
    ("text_encoder_2", "encode", "negative_prompt", -1, "rbln:0"),
    ("text_encoder_3", "encode", "negative_prompt", -1, "rbln:1"),
    ("transformer", "denoise", "batched", 0, "rbln:0"),
    ("transformer", "denoise", "batched", 1, "rbln:0"),
    ("vae", "decode", None, -1, "rbln:0"),
]


class Recording:
    """A run with two steps: its bundle, and the folder of RBLN's own files."""

    def __init__(self, tmp_path, monkeypatch, *, config=None, **options):
        self.shards = tmp_path / "shards"
        self.shards.mkdir()
        self.out = tmp_path / "imported"
        self.rebel = FakeRebel(FakeClock(1_790_000_000_000_000_000), self.shards, **options)
        self.rebel.install(monkeypatch)
        config = {"text_encoder_3": {"device": 1}, **(config or {})}
        self.pipeline = RBLNStableDiffusion3Pipeline(self.rebel, config)
        self.bundles = tmp_path / "bundles"

    def record(self, *, warmup=False):
        clock = self.rebel.clock
        with profiler.profile(self.pipeline, out=self.bundles, name="run", clock=clock) as run:
            if warmup:
                with run.warmup():
                    self.pipeline(num_inference_steps=1)
            self.pipeline(num_inference_steps=2)
        self.rebel.profiler.done()
        self.bundle = run.path
        return self

    def named(self, **options):
        return profiler.load(import_rbln(self.shards, self.out, run=self.bundle, **options))


@pytest.fixture
def recording(tmp_path, monkeypatch):
    return lambda **options: Recording(tmp_path, monkeypatch, **options)


def labels(run):
    columns = ("submodule", "stage", "branch", "step", "device")
    return run.calls.with_columns(pl.col(pl.Categorical).cast(pl.String)).select(columns).rows()


def drop(run, kind):
    return [told(found) for found in run.drops if found.kind == kind]


def test_every_file_has_the_name_of_its_call(recording):
    """Nine files of a run with two steps have submodule, stage, branch, step and device."""
    run = recording().record().named()
    assert labels(run) == LABELS
    assert run.info.pipeline == "RBLNStableDiffusion3Pipeline"
    assert run.info.recording.described_as == "run"
    assert {found.kind for found in run.drops} <= {"unaligned_clock"}
    assert run.calls["ops_traced"].to_list() == [True] * 9


def test_warm_up_inside_the_recording_is_left_out(recording):
    """Warm-up consumes numbers; its eight files are no calls of the run."""
    run = recording().record(warmup=True).named()
    assert labels(run) == LABELS
    assert run.info.warmup == Warmup(calls=8)


def test_a_call_of_several_runtime_calls_has_as_many_files(recording):
    """A VAE that decodes two tiles has two files, both of its call."""
    made = recording()
    made.pipeline.vae.tiles = 2
    assert labels(made.record().named()) == [*LABELS, LABELS[-1]]


@pytest.mark.parametrize("counts_all", [True, False])
def test_submodules_that_were_not_profiled_have_no_file(recording, counts_all):
    """Whether or not their calls consume numbers, the files of the others have their names."""
    config = {"text_encoder_2": {"activate_profiler": False}}
    run = recording(config=config, counts_all=counts_all).record().named()
    assert labels(run) == [label for label in LABELS if label[0] != "text_encoder_2"]


def test_files_from_before_the_recording_are_skipped_where_asked(recording):
    """Eight files too many name nothing and say what would fit; with it all are named."""
    made = recording()
    made.pipeline(num_inference_steps=1)
    made.record()
    run = made.named()
    assert {label[0] for label in labels(run)} == {"unlabelled"}
    (sentence,) = drop(run, "unlabelled_call")
    assert sentence == (
        "no call is labelled (files: 17, profiled runtime calls of run: 9): --skip 8, where the "
        "runtimes were called so often before it"
    )
    assert labels(made.named(skip=8)) == LABELS


@pytest.mark.parametrize("number", [0, 4, 8])
def test_with_a_file_missing_nothing_is_named(recording, number):
    """One file too few, wherever: all calls stay unlabelled, and the sentence says so."""
    made = recording().record()
    (made.shards / f"{STEM}_{number}.pb").unlink()
    run = made.named()
    assert labels(run) == [("unlabelled", "", None, -1, device) for *_, device in labels(run)]
    assert drop(run, "unlabelled_call")[0].startswith(
        "no call is labelled (files: 8, profiled runtime calls of run: 9)"
    )


def test_gaps_that_are_not_those_of_unprofiled_calls_name_nothing(recording):
    """As many files as calls, but one number is out of its place: nothing is labelled."""
    made = recording().record()
    (made.shards / f"{STEM}_8.pb").rename(made.shards / f"{STEM}_11.pb")
    run = made.named()
    assert {label[0] for label in labels(run)} == {"unlabelled"}
    assert "not those of runtime calls that were not profiled" in drop(run, "unlabelled_call")[0]


def test_an_aggregate_alone_is_named_as_its_files_are(recording):
    """One file of nine runtime calls: their names are those of the recording's calls."""
    made = recording().record()
    for number in range(9):
        (made.shards / f"{STEM}_{number}.pb").unlink()
    run = made.named()
    assert labels(run) == LABELS
    assert run.info.submodules["text_encoder_3"].workloads == ((2, 2, 2), (2, 5, 5))
    (made.shards / f"{STEM}.pb").rename(made.shards / "renamed.pb")
    assert labels(made.named(name="renamed")) == LABELS


def test_a_run_without_runtime_calls_is_refused(recording):
    """A bundle of anything else says that it notes no runtime calls."""
    made = recording().record()
    manifest = made.bundle / "manifest.json"
    document = json.loads(manifest.read_text())
    for facts in document["submodules"].values():
        facts.pop("runtime_calls")
    manifest.write_text(json.dumps(document))
    with pytest.raises(InputError, match="notes no calls of RBLN's runtimes"):
        made.named()


@pytest.mark.parametrize("damaged", [7, [[0]], [["0", 0]], [[0, 99]], [[0, 0], [0, 1]], [None]])
def test_damaged_runtime_calls_are_refused(recording, damaged):
    """The manifest is untrusted: what is no list of distinct numbers and known calls is refused."""
    made = recording().record()
    manifest = made.bundle / "manifest.json"
    document = json.loads(manifest.read_text())
    document["submodules"]["vae"]["runtime_calls"] = damaged
    manifest.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"damaged|twice"):
        made.named()


def test_the_command_names_the_files(cli, recording):
    """`profile-sd3 import SHARDS --run BUNDLE` writes the labelled bundle and prints its folder."""
    made = recording().record()
    command = ("import", made.shards, "--run", made.bundle, "--out", made.out)
    code, text, error = cli(*command)
    assert (code, text.strip()) == (0, str(made.out / STEM)), error
    assert labels(profiler.load(made.out / STEM)) == LABELS
    refused(cli(*command, "--pipeline", "sd3"), "--pipeline")
