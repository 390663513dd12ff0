"""`max_size`: what a run writes at most, and what is said of calls beyond."""

from __future__ import annotations

import pytest

import profiler
from profiler.capture import Settings
from profiler.capture.settings import environment_settings, parse_max_size
from profiler.errors import InputError
from profiler.pipelines import StableDiffusion3Pipeline, default_model_folder
from tests.runs import told

SETTINGS = {"num_inference_steps": 6, "seed": 1, "height": 64, "width": 64}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run without a limit: the sizes of its calls' files."""
    return recorded(tmp_path_factory.mktemp("whole"), None)


def recorded(folder, max_size):
    pipeline = StableDiffusion3Pipeline.from_folder(default_model_folder())
    with profiler.profile(pipeline, out=folder, name="run", max_size=max_size) as run:
        pipeline("a cat", **SETTINGS)
    return profiler.load(run.path), sizes(run.path)


def sizes(bundle):
    """Bytes of the files of calls with operators, by the calls' number."""
    run = profiler.load(bundle)
    traced = set(run.calls.filter(run.calls["ops_traced"])["call"].to_list())
    files = {int(path.name.split("_")[0]): path.stat().st_size for path in bundle.glob("*_*.pb")}
    return {call: size for call, size in files.items() if call in traced}


def test_what_is_written_stays_below_the_limit_and_one_call(whole, tmp_path):
    """Files of calls with operators, twice (`merged.pb`), exceed it by the last of them at most;
    every call is there, those beyond without operators, and one drop a submodule says from where.
    """
    everything, by_call = whole
    limit = sum(by_call.values())  # half of what it takes
    run, written = recorded(tmp_path, limit)
    assert len(run.calls) == len(everything.calls)
    assert 0 < len(written) < len(run.calls)
    assert 2 * (sum(written.values()) - max(written.values())) < limit
    untraced = run.calls.filter(~run.calls["ops_traced"])
    drops = [drop for drop in run.info.drops if drop.detail.code == "size_reached"]
    assert sum(drop.count for drop in drops) == len(untraced)
    assert drops == list(run.info.drops)
    for drop in drops:
        own = untraced.filter(untraced["submodule"].cast(str) == drop.where)
        assert drop.detail.values["file"].startswith(f"{own['call'].min():03d}_")
        assert drop.detail.values["size"] == limit


def test_calls_that_begin_beyond_it_are_not_traced(tmp_path):
    """Once it is reached nothing is traced any more: the pipeline runs on its own sessions."""
    pipeline = StableDiffusion3Pipeline.from_folder(default_model_folder())
    pipeline("a cat", **SETTINGS)
    own = pipeline.transformer.session
    with profiler.profile(pipeline, out=tmp_path, max_size=1, event_cap=600) as run:
        assert pipeline.transformer.session is not own
        run._session.recorder.limit.wrote(1)
        pipeline("a cat", **SETTINGS)
        assert pipeline.transformer.session is own
    loaded = profiler.load(run.path)
    assert not loaded.calls["ops_traced"].any()
    assert len(loaded.commands.filter(loaded.commands["call"] >= 0)) == 0
    assert sum(drop.count for drop in loaded.info.drops) == len(loaded.calls)


def test_the_report_says_from_where(whole, tmp_path):
    """The sentence of the drop names the first file without operators, and the limit."""
    run, _ = recorded(tmp_path, sum(whole[1].values()))
    said = [told(drop) for drop in run.info.drops]
    assert said
    for text in said:
        assert text.startswith("calls from ")
        assert text.endswith("bytes: raise --max-size")


@pytest.mark.parametrize("given", ["nothing", "", 0, -1, True, "1 XB"])
def test_sizes_that_are_none(given):
    """They are refused in one sentence, before anything runs."""
    with pytest.raises(InputError, match=r"max_size is .*: give bytes, or a size such as"):
        parse_max_size(given)


def test_every_way_to_say_it():
    """By keyword, in the configuration, and by a variable, which wins; children inherit it."""
    assert Settings.of({"max_size": "2GiB"}).max_size == 2 << 30
    environment = {"RBLN_PROFILER_CONFIG": '{"max_size": "1GiB", "memory": true}'}
    assert environment_settings(environment).max_size == 1 << 30
    assert environment_settings(environment).memory is True
    environment |= {"RBLN_PROFILER_MAX_SIZE": "500MB", "RBLN_PROFILER_MEMORY": "0"}
    settings = environment_settings(environment)
    assert (settings.max_size, settings.memory) == (500_000_000, False)
    settings.write_environment(environment)
    assert environment_settings(environment).max_size == 500_000_000
    with pytest.raises(InputError, match="RBLN_PROFILER_MAX_SIZE: max_size is 'x'"):
        environment_settings({"RBLN_PROFILER_MAX_SIZE": "x"})
    with pytest.raises(InputError, match="RBLN_PROFILER_MEMORY is 'x'"):
        environment_settings({"RBLN_PROFILER_MEMORY": "x"})
