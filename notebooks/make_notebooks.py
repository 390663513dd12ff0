"""Make the notebooks from `stories/*.md`: `python notebooks/make_notebooks.py [NAME ...]`.

A story is Markdown whose fenced Python blocks are the cells, so that a change can be read in a
diff. Each notebook is executed in this folder and keeps its outputs; every plotly figure also gets
a picture, which is what viewers without plotly (GitHub's) show. Needs the dev extra and Chromium.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

FOLDER = Path(__file__).resolve().parent
STORIES = FOLDER / "stories"
PLOTLY = "application/vnd.plotly.v1+json"
NEEDS = re.compile(r"<!-- needs: ([\w ]+) -->\n")
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_DRAW = "of => Plotly.newPlot('figure', of.data, of.layout, {staticPlot: true})"
_WIDTH = 860  # of a picture, in CSS pixels


def notebook_of(story: str) -> nbformat.NotebookNode:
    """The notebook of a story, not executed."""
    parts = _FENCE.split(NEEDS.sub("", story))
    cells = [
        new_code_cell(part.rstrip("\n")) if number % 2 else new_markdown_cell(part.strip())
        for number, part in enumerate(parts)
        if part.strip()
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    notebook = new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return notebook


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run all cells in this folder, with the repository's `profiler`; raises at the first error."""
    from nbclient import NotebookClient

    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(FOLDER.parent), kept)))
    try:
        resources = {"metadata": {"path": str(FOLDER)}}
        NotebookClient(notebook, timeout=300, resources=resources).execute()
    finally:
        if kept is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = kept
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
        if "outputs" in cell:  # without notices of libraries, which name files of this machine
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata.pop("language_info", None)


def add_pictures(notebook: nbformat.NotebookNode) -> None:
    """Give every plotly output a PNG beside it."""
    figures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if PLOTLY in output.get("data", {})
    ]
    if not figures:
        return
    from playwright.sync_api import sync_playwright
    from plotly.offline import get_plotlyjs

    browser_path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": _WIDTH, "height": 900})
        page.set_content("<body style='margin:0'><div id='figure'></div>")
        page.add_script_tag(content=get_plotlyjs())
        for output in figures:
            page.evaluate(_DRAW, output["data"][PLOTLY])
            picture = page.locator("#figure .svg-container").screenshot()
            output["data"]["image/png"] = base64.b64encode(picture).decode()
        browser.close()


def main(names: list[str]) -> None:
    for path in sorted(STORIES.glob("*.md")):
        if names and path.stem not in names:
            continue
        notebook = notebook_of(path.read_text("utf-8"))
        execute(notebook)
        add_pictures(notebook)
        target = FOLDER / f"{path.stem}.ipynb"
        nbformat.write(notebook, target)
        sys.stdout.write(f"{target.name}: {target.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
