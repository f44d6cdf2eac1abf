"""Start of the command line, the warm process of a run, and its screen."""
