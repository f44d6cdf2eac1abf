"""Elementary work in a job, of which the plan knows what a unit costs."""

from dataclasses import dataclass

STEP_RECORDS = 64
"""Records of a training step, as steps are counted."""


@dataclass(frozen=True)
class Work:
    """An amount of one kind of elementary work.

    Attributes:
        kind: ``step_<kind>`` (training steps of 64 records), ``predict`` (forward passes of an image),
            ``invert`` and ``match`` (iterations of model and of gradient inversion on an image),
            ``membership`` (steps of the attack network), ``denoise`` (records in training steps of the
            learned estimate, times the square of its width), ``image`` (images read, resized and written),
            ``product`` (multiplications of a float64 matrix product), ``attack_<name>`` (replicas that an
            outside attack takes), ``disk`` (bytes of outputs), or ``parameters`` (bytes of outputs for each
            parameter).
        amount: Units of it.
        model: Network that it is done with. Empty for none.
        colors: Colors of the images, or 0 for none.
        slots: Models that one process trains or attacks side by side, where the device is a GPU.
    """

    kind: str
    amount: int | float
    model: str = ""
    colors: int = 0
    slots: int = 1
