"""Networks for Numba. Public: `tanh_all`, and on blocks of rows `forward_block` and `backward_block`."""

from .networks import LANES, TANH, backward, backward_block, forward, forward_block, tanh_all
from .vae import vae_gradient, vae_step

__all__ = [
    "LANES",
    "TANH",
    "backward",
    "backward_block",
    "forward",
    "forward_block",
    "tanh_all",
    "vae_gradient",
    "vae_step",
]
