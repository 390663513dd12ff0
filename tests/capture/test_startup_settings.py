"""Settings: keywords, environment, JSON text and file, one sentence on error, and back again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from profiler.capture import Settings
from profiler.capture.rbln import writes_shards
from profiler.capture.settings import environment_settings, is_on
from profiler.errors import InputError


def environment(config: str | None = None, directory: str | None = None) -> dict[str, str]:
    names = {"RBLN_PROFILER_CONFIG": config, "RBLN_PROFILER_DIR": directory}
    return {name: value for name, value in names.items() if value is not None}


def test_defaults():
    """An empty environment gives ./traces, all operators, no compression."""
    settings = environment_settings({})
    assert settings == Settings(Path("traces"), None, "all", {}, "none", None)
    assert settings.given() == {"out": Path("traces"), "ops": "all", "compress": "none"}


@pytest.mark.parametrize(
    ("values", "on"),
    [(["1", " 1 ", "true", "True", "on", "YES"], True), (["", "0", "false", "OFF", "no"], False)],
)
def test_the_switch(values, on, monkeypatch):
    """RBLN_PROFILER takes the words that RBLN's own profiler takes, which is switched on by the
    same ones; unset it is off."""
    for value in values:
        monkeypatch.setenv("RBLN_PROFILER", value)
        assert is_on(os.environ) is on
        assert writes_shards(None) is on
    assert not is_on({})


@pytest.mark.parametrize("value", ["2", "ja"])
def test_another_switch_is_refused(value, monkeypatch):
    """Any other value of RBLN_PROFILER is an error, not a guess; RBLN's own profiler is off."""
    monkeypatch.setenv("RBLN_PROFILER", value)
    with pytest.raises(InputError, match=r"RBLN_PROFILER is .*: use 1 to profile"):
        is_on(os.environ)
    assert not writes_shards(None)


def test_json_text_and_file_say_the_same(tmp_path):
    """RBLN_PROFILER_CONFIG is JSON where it begins with a brace, else a file's path."""
    text = '{"ops": "none", "name": "a", "config": {"vae": {"activate_profiler": false}}}'
    file = tmp_path / "settings.json"
    file.write_text(text, encoding="utf-8")
    wanted = Settings(ops="none", name="a", config={"vae": {"activate_profiler": False}})
    assert environment_settings(environment(text)) == wanted
    assert environment_settings(environment(str(file))) == wanted


def test_the_folder_variable_wins():
    """RBLN_PROFILER_DIR takes precedence over `out` in the configuration."""
    assert environment_settings(environment('{"out": "a"}', "b")).out == Path("b")


def test_one_configuration_is_inherited(tmp_path, monkeypatch):
    """What a process writes back to the environment makes its child's settings equal to its own,
    whatever folder the child works in."""
    monkeypatch.chdir(tmp_path)
    config = {"vae": {"device": 0}}
    settings = Settings.of({"out": "runs", "config": config, "compress": "deflate", "name": "n"})
    inherited: dict[str, str] = {}
    settings.write_environment(inherited)
    monkeypatch.chdir("/")
    assert is_on(inherited)
    assert environment_settings(inherited) == settings.__class__.of(
        {**settings.given(), "out": tmp_path / "runs"}
    )
    assert json.loads(inherited["RBLN_PROFILER_CONFIG"])["out"] == str(tmp_path / "runs")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("{", "RBLN_PROFILER_CONFIG is not valid JSON .*: correct it"),
        ("missing.json", "cannot read missing.json .*No such file.*: give the path of a JSON file"),
        ('{"operators": 1}', "no setting is called operators: use out, name, ops"),
        ('{"journal_": 1}', "no setting is called journal_"),
        ('{"ops": 3}', "ops is 3: give a text"),
        ('{"name": "../x"}', "'../x' cannot name a run"),
        ('{"compress": "zip"}', "compress is 'zip': use none, deflate, zstd"),
        ('{"config": []}', "config is \\[\\]: write"),
        ('{"config": {"vae": {"dev": 1}}}', "the configuration of vae has unknown keys dev"),
        ('{"out": ""}', "out is '': give a folder"),
    ],
)
def test_one_sentence_on_error(config, sentence, tmp_path, monkeypatch):
    """A setting that cannot be used is named, with what to write instead, in one line."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=sentence) as caught:
        environment_settings(environment(config))
    assert "\n" not in str(caught.value)
    assert "RBLN_PROFILER_CONFIG" in str(caught.value)


def test_a_file_that_holds_no_object(tmp_path):
    """JSON that is no object is refused with an example."""
    file = tmp_path / "list.json"
    file.write_text("[1]", encoding="utf-8")
    with pytest.raises(InputError, match="is no JSON object: write one such as"):
        environment_settings(environment(str(file)))
