"""Fully connected networks: values, and gradients in the parameters and in the input.

A network is its `sizes` (d0, d1, .., dL): layer l maps d_(l-1) numbers to d_l, a = W h + b; all layers but the last apply the
activation. Its parameters are one vector: for each layer W (d_l, d_(l-1)) row by row, then b (d_l,).

=========== ===================================
activation  h
=========== ===================================
"tanh"      tanh(a)
"relu"      a where a > 0, 0 where a <= 0, with derivative 0 at 0
"identity"  a
=========== ===================================

All arrays of a call have one type, float32 or float64; sums over rows are taken in float64 in an order that depends on the number
of rows alone: results do not depend on `n_threads`. Nothing of the size of rows times hidden units is stored: `backward` computes
the values again, a block of rows at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .._checks import Domain, choice_of, describe, whole
from .._docs import documented
from .._record import WITHOUT_NUMBA, Array, Kernel, Scalar

__all__ = ["ACTIVATIONS", "backward", "forward", "n_parameters", "network"]

Float = TypeVar("Float", np.float64, np.float32)

ACTIVATIONS = {"tanh": 0, "relu": 1, "identity": 2}
LIMIT = 2**31  # of a layer's size

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
