"""Plots: pure functions from a figure's rows to a picture."""
