"""Importing this lets a benchmark, and what it starts, find the checkout in which it stands.

Nothing has to be installed but the dependencies, and what is measured is this tree.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)
