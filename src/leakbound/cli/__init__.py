"""The command line. Each command of a step reads files, calls one function of the library, and writes files."""
