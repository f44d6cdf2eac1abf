"""Best linear estimate of images by an attacker who knows what their gradients were computed on."""

import numpy as np
from jaxtyping import Float

from leakbound.channels.covariance import Moments
from leakbound.channels.estimation import linear_estimate
from leakbound.training.client_steps import ClientStep


def oracle(
    client: ClientStep, released: Float[np.ndarray, "n colors height width"], moments: Moments
) -> Float[np.ndarray, "n colors height width"] | None:
    """Best linear estimate of the mean images of batches from what their gradients were computed on.

    The mean of B noisy images has a B-th of the covariance of one, both of signal and of noise, so the
    estimate is that from one image. An image without one principal direction is its own best estimate. None
    under defenses that leave images alone and disguise gradients.

    Args:
        client: Step that the gradients come from.
        released: Mean of what the gradient of each batch was computed on.
        moments: Mean and covariance of the records.
    """
    if client.channel is not None:
        return linear_estimate(released, client.channel, moments)
    return None if client.defense.changes_gradients else released
