"""What the site has beside the pages of this folder; `mkdocs.yml` names it as its hook.

- `reference/cli.md`: every command with its options, from the command line itself;
- `contributing.md`, `changelog.md`: the files of the repository's root;
- `example-report.html`: the page of a run of `sample_traces/`, as `analyze` writes it;
- links that leave this folder: to those two pages where they lead there, else their text alone,
  since the site holds no sources.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLE, EXAMPLE_RUN = "example-report.html", "sd35_mi300x"
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\]\[]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made here."""
    from mkdocs.structure.files import File

    pages = {"reference/cli.md": command_line()}
    for source, page in ROOT_PAGES.items():
        pages[page] = (REPOSITORY / source).read_text(encoding="utf-8")
    pages[EXAMPLE] = example_report()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links that leave the folder into what the site can offer."""
    name = page.file.src_uri
    source = next((root for root, made in ROOT_PAGES.items() if made == name), f"docs/{name}")
    return _LINK.sub(lambda found: _link(found, source), markdown)


def _link(found: re.Match[str], source: str) -> str:
    path, mark, anchor = found["target"].partition("#")
    if "://" in path or not path:
        return found[0]
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if target in ROOT_PAGES:
        target = f"docs/{ROOT_PAGES[target]}"
    elif not target.startswith("docs/") or (REPOSITORY / target).is_dir():
        return found["text"]
    home = "docs" if source in ROOT_PAGES else posixpath.dirname(source)
    return f"[{found['text']}]({posixpath.relpath(target, home)}{mark}{anchor})"


def example_report() -> str:
    """The page of the report on a run that the repository has."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / EXAMPLE
        run = REPOSITORY / "sample_traces" / EXAMPLE_RUN
        analyze = [sys.executable, "-m", "profiler", "analyze", str(run), "--html", str(page)]
        subprocess.run(analyze, check=True, cwd=REPOSITORY, stdout=subprocess.DEVNULL)  # noqa: S603
        return page.read_text(encoding="utf-8")


def command_line() -> str:
    """The page of all commands, in Markdown."""
    import typer.main

    if str(REPOSITORY) not in sys.path:  # mkdocs is a program of its own
        sys.path.insert(0, str(REPOSITORY))
    from profiler.cli.main import command_line

    root: Any = typer.main.get_command(command_line())
    lines = [
        "# Command line",
        "",
        "Made from the commands themselves: `profile-sd3 COMMAND --help` says the same.",
        "Exit codes: 0 done; 1 the answer is no, as of a gate that failed; 2 the input or an",
        "option cannot be used, said in one sentence on stderr; 3 the recording is damaged, with",
        "--strict; 130 interrupted; 141 who read the output closed it.",
        "",
    ]
    return "\n".join(lines + _command(root, "profile-sd3"))


def _command(command: Any, name: str) -> list[str]:
    """A command's section, or those of a group's commands."""
    context = command.make_context(name, [], resilient_parsing=True)
    if hasattr(command, "list_commands"):
        found = [command.get_command(context, each) for each in command.list_commands(context)]
        return [line for each in found for line in _command(each, f"{name} {each.name}")]
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## {name}", "", _text(command.help), "", "```text", f"{name} {usage}", "```", ""]
    rows = [record for each in command.get_params(context) if (record := _row(each, context))]
    return [*lines, "| option or argument | meaning |", "|---|---|", *rows, ""] if rows else lines


def _row(parameter: Any, context: Any) -> str | None:
    """An option or argument: how it is written, what it does."""
    if parameter.name == "help":
        return None
    record = parameter.get_help_record(context)
    if record is None:
        return None
    return f"| <code>{_cell(escape(record[0]))}</code> | {_cell(_text(record[1]))} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "&#124;")


def _text(text: str | None) -> str:
    """Help as Markdown: what looks like markup there is none."""
    paragraphs = (text or "").replace("\b", "").split("\n\n")
    joined = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return re.sub(r"([*_\[\]`])", r"\\\1", escape(joined, quote=False))
