"""Processes of a run: the coordinator, the GPUs of a machine, and the time and memory used."""
