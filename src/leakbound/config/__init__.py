"""Every setting: its name, type, unit, bounds and default, in one file for each section of a configuration."""
