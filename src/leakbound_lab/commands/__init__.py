"""Commands on a configuration and its results."""
