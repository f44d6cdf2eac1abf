"""Cost and time of a configuration before it runs."""
