"""Trains a hierarchical variational autoencoder: the gradient of its objective, and steps of the optimiser.

For one theta with its condition t and standard normal e (docs/spec/sigma.md, section 2):

    z_G = mu_G + tau_G e_G,  z_Lj = m_j + sqrt(v_j) e_j
    ELBO = - |theta - mu|^2 / (2 gamma^2) - d log gamma - (d/2) log(2 pi)
           - KL[N(mu_G, tau_G^2) || N(0, I)]  -  sum_j KL_j
    KL_j:  amended KL[N(m_j, v_j) || N(m0_j, v0_j)] ;  printed, multiplicative KL[N(m_j, v_j) || N(0, I)]

gamma is a standard deviation. Both KLs have a weight in the function that is maximised, and none in the ELBO that is reported.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._checks import AT_LEAST_0, AT_LEAST_1, NOT_NEGATIVE, POSITIVE, SEED, WORD, Domain, choice, describe, require
from .._docs import documented
from .._record import F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar, here, home
from ..spatial._checks import INT64, check_normals
from ..spatial.table import KINDS, TABLE, WORDS, check_table
from .architecture import Architecture

__all__ = ["vae_gradient", "vae_step"]

Float = TypeVar("Float", np.float64, np.float32)

_CODE = Scalar("code", Domain("an `Architecture`", "", "x.code"), of="architecture", binds=("k", "d", "c", "l"))
_GAMMA = Scalar("gamma", POSITIVE)

_WORDS = {
    "parameters": "Parameters of the networks, k = architecture.n_parameters.",
    "architecture": "Sizes of the networks.",
    "gamma": "Standard deviation of theta about the decoder's values.",
}
VAE_GRADIENT = Kernel(
    "mlp.vae_gradient",
    __name__,
    purpose="Gradient of the ELBO of a hierarchical variational autoencoder, mean over a batch.",
    source="docs/spec/sigma.md, section 2",
    inputs=(
        Array("parameters", ("k",)),
        Array("theta", ("b", "d"), like="parameters"),
        Array("t", ("b", "c"), like="parameters"),
        Array("noise", ("b", "l"), like="parameters"),
    ),
    outputs=(Array("gradient", ("k",), like="parameters"), Array("terms", ("4",), F64)),
    scalars=(_CODE, _GAMMA, Scalar("kl_weight", NOT_NEGATIVE, 1.0)),
    blas=True,
    backends=WITHOUT_NUMBA,
    words=_WORDS
    | {
        "theta": "The batch, b >= 1, standardised.",
        "t": "Their conditions.",
        "noise": "Standard normal numbers, l = p_G + sum p_Lj: those of z_G, then of z_L1 .. z_LJ.",
        "kl_weight": "Weight of both KLs in the function that is maximised.",
        "gradient": "Ascent direction. A log variance that is clamped has derivative 0.",
        "terms": "Batch means of the ELBO (unweighted), |theta - mu|^2, KL_G and sum_j KL_j.",
    },
    example="""
        >>> architecture = mlp.Architecture("amended", groups=(2,), n_global=1, n_local=(1,), hidden=2, local_hidden=2)
        >>> parameters = architecture.initial(seed=7)
        >>> theta, t, noise = np.array([[0.5, -0.3]]), np.array([[1.0]]), np.zeros((1, architecture.n_latents))
        >>> gradient, terms = mlp.vae_gradient(parameters, theta, t, noise, architecture=architecture, gamma=1.0)
        >>> gradient.shape, terms.round(3)
        ((88,), array([-2.878,  0.656,  0.42 ,  0.292]))
    """,
)

VAE_STEP = Kernel(
    "mlp.vae_step",
    __name__,
    purpose="Steps of the training of a hierarchical variational autoencoder on draws from a table of priors.",
    source="docs/spec/sigma.md, sections 2 and 3",
    inputs=(
        Array("parameters", ("k",)),
        Array("moments", ("2", "k"), like="parameters"),
        Array("values", ("t", "f"), F64),
        Array("phi", ("t", "c"), F64),
        Array("scale", ("d",), F64),
        Array("indptr", ("p",), INT64),
        Array("indices", ("q",), INT64),
        Array("order", ("r",), INT64),
        Array("rates", ("n_steps",), F64),
        Array("kl_weights", ("n_steps",), F64),
    ),
    outputs=(
        Array("new_parameters", ("k",), like="parameters"),
        Array("new_moments", ("2", "k"), like="parameters"),
        Array("trace", ("n_steps", "5"), F64),
    ),
    scalars=(
        _CODE,
        *TABLE,
        Scalar("batch", AT_LEAST_1),
        _GAMMA,
        Scalar("clip", Domain("must be a number", "x == x", "float(x)"), 0.0),
        Scalar("seed", SEED),
        Scalar("chain", SEED, 0),
        Scalar("first", WORD, 0),
    ),
    tied=("values", "indptr", "indices", "order", "rates", "kl_weights", "first"),
    streams=("prior_entries", "prior_draws", "latents"),
    blas=True,
    backends=WITHOUT_NUMBA,
    words=WORDS
    | _WORDS
    | {
        "moments": "Adam's m and v; zeros at the start.",
        "values": "The table of priors, as in `spatial.table_sample`; n = architecture.n_values.",
        "phi": "The numbers that the networks see of the condition of each entry.",
        "rates": "Learning rate of each step, >= 0 and finite.",
        "kl_weights": "Weight of both KLs, of each step; >= 0 and finite.",
        "batch": "Draws of a step.",
        "clip": "Where the norm of g is greater, g is made as long as this; 0: never.",
        "first": "Number of the first step: how many there were before.",
        "new_parameters": "In each step parameters + rate m / (1 - 0.9^s) / (sqrt(v / (1 - 0.999^s)) + 1e-8), s the number of "
        "the step plus 1.",
        "new_moments": "In each step 0.9 m + 0.1 g, 0.999 v + 0.001 g^2.",
        "trace": "A row for each step: the four terms of `vae_gradient`, and the norm of g before it is clipped. A step whose "
        "ELBO or norm is not finite is not made: its row and all later ones are NaN, and the results are those before it.",
    },
    example="""
        >>> architecture = mlp.Architecture("amended", groups=(2,), n_global=1, n_local=(1,), hidden=2, local_hidden=2)
        >>> parameters = architecture.initial(seed=7)
        >>> moments, values, phi = np.zeros((2, parameters.size)), np.array([[0.5, -0.3], [1.0, 0.4]]), np.array([[0.0], [1.0]])
        >>> new_parameters, new_moments, trace = mlp.vae_step(
        ...     parameters, moments, values, phi, np.ones(2), rates=np.array([0.01, 0.01]), kl_weights=np.ones(2),
        ...     architecture=architecture, kind="stored", batch=4, gamma=1.0, seed=7,
        ... )
        >>> new_parameters.shape, trace.shape
        ((88,), (2, 5))
    """,
)


def _no_pattern(like: object) -> object:
    """Returns an empty array where the other arrays live."""
    if home(like) != "cuda":
        return np.zeros(0, np.int64)
    from .._cuda import device

    return device.current().xp.zeros(0, np.int64)


def _symbols(kernel: str, architecture: Architecture) -> dict[str, int]:
    if not isinstance(architecture, Architecture):
        raise TypeError(f"{kernel}: architecture must be an Architecture, got {type(architecture).__name__}")
    sizes = architecture.n_parameters, architecture.n_values, architecture.n_conditions, architecture.n_latents
    return dict(zip("kdcl", sizes))


@documented(VAE_GRADIENT)
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
    """Returns the gradient of the ELBO, mean over a batch.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an empty batch, a number outside its range, a wrong `out`.
    """
    name = VAE_GRADIENT.name
    symbols = _symbols(name, architecture)
    theta = here(theta)
    if getattr(theta, "ndim", None) == 2 and not len(theta):
        raise ValueError(f"{name}: theta must have at least one row")
    inputs = (parameters, theta, t, noise)
    scalars = {"architecture": architecture, "gamma": gamma, "kl_weight": kl_weight}
    gradient, terms = VAE_GRADIENT.compute(inputs, out, n_threads, backend, symbols, **scalars)
    return gradient, terms


@documented(VAE_STEP)
def vae_step(
    parameters: NDArray[Float],
    moments: NDArray[Float],
    values: NDArray[np.float64],
    phi: NDArray[np.float64],
    scale: NDArray[np.float64],
    indptr: NDArray[np.int64] | None = None,
    indices: NDArray[np.int64] | None = None,
    order: NDArray[np.int64] | None = None,
    *,
    rates: NDArray[np.float64],
    kl_weights: NDArray[np.float64],
    architecture: Architecture,
    kind: str,
    rank: int = 0,
    group: int = 1,
    batch: int,
    gamma: float,
    clip: float = 0.0,
    seed: int,
    chain: int = 0,
    first: int = 0,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[NDArray[Float], NDArray[Float], NDArray[np.float64]]:
    """Makes the steps `first`, `first` + 1, .. of training: draws, the gradient of the ELBO, a step of Adam.

    A step draws a batch as `spatial.table_sample` does at (seed, chain, step), with the conditions phi[entry]; the noise of row b
    are the normals b l .. b l + l - 1 of stream "latents", l = architecture.n_latents. The gradient g is that of `vae_gradient`.
    Steps in one call give the bits of as many calls of one step. On a device shapes are checked and numbers are not:
    to look at a pattern, or at rates, would wait for the device.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an impossible table, a number outside its range, a wrong `out`.
    """
    name = VAE_STEP.name
    symbols = _symbols(name, architecture)
    choice(name, "kind", kind, KINDS)
    AT_LEAST_0.check(name, "rank", rank)
    AT_LEAST_1.check(name, "batch", batch)
    values, scale, indptr, indices, order, rates, kl_weights = map(
        here, (values, scale, indptr, indices, order, rates, kl_weights)
    )
    pattern: list[object] = [_no_pattern(parameters) if part is None else part for part in (indptr, indices, order)]
    inputs: tuple[Any, ...] = (here(parameters), here(moments), values, here(phi), scale, *pattern, rates, kl_weights)
    if _alike(VAE_STEP, inputs):  # else `compute` refuses them
        # On a device looking at numbers would wait for it, so they are not checked there.
        if all(home(array) != "cuda" for array in inputs):
            check_table(name, kind, values.shape, len(scale), rank, indptr, indices, order)
            for argument, array in (("rates", rates), ("kl_weights", kl_weights)):
                require(name, ((array >= 0) & (array < math.inf)).all(), argument, "must be >= 0 and finite", describe(array))
        VAE_STEP.check_kinds(first=first)
        require(name, 0 <= first <= 2**32 - len(rates), "first", f"must be in [0, 2^32 - {len(rates)}]", first)
    # A step takes normals for the prior and for the latents; the larger count must fit into the counter.
    latents = {"stored": 0, "dense": rank, "sparse": architecture.n_values}[kind]
    check_normals(name, batch * max(architecture.n_latents, latents))
    return VAE_STEP.compute(
        inputs, out, n_threads, backend, symbols, architecture=architecture, kind=kind, rank=rank if kind == "dense" else 0,
        group=group, batch=batch, gamma=gamma, clip=clip, seed=seed, chain=chain, first=first,
    )  # fmt: skip


def _alike(kernel: Kernel, inputs: tuple[Any, ...]) -> bool:
    """Tells whether all are arrays of the types and numbers of dimensions of the record."""
    return all(
        home(array) is not None and array.dtype in spec.dtypes and array.ndim == len(spec.shape)
        for spec, array in zip(kernel.inputs, inputs)
    )
