"""Facts of an attacked run, from which an attack computes its work for the plan."""

from dataclasses import dataclass

from leakbound_lab.config.data import DatasetSize

Amount = tuple[str, int | float, str, int, int]
"""Kind of elementary work, amount, network, colors and models side by side,
as ``leakbound_lab.jobs.unit_costs.Work``."""


@dataclass(frozen=True)
class AttackedRun:
    """Facts of a run on which the work of an attack depends.

    Attributes:
        attack: Name of the attack.
        model: Name of the network.
        replicas: Networks that are attacked.
        full: Those of full length.
        chosen: Those of full length at the chosen learning rates.
        size: Sizes of the dataset.
        batch_size: Records whose gradients are averaged.
        has_channel: Whether its defense is a channel.
        noisy_gradients: Whether its defense adds noise to gradients.
        references: Reference networks that it is compared with.
        step_records: Records of a training step, as steps are counted.
        rounds: Steps of a training.
    """

    attack: str
    model: str
    replicas: int
    full: int
    chosen: int
    size: DatasetSize
    batch_size: int
    has_channel: bool
    noisy_gradients: bool
    references: int
    step_records: int
    rounds: int

    def stacked(self, kind: str, amount: int | float) -> Amount:
        """State work that is done on all replicas side by side."""
        return kind, self.replicas * amount, self.model, self.size.colors, self.replicas

    def single(self, kind: str, amount: int | float) -> Amount:
        """State work that is done on one replica after another."""
        return kind, self.replicas * amount, self.model, self.size.colors, 1

    def gradients(self, records: int, model: str = "", networks: int | None = None) -> Amount:
        """State gradients of single records for each replica or network, by default of the run's network."""
        steps = (self.replicas if networks is None else networks) * records / self.step_records
        return "step_dpsgd", steps, model or self.model, self.size.colors, 1
