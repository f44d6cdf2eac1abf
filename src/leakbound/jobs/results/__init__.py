"""Finished results of a configuration: their origin, composed bounds, publication and verification."""
