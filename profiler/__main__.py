"""`python -m profiler` is `profile-sd3`."""

from profiler.cli.main import main

if __name__ == "__main__":
    main()
