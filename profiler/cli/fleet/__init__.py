"""What the subcommands of `profile-sd3 fleet` share."""
