"""What README and docs hold: fenced blocks, their commands and what these print, links, anchors.

A comment in the line before a block says more about it: `<!-- numbers differ -->`, of a console
block whose output has other numbers each time, `<!-- file NAME -->`, of one that is a file.

    page = Page.read(Path("README.md"))
    page.commands[0].text       # 'profile-sd3 analyze traces/ --top 20'
    page.commands[0].expected   # the lines that stand below it, () where none do
    page.python                 # its Python blocks, one after the other
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["REPOSITORY", "Block", "Command", "Page", "all_pages"]

REPOSITORY = Path(__file__).resolve().parents[2]
_FENCE = re.compile(
    r"(?:^<!-- (?P<remark>[^\n]*) -->\n)?"
    r"^(?P<fence>`{3,})(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=fence)$",
    re.M | re.S,
)
_LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*$", re.M)
_CODE = re.compile(r"`[^`\n]+`")


@dataclass(frozen=True)
class Command:
    """One `$ ` line with its continuations, as the shell gets it, and the output that is shown."""

    page: str
    line: int
    text: str
    expected: tuple[str, ...]
    numbers_differ: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first line of text, from 1."""

    language: str
    line: int
    text: str
    remark: str = ""

    @property
    def file(self) -> str:
        """The name of the file that it is, "" for other blocks."""
        return self.remark.removeprefix("file ") if self.remark.startswith("file ") else ""


@dataclass(frozen=True)
class Page:
    """A Markdown page; `name` is its path in the repository."""

    name: str
    text: str
    blocks: tuple[Block, ...] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Page:
        text = path.read_text(encoding="utf-8")
        blocks = tuple(
            Block(
                found["language"],
                text.count("\n", 0, found.start("text")) + 1,
                found["text"],
                found["remark"] or "",
            )
            for found in _FENCE.finditer(text)
        )
        return cls(path.relative_to(REPOSITORY).as_posix(), text, blocks)

    @property
    def commands(self) -> list[Command]:
        """Those of the page's console blocks, in their order."""
        of_blocks = (block for block in self.blocks if block.language == "console")
        return [command for block in of_blocks for command in self._commands(block)]

    def _commands(self, block: Block) -> list[Command]:
        found: list[tuple[int, list[str], list[str]]] = []
        continued = False
        for number, line in enumerate(block.text.splitlines(), block.line):
            if line.startswith("$ "):
                found.append((number, [line[2:]], []))
            elif continued:
                found[-1][1].append(line.removeprefix("> "))
            else:
                assert found, f"{self.name}:{number}: output in front of the first `$ ` line"
                found[-1][2].append(line)
                continue
            continued = line.endswith("\\")
        differ = block.remark == "numbers differ"
        return [Command(self.name, n, "\n".join(t), tuple(e), differ) for n, t, e in found]

    @property
    def python(self) -> list[Block]:
        """Its Python blocks, but for those that are files."""
        return [block for block in self.blocks if block.language == "python" and not block.file]

    @property
    def prose(self) -> str:
        """The text without fenced blocks."""
        return _FENCE.sub("", self.text)

    @property
    def links(self) -> list[str]:
        """Targets of its links and images, code left out."""
        text = _CODE.sub("`code`", self.prose)
        return [found["target"] for found in (*_LINK.finditer(text), *_IMAGE.finditer(text))]

    @property
    def anchors(self) -> set[str]:
        """Anchors of its headings as GitHub makes them: lower case, no punctuation, hyphens."""
        made: dict[str, int] = {}
        for found in _HEADING.finditer(self.prose):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found["text"])
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            count = made[slug] = made.get(slug, -1) + 1
            if count:
                made[f"{slug}-{count}"] = 0
        return set(made)


def all_pages() -> list[Page]:
    """README, CONTRIBUTING, the skill for agents and everything below docs, by name."""
    paths = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
    paths.append(REPOSITORY / "profiler" / "cli" / "SKILL.md")
    paths += sorted((REPOSITORY / "docs").rglob("*.md"))
    return [Page.read(path) for path in paths]
