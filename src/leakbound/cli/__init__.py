"""The command line: one command per box of the chain; each reads files, calls a function, writes files."""
