"""Everything that the program said when the goldens were recorded, it still says: see `__main__`.

A bundle that differs prints its differences; after a change that is meant, record it again with
`python -m tests.golden record --only NAME`, and read what changed.
"""

from __future__ import annotations

import importlib.util

import pytest

from tests.golden.bundles import BUNDLES
from tests.golden.fresh import outputs_of
from tests.golden.store import FROZEN, differences, environment_differs, read

_EXTRAS = ("distributed", "duckdb", "fsspec", "zstandard")
_MISSING = [name for name in _EXTRAS if importlib.util.find_spec(name) is None]


@pytest.mark.skipif(bool(_MISSING), reason=f"recorded with the dev extra: {_MISSING} are missing")
@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_says_what_it_said(bundle, record_property):
    """What `says` of the bundle states: every output of it is the frozen one, byte for byte."""
    record_property("proves", bundle.says)
    if not bundle.possible:
        pytest.skip("needs ../shared/corpus")
    ((_, outputs, _),) = outputs_of([bundle.name])
    differ = [f"=== {name}\n{text}" for name, text in differences(read(bundle.name), outputs)]
    assert differ == [], "\n".join([bundle.says, environment_differs(), *differ])


def test_each_golden_has_its_bundle():
    """No file is left over from a bundle that is no more, and none is empty."""
    names = {path.name.removesuffix(".json.xz") for path in FROZEN.glob("*.xz")}
    assert names == {bundle.name for bundle in BUNDLES}
    assert all(read(name) for name in names)
