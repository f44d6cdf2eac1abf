"""Settings of a defense and an attack from outside; read whenever the workflow is looked at, so nothing heavy here."""

from typing import ClassVar, Literal

from leakbound_lab.config.attacks import Attack
from leakbound_lab.config.defenses import Defense


class Homemade(Defense):
    draws_noise: ClassVar[bool] = False
    trainer: ClassVar[str] = "outside:train"

    mechanism: Literal["homemade"] = "homemade"
    care: int


class Guess(Attack):
    function: ClassVar[str] = "outside:attack"

    auc: float = 0.5
