"""Every setting: name, type, unit, bounds and default, in one file for each section of a configuration."""
