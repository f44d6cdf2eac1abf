"""The lab: the experiments of four papers by a workflow, which bounds and measures what uploads reveal."""
