"""`profile-sd3 graph …`: one module per subcommand."""
