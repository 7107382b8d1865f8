"""The client's side of the augmented models for Numba."""

from .gradients import *
from .iterations import *
