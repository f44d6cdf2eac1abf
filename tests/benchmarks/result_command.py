"""The command that makes one result of a configuration by itself."""

from collections.abc import Mapping

from leakbound.jobs.job import Job


def words_of(job: Job) -> list[str]:
    """Step, settings and files of a result, as arguments of the command line."""
    words = ["step", job.step.replace("_", "-"), "--settings", job.settings_text()]
    for role, files in job.inputs.items():
        if isinstance(files, str):
            words += [f"--{role}", files]
        elif isinstance(files, Mapping):
            words += [word for name, path in files.items() for word in (f"--{role}", f"{name}={path}")]
        else:
            words += ["--root", str(job.root)]
    return [*words, *(word for role, path in job.outputs.items() for word in (f"--{role}", path))]
