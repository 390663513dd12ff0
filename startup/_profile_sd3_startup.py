"""Switches profile-sd3 on while the interpreter starts, where RBLN_PROFILER says so.

Installed beside `profile_sd3.pth` and `profile_sd3.start`, of which Python reads one. Without the
variable this imports nothing but `os`, which every interpreter has imported by then.
"""

import os


def start() -> None:
    """Switch on if RBLN_PROFILER is set; never raises, for it is the user's interpreter."""
    if os.environ.get("RBLN_PROFILER", "0") in ("", "0"):
        return
    try:
        from profiler.capture.startup import from_environment

        from_environment()
    except Exception as error:
        import sys

        sys.stderr.write(f"profile-sd3: not profiling: {type(error).__name__}: {error}\n")
