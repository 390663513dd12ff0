"""Importing this lets a benchmark, and what it starts, find the checkout in which it stands.

Nothing has to be installed but the dependencies, and what is measured is this tree. A benchmark
ends here if Python keeps no byte code: each process would compile the project's modules anew, which
takes more than a second.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)

_PROGRAM = Path(sys.argv[0]).resolve()
if sys.dont_write_bytecode and _PROGRAM.parent == Path(__file__).resolve().parent:
    sys.exit("Python keeps no byte code: unset PYTHONDONTWRITEBYTECODE, and start without -B")
