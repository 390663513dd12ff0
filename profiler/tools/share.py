"""`profile-sd3 share`: a bundle as a ZIP without paths, host names and user names.

    removal = Removal.of_this_machine(["acme"])
    shared = share(Path("traces/20261121-093000-sd3"), Path("run.zip"), removal)
    shared.replaced      # {"/home/alice/sd3": "path-1f3a09c2"}
    shared.left_out      # ("report.html",)

Removed texts are hashed with a key that is discarded, so guesses cannot be verified. The ZIP
contains only data that this package knows. It is read again before it gets its name, to check
that no removed text remains and that its tables are the same.
"""

from __future__ import annotations

import errno
import getpass
import hashlib
import os
import re
import shutil
import socket
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from msgspec import structs

from profiler.analysis.analyze import analyze
from profiler.analysis.device_profiles import FILE_NAME, DeviceProfile, profiles_text, read_profiles
from profiler.errors import InputError
from profiler.files import appearing, not_writable, opened, read_file
from profiler.run.columns import TABLES
from profiler.run.load import load_bundle
from profiler.run.run import Run
from profiler.trace.bundle import MERGED_NAME, host_file
from profiler.trace.dump import with_texts
from profiler.trace.events import DropKind
from profiler.trace.manifest import (
    MANIFEST_NAME,
    Manifest,
    RunInfo,
    info_document,
    parse_info,
    read_manifest,
)
from profiler.trace.redaction import names_prompt, own_homes

# --- What `profile-sd3 share` removes from texts: paths, names of hosts and users, given words.
#
#     removal = Removal.of_this_machine(["acme"])
#     removal.text("read /home/alice/sd3/run.py")   # "read path-1f3a09c2"
#     removal.found                                  # what was replaced, by what
#
# The same text has the same stand-in wherever it stands in one file.


_SHORTEST = 3  # letters of a name: shorter ones are parts of many words
_OF_EVERYBODY = frozenset(
    ("root", "user", "admin", "ubuntu", "runner", "nobody", "localhost", "home", "docker", "node")
)
_ROOTS = "home|root|Users|mnt|data|tmp|opt|usr|var|workspace|srv|scratch|etc|media|private|lustre"
_ENDS = "py|pyc|pyx|so|dll|cpp|cu|ipynb|onnx|safetensors|gguf|ckpt|pth|json|yaml|yml|engine|plan"
_PATH = re.compile(
    rf"(?<![\w./~-])(?:/(?:{_ROOTS})(?![\w.-])|~(?=/)|\.{{1,2}}(?=/))(?:/[^\s\"'<>|:;,()]*)?"
    r"|(?<!\w)(?:[A-Za-z]:\\|\\\\[\w.-]+\\)[^\s\"'<>|:;,()]*"
    rf"|(?<![\w./\\-])[\w.~@+-]*[\\/][^\s\"'<>|:;,()]*\.(?:{_ENDS})(?![\w/\\-])"
)


@dataclass(slots=True)
class Removal:
    """Replaces identifying texts. `words` are replaced where they stand alone; the value is their
    kind: host, user, text. `found` has each replaced text with its replacement."""

    words: dict[str, str] = field(default_factory=dict)
    homes: tuple[str, ...] = ()
    found: dict[str, str] = field(default_factory=dict)
    _key: bytes = field(default_factory=lambda: os.urandom(16))

    @classmethod
    def of_this_machine(cls, paths: Iterable[str] = ()) -> Removal:
        """Make a removal of this machine's name, its user's name and `paths`."""
        host = socket.gethostname()
        names = {text: "text" for text in paths if text}
        for name in (host, host.partition(".")[0]):
            names.setdefault(name, "host")
        with suppress(OSError, KeyError, ImportError):  # the user may have no name
            names.setdefault(getpass.getuser(), "user")
        telling = {
            name: kind
            for name, kind in names.items()
            if kind == "text" or (len(name) >= _SHORTEST and name.lower() not in _OF_EVERYBODY)
        }
        return cls(telling, own_homes())

    def spare(self, names: Iterable[str]) -> tuple[str, ...]:
        """Keep host and user names that are part of one of `names`, because removing them would
        change the run; return the kept ones."""
        parts = {part.lower() for name in names for part in re.split(r"[^A-Za-z0-9]+", name)}
        spared = tuple(
            word for word, kind in self.words.items() if kind != "text" and word.lower() in parts
        )
        for word in spared:
            del self.words[word]
        return spared

    def text(self, text: str) -> str:
        """Replace paths and names in `text`."""
        for home in self.homes:
            pattern = rf"(?<![\w.~-]){re.escape(home)}(?![\w.~-])(?:/[^\s\"'<>|:;,()]*)?"
            text = re.sub(pattern, self._path, text)
        text = _PATH.sub(self._path, text)
        for word in sorted(self.words, key=len, reverse=True):
            if word.lower() in text.lower():
                pattern = rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])"
                text = re.sub(pattern, self._word, text, flags=re.IGNORECASE)
        return text

    def place(self, text: str) -> str:
        """Replace a text that may be a path as a whole, such as a model's: if it has a slash or a
        file suffix. The suffix is kept, because advice depends on what runs an .onnx file."""
        end = re.search(rf"\.(?:{_ENDS})(?:\.gz)?$", text)
        if "/" in text or "\\" in text or end is not None:
            return self._stand_in("path", text, end[0] if end else "")
        return self.text(text)

    def _path(self, match: re.Match[str]) -> str:
        return self._stand_in("path", match[0])

    def _word(self, match: re.Match[str]) -> str:
        kinds = {word.lower(): kind for word, kind in self.words.items()}
        return self._stand_in(kinds.get(match[0].lower(), "text"), match[0])

    def _stand_in(self, kind: str, text: str, end: str = "") -> str:
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4, key=self._key)
        stand_in = f"{kind}-{digest.hexdigest()}{end}"
        self.found[text] = stand_in
        return stand_in


