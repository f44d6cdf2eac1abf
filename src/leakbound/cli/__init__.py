"""The command line: one command for each step of the chain; each reads files, calls a function, writes files."""
