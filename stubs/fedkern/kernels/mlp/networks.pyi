# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
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
from typing import Any, Literal
import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar
import numpy as np
from numpy.typing import NDArray
from .._checks import Domain, choice_of, describe, whole
from .._record import WITHOUT_NUMBA, Array, Kernel, Scalar
__all__ = ['ACTIVATIONS', 'backward', 'forward', 'n_parameters', 'network']
Float = TypeVar('Float', np.float64, np.float32)
ACTIVATIONS: dict[str, Any]
LIMIT: int
FORWARD: Kernel
BACKWARD: Kernel
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
    65"""
    ...
def network(kernel: str, sizes: Sequence[int], activation: str='tanh') -> tuple[NDArray[np.int64], dict[str, int], int]:
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
    (array([ 2, 16,  1]), {'d': 2, 'q': 1, 'k': 65})"""
    ...
def forward(X: NDArray[Float], parameters: NDArray[Float], *, sizes: Sequence[int], activation: Literal['tanh', 'relu', 'identity']='tanh', out: NDArray[Float] | None=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> NDArray[Float]:
    """Returns the values of a network at every row.

    Parameters
    ----------
    X : (n, d) array, float32 or float64
        Rows of the input; d = d0.
    parameters : (k,) array of the type of X
        One vector: see the module; k = n_parameters(sizes).
    sizes : Sequence[int], at least two, >= 1
        (d0, d1, .., dL).
    activation : str, one of tanh, relu, identity
        Activation of all layers but the last.
    out : (n, q) array of the type of X, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    Y : (n, q) array of the type of X
        The network's values; q = dL. NaN in a row of X gives NaN in that row.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, sections 4 and 9.3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import mlp
    >>> X, parameters = np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([0.5, -0.5, 0.1])  # W, then b
    >>> mlp.forward(X, parameters, sizes=(2, 1)).round(3)
    array([[-0.4],
           [ 0.6]])"""
    ...
def backward(X: NDArray[Float], parameters: NDArray[Float], upstream: NDArray[Float], *, sizes: Sequence[int], activation: Literal['tanh', 'relu', 'identity']='tanh', out: tuple[np.ndarray | None, np.ndarray | None] | None=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> tuple[NDArray[Float], NDArray[Float]]:
    """Returns the gradient of sum(upstream * forward(X, parameters)) in the parameters and in X.

    Parameters
    ----------
    X : (n, d) array, float32 or float64
        Rows of the input; d = d0.
    parameters : (k,) array of the type of X
        One vector: see the module; k = n_parameters(sizes).
    upstream : (n, q) array of the type of X
        Derivatives of an objective in the network's values; q = dL.
    sizes : Sequence[int], at least two, >= 1
        (d0, d1, .., dL).
    activation : str, one of tanh, relu, identity
        Activation of all layers but the last.
    out : tuple of 2 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    grad_parameters : (k,) array of the type of X
        Gradient in the parameters, summed over rows.
    grad_X : (n, d) array of the type of X
        Gradient in X.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, sections 5 and 9.3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import mlp
    >>> X, parameters = np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([0.5, -0.5, 0.1])  # W, then b
    >>> grad_parameters, grad_X = mlp.backward(X, parameters, np.ones((2, 1)), sizes=(2, 1))
    >>> grad_parameters
    array([1., 1., 2.])
    >>> grad_X
    array([[ 0.5, -0.5],
           [ 0.5, -0.5]])"""
    ...
