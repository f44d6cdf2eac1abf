"""Training under differential privacy: DP-SGD and DP-PSAC."""
