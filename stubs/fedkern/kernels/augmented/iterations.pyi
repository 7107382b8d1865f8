# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Does the whole work of a client between two messages in one call: a gradient, a step of Adam, the next draw (see the
family)."""
from typing import Any, Literal
from collections.abc import Callable, Sequence
from typing import Any
import numpy as np
from numpy.typing import NDArray
from .. import mlp, optim
from .._checks import FINITE, KEY, MADE, POSITIVE, WORD, Domain, Together, choice_of, whole
from .._record import COMPILED, F64, Array, Kernel, Scalar, here, names
from .gradients import EXTRA, FULL, HIDDEN, PATH, RHO, WORDS, Floats, H, columns, conditional, is_matrix, of_coefficients, rows
__all__ = ['Iterations', 'amortised_iteration', 'bind_amortised_iteration', 'bind_mean_field_iteration', 'bind_network_iteration', 'mean_field_iteration', 'network_iteration']
Iterations = Callable[..., tuple[Any, ...]]
MEAN_FIELD_ITERATION: Kernel
AMORTISED_ITERATION: Kernel
NETWORK_ITERATION: Kernel
def mean_field_iteration(H: Floats, parameters: Floats, moments: Floats, eps: Floats, tau: Floats, theta: Floats, g: Floats, z: Floats, message: Floats, *, rho: float, prior_mean: float=0.0, prior_sd: float=1.0, learning_rate: float, path: bool=True, full: bool=False, key: int, client: int=0, step: int=0, out: tuple[Floats | None, ...] | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Does a client's work between two messages, mean-field: a gradient, a step, the next draw.

    Parameters
    ----------
    H : (n, p) float64 array
        The client's design.
    parameters : (k,) float64 array
        [mu (p), scale, mean (n), log_sd (n)]. The scale of q(theta) is log sd (p), or with `full` a triangle (p (p + 1) / 2).
    moments : (3, k) float64 array
        Adam's state: see `optim.adam`.
    eps : (p,) float64 array
        Standard normal numbers, of the draw that was made with `parameters`.
    tau : (n,) float64 array
        Standard normal numbers, of the same draw.
    theta : (p,) float64 array
        mu + L eps, of the same draw.
    g : (n,) float64 array
        H theta, of the same draw.
    z : (n,) float64 array
        The auxiliary variables, of the same draw.
    message : (n,) float64 array
        Derivative of the log-likelihood in z.
    rho : float, > 0 and finite
        Standard deviation of z about g.
    prior_mean : float, finite
        theta ~ N(prior_mean, prior_sd^2 I).
    prior_sd : float, > 0 and finite
        theta ~ N(prior_mean, prior_sd^2 I).
    learning_rate : float, > 0 and finite
        Learning rate of the step of Adam, whose other numbers are the usual ones.
    path : bool
        Whether the gradient is the path's, or that with the closed-form entropy: see the module.
    full : bool
        For q(theta) = N(mu, L L'). Whether L is a full triangle, row by row: diagonal elements by their logarithms, the others
        over their row's diagonal element, in units of (64 / p)^2 where p > 64 (`models.variational.Block`).
    key : int, in [0, 2^64)
        Names the normals of the next draw, rng.normal(p + n, ..): the first p are eps, the others tau.
    client : int, in [0, 2^32)
        Names the normals of the next draw.
    step : int, in [0, 2^32)
        Names the normals of the next draw.
    out : tuple of 7 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_parameters : (k,) float64 array
        After a step of Adam along the gradient of the ELBO, the terms of the priors and of q(theta) included.
    new_moments : (3, k) float64 array
        Adam's state after the step.
    new_eps : (p,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_tau : (n,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_theta : (p,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_g : (n,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_z : (n,) float64 array
        Numbers of the next draw, made with `new_parameters`.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, sections 4 to 6.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented, rng
    >>> H, eps, tau = np.array([[1.0], [2.0]]), np.array([0.5]), np.array([1.0, -1.0])  # p = 1 coefficient, n = 2 rows
    >>> parameters = np.zeros(6)  # mu and log sd of the coefficient, means and log sds of z
    >>> theta, g, z = eps, H @ eps, tau  # the draw that was made with them
    >>> new_parameters, *others = augmented.mean_field_iteration(
    ...     H, parameters, np.zeros((3, 6)), eps, tau, theta, g, z, np.array([0.3, -0.2]),
    ...     rho=1.0, learning_rate=0.01, key=rng.key(7),
    ... )
    >>> new_parameters.round(3)
    array([-0.01, -0.01,  0.01,  0.01,  0.01, -0.01])"""
    ...
