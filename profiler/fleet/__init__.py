"""Many runs: the data set, history, change points, work on a cluster."""
