"""What the network kernels mean."""

from .networks import IDENTITY, RELU, TANH, activate, backward, forward, layers, pull_back, slope, values
from .vae import vae_gradient, vae_step

__all__ = [
    "IDENTITY",
    "RELU",
    "TANH",
    "activate",
    "backward",
    "forward",
    "layers",
    "pull_back",
    "slope",
    "vae_gradient",
    "vae_step",
    "values",
]
