"""Statements of the papers about figures, tested on the rows that the figures show."""
