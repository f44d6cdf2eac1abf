"""Federated averaging under a mutual-information budget (PMIDP-FL): noise, weights and leaks."""
