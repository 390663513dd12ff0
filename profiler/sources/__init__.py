"""From what a user names to runs: bundles, folders of them, traces, and what importers read."""
