"""Fully connected networks, and the variational autoencoder that is made of them (docs/spec/sigma.md, sections 1 and 2).

All arrays of a call have one type, float32 or float64, but where said otherwise; results do not depend on `n_threads`.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import _layers, rng
from ._checks import (
    AT_LEAST_0,
    AT_LEAST_1,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    WORD,
    Domain,
    choice,
    choice_of,
    describe,
    require,
    whole,
)
from ._docs import documented
from ._layers import VARIANTS, Numbers
from ._layers import Layer as Layer
from ._layers import Part as Part
from ._record import F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar, here, home
from .spatial.graph import INT64, check_normals
from .spatial.table import KINDS, TABLE, WORDS, check_table

__all__ = ["Architecture", "backward", "forward", "n_parameters", "network", "vae_gradient", "vae_step"]

# --------------------
# Describes the networks of a hierarchical variational autoencoder, and where their parameters stand (sigma.md, section 1).

LIMIT = 2**31  # of a layer's size


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
        return MappingProxyType(_layers.parts_of(self))

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
        return cls(*_layers.Sizes.of(code))

    def layers(self, parameters: Numbers, part: str) -> list[tuple[Numbers, Numbers | None]]:
        """Returns a part's layers, as views of the parameters: W (n_out, n_in), and b (n_out,) or None."""
        where, layers = self.parts[part]
        return _layers.matrices(parameters[where], layers)

    def initial(self, seed: int) -> NDArray[np.float64]:
        """Returns the parameters with which training starts: uniform on +-1 / sqrt(n_in), numbers of the stream "initial"."""
        uniforms = rng.uniform(self.n_parameters, key=rng.key(seed, "initial"))
        # A bound for each parameter, in the order of the parameters.
        layers = [layer for part in self.parts.values() for layer in part.layers]
        bounds: NDArray[np.float64] = np.concatenate([np.full(layer.n_parameters, layer.n_in**-0.5) for layer in layers])
        return (2 * uniforms - 1) * bounds


# Fully connected networks: values, and gradients in the parameters and in the input --------------------
#
# A network is its `sizes` (d0, d1, .., dL): layer l maps d_(l-1) numbers to d_l, a = W h + b; all layers but the last apply the
# activation. Its parameters are one vector: for each layer W (d_l, d_(l-1)) row by row, then b (d_l,).
#
# =========== ===================================
# activation  h
# =========== ===================================
# "tanh"      tanh(a)
# "relu"      a where a > 0, 0 where a <= 0, with derivative 0 at 0
# "identity"  a
# =========== ===================================
#
# All arrays of a call have one type, float32 or float64; sums over rows are taken in float64 in an order that depends on the
# number of rows alone: results do not depend on `n_threads`. Nothing of the size of rows times hidden units is stored:
# `backward` computes the values again, a block of rows at a time.

Float = TypeVar("Float", np.float64, np.float32)

ACTIVATIONS = {"tanh": 0, "relu": 1, "identity": 2}

_X = Array("X", ("n", "d"))
_PARAMETERS = Array("parameters", ("k",), like="X")

_NETWORK = (
    Scalar("sizes", Domain("at least two, >= 1"), binds=("d", "q", "k")),
    Scalar("activation", choice_of(ACTIVATIONS, f"must be one of {', '.join(ACTIVATIONS)}"), "tanh"),
)

_WORDS = {
    "X": "Rows of the input; d = d0.",
    "parameters": "One vector: see the module; k = n_parameters(sizes).",
    "sizes": "(d0, d1, .., dL).",
    "activation": "Activation of all layers but the last.",
    "Y": "The network's values; q = dL. NaN in a row of X gives NaN in that row.",
    "upstream": "Derivatives of an objective in the network's values; q = dL.",
    "grad_parameters": "Gradient in the parameters, summed over rows.",
    "grad_X": "Gradient in X.",
}
FORWARD = Kernel(
    "mlp.forward",
    __name__,
    purpose="Values of a fully connected network at every row.",
    source="docs/spec/vertical.md, sections 4 and 9.3",
    inputs=(_X, _PARAMETERS),
    outputs=(Array("Y", ("n", "q"), like="X"),),
    scalars=_NETWORK,
    blas=True,
    backends=WITHOUT_NUMBA,
    words=_WORDS,
    example="""
        >>> X, parameters = np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([0.5, -0.5, 0.1])  # W, then b
        >>> mlp.forward(X, parameters, sizes=(2, 1)).round(3)
        array([[-0.4],
               [ 0.6]])
    """,
)

BACKWARD = Kernel(
    "mlp.backward",
    __name__,
    purpose="Gradient of sum(upstream * Y) in the network's parameters and in its input.",
    source="docs/spec/vertical.md, sections 5 and 9.3",
    inputs=(_X, _PARAMETERS, Array("upstream", ("n", "q"), like="X")),
    outputs=(Array("grad_parameters", ("k",), like="X"), Array("grad_X", ("n", "d"), like="X")),
    scalars=_NETWORK,
    blas=True,
    backends=WITHOUT_NUMBA,
    words=_WORDS,
    example="""
        >>> X, parameters = np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([0.5, -0.5, 0.1])  # W, then b
        >>> grad_parameters, grad_X = mlp.backward(X, parameters, np.ones((2, 1)), sizes=(2, 1))
        >>> grad_parameters
        array([1., 1., 2.])
        >>> grad_X
        array([[ 0.5, -0.5],
               [ 0.5, -0.5]])
    """,
)


