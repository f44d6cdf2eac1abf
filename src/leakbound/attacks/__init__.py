"""Attackers: what they learn from released weights or gradients, scored against the controls of each attack."""
