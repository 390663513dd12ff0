"""Check the bundle of README's first command: 35 calls, merged, complete. Standard library."""

import json
import sys
from pathlib import Path

bundle = Path(sys.argv[1])
manifest = json.loads((bundle / "manifest.json").read_text())
calls = sorted(bundle.glob("[0-9][0-9][0-9]_*.pb"))
assert len(calls) == len(manifest["calls"]) == 35, len(calls)
parts = b"".join(path.read_bytes() for path in (bundle / "host.pb", *calls))
assert (bundle / "merged.pb").read_bytes() == parts, "merged.pb is not the concatenation"
branches = [call["branch"] for call in manifest["calls"][:6]]
assert branches == ["prompt"] * 3 + ["negative_prompt"] * 3, branches
assert manifest.get("drops", []) == [], manifest["drops"]
assert (bundle / "report.html").stat().st_size > 100_000
print(f"bundle is whole: {len(calls)} call files, merged.pb of {len(parts):,} bytes")
