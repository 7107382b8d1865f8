"""Describes the networks of a hierarchical variational autoencoder, and where their parameters stand (sigma.md, section 1)."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import rng
from .._layers import VARIANTS, Layer, Part, Sizes, parts_of

__all__ = ["Architecture", "Layer", "Part"]

Numbers: TypeAlias = np.ndarray  # float32 or float64, as the caller's

LIMIT = 2**31  # of a layer's size


def matrices(flat: Numbers, layers: tuple[Layer, ...]) -> list[tuple[Numbers, Numbers | None]]:
    """Returns views of a part's layers: W (n_out, n_in), and b (n_out,) or None."""
    views, begin = list[tuple[Numbers, Numbers | None]](), 0
    for n_out, n_in, bias in layers:
        end = begin + n_out * n_in
        views.append((flat[begin:end].reshape(n_out, n_in), flat[end : end + n_out] if bias else None))
        begin = end + n_out * bias
    return views


@dataclass(frozen=True)
class Architecture:
    """Holds the sizes of the autoencoder of theta = (theta_1 .. theta_J) given a condition t, with latents z_G and z_L1 .. z_LJ.

    Its parameters are one vector: part after part, and in a part layer after layer, W row by row and then b. All layers of a part
    are affine; relu follows the first of several ("..._weights": tanh). Where a part's output is a normal distribution, its last
    layer gives the means, then the logarithms of the variances, clamped to [-12, 6].

    ================== ======================================= ==============================================
    part               "printed", "amended"                    "multiplicative"
    ================== ======================================= ==============================================
    "global_encoder"   [theta; t] -> hidden, hidden, 2 p_G     means M kron(s_E, theta), log variances of s_E
    "global_decoder"   [z_G; t] -> hidden, hidden = h          absent
    "encoder_weights"  absent                                  t -> width, rank = s_E
    "decoder_weights"  absent                                  t -> width, rank = s_D
    "prior[j]"         [z_G; t] -> local_hidden (2), 2 p_Lj    absent: N(0, I)
    "posterior[j]"     amended: [theta_j; z_G; t] -> the same  means M kron(s_E, [theta_j; z_G]), log variances of s_E
    "decoder[j]"       printed: [h; z_Lj; t] -> d_j            M kron(s_D, [z_G; z_Lj])
                       amended: .. -> local_hidden, d_j
    ================== ======================================= ==============================================

    kron(s, x) has s_r x_i at r len(x) + i; the matrices M have no bias, and stand before the layer of the log variances.

    Attributes
    ----------
    variant : "printed", "amended" or "multiplicative"
    groups : d_1 .. d_J
    n_conditions : numbers in t
    n_global : p_G
    n_local : p_L1 .. p_LJ
    hidden, local_hidden : units of the hidden layers ("printed", "amended")
    width, rank : of the networks of weights ("multiplicative")

    Examples
    --------
    >>> from fedkern.kernels import mlp
    >>> architecture = mlp.Architecture("amended", groups=(4, 3), n_local=(2, 2))
    >>> architecture.n_values, architecture.n_latents
    (7, 9)
    >>> list(architecture.parts)[:3]
    ['global_encoder', 'global_decoder', 'prior[0]']
    >>> architecture.initial(seed=7).shape == (architecture.n_parameters,)
    True
    """

    variant: str
    groups: tuple[int, ...]
    n_conditions: int = 1
    n_global: int = 5
    n_local: tuple[int, ...] = (5, 5, 5)
    hidden: int = 16
    local_hidden: int = 16
    width: int = 32
    rank: int = 6

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise ValueError(f"Architecture: variant must be one of {', '.join(VARIANTS)}, got {self.variant!r}")
        # Tuples of plain ints, so that equal architectures are equal, and hash alike.
        for name in ("groups", "n_local"):
            object.__setattr__(self, name, tuple(map(operator.index, getattr(self, name))))
        for name in ("n_conditions", "n_global", "hidden", "local_hidden", "width", "rank"):
            object.__setattr__(self, name, operator.index(getattr(self, name)))
            if not 1 <= getattr(self, name) < LIMIT:
                raise ValueError(f"Architecture: {name} must be a positive integer below 2^31, got {getattr(self, name)}")
        if not self.groups or len(self.groups) != len(self.n_local):
            raise ValueError(
                f"Architecture: needs one number of local latents for each group, got {len(self.groups)} groups "
                f"and {len(self.n_local)} in n_local"
            )
        for name in ("groups", "n_local"):
            if not all(1 <= n < LIMIT for n in getattr(self, name)):
                raise ValueError(f"Architecture: {name} must be positive integers below 2^31, got {getattr(self, name)}")

    @property
    def n_values(self) -> int:
        """The number d of values in theta."""
        return sum(self.groups)

    @property
    def n_latents(self) -> int:
        """The number of latents, p_G + sum p_Lj."""
        return self.n_global + sum(self.n_local)

    @cached_property
    def n_parameters(self) -> int:
        return sum(layer.n_parameters for part in self.parts.values() for layer in part.layers)

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        """The parts by name, in the order in which they stand."""
        return MappingProxyType(parts_of(self))

    @cached_property
    def code(self) -> NDArray[np.int64]:
        """All sizes as backends take them: variant, J, c, p_G, hidden, local_hidden, width, rank, d_1 .. d_J, p_L1 .. p_LJ."""
        sizes = (self.n_conditions, self.n_global, self.hidden, self.local_hidden, self.width, self.rank)
        code = np.array([VARIANTS.index(self.variant), len(self.groups), *sizes, *self.groups, *self.n_local], np.int64)
        code.flags.writeable = False
        return code

    @classmethod
    def of(cls, code: NDArray[np.int64]) -> Architecture:
        """Returns the architecture that has a code."""
        return cls(*Sizes.of(code))

    def layers(self, parameters: Numbers, part: str) -> list[tuple[Numbers, Numbers | None]]:
        """Returns a part's layers, as views of the parameters: W (n_out, n_in), and b (n_out,) or None."""
        where, layers = self.parts[part]
        return matrices(parameters[where], layers)

    def initial(self, seed: int) -> NDArray[np.float64]:
        """Returns the parameters with which training starts: uniform on +-1 / sqrt(n_in), numbers of the stream "initial"."""
        uniforms = rng.uniform(self.n_parameters, key=rng.key(seed, "initial"))
        # A bound for each parameter, in the order of the parameters.
        layers = [layer for part in self.parts.values() for layer in part.layers]
        bounds: NDArray[np.float64] = np.concatenate([np.full(layer.n_parameters, layer.n_in**-0.5) for layer in layers])
        return (2 * uniforms - 1) * bounds