# --- `profile-sd3 share`: a bundle as a ZIP file that tells of the run and not of who ran it.


_CODES = ("producer", "capabilities")
_PLACES = ("model", "source")  # keys whose text is a path as a whole
_DAMAGE = (
    DropKind.TRUNCATED_FILE,
    DropKind.MISSING_FILE,
    DropKind.CHANGED_FILE,
    DropKind.DAMAGED_COPY,
)
_BEGIN = (1980, 1, 1, 0, 0, 0)  # first date of ZIP files


@dataclass(frozen=True, slots=True)
class Shared:
    """What was written and what was not: `arguments` of the command line, `prompts` among the
    settings, texts that were `replaced`, by what, files of the folder that were `left_out`, and
    names that were `spared`, because they are part of a submodule's or device's name."""

    path: Path
    size: int
    files: int
    arguments: int
    prompts: tuple[str, ...]
    replaced: Mapping[str, str]
    left_out: tuple[str, ...]
    spared: tuple[str, ...]


def share(bundle: Path, out: Path, removal: Removal) -> Shared:
    """Write the run in `bundle` to the ZIP file `out`, without the texts that `removal` replaces,
    its command line and its prompts.

    Raises InputError if the bundle is not whole, or would not give the same tables without what is
    removed, OutputError if `out` cannot be written.
    """
    before = read_manifest(bundle / MANIFEST_NAME)
    run = load_bundle(bundle)
    if run.calls.is_empty() or any(drop.kind in _DAMAGE for drop in run.drops):
        raise InputError(f"{bundle} is not whole: copy it again, or record the run again")
    spared = removal.spare([*before.info.submodules, *before.info.devices])
    profiles = read_profiles(bundle / FILE_NAME) if (bundle / FILE_NAME).is_file() else ()
    with _scratch() as scratch:
        copy = Path(scratch) / (removal.text(before.run_id) or "run")
        copy.mkdir()
        _write_copy(bundle, before, copy, profiles, removal)
        packed = Path(scratch) / "packed.zip"
        names = _pack(copy, packed)
        shutil.rmtree(copy)
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(scratch)
        _check_removed(copy, removal)
        _check_tables(run, load_bundle(copy), profiles, removal, bundle)
        size = packed.stat().st_size
        with appearing(out) as target, opened(packed) as source:
            shutil.copyfileobj(source, target)
    kept = {*names, MERGED_NAME}
    left_out = sorted(path.name for path in bundle.iterdir() if path.name not in kept)
    return Shared(
        out,
        size,
        len(names),
        len(before.info.command_line),
        tuple(sorted(filter(names_prompt, before.info.settings))),
        dict(removal.found),
        tuple(left_out),
        spared,
    )


@contextmanager
def _scratch() -> Iterator[str]:
    """A temporary folder. Raises OutputError, which names it, if the block fills up the disk."""
    try:
        with tempfile.TemporaryDirectory(prefix="profile-sd3-") as folder:
            yield folder
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise not_writable(Path(tempfile.gettempdir()), error) from error


