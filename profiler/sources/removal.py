"""What `profile-sd3 share` takes out of texts: paths, names of hosts and users, what it is told.

    removal = Removal.of_this_machine(["acme"])
    removal.text("read /home/alice/sd3/run.py")   # "read path-1f3a09c2"
    removal.found                                  # what was replaced, by what

What is replaced is hashed with a key that is thrown away: the same text has the same stand-in
wherever it stands in one file, and nobody can look for it by hashing guesses.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from profiler.redaction import own_homes

__all__ = ["Removal"]

_SHORTEST = 3  # letters of a name: shorter ones stand in words of all kinds
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
    """Replaces what is told too much. `words` are taken out wherever they stand by themselves, with
    what they are called: host, user, text. `found` has each text that was replaced, and by what."""

    words: dict[str, str] = field(default_factory=dict)
    homes: tuple[str, ...] = ()
    found: dict[str, str] = field(default_factory=dict)
    _key: bytes = field(default_factory=lambda: os.urandom(16))

    @classmethod
    def of_this_machine(cls, told: Iterable[str] = ()) -> Removal:
        """Takes out this machine's name, its user's and what is `told`."""
        host = socket.gethostname()
        names = {text: "text" for text in told if text}
        for name in (host, host.partition(".")[0]):
            names.setdefault(name, "host")
        with suppress(OSError, KeyError, ImportError):  # who runs it may have no name
            names.setdefault(getpass.getuser(), "user")
        telling = {
            name: kind
            for name, kind in names.items()
            if kind == "text" or (len(name) >= _SHORTEST and name.lower() not in _OF_EVERYBODY)
        }
        return cls(telling, own_homes())

    def spare(self, names: Iterable[str]) -> tuple[str, ...]:
        """Take out no host's or user's name that one of `names` is made of: what is left of the run
        would not be the same. Returns those that were to be."""
        parts = {part.lower() for name in names for part in re.split(r"[^A-Za-z0-9]+", name)}
        spared = tuple(
            word for word, kind in self.words.items() if kind != "text" and word.lower() in parts
        )
        for word in spared:
            del self.words[word]
        return spared

    def text(self, text: str) -> str:
        """`text` with stand-ins for paths and names."""
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
        """A text that may be a path as a whole, such as that of a model: replaced where it has a
        slash, or an end as files have."""
        if "/" in text or "\\" in text or re.search(rf"\.(?:{_ENDS})(?:\.gz)?$", text):
            return self._stand_in("path", text)
        return self.text(text)

    def _path(self, match: re.Match[str]) -> str:
        return self._stand_in("path", match[0])

    def _word(self, match: re.Match[str]) -> str:
        kinds = {word.lower(): kind for word, kind in self.words.items()}
        return self._stand_in(kinds.get(match[0].lower(), "text"), match[0])

    def _stand_in(self, kind: str, text: str) -> str:
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4, key=self._key)
        stand_in = f"{kind}-{digest.hexdigest()}"
        self.found[text] = stand_in
        return stand_in
