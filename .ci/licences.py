"""The licences of what an installation brings, from the metadata of what is installed, as Markdown.

python .ci/licences.py            # of everything in .ci/constraints.txt that is installed here
python .ci/licences.py --write    # into docs/licences.md
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_PAGE = _ROOT / "docs" / "licences.md"
_BEGIN = "<!-- packages -->\n"


def main() -> int:
    text = table()
    if sys.argv[1:] == ["--write"]:
        before = _PAGE.read_text(encoding="utf-8").partition(_BEGIN)[0]
        _PAGE.write_text(f"{before}{_BEGIN}\n{text}\n", encoding="utf-8")
    else:
        print(text)
    return 0


def table() -> str:
    """An item for each licence: the packages that state it."""
    pinned = (_ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8")
    packages: dict[str, list[str]] = {}
    for name in re.findall(r"^([\w.-]+)==", pinned, re.MULTILINE):
        try:
            known = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of another system, such as CUDA's
            continue
        packages.setdefault(licence_of(known.metadata), []).append(name)
    items = (f"- {licence}: {', '.join(names)}" for licence, names in sorted(packages.items()))
    return "\n".join(items)


def licence_of(told: metadata.PackageMetadata) -> str:
    """The SPDX expression, else what the classifiers say, else the first line of the field."""
    expression = told.get("License-Expression")
    if expression:
        return str(expression)
    classes = [one for one in told.get_all("Classifier") or () if one.startswith("License :: ")]
    names = [one.rpartition(" :: ")[2] for one in classes]
    text = next(iter((told.get("License") or "").strip().splitlines()), "")
    return " or ".join(names).replace("|", "/") or text[:80].replace("|", "/") or "not stated"


if __name__ == "__main__":
    sys.exit(main())
