"""Settings of MLflow, of resources of jobs, and of plugins."""

from typing import Annotated

from pydantic import Field

from leakbound.config.settings import Address, Name, Settings, Target


class TrackingConfig(Settings):
    """Settings of MLflow's store of runs."""

    enabled: bool = True
    """Whether finished jobs are logged."""
    uri: Address = "sqlite:///results/mlflow.db"
    """Tracking store: a database or a server, with its password in the environment. Files remain the
    truth."""
    ui: Annotated[Address, Field(pattern=r"^https?://[^\s]+$")] = "http://127.0.0.1:5000"
    """Address of MLflow's pages on a database, for links from the report. A server shows its own pages."""

    @property
    def pages(self) -> str:
        """Address of MLflow's pages: the server's own, or that of `leakbound ui` for a database."""
        return (self.uri if self.uri.startswith("http") else self.ui).rstrip("/")


class ResourceConfig(Settings):
    """Resources that one job of a rule requests."""

    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """CPU threads."""
    mem_mb: Annotated[int, Field(ge=100, le=10**8)] = 1500
    """Memory in MiB, as much again at each retry."""
    runtime: Annotated[int, Field(ge=1, le=10**6)] = 30
    """Minutes, as many again at each retry."""


class ComputeConfig(ResourceConfig):
    """Resources that one job of training or attack requests."""

    gpu: Annotated[int, Field(ge=0, le=8)] = 0
    """GPUs."""


class ResourcesConfig(Settings):
    """Resources of the jobs of each step of the chain."""

    prepare: ResourceConfig = ResourceConfig(mem_mb=3000)
    covariance: ResourceConfig = ResourceConfig(mem_mb=3000)
    calibrate: ResourceConfig = ResourceConfig()
    estimator: ResourceConfig = ResourceConfig(mem_mb=3000, runtime=120)
    train: ComputeConfig = ComputeConfig(runtime=720)
    attack: ComputeConfig = ComputeConfig(runtime=720)
    efficiency: ComputeConfig = ComputeConfig(mem_mb=4000, runtime=120)
    figures: ResourceConfig = ResourceConfig()


class PluginsConfig(Settings):
    """Additions from outside the package: name to ``module:attribute``, imported when a job uses them.

    Settings of mechanisms and attacks are imported when a configuration that uses them is read.
    """

    datasets: dict[Name, Target] = {}
    models: dict[Name, Target] = {}
    shapes: dict[Name, Target] = {}
    mechanisms: dict[Name, Target] = {}
    attacks: dict[Name, Target] = {}
    plots: dict[Name, Target] = {}
    illustrations: dict[Name, Target] = {}
    claim_tests: dict[Name, Target] = {}
