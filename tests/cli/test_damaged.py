"""What commands do with a damaged recording: say it, refuse what would follow from it, and end with
a code of their own if they are asked to.

The trace has kernels of 400 µs, launched one after another; of the damaged one, one is 2 s long.
"""

from __future__ import annotations

import json

import pytest

from tests.command_line import run_command

KERNELS, LENGTH_US, LONG_US = 12, 400.0, 2_000_000.0


def write_trace(path, *, damaged):
    """A trace as torch.profiler writes it: launches, and kernels on one stream."""
    events = []
    for number in range(KERNELS):
        launch, args = 10.0 * number, {"correlation": number + 1}
        events.append(_event("cuda_runtime", "cudaLaunchKernel", launch, 5.0, 1, 1, args))
        long = damaged and number == KERNELS // 2
        length = LONG_US if long else LENGTH_US
        on = {**args, "device": 0, "stream": 7, "grid": [1, 1, 1], "block": [64, 1, 1]}
        start = 50.0 + (LENGTH_US + 10) * number
        events.append(_event("kernel", "gemm", start, length, 0, 7, on))
    properties = [{"id": 0, "name": "NVIDIA H100"}]
    path.write_text(json.dumps({"deviceProperties": properties, "traceEvents": events}))
    return path


def _event(category, name, start, length, process, thread, args):
    times = {"ts": 1e6 + start, "dur": length, "pid": process, "tid": thread}
    return {"ph": "X", "cat": category, "name": name, **times, "args": args}


@pytest.fixture
def sound(tmp_path):
    return write_trace(tmp_path / "sound.json", damaged=False)


@pytest.fixture
def damaged(tmp_path):
    return write_trace(tmp_path / "damaged.json", damaged=True)


@pytest.fixture
def done(monkeypatch, capsys):
    """Runs a command: its exit code, what it printed in single spaces, and what it refused."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        code = run_command(*arguments)
        out, err = capsys.readouterr()
        return code, " ".join(out.split()), err

    return run


def test_strict_ends_with_three_after_the_report(done, sound, damaged):
    """Of a damaged recording alone, and only if it is asked for."""
    assert done("analyze", damaged, "--no-html")[0] == 0
    assert done("analyze", sound, "--no-html", "--strict")[0] == 0
    code, out, _ = done("analyze", damaged, "--no-html", "--strict")
    assert code == 3
    assert out.startswith("damaged recording: ")
    assert "see docs/trust.md" in out


def test_strict_imports_end_with_three_and_keep_the_bundle(done, sound, damaged, tmp_path):
    assert done("import", sound, "--out", tmp_path / "a", "--strict")[0] == 0
    code, out, err = done("import", damaged, "--out", tmp_path / "b", "--strict")
    assert code == 3
    assert list((tmp_path / "b").glob("*/manifest.json"))
    assert str(tmp_path / "b").split("/")[-1] in out
    assert "damaged recording" in err


def test_uncorrected_lengths_are_shown_if_asked(done, sound, damaged, tmp_path):
    """The device is busy for 12 kernels of 400 µs, or to the end of the one of 2 s."""
    busy, shortened = {}, {}
    for name, path, *more in (
        ("sound", sound),
        ("corrected", damaged),
        ("recorded", damaged, "--as-recorded"),
    ):
        file = tmp_path / f"{name}.json"
        code, out, _ = done("analyze", path, "--no-html", "--json", file, *more)
        assert code == 0
        assert ("figures are not corrected" in out) == (name == "recorded")
        found = json.loads(file.read_text())
        busy[name] = next(r["busy_ns"] for r in found["devices"] if r["device"] == "cuda:0")
        shortened[name] = [(r["duration_ns"], r["recorded_ns"]) for r in found["shortened"]]
        assert found["contradictions"] == []
    assert busy["sound"] == busy["corrected"] == KERNELS * LENGTH_US * 1_000
    before = KERNELS // 2 * LENGTH_US * 1_000
    assert busy["recorded"] == before + LONG_US * 1_000
    both = [(LENGTH_US * 1_000, LONG_US * 1_000)]
    assert shortened == {"sound": [], "corrected": both, "recorded": both}


def test_predictions_and_gates_refuse_it_in_one_sentence(done, sound, damaged):
    for asked in (
        ("predict", damaged, "--concurrency", 2),
        ("diff", sound, damaged, "--fail-over", "5%"),
        ("diff", damaged, sound, "--fail-over", "5%"),
    ):
        code, out, err = done(*asked)
        assert (code, out) == (2, "")
        assert "damaged.json is a damaged recording" in err
        assert err.count("\n") == 1


def test_a_diff_says_which_side_is_damaged_before_anything_else(done, sound, damaged, tmp_path):
    code, out, _ = done("diff", sound, damaged, "--json", tmp_path / "diff.json")
    assert code == 0
    assert out.startswith(f"damaged recording: {damaged}")
    notes = json.loads((tmp_path / "diff.json").read_text())["notes"]
    assert any("damaged recording" in str(note) for note in notes)
    assert not done("diff", sound, sound)[1].startswith("damaged")


def test_analyze_compares_with_no_damaged_run(done, sound, damaged):
    _, out, _ = done("analyze", sound, "--no-html", "--against", damaged)
    assert "not compared: damaged recording" in out


def test_data_sets_know_that_it_is_damaged(done, damaged, tmp_path):
    """And hold it against no other run."""
    assert done("fleet", "add", tmp_path / "fleet", damaged)[0] == 0
    code, _, err = done("fleet", "gate", tmp_path / "fleet")
    assert code == 2
    assert "its recording is damaged" in err
