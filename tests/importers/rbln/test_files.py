"""Which files of a folder are shards, and which is the aggregate."""

from pathlib import Path

import pytest

from profiler.errors import InputError
from profiler.importers.rbln import find_capture, is_capture, is_rbln, missing_numbers
from tests.importers.rbln.generator import runtime_call, trace_bytes

STEM = "rbln_20260902_012906319"


def folder_with(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).touch()
    return folder


def numbers(folder: Path) -> list[int]:
    return [shard.number for shard in find_capture(folder).shards]


def test_shards_in_order_of_their_number(tmp_path: Path) -> None:
    """Numbers are numbers: 10 comes behind 9, and the unnumbered file is no shard."""
    names = [f"{STEM}_{n}.pb" for n in (10, 9, 11, 100)]
    found = find_capture(folder_with(tmp_path, *names, f"{STEM}.pb", "0_cs_1.log", "model.pb"))
    assert [shard.number for shard in found.shards] == [9, 10, 11, 100]
    assert found.stem == STEM
    assert found.aggregate == tmp_path / f"{STEM}.pb"


def test_an_aggregate_alone_is_no_shard_of_its_time(tmp_path: Path) -> None:
    """The digits of the aggregate's time are no call number."""
    found = find_capture(folder_with(tmp_path, f"{STEM}.pb"))
    assert [(shard.path.name, shard.number) for shard in found.shards] == [(f"{STEM}.pb", -1)]
    assert found.aggregate is None


def test_renamed_captures(tmp_path: Path) -> None:
    """Files under another name are shards where a number stands behind it."""
    found = find_capture(folder_with(tmp_path, "sd3_0.pb", "sd3_1.pb", "sd3.pb"))
    assert (len(found.shards), found.aggregate) == (2, tmp_path / "sd3.pb")


def test_one_file_is_imported_alone(tmp_path: Path) -> None:
    """A path to one file takes that file, whatever stands beside it."""
    folder_with(tmp_path, f"{STEM}_0.pb", f"{STEM}_1.pb")
    assert numbers(tmp_path / f"{STEM}_1.pb") == [1]


def test_shards_with_times_of_their_own(tmp_path: Path) -> None:
    """Files whose names differ in their time are one capture where their numbers do, too."""
    names = [f"rbln_20260902_01290{n}000_{n}.pb" for n in range(3)]
    assert numbers(folder_with(tmp_path, *names)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "holds no .pb file"),
        (["notes.txt"], "holds no .pb file"),
        ([f"{STEM}_0.pb", f"{STEM}_1.pb", "rbln_20260903_1_0.pb"], "2 captures"),
        ([f"{STEM}_0.pb", f"{STEM}_1.pb", "rbln_20260903_1.pb"], "2 captures"),
        (["a.pb", "b.pb"], "2 captures"),
        ([f"{STEM}_1.pb", f"{STEM}_01.pb"], "same call twice"),
    ],
)
def test_folders_that_are_no_capture(tmp_path: Path, names: list[str], said: str) -> None:
    """No files, several captures and a call that stands there twice are refused."""
    with pytest.raises(InputError, match=said):
        find_capture(folder_with(tmp_path, *names))


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    """A missing path is said to be missing."""
    with pytest.raises(InputError, match="cannot read"):
        find_capture(tmp_path / "none")


def test_missing_numbers(tmp_path: Path) -> None:
    """Gaps between numbers are found, and a gap without end is not counted out."""
    shards = find_capture(folder_with(tmp_path, *(f"x_{n}.pb" for n in (3, 4, 7, 9)))).shards
    assert missing_numbers(shards) == [5, 6, 8]
    far = find_capture(folder_with(tmp_path, f"x_{10**17}.pb")).shards
    assert len(missing_numbers(far)) == 1_000


def test_recognised_by_its_tracks() -> None:
    """A trace with RBLN's tracks is recognised by its first bytes; others and ours are not."""
    data = trace_bytes([runtime_call(0, 1_000, ["linear_1"])])
    assert is_rbln(data[:4_096])
    assert not is_rbln(b"")
    assert not is_rbln(b'{"traceEvents": ["Neural DMA"]}')
    assert not is_rbln(data + b"profile_sd3.trace")


def test_a_folder_is_recognised_by_its_first_traces(tmp_path: Path) -> None:
    """A folder with RBLN's files, the first of them empty, is a capture; one with other files or
    none is not."""
    assert not is_capture(tmp_path, b"")
    (tmp_path / "notes.pb").write_bytes(b"notes")
    assert not is_capture(tmp_path, b"")
    data = trace_bytes([runtime_call(0, 1_000, ["linear_1"])])
    (tmp_path / f"{STEM}_0.pb").write_bytes(b"")
    assert not is_capture(tmp_path, b"")
    (tmp_path / f"{STEM}_1.pb").write_bytes(data)
    assert is_capture(tmp_path, b"")  # the first call was cut short
    (tmp_path / f"{STEM}_0.pb").write_bytes(data)
    assert is_capture(tmp_path, b"")
    assert is_capture(tmp_path / f"{STEM}_0.pb", data)
