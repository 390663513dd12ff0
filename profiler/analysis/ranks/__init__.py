"""What the ranks of a job wait for each other, and what their collectives cost."""