def _write_copy(
    bundle: Path, before: Manifest, copy: Path, profiles: Iterable[DeviceProfile], removal: Removal
) -> None:
    """Write the bundle's files to `copy` without the removed texts and redundant files."""
    sizes: dict[str, int] = {}
    merged = bytearray()
    calls = [bundle / entry.file for entry in before.calls]
    for path in (*host_file(bundle), *calls):
        data = with_texts(read_file(path), removal.text, path.name)
        name = removal.text(path.name)
        (copy / name).write_bytes(data)
        sizes[name] = len(data)
        merged += data
    (copy / MERGED_NAME).write_bytes(merged)
    sizes[MERGED_NAME] = len(merged)
    entries = [_entry(entry, removal, sizes) for entry in before.calls]
    of_calls = {entry.file for entry in entries}
    rest = {name: size for name, size in sizes.items() if name not in of_calls}
    info = _info(before.info, removal)
    manifest = Manifest(copy.name, before.created, info, tuple(entries), rest)
    (copy / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
    known = tuple(profiles)
    if known:
        (copy / FILE_NAME).write_text(removal.text(profiles_text(known)), encoding="utf-8")


def _entry(entry: Any, removal: Removal, sizes: Mapping[str, int]) -> Any:
    call = entry.call
    texts = {name: removal.text(getattr(call, name)) for name in ("submodule", "branch", "device")}
    shapes = {removal.text(name): shape for name, shape in call.input_shapes.items()}
    file = removal.text(entry.file)
    return replace(
        entry, call=replace(call, **texts, input_shapes=shapes), file=file, bytes=sizes[file]
    )


def _info(info: RunInfo, removal: Removal) -> RunInfo:
    """The manifest's information on the run without command line, prompts, paths and names."""
    document = info_document(structs.replace(info, command_line=()))
    for settings in (document.get("settings", {}), *document.get("pipeline_settings", {}).values()):
        for name in [name for name in settings if names_prompt(name)]:
            del settings[name]
    cleaned = {
        key: value if key in _CODES else _without(value, removal, key)
        for key, value in document.items()
    }
    try:
        return parse_info(msgspec.json.decode(msgspec.json.encode(cleaned)))
    except ValueError as error:  # a given word is part of the format
        raise InputError(
            f"what is removed is a word of the format ({error}): leave it in"
        ) from error


def _without(value: Any, removal: Removal, key: str = "") -> Any:
    if isinstance(value, str):
        return removal.place(value) if key in _PLACES else removal.text(value)
    if isinstance(value, dict):
        return {removal.text(name): _without(part, removal, name) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without(part, removal, key) for part in value]
    return value


def _pack(folder: Path, out: Path) -> list[str]:
    """Pack the files of `folder` into a ZIP file that does not say when or by whom it was made."""
    paths = sorted(folder.iterdir())
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            entry = zipfile.ZipInfo(f"{folder.name}/{path.name}", _BEGIN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system, entry.external_attr = 3, 0o600 << 16
            with opened(path) as source, archive.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)
    return [path.name for path in paths]


def _check_removed(copy: Path, removal: Removal) -> None:
    """Raise InputError if a text of the copy still has something to remove."""
    info = info_document(read_manifest(copy / MANIFEST_NAME).info)
    seen = [text for text in _texts(info) if removal.text(text) != text]
    for path in copy.glob("*.pb"):
        with_texts(read_file(path), _remembering(seen, removal), path.name)
    if seen:
        raise InputError(f"{copy.name} would still hold {seen[0]!r:.80}: report this as a fault")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        yield from (text for part in value.values() for text in _texts(part))
    elif isinstance(value, (list, tuple)):
        yield from (text for part in value for text in _texts(part))


def _remembering(seen: list[str], removal: Removal) -> Callable[[str], str]:
    def look(text: str) -> str:
        if removal.text(text) != text:
            seen.append(text)
        return text

    return look


def _check_tables(
    before: Run, after: Run, profiles: tuple[DeviceProfile, ...], removal: Removal, bundle: Path
) -> None:
    """Raise InputError if the copy does not give the same tables as the bundle."""
    differing = next(_differing(before, after, profiles, removal), "")
    if differing:
        raise InputError(
            f"without what is removed, the {differing} of {bundle} would be others: leave out "
            "--remove, or report this as a fault"
        )


def _differing(
    before: Run, after: Run, profiles: tuple[DeviceProfile, ...], removal: Removal
) -> Iterator[str]:
    for name in TABLES:
        if not _equal(getattr(before, name), getattr(after, name), removal):
            yield name
    ours, theirs = (analyze(run, measured=profiles).tables() for run in (before, after))
    for name, frame in ours.items():
        if not _equal(frame, theirs[name], removal):
            yield f"table {name}"


def _equal(before: pl.DataFrame, after: pl.DataFrame, removal: Removal) -> bool:
    """Whether the rows are the same, in any order, because names may decide the order."""
    if before.equals(after):
        return True
    if before.schema != after.schema or len(before) != len(after):
        return False
    rows = [sorted(map(repr, frame.rows())) for frame in (_replaced(before, removal), after)]
    return rows[0] == rows[1]


def _replaced(frame: pl.DataFrame, removal: Removal) -> pl.DataFrame:
    texts = [
        name
        for name, dtype in frame.schema.items()
        if dtype.base_type() in (pl.String, pl.Categorical)
    ]
    return frame.with_columns(
        pl.col(name).cast(pl.String).map_elements(removal.text, return_dtype=pl.String)
        for name in texts
    )
