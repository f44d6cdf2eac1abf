"""Plots in one style, and pages, drawn from rows."""
