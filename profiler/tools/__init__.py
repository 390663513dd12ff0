"""Tools for a run: open, query, summarize, export, share it, show it in the Perfetto UI."""
