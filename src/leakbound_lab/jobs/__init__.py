"""Runs and jobs of a configuration, and the paths of their files."""
