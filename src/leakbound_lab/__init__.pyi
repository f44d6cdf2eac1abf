from leakbound_lab.commands.finished import load_run as load_run
