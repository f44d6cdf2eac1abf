"""Gradient inversion: records from the gradients that were computed on them."""
