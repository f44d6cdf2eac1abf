"""Processes of a run: one coordinator, the GPUs of a machine, time and memory used."""
