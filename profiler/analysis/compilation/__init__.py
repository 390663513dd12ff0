"""What was compiled while the run went on, and why anew."""
