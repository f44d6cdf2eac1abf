"""Private average consensus (Wang et al. 2020): networks, noise, convergence, levels for observers."""
