"""`python -m profiler` is `profile-sd3`."""

from profiler.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
