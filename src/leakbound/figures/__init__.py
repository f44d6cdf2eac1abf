"""From results to pictures and verdicts: tidy tables, claims as tests, plots."""
