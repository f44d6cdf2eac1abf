"""Start of the command line, and the warm process of a run."""
