"""The recorded result of the sweep, and the page of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sweep.compare import Result

__all__ = ["PAGE", "RESULTS", "page", "write"]

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "capture-pipelines.md"
_PACKAGES = ("diffusers", "transformers", "torch")
_ABOUT = {
    "stable_diffusion": "Stable Diffusion 1 and 2, video made of their parts",
    "xl": "Stable Diffusion XL",
    "three": "Stable Diffusion 3",
    "flux": "FLUX.1",
    "qwen": "Qwen-Image",
    "image": "Sana, PixArt, AuraFlow, Chroma, Z-Image, FLUX.2, CogView4",
    "priors": "Kandinsky, Stable Cascade",
    "wan": "Wan",
    "ltx": "LTX-Video",
    "video": "CogVideoX, HunyuanVideo, Mochi, Latte, Stable Video Diffusion",
    "audio": "Sound",
    "unconditional": "Without text",
}


def write(results: Sequence[Result]) -> None:
    """Write the result, and its page."""
    recorded = {
        "versions": {name: version(name).partition("+")[0] for name in _PACKAGES},
        "results": [asdict(result) for result in results],
    }
    RESULTS.write_text(json.dumps(recorded, indent=1) + "\n", "utf-8")
    PAGE.write_text(page(json.loads(RESULTS.read_text("utf-8"))), "utf-8")


def page(recorded: Mapping[str, Any]) -> str:
    """The recorded result as a page of the documentation."""
    results = recorded["results"]
    versions = ", ".join(f"{name} {number}" for name, number in recorded["versions"].items())
    wrong = [result["name"] for result in results if result["differences"]]
    outcome = f"differs: {', '.join(wrong)}" if wrong else "all as they should be"
    lines = [
        "# Pipelines that capture is checked against",
        "",
        "Others are captured as well ([capture](capture.md)): the profiler lists no classes.",
        "The sweep (`python -m tests.sweep --write`, which also writes this page) builds each",
        "class with tiny random weights, without downloads, and runs it twice with the same seed,",
        "with and without capture. Outputs must be equal bit by bit; calls, steps and branches",
        "must equal those of hooks that are independent of capture, which are listed in",
        "`tests/sweep/results.json`.",
        "",
        f"{len(results)} classes with {versions}: {outcome}.",
    ]
    lines.append("")
    for family in dict.fromkeys(result["family"] for result in results):
        names = [f"`{result['name']}`" for result in results if result["family"] == family]
        lines.append(f"- **{_ABOUT.get(family, family)}**: {', '.join(names)}")
    return "\n".join(lines) + "\n"
