"""Training of a hierarchical variational autoencoder: the gradient of its objective, and steps of the optimiser.

For one theta with its condition t and standard normal e (sigma.md, section 2):

    z_G = mu_G + tau_G e_G,  z_Lj = m_j + sqrt(v_j) e_j
    ELBO = - |theta - mu|^2 / (2 gamma^2) - d log gamma - (d/2) log(2 pi)
           - KL[N(mu_G, tau_G^2) || N(0, I)]  -  sum_j KL_j
    KL_j:  amended KL[N(m_j, v_j) || N(m0_j, v0_j)] ;  printed, multiplicative KL[N(m_j, v_j) || N(0, I)]

gamma is a standard deviation. Both KLs have a weight in what is maximised, and none in the ELBO that is reported.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .._registry import F64, Array, Kernel
from .architecture import Architecture

Float = TypeVar("Float", np.float64, np.float32)

VAE_GRADIENT = Kernel(
    "mlp.vae_gradient",
    purpose="Gradient of the ELBO of a hierarchical variational autoencoder, mean over a batch.",
    source="sigma.md, section 2",
    inputs=(
        Array("parameters", ("k",)),
        Array("theta", ("b", "d"), like="parameters"),
        Array("t", ("b", "c"), like="parameters"),
        Array("noise", ("b", "l"), like="parameters"),
    ),
    outputs=(Array("gradient", ("k",), like="parameters"), Array("terms", ("4",), F64)),
    backends=("numba", "reference"),
    blas=True,
)


def _symbols(kernel: str, architecture: Architecture) -> dict[str, int]:
    if not isinstance(architecture, Architecture):
        raise TypeError(f"{kernel}: architecture must be an Architecture, got {type(architecture).__name__}")
    sizes = architecture.n_parameters, architecture.n_values, architecture.n_conditions, architecture.n_latents
    return dict(zip("kdcl", sizes))


def _deviation(kernel: str, gamma: float) -> float:
    if not 0 < gamma < math.inf:
        raise ValueError(f"{kernel}: gamma must be > 0 and finite, got {gamma}")
    return float(gamma)


def vae_gradient(
    parameters: NDArray[Float],
    theta: NDArray[Float],
    t: NDArray[Float],
    noise: NDArray[Float],
    *,
    architecture: Architecture,
    gamma: float,
    kl_weight: float = 1.0,
    out: tuple[NDArray[Float] | None, NDArray[np.float64] | None] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[NDArray[Float], NDArray[np.float64]]:
    """Gradient of the ELBO, mean over a batch.

    Parameters
    ----------
    parameters : (k,) array, float32 or float64
        Of the networks, k = architecture.n_parameters.
    theta : (b, d) array of the same type
        The batch, b >= 1, standardised.
    t : (b, c) array of the same type
        Their conditions.
    noise : (b, p_G + sum p_Lj) array of the same type
        Standard normal numbers: those of z_G, then of z_L1 .. z_LJ.
    architecture : Architecture
    gamma : float
        Standard deviation of theta about the decoder's values, > 0 and finite.
    kl_weight : float
        Of both KLs in what is maximised, >= 0 and finite.
    out : tuple of two arrays, (k,) of the same type and (4,) float64, optional

    Returns
    -------
    gradient : (k,) array
        Ascent direction. A log variance that is clamped has derivative 0.
    terms : (4,) float64 array
        Batch means of the ELBO (unweighted), |theta - mu|^2, KL_G and sum_j KL_j.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an empty batch, a number outside its range, a wrong `out`.
    """
    name = VAE_GRADIENT.name
    symbols = _symbols(name, architecture)
    if not 0 <= kl_weight < math.inf:
        raise ValueError(f"{name}: kl_weight must be >= 0 and finite, got {kl_weight}")
    if isinstance(theta, np.ndarray) and theta.ndim == 2 and not len(theta):
        raise ValueError(f"{name}: theta must have at least one row")
    scalars = (architecture.code, _deviation(name, gamma), float(kl_weight))
    gradient, terms = VAE_GRADIENT.run((parameters, theta, t, noise), scalars, out, n_threads, backend, symbols)
    return gradient, terms
