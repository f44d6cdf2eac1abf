"""Steps of the chain: one file for each kind of job, with its settings, its jobs and its command."""
