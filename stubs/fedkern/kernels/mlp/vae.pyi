# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Trains a hierarchical variational autoencoder: the gradient of its objective, and steps of the optimiser.

For one theta with its condition t and standard normal e (docs/spec/sigma.md, section 2):

    z_G = mu_G + tau_G e_G,  z_Lj = m_j + sqrt(v_j) e_j
    ELBO = - |theta - mu|^2 / (2 gamma^2) - d log gamma - (d/2) log(2 pi)
           - KL[N(mu_G, tau_G^2) || N(0, I)]  -  sum_j KL_j
    KL_j:  amended KL[N(m_j, v_j) || N(m0_j, v0_j)] ;  printed, multiplicative KL[N(m_j, v_j) || N(0, I)]

gamma is a standard deviation. Both KLs have a weight in the function that is maximised, and none in the ELBO that is reported.
"""
from typing import Any, Literal
import math
from typing import Any, TypeVar
import numpy as np
from numpy.typing import NDArray
from .._checks import AT_LEAST_0, AT_LEAST_1, NOT_NEGATIVE, POSITIVE, SEED, WORD, Domain, choice, describe, require
from .._record import F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar, here, home
from ..spatial._checks import INT64, check_normals
from ..spatial.table import KINDS, TABLE, WORDS, check_table
from .architecture import Architecture
__all__ = ['vae_gradient', 'vae_step']
Float = TypeVar('Float', np.float64, np.float32)
VAE_GRADIENT: Kernel
VAE_STEP: Kernel
def vae_gradient(parameters: NDArray[Float], theta: NDArray[Float], t: NDArray[Float], noise: NDArray[Float], *, architecture: Architecture, gamma: float, kl_weight: float=1.0, out: tuple[NDArray[Float] | None, NDArray[np.float64] | None] | None=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> tuple[NDArray[Float], NDArray[np.float64]]:
    """Returns the gradient of the ELBO, mean over a batch.

    Parameters
    ----------
    parameters : (k,) array, float32 or float64
        Parameters of the networks, k = architecture.n_parameters.
    theta : (b, d) array of the type of parameters
        The batch, b >= 1, standardised.
    t : (b, c) array of the type of parameters
        Their conditions.
    noise : (b, l) array of the type of parameters
        Standard normal numbers, l = p_G + sum p_Lj: those of z_G, then of z_L1 .. z_LJ.
    architecture : Architecture, an `Architecture`
        Sizes of the networks.
    gamma : float, > 0 and finite
        Standard deviation of theta about the decoder's values.
    kl_weight : float, >= 0 and finite
        Weight of both KLs in the function that is maximised.
    out : tuple of 2 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    gradient : (k,) array of the type of parameters
        Ascent direction. A log variance that is clamped has derivative 0.
    terms : (4,) float64 array
        Batch means of the ELBO (unweighted), |theta - mu|^2, KL_G and sum_j KL_j.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an empty batch, a number outside its range, a wrong `out`.

    Source: docs/spec/sigma.md, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import mlp
    >>> architecture = mlp.Architecture("amended", groups=(2,), n_global=1, n_local=(1,), hidden=2, local_hidden=2)
    >>> parameters = architecture.initial(seed=7)
    >>> theta, t, noise = np.array([[0.5, -0.3]]), np.array([[1.0]]), np.zeros((1, architecture.n_latents))
    >>> gradient, terms = mlp.vae_gradient(parameters, theta, t, noise, architecture=architecture, gamma=1.0)
    >>> gradient.shape, terms.round(3)
    ((88,), array([-2.878,  0.656,  0.42 ,  0.292]))"""
    ...
def vae_step(parameters: NDArray[Float], moments: NDArray[Float], values: NDArray[np.float64], phi: NDArray[np.float64], scale: NDArray[np.float64], indptr: NDArray[np.int64] | None=None, indices: NDArray[np.int64] | None=None, order: NDArray[np.int64] | None=None, *, rates: NDArray[np.float64], kl_weights: NDArray[np.float64], architecture: Architecture, kind: Literal['stored', 'dense', 'sparse'], rank: int=0, group: int=1, batch: int, gamma: float, clip: float=0.0, seed: int, chain: int=0, first: int=0, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> tuple[NDArray[Float], NDArray[Float], NDArray[np.float64]]:
    """Makes the steps `first`, `first` + 1, .. of training: draws, the gradient of the ELBO, a step of Adam.

    A step draws a batch as `spatial.table_sample` does at (seed, chain, step), with the conditions phi[entry]; the noise of row b
    are the normals b l .. b l + l - 1 of stream "latents", l = architecture.n_latents. The gradient g is that of `vae_gradient`.
    Steps in one call give the bits of as many calls of one step. On a device shapes are checked and numbers are not:
    to look at a pattern, or at rates, would wait for the device.

    Parameters
    ----------
    parameters : (k,) array, float32 or float64
        Parameters of the networks, k = architecture.n_parameters.
    moments : (2, k) array of the type of parameters
        Adam's m and v; zeros at the start.
    values : (t, f) float64 array
        The table of priors, as in `spatial.table_sample`; n = architecture.n_values.
    phi : (t, c) float64 array
        The numbers that the networks see of the condition of each entry.
    scale : (d,) float64 array
        Multiplies every draw.
    indptr : (p,) int64 array, optional
        "sparse": where the columns of L begin, and their end f.
    indices : (q,) int64 array, optional
        "sparse": the rows of the entries of L: in each column the diagonal first, then rising.
    order : (r,) int64 array, optional
        "sparse": L is the factor of Q[order][:, order].
    rates : (n_steps,) float64 array
        Learning rate of each step, >= 0 and finite.
    kl_weights : (n_steps,) float64 array
        Weight of both KLs, of each step; >= 0 and finite.
    architecture : Architecture, an `Architecture`
        Sizes of the networks.
    kind : str, "stored" or "dense" or "sparse"
        The kind of the entries: see `values`.
    rank : int, >= 0 and below 2^32
        "dense": columns of a factor.
    group : int, >= 1 and below 2^32
        How many neighbours in the batch share an entry; eight are drawn in the time of one or two.
    batch : int, >= 1 and below 2^32
        Draws of a step.
    gamma : float, > 0 and finite
        Standard deviation of theta about the decoder's values.
    clip : float, a number
        Where the norm of g is greater, g is made as long as this; 0: never.
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers.
    first : int, in [0, 2^32)
        Number of the first step: how many there were before.
    out : tuple of 3 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_parameters : (k,) array of the type of parameters
        In each step parameters + rate m / (1 - 0.9^s) / (sqrt(v / (1 - 0.999^s)) + 1e-8), s the number of the step plus 1.
    new_moments : (2, k) array of the type of parameters
        In each step 0.9 m + 0.1 g, 0.999 v + 0.001 g^2.
    trace : (n_steps, 5) float64 array
        A row for each step: the four terms of `vae_gradient`, and the norm of g before it is clipped. A step whose ELBO or
        norm is not finite is not made: its row and all later ones are NaN, and the results are those before it.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an impossible table, a number outside its range, a wrong `out`.

    Source: docs/spec/sigma.md, sections 2 and 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import mlp
    >>> architecture = mlp.Architecture("amended", groups=(2,), n_global=1, n_local=(1,), hidden=2, local_hidden=2)
    >>> parameters = architecture.initial(seed=7)
    >>> moments, values, phi = np.zeros((2, parameters.size)), np.array([[0.5, -0.3], [1.0, 0.4]]), np.array([[0.0], [1.0]])
    >>> new_parameters, new_moments, trace = mlp.vae_step(
    ...     parameters, moments, values, phi, np.ones(2), rates=np.array([0.01, 0.01]), kl_weights=np.ones(2),
    ...     architecture=architecture, kind="stored", batch=4, gamma=1.0, seed=7,
    ... )
    >>> new_parameters.shape, trace.shape
    ((88,), (2, 5))"""
    ...
