"""The command line. Each step reads files, calls one function of the library, and writes files."""
