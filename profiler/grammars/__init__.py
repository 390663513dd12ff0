"""What the names of slices say: one grammar for each producer's way of naming."""
