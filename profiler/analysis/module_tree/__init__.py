"""Where in the model did the time go: a run as a tree, from its stages down to operators."""
