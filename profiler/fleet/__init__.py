"""Many runs: a data set of runs and metrics, questions to it, work over many bundles."""
