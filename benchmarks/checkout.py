"""Importing this lets a benchmark, and what it starts, find the checkout in which it stands.

Nothing has to be installed but the dependencies, and what is measured is this tree. Processes that
compile the project's modules anew take more than a second longer: `with_byte_code` refuses that.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)


def with_byte_code() -> None:
    """Ends a benchmark of whole processes in which Python keeps no byte code."""
    if sys.dont_write_bytecode:
        sys.exit("Python keeps no byte code: unset PYTHONDONTWRITEBYTECODE, and start without -B")
