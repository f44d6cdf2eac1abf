"""Attacks that prove lower bounds on leakage: identification, audits of DP, the capacity of gradients."""
