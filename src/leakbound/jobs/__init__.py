"""Runs and jobs of a configuration, and where their files lie."""
