"""What `--fix` repairs: one function a rule, model → how many places were repaired."""
