"""Experiments of single papers: what each computes, as printed, corrected and extended."""
