"""From rows to pictures and pages: plots in one style, and the report."""