def n_parameters(sizes: Sequence[int]) -> int:
    """Returns the length of the parameter vector.

    Parameters
    ----------
    sizes : sequence of int
        (d0, d1, .., dL).

    Returns
    -------
    int
        sum_l d_l (d_(l-1) + 1).

    Raises
    ------
    ValueError
        Fewer than two sizes, or one that is not positive.

    Examples
    --------
    >>> from fedkern.kernels import mlp
    >>> mlp.n_parameters((2, 16, 1))  # 16 (2 + 1) + 1 (16 + 1)
    65
    """
    return network("mlp.n_parameters", sizes)[1]["k"]


def network(kernel: str, sizes: Sequence[int], activation: str = "tanh") -> tuple[NDArray[np.int64], dict[str, int], int]:
    """Returns the numbers that backends and checks need of a network; they are computed once for each network.

    Parameters
    ----------
    kernel : str
        The name in messages.
    sizes : sequence of int
    activation : str

    Returns
    -------
    sizes : (L + 1,) int64 array, read-only
    symbols : dict
        d, q, k: the first size, the last one, the number of parameters.
    code : int
        The activation's number.

    Raises
    ------
    ValueError
        Fewer than two sizes, one that is not positive, an unknown activation.

    Examples
    --------
    >>> from fedkern.kernels import mlp
    >>> sizes, symbols, code = mlp.network("my_function", (2, 16, 1), "relu")
    >>> sizes, symbols
    (array([ 2, 16,  1]), {'d': 2, 'q': 1, 'k': 65})
    """
    if not isinstance(activation, str):
        raise TypeError(f"{kernel}: activation must be one of {', '.join(ACTIVATIONS)}, got {describe(activation)}")
    return _network(kernel, whole(kernel, "sizes", sizes), activation)


@lru_cache(maxsize=256)
def _network(kernel: str, sizes: tuple[int, ...], activation: str) -> tuple[NDArray[np.int64], dict[str, int], int]:
    if activation not in ACTIVATIONS:
        raise ValueError(f"{kernel}: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if len(sizes) < 2 or not all(1 <= n < LIMIT for n in sizes):
        raise ValueError(f"{kernel}: sizes must be at least two positive integers below 2^31, got {sizes}")
    # Cached for all callers: it must not be written to.
    array = np.array(sizes, np.int64)
    array.flags.writeable = False
    k = sum(n_out * (n_in + 1) for n_in, n_out in itertools.pairwise(sizes))
    return array, {"d": sizes[0], "q": sizes[-1], "k": k}, ACTIVATIONS[activation]


@documented(FORWARD)
def forward(
    X: NDArray[Float],
    parameters: NDArray[Float],
    *,
    sizes: Sequence[int],
    activation: str = "tanh",
    out: NDArray[Float] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[Float]:
    """Returns the values of a network at every row."""
    array, symbols, _ = network("mlp.forward", sizes, activation)
    values: NDArray[Float]
    (values,) = FORWARD.compute((X, parameters), out, n_threads, backend, symbols, sizes=array, activation=activation)
    return values


@documented(BACKWARD)
def backward(
    X: NDArray[Float],
    parameters: NDArray[Float],
    upstream: NDArray[Float],
    *,
    sizes: Sequence[int],
    activation: str = "tanh",
    out: tuple[np.ndarray | None, np.ndarray | None] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[NDArray[Float], NDArray[Float]]:
    """Returns the gradient of sum(upstream * forward(X, parameters)) in the parameters and in X."""
    array, symbols, _ = network("mlp.backward", sizes, activation)
    inputs = (X, parameters, upstream)
    return BACKWARD.compute(inputs, out, n_threads, backend, symbols, sizes=array, activation=activation)


# Trains a hierarchical variational autoencoder: the gradient of its objective, and steps of the optimiser --------------------
#
# For one theta with its condition t and standard normal e (docs/spec/sigma.md, section 2):
#
#     z_G = mu_G + tau_G e_G,  z_Lj = m_j + sqrt(v_j) e_j
#     ELBO = - |theta - mu|^2 / (2 gamma^2) - d log gamma - (d/2) log(2 pi)
#            - KL[N(mu_G, tau_G^2) || N(0, I)]  -  sum_j KL_j
#     KL_j:  amended KL[N(m_j, v_j) || N(m0_j, v0_j)] ;  printed, multiplicative KL[N(m_j, v_j) || N(0, I)]
#
# gamma is a standard deviation. Both KLs have a weight in the function that is maximised, and none in the ELBO that is reported.


_CODE = Scalar("code", Domain("an `Architecture`", "", "x.code"), of="architecture", binds=("k", "d", "c", "l"))
_GAMMA = Scalar("gamma", POSITIVE)

_VAE_WORDS = {
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
    words=_VAE_WORDS
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
    | _VAE_WORDS
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
    from ._cuda import device

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
    columns = rank if kind == "dense" else 0
    return VAE_STEP.compute(
        inputs, out, n_threads, backend, symbols, architecture=architecture, kind=kind, rank=columns,
        group=group, batch=batch, gamma=gamma, clip=clip, seed=seed, chain=chain, first=first,
    )  # fmt: skip


def _alike(kernel: Kernel, inputs: tuple[Any, ...]) -> bool:
    """Tells whether all are arrays of the types and numbers of dimensions of the record."""
    return all(
        home(array) is not None and array.dtype in spec.dtypes and array.ndim == len(spec.shape)
        for spec, array in zip(kernel.inputs, inputs)
    )
