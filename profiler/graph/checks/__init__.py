"""What stops a graph compiler or costs time: a model → findings; one rule is one function."""
