"""What `profile-sd3 graph` does with a graph and its runs: compares two graphs, and puts what a
run measured on the nodes. Graphs, capture and analysis, which know nothing of each other, meet
here."""
