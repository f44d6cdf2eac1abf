"""Learned estimates of images from their noisy versions."""