def bind_mean_field_iteration(H: Floats, parameters: Floats, moments: Floats, eps: Floats, tau: Floats, theta: Floats, g: Floats, z: Floats, message: Floats, *, rho: float, prior_mean: float=0.0, prior_sd: float=1.0, path: bool=True, full: bool=False, key: int, client: int=0, n_threads: int=1) -> Iterations:
    """Binds `mean_field_iteration` for many calls with equal sizes: (H, .., message, learning_rate, step) -> its results.

    Parameters
    ----------
    H : (n, p) float64 array
        Of any call: all have its sizes.
    parameters : (k,) float64 array
        Of any call: all have its sizes.
    moments : (3, k) float64 array
        Of any call: all have its sizes.
    eps : (p,) float64 array
        Of any call: all have its sizes.
    tau : (n,) float64 array
        Of any call: all have its sizes.
    theta : (p,) float64 array
        Of any call: all have its sizes.
    g : (n,) float64 array
        Of any call: all have its sizes.
    z : (n,) float64 array
        Of any call: all have its sizes.
    message : (n,) float64 array
        Of any call: all have its sizes.
    rho : float, > 0 and finite
        Standard deviation of z about g.
    prior_mean : float, finite
        theta ~ N(prior_mean, prior_sd^2 I).
    prior_sd : float, > 0 and finite
        theta ~ N(prior_mean, prior_sd^2 I).
    path : bool
        Whether the gradient is the path's, or that with the closed-form entropy: see the module.
    full : bool
        For q(theta) = N(mu, L L'). Whether L is a full triangle, row by row: diagonal elements by their logarithms, the others
        over their row's diagonal element, in units of (64 / p)^2 where p > 64 (`models.variational.Block`).
    key : int, in [0, 2^64)
        Names the normals of the next draw, rng.normal(p + n, ..): the first p are eps, the others tau.
    client : int, in [0, 2^32)
        Names the normals of the next draw.
    n_threads : int
        The result does not depend on it.

    Raises
    ------
    TypeError, ValueError
        Here, what `mean_field_iteration` refuses; in a call, an array of another type or shape, or a bound array that has changed.

    Source: docs/spec/vertical.md, sections 4 to 6.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented, rng
    >>> H, eps, tau = np.array([[1.0], [2.0]]), np.array([0.5]), np.array([1.0, -1.0])
    >>> state = np.zeros(6), np.zeros((3, 6)), eps, tau, eps, H @ eps, tau
    >>> iterate = augmented.bind_mean_field_iteration(H, *state, np.zeros(2), rho=1.0, key=rng.key(7))
    >>> for step in range(3):
    ...     state = iterate(H, *state, np.array([0.3, -0.2]), 0.01, step)
    ...
    >>> state[0].shape
    (6,)"""
    ...
