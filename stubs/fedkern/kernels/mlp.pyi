# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Fully connected networks, and the variational autoencoder that is made of them (docs/spec/sigma.md, sections 1 and 2).

All arrays of a call have one type, float32 or float64, but where said otherwise; results do not depend on `n_threads`.
"""
from typing import Any, Literal
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
from ._checks import AT_LEAST_0, AT_LEAST_1, NOT_NEGATIVE, POSITIVE, SEED, WORD, Domain, choice, choice_of, describe, require, whole
from ._layers import VARIANTS, Numbers
from ._layers import Layer as Layer
from ._layers import Part as Part
from ._record import F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar, here, home
from .spatial.graph import INT64, check_normals
from .spatial.table import KINDS, TABLE, WORDS, check_table
LIMIT: int
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
        ...

    @property
    def n_values(self) -> int:
        """The number d of values in theta."""
        ...

    @property
    def n_latents(self) -> int:
        """The number of latents, p_G + sum p_Lj."""
        ...

    @cached_property
    def n_parameters(self) -> int:
        ...

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        """The parts by name, in the order in which they stand."""
        ...

    @cached_property
    def code(self) -> NDArray[np.int64]:
        """All sizes as backends take them: variant, J, c, p_G, hidden, local_hidden, width, rank, d_1 .. d_J, p_L1 .. p_LJ."""
        ...

    @classmethod
    def of(cls, code: NDArray[np.int64]) -> Architecture:
        """Returns the architecture that has a code."""
        ...

    def layers(self, parameters: Numbers, part: str) -> list[tuple[Numbers, Numbers | None]]:
        """Returns a part's layers, as views of the parameters: W (n_out, n_in), and b (n_out,) or None."""
        ...

    def initial(self, seed: int) -> NDArray[np.float64]:
        """Returns the parameters with which training starts: uniform on +-1 / sqrt(n_in), numbers of the stream "initial"."""
        ...
Float = TypeVar('Float', np.float64, np.float32)
ACTIVATIONS: dict[str, Any]
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
