"""What a configuration costs before anything runs."""