def amortised_iteration(H: Floats, parameters: Floats, moments: Floats, eps: Floats, tau: Floats, theta: Floats, g: Floats, z: Floats, message: Floats, extra: Floats, extra_next: Floats, *, rho: float, hidden: Sequence[int]=(16, 16), prior_mean: float=0.0, prior_sd: float=1.0, learning_rate: float, path: bool=True, full: bool=False, centre: int | None=None, key: int, client: int=0, step: int=0, out: tuple[Floats | None, ...] | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Does a client's work between two messages, amortised: a gradient, a step, the next draw.

    Parameters
    ----------
    H : (n, p) float64 array
        The client's design.
    parameters : (k,) float64 array
        [mu (p), scale, psi], with mlp.n_parameters((1 + e, *hidden, 2)) in psi. The scale of q(theta) is log sd (p), or with
        `full` a triangle (p (p + 1) / 2).
    moments : (3, k) float64 array
        Adam's state: see `optim.adam`.
    eps : (p,) float64 array
        Standard normal numbers, of the draw that was made with `parameters`.
    tau : (n,) float64 array
        Standard normal numbers, of the same draw.
    theta : (p,) float64 array
        mu + L eps, of the same draw.
    g : (n,) float64 array
        H theta, of the same draw.
    z : (n,) float64 array
        The auxiliary variables, of the same draw.
    message : (n,) float64 array
        Derivative of the log-likelihood in z.
    extra : (n, e) float64 array
        Numbers that the network of z sees beside g, at the draw that was made.
    extra_next : (n, e) float64 array
        The same at the next draw.
    rho : float, > 0 and finite
        Standard deviation of z about g.
    hidden : Sequence[int], sizes of hidden layers, >= 1
        Sizes of the network's hidden layers.
    prior_mean : float, finite
        theta ~ N(prior_mean, prior_sd^2 I).
    prior_sd : float, > 0 and finite
        theta ~ N(prior_mean, prior_sd^2 I).
    learning_rate : float, > 0 and finite
        Learning rate of the step of Adam, whose other numbers are the usual ones.
    path : bool
        Whether the gradient is the path's, or that with the closed-form entropy: see the module.
    full : bool
        For q(theta) = N(mu, L L'). Whether L is a full triangle, row by row: diagonal elements by their logarithms, the others
        over their row's diagonal element, in units of (64 / p)^2 where p > 64 (`models.variational.Block`).
    centre : int, None or >= 0, optional
        The column of `extra_next` that is not read: the network is told H mu there, with the H and mu after the step.
    key : int, in [0, 2^64)
        Names the normals of the next draw, rng.normal(p + n, ..): the first p are eps, the others tau.
    client : int, in [0, 2^32)
        Names the normals of the next draw.
    step : int, in [0, 2^32)
        Names the normals of the next draw.
    out : tuple of 8 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_parameters : (k,) float64 array
        After a step of Adam along the gradient of the ELBO, the terms of the priors and of q(theta) included.
    new_moments : (3, k) float64 array
        Adam's state after the step.
    new_eps : (p,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_tau : (n,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_theta : (p,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_g : (n,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_z : (n,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_extra : (n, e) float64 array
        The numbers that the network of z saw: `extra_next`, with the centre.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, sections 4 to 6.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented, mlp, rng
    >>> H, eps, tau = np.array([[1.0], [2.0]]), np.array([0.5]), np.array([1.0, -1.0])  # p = 1 coefficient, n = 2 rows
    >>> k = 2 + mlp.n_parameters((1, 3, 2))  # mu and log sd of the coefficient, and the network of z
    >>> theta, g, z, extra = eps, H @ eps, H @ eps + tau, np.zeros((2, 0))  # the draw that was made with zeros
    >>> new_parameters, *others = augmented.amortised_iteration(
    ...     H, np.zeros(k), np.zeros((3, k)), eps, tau, theta, g, z, np.array([0.3, -0.2]), extra, extra,
    ...     rho=1.0, hidden=(3,), learning_rate=0.01, key=rng.key(7),
    ... )
    >>> new_parameters[:2].round(3)
    array([-0.01, -0.01])"""
    ...
def bind_amortised_iteration(H: Floats, parameters: Floats, moments: Floats, eps: Floats, tau: Floats, theta: Floats, g: Floats, z: Floats, message: Floats, extra: Floats, extra_next: Floats, *, rho: float, hidden: Sequence[int]=(16, 16), prior_mean: float=0.0, prior_sd: float=1.0, path: bool=True, full: bool=False, centre: int | None=None, key: int, client: int=0, n_threads: int=1) -> Iterations:
    """Binds `amortised_iteration` for many calls with equal sizes: (H, .., extra_next, learning_rate, step) -> its results.

    Parameters
    ----------
    H : (n, p) float64 array
        Of any call: all have its sizes.
    parameters : (k,) float64 array
        Of any call: all have its sizes.
    moments : (3, k) float64 array
        Of any call: all have its sizes.
    eps : (p,) float64 array
        Of any call: all have its sizes.
    tau : (n,) float64 array
        Of any call: all have its sizes.
    theta : (p,) float64 array
        Of any call: all have its sizes.
    g : (n,) float64 array
        Of any call: all have its sizes.
    z : (n,) float64 array
        Of any call: all have its sizes.
    message : (n,) float64 array
        Of any call: all have its sizes.
    extra : (n, e) float64 array
        Of any call: all have its sizes.
    extra_next : (n, e) float64 array
        Of any call: all have its sizes.
    rho : float, > 0 and finite
        Standard deviation of z about g.
    hidden : Sequence[int], sizes of hidden layers, >= 1
        Sizes of the network's hidden layers.
    prior_mean : float, finite
        theta ~ N(prior_mean, prior_sd^2 I).
    prior_sd : float, > 0 and finite
        theta ~ N(prior_mean, prior_sd^2 I).
    path : bool
        Whether the gradient is the path's, or that with the closed-form entropy: see the module.
    full : bool
        For q(theta) = N(mu, L L'). Whether L is a full triangle, row by row: diagonal elements by their logarithms, the others
        over their row's diagonal element, in units of (64 / p)^2 where p > 64 (`models.variational.Block`).
    centre : int, None or >= 0, optional
        The column of `extra_next` that is not read: the network is told H mu there, with the H and mu after the step.
    key : int, in [0, 2^64)
        Names the normals of the next draw, rng.normal(p + n, ..): the first p are eps, the others tau.
    client : int, in [0, 2^32)
        Names the normals of the next draw.
    n_threads : int
        The result does not depend on it.

    Raises
    ------
    TypeError, ValueError
        Here, what `amortised_iteration` refuses; in a call, an array of another type or shape, or a bound array that has changed.

    Source: docs/spec/vertical.md, sections 4 to 6.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented, mlp, rng
    >>> H, eps, tau, extra = np.array([[1.0], [2.0]]), np.array([0.5]), np.array([1.0, -1.0]), np.zeros((2, 0))
    >>> k = 2 + mlp.n_parameters((1, 3, 2))
    >>> state = np.zeros(k), np.zeros((3, k)), eps, tau, eps, H @ eps, H @ eps + tau
    >>> iterate = augmented.bind_amortised_iteration(H, *state, np.zeros(2), extra, extra, rho=1.0, hidden=(3,), key=rng.key(7))
    >>> for step in range(3):
    ...     *state, extra = iterate(H, *state, np.array([0.3, -0.2]), extra, extra, 0.01, step)
    ...
    >>> state[0].shape == (k,)
    True"""
    ...
def network_iteration(X: Floats, precision: Floats, H: Floats, parameters: Floats, moments: Floats, eps: Floats, tau: Floats, theta: Floats, g: Floats, z: Floats, message: Floats, extra: Floats, extra_next: Floats, *, rho: float, hidden: Sequence[int]=(16, 16), sizes: Sequence[int], activation: Literal['relu', 'tanh', 'identity']='relu', learning_rate: float, path: bool=True, full: bool=False, centre: int | None=None, key: int, client: int=0, step: int=0, out: tuple[Floats | None, ...] | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Does the work of `amortised_iteration` with a network in the predictor: g = f_phi(X) theta, theta ~ N(0, I), phi a mode or
    a maximum.

    Parameters
    ----------
    X : (n, d) float64 array
        Rows.
    precision : (f,) float64 array
        Prior precisions of phi about 0; 0 where it has none.
    H : (n, p) float64 array
        The design of the draw that was made: `mlp.forward` of X with its phi.
    parameters : (k,) float64 array
        [mu (p), scale, phi (f), psi], the scale and psi as in `amortised_iteration`.
    moments : (3, k) float64 array
        Adam's state: see `optim.adam`.
    eps : (p,) float64 array
        Standard normal numbers, of the draw that was made with `parameters`.
    tau : (n,) float64 array
        Standard normal numbers, of the same draw.
    theta : (p,) float64 array
        mu + L eps, of the same draw.
    g : (n,) float64 array
        H theta, of the same draw.
    z : (n,) float64 array
        The auxiliary variables, of the same draw.
    message : (n,) float64 array
        Derivative of the log-likelihood in z.
    extra : (n, e) float64 array
        Numbers that the network of z sees beside g, at the draw that was made.
    extra_next : (n, e) float64 array
        The same at the next draw.
    rho : float, > 0 and finite
        Standard deviation of z about g.
    hidden : Sequence[int], sizes of hidden layers, >= 1
        Sizes of the network's hidden layers.
    sizes : Sequence[int], at least two, >= 1
        (d, .., p), of the predictor's network; f = mlp.n_parameters(sizes).
    activation : str, one of tanh, relu, identity
        Activation of all its layers but the last.
    learning_rate : float, > 0 and finite
        Learning rate of the step of Adam, whose other numbers are the usual ones.
    path : bool
        Whether the gradient is the path's, or that with the closed-form entropy: see the module.
    full : bool
        For q(theta) = N(mu, L L'). Whether L is a full triangle, row by row: diagonal elements by their logarithms, the others
        over their row's diagonal element, in units of (64 / p)^2 where p > 64 (`models.variational.Block`).
    centre : int, None or >= 0, optional
        The column of `extra_next` that is not read: the network is told H mu there, with the H and mu after the step.
    key : int, in [0, 2^64)
        Names the normals of the next draw, rng.normal(p + n, ..): the first p are eps, the others tau.
    client : int, in [0, 2^32)
        Names the normals of the next draw.
    step : int, in [0, 2^32)
        Names the normals of the next draw.
    out : tuple of 9 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_H : (n, p) float64 array
        The design of the next draw.
    new_parameters : (k,) float64 array
        After a step of Adam along the gradient of the ELBO, the terms of the priors and of q(theta) included.
    new_moments : (3, k) float64 array
        Adam's state after the step.
    new_eps : (p,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_tau : (n,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_theta : (p,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_g : (n,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_z : (n,) float64 array
        Numbers of the next draw, made with `new_parameters`.
    new_extra : (n, e) float64 array
        The numbers that the network of z saw: `extra_next`, with the centre.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, sections 4 to 6 and 9.3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented, mlp, rng
    >>> X, sizes, eps, tau = np.array([[1.0], [2.0]]), (1, 2, 1), np.array([0.5]), np.array([1.0, -1.0])
    >>> f = mlp.n_parameters(sizes)  # of the predictor's network, phi
    >>> phi, k = np.full(f, 0.1), 2 + f + mlp.n_parameters((1, 3, 2))  # and of the network of z, psi
    >>> parameters = np.concatenate([np.zeros(2), phi, np.zeros(k - 2 - f)])
    >>> H, theta, extra = mlp.forward(X, phi, sizes=sizes, activation="relu"), eps, np.zeros((2, 0))
    >>> g = H @ theta
    >>> new_H, new_parameters, *others = augmented.network_iteration(
    ...     X, np.zeros(f), H, parameters, np.zeros((3, k)), eps, tau, theta, g, g + tau, np.array([0.3, -0.2]), extra, extra,
    ...     rho=1.0, hidden=(3,), sizes=sizes, learning_rate=0.01, key=rng.key(7),
    ... )
    >>> new_H.round(3)
    array([[0.15 ],
           [0.168]])"""
    ...
def bind_network_iteration(X: Floats, precision: Floats, H: Floats, parameters: Floats, moments: Floats, eps: Floats, tau: Floats, theta: Floats, g: Floats, z: Floats, message: Floats, extra: Floats, extra_next: Floats, *, rho: float, hidden: Sequence[int]=(16, 16), sizes: Sequence[int], activation: Literal['relu', 'tanh', 'identity']='relu', path: bool=True, full: bool=False, centre: int | None=None, key: int, client: int=0, n_threads: int=1) -> Iterations:
    """Binds `network_iteration` for many calls with equal sizes: (H, .., extra_next, learning_rate, step) -> its results.

    Parameters
    ----------
    X : (n, d) float64 array
        Rows. It is read in every call, and must stay where it is.
    precision : (f,) float64 array
        Prior precisions of phi about 0; 0 where it has none. It is read in every call, and must stay where it is.
    H : (n, p) float64 array
        Of any call: all have its sizes.
    parameters : (k,) float64 array
        Of any call: all have its sizes.
    moments : (3, k) float64 array
        Of any call: all have its sizes.
    eps : (p,) float64 array
        Of any call: all have its sizes.
    tau : (n,) float64 array
        Of any call: all have its sizes.
    theta : (p,) float64 array
        Of any call: all have its sizes.
    g : (n,) float64 array
        Of any call: all have its sizes.
    z : (n,) float64 array
        Of any call: all have its sizes.
    message : (n,) float64 array
        Of any call: all have its sizes.
    extra : (n, e) float64 array
        Of any call: all have its sizes.
    extra_next : (n, e) float64 array
        Of any call: all have its sizes.
    rho : float, > 0 and finite
        Standard deviation of z about g.
    hidden : Sequence[int], sizes of hidden layers, >= 1
        Sizes of the network's hidden layers.
    sizes : Sequence[int], at least two, >= 1
        (d, .., p), of the predictor's network; f = mlp.n_parameters(sizes).
    activation : str, one of tanh, relu, identity
        Activation of all its layers but the last.
    path : bool
        Whether the gradient is the path's, or that with the closed-form entropy: see the module.
    full : bool
        For q(theta) = N(mu, L L'). Whether L is a full triangle, row by row: diagonal elements by their logarithms, the others
        over their row's diagonal element, in units of (64 / p)^2 where p > 64 (`models.variational.Block`).
    centre : int, None or >= 0, optional
        The column of `extra_next` that is not read: the network is told H mu there, with the H and mu after the step.
    key : int, in [0, 2^64)
        Names the normals of the next draw, rng.normal(p + n, ..): the first p are eps, the others tau.
    client : int, in [0, 2^32)
        Names the normals of the next draw.
    n_threads : int
        The result does not depend on it.

    Raises
    ------
    TypeError, ValueError
        Here, what `network_iteration` refuses; in a call, an array of another type or shape, or a bound array that has changed.

    Source: docs/spec/vertical.md, sections 4 to 6 and 9.3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented, mlp, rng
    >>> X, sizes, eps, tau = np.array([[1.0], [2.0]]), (1, 2, 1), np.array([0.5]), np.array([1.0, -1.0])
    >>> f, extra = mlp.n_parameters(sizes), np.zeros((2, 0))
    >>> k = 2 + f + mlp.n_parameters((1, 3, 2))
    >>> H = mlp.forward(X, np.full(f, 0.1), sizes=sizes, activation="relu")
    >>> parameters = np.concatenate([np.zeros(2), np.full(f, 0.1), np.zeros(k - 2 - f)])
    >>> state = H, parameters, np.zeros((3, k)), eps, tau, eps, H @ eps, H @ eps + tau
    >>> iterate = augmented.bind_network_iteration(
    ...     X, np.zeros(f), *state, np.zeros(2), extra, extra, rho=1.0, hidden=(3,), sizes=sizes, key=rng.key(7)
    ... )
    >>> for step in range(3):
    ...     *state, extra = iterate(*state, np.array([0.3, -0.2]), extra, extra, 0.01, step)
    ...
    >>> state[1].shape == (k,)
    True"""
    ...
