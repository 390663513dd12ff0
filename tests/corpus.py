"""Real traces of other producers: ../shared/corpus beside the checkout, where it is mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
PERFETTO_TESTS = tuple(sorted(CORPUS.glob("perfetto/*.pb")))
SD35 = CORPUS / "torch" / "sd35_mi300x.json.gz"

needs_corpus = pytest.mark.skipif(
    not (SD35.is_file() and PERFETTO_TESTS),
    reason=f"{CORPUS} is missing: mount the corpus at ../shared/corpus",
)
