"""Networks for Numba. Public: `tanh_all`, and on blocks of rows `forward_block` and `backward_block`."""

from .networks import *
from .vae import *
