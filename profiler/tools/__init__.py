"""What is done with a run: open, query, summarize, export, share it, show it in the Perfetto UI."""
