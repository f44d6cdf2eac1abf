"""Elementary work in a job, with units of known cost."""

from dataclasses import dataclass

STEP_RECORDS = 64
"""Records of one training step in the unit of costs."""


@dataclass(frozen=True)
class Work:
    """An amount of one kind of elementary work.

    Attributes:
        kind: ``step_<kind>`` (training steps of 64 records), ``predict`` (forward passes of an image),
            ``invert`` and ``match`` (iterations of model and of gradient inversion on an image),
            ``membership`` (steps of the attack network), ``denoise`` (records in training steps of the
            learned estimate, times the square of its width), ``image`` (images read, resized and written),
            ``product`` (multiplications of a float64 matrix product), ``attack_<name>`` (replicas in an
            attack of a plugin), ``disk`` (bytes of outputs), or ``parameters`` (bytes of outputs for each
            parameter).
        amount: Number of units.
        model: Network of the work. Empty for none.
        colors: Colors of the images. 0 for none.
        slots: Networks that one process trains or attacks at once on a GPU.
    """

    kind: str
    amount: int | float
    model: str = ""
    colors: int = 0
    slots: int = 1
