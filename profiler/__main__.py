"""`python -m profiler` is `profile-sd3`."""

from profiler.cli.main import program

if __name__ == "__main__":
    program()
