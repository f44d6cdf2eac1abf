"""Private average consensus (Wang et al. 2020): networks, noise schemes, convergence, and levels towards observers."""
