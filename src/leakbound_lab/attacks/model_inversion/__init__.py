"""Model inversion: images that a trained network gives a label, compared with the class means."""
