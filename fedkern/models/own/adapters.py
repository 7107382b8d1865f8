"""Makes own models of functions in JAX, of NumPyro programs and of compiled Stan models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ...arrays import Array
from ...errors import JobError

# --------------------
# Makes an own model of a log-likelihood that is written in JAX: values, gradients and Hessians of many points, in float64.

BATCH = 256  # points at once: for each the function may hold some numbers for every row


def jax() -> Any:
    """Returns the package, which is optional. Raises JobError: it is not installed."""
    try:
        import jax as package
    except ImportError as error:
        raise JobError(f"fedkern.models.own: jax cannot be imported ({error}); pip install jax") from None
    return package


def double() -> AbstractContextManager[Any]:
    """Returns a context in which JAX computes in float64, as all of fedkern does; outside nothing changes."""
    package = jax()
    if hasattr(package, "enable_x64"):
        context: AbstractContextManager[Any] = package.enable_x64(True)
        return context
    from jax import experimental  # of an older JAX

    older: AbstractContextManager[Any] = getattr(experimental, "enable_x64")()  # noqa: B009
    return older


@lru_cache(maxsize=64)
def _compiled(function: Callable[..., Any], what: str, shared: int) -> Callable[..., Any]:
    """The compiled function of many points, of values, gradients or Hessians, once for all clients of a process.

    It takes `shared` arrays beside the points.
    """
    package = jax()
    if what == "joint":
        both = package.vmap(package.value_and_grad(function, argnums=(0, 1)), in_axes=(0, 0, *(None for _ in range(shared))))
        compiled: Callable[..., Any] = package.jit(both)
        return compiled
    derived = {"values": lambda f: f, "gradient": package.grad, "curvature": package.hessian}[what](function)
    several: Callable[..., Any] = package.jit(package.vmap(derived, in_axes=(0, *(None for _ in range(shared)))))
    return several


def of_all(function: Callable[..., Any], what: str, points: Array, data: tuple[Any, ...] = (), batch: int = BATCH) -> Array:
    """Returns (n, ..) values, gradients or Hessians at points (n, P), a batch at a time.

    Each number of points at once is compiled anew, so that these numbers are powers of two.
    """
    parts = []
    with double():
        run = _compiled(function, what, len(data))
        for k in range(0, len(points), batch):
            part = points[k : k + batch]
            size = min(batch, 1 << (len(part) - 1).bit_length())
            filled = np.concatenate([part, np.repeat(part[:1], size - len(part), axis=0)])
            parts.append(np.asarray(run(filled, *data))[: len(part)])
    return np.concatenate(parts)


@dataclass(frozen=True)
class FromJax:
    """Holds the own model that `from_jax` makes."""

    names: tuple[str, ...]
    loglik: Callable[..., Any]
    data: tuple[Any, ...]
    local_size: int
    batch: int

    def values(self, points: Array) -> Array:
        """Returns (n,) log-likelihoods at points (n, P)."""
        return of_all(self.loglik, "values", points, self.data, self.batch)

    def gradient(self, points: Array) -> Array:
        """Returns (n, P) gradients at points (n, P)."""
        return of_all(self.loglik, "gradient", points, self.data, self.batch)

    def curvature(self, points: Array) -> Array:
        """Returns (n, P, P) minus the Hessians at points (n, P)."""
        return -of_all(self.loglik, "curvature", points, self.data, self.batch)

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """Returns log p(rows, u | xi), and its gradients in xi and u."""
        value, of_xi, of_u = self.log_joint_grads(xi[np.newaxis], u[np.newaxis])
        return float(value[0]), of_xi[0], of_u[0]

    def log_joint_grads(self, xi: Array, u: Array) -> tuple[Array, Array, Array]:
        """Returns the same for all chains, at (c, P) and (c, local_size)."""
        with double():
            value, (of_xi, of_u) = _compiled(self.loglik, "joint", len(self.data))(xi, u, *self.data)
            return np.asarray(value), np.asarray(of_xi), np.asarray(of_u)


def from_jax(loglik: Callable[..., Any], names: Sequence[str], *data: object, local_size: int = 0, batch: int = BATCH) -> FromJax:
    """Makes an own model of a log-likelihood that is written in JAX. Raises JobError: JAX is not installed.

    Parameters
    ----------
    loglik : f(theta, *data) -> one number, the log-likelihood of the client's rows; with local unknowns f(theta, u, *data), the
        log joint density of rows and u
    names : (P,) of theta's numbers
    data : arrays of NumPy, which `loglik` gets in float64
    local_size : the number of the client's own unknowns
    batch : points that are computed at once
    """
    with double():
        held = tuple(jax().numpy.asarray(array) for array in data)
    return FromJax(tuple(map(str, names)), loglik, held, local_size, batch)


# --------------------
# Makes an own model of a NumPyro program: of the sites that all clients share, and those that are the client's own.
#
# log p(rows, u | shared) is the sum of the log-densities of all sites but the shared ones, whose own sum is the prior. Sites are
# taken as unconstrained numbers by NumPyro's own bijections. The Jacobians of shared sites are in the prior, those of the others
# in the client's density.


@dataclass(frozen=True)
class Site:
    """Describes a latent site: its name, the bijection that makes it unconstrained, its shape, and the place of its numbers."""

    name: str
    bijection: Any
    shape: tuple[int, ...]
    at: slice

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its numbers."""
        if not self.shape:
            return (self.name,)
        return tuple(f"{self.name}[{','.join(str(i + 1) for i in index)}]" for index in np.ndindex(*self.shape))


@dataclass(frozen=True)
class FromNumPyro(FromJax):
    """Holds the own model that `from_numpyro` makes; its points are unconstrained."""

    # names of the program's observed sites and factors; a program that is called without rows must have none
    observed: tuple[str, ...] = ()
    unconstrained: bool = True
    shared_density: Callable[[Any], Any] = lambda point: 0.0
    constrained: Callable[[Any], Any] = lambda point: point

    def log_prior(self, points: Array) -> Array:
        """Returns (n,) the log-density of the shared sites, with the Jacobians of their constraints."""
        return of_all(self.shared_density, "values", points)

    def log_prior_gradient(self, points: Array) -> Array:
        """Returns (n, P) its gradients."""
        return of_all(self.shared_density, "gradient", points)

    def natural(self, points: Array) -> Array:
        """Returns (n, P) the shared sites, constrained."""
        return of_all(self.constrained, "values", points)


def from_numpyro(model: Callable[..., Any], shared: Sequence[str], *args: object, **kwargs: object) -> FromNumPyro:
    """Makes an own model of a NumPyro program, with its own prior: the job has no [model.priors]. Raises JobError: NumPyro is not
    installed, a shared site is not there, or a latent site is discrete or a matrix with constraints.

    Parameters
    ----------
    model : of one client's rows
    shared : names of the sites that all clients have in common; other latent sites are the client's own
    args, kwargs : of `model`; where it is asked for its prior alone they may be without rows
    """
    try:
        import numpyro  # type: ignore[import-untyped]  # has no types
        from numpyro import handlers
    except ImportError as error:
        raise JobError(f"fedkern.models.own: numpyro cannot be imported ({error}); pip install numpyro") from None
    distributions: Any = numpyro.distributions

    def traced(values: Mapping[str, Any]) -> dict[str, Any]:
        seeded = handlers.seed(handlers.substitute(model, data=dict(values)), jax().random.PRNGKey(0))
        trace: dict[str, Any] = handlers.trace(seeded).get_trace(*args, **kwargs)
        return trace

    def density(trace: Mapping[str, Any], names: Sequence[str], *, inside: bool) -> Any:
        """Returns the sum over the sites that are among the names, or are not."""
        total: Any = 0.0
        for name, site in trace.items():
            if site["type"] == "sample" and (name in names) == inside:
                log = site["fn"].log_prob(site["value"]).sum()
                scaled = log if site.get("scale") is None else site["scale"] * log
                total = total + scaled
        return total

    with double():
        first = traced({})
        latent = {n: s for n, s in first.items() if s["type"] == "sample" and not s["is_observed"]}
        if lacking := [name for name in shared if name not in latent]:
            raise JobError(f"from_numpyro: {', '.join(map(repr, lacking))} is no latent site; there are {', '.join(latent)}")
        if several := [name for name, site in first.items() if site["type"] == "param"]:
            raise JobError(f"from_numpyro: {', '.join(map(repr, several))} is a param, which has no prior; make it a sample site")
        both = _sites(distributions, latent, tuple(shared)), _sites(distributions, latent, tuple(set(latent) - set(shared)))

    def values(sites: Sequence[Site], point: Any) -> tuple[dict[str, Any], Any]:
        """Returns name -> value, and the logarithm of the Jacobian."""
        sites_at, log = {}, 0.0
        for site in sites:
            x = point[site.at].reshape(site.shape)
            sites_at[site.name] = site.bijection(x)
            log = log + site.bijection.log_abs_det_jacobian(x, sites_at[site.name]).sum()
        return sites_at, log

    def loglik(xi: Any, *u: Any) -> Any:
        held = values(both[0], xi)[0]
        local, log = values(both[1], u[0]) if u else ({}, 0.0)
        return density(traced(held | local), shared, inside=False) + log

    def prior(xi: Any) -> Any:
        held, log = values(both[0], xi)
        return density(traced(held), shared, inside=True) + log

    def constrained(xi: Any) -> Any:
        held = values(both[0], xi)[0]
        return jax().numpy.concatenate([held[site.name].reshape(-1) for site in both[0]])

    names = tuple(name for site in both[0] for name in site.names)
    local = both[1][-1].at.stop if both[1] else 0
    observed = tuple(name for name, site in first.items() if site["type"] == "sample" and site["is_observed"])
    return FromNumPyro(names, loglik, (), local, BATCH, shared_density=prior, constrained=constrained, observed=observed)


def _sites(distributions: Any, latent: Mapping[str, Any], names: Sequence[str]) -> tuple[Site, ...]:
    """The sites with these names, in the program's order."""
    chosen, start = [], 0
    for name, site in latent.items():
        if name not in names:
            continue
        support, shape = site["fn"].support, tuple(map(int, np.shape(site["value"])))
        if support.is_discrete:
            raise JobError(
                f"from_numpyro: the latent site {name!r} is discrete; sum it out in the program, or, if it is the response, "
                "leave it out where there are no rows (if y is not None: ..)"
            )
        bijection = distributions.biject_to(support)
        if tuple(bijection.inverse_shape(shape)) != shape:
            raise JobError(
                f"from_numpyro: the site {name!r} has {int(np.prod(shape))} numbers and fewer unconstrained ones (a simplex, a "
                "matrix): build it in the program from sites of one number each"
            )
        size = int(np.prod(shape))
        chosen.append(Site(name, bijection, shape, slice(start, start + size)))
        start += size
    return tuple(chosen)


# Makes an own model of a compiled Stan model, or of whatever has BridgeStan's functions --------------------
#
# The program's model block has the likelihood alone: priors are the job's, and those of the program would count at every client.
# Nothing is downloaded or compiled here.


class StanModel(Protocol):
    """Describes the functions that are needed, as `bridgestan.StanModel` has them."""

    def param_unc_num(self) -> int: ...
    def log_density_gradient(self, theta_unc: Array, propto: bool = True, jacobian: bool = True) -> tuple[float, Array]: ...
    def param_constrain(self, theta_unc: Array) -> Array: ...


@dataclass(frozen=True)
class FromStan:
    """Holds the own model that `from_stan` makes; its points are unconstrained, as the program's own."""

    names: tuple[str, ...]
    model: StanModel
    unconstrained: bool = True

    def values(self, points: Array) -> Array:
        """Returns (n,) log-likelihoods at points (n, P), without Jacobians of the program's constraints."""
        return np.array([self._at(point)[0] for point in points], np.float64)

    def gradient(self, points: Array) -> Array:
        """Returns (n, P) gradients at points (n, P)."""
        return np.array([self._at(point)[1] for point in points], np.float64).reshape(points.shape)

    def constrain(self, point: Array) -> Array:
        """Returns (P,) the parameters at a point."""
        return np.asarray(self.model.param_constrain(point), np.float64)

    def _at(self, point: Array) -> tuple[float, Array]:
        try:
            return self.model.log_density_gradient(point, propto=False, jacobian=False)
        except RuntimeError:  # Stan's way to say that there is no density
            return -np.inf, np.full(len(point), np.nan)


def from_stan(model: StanModel, names: Sequence[str] | None = None) -> FromStan:
    """Makes an own model of a compiled Stan program. Raises JobError: a function is missing, or the names are not as many as the
    parameters.

    Parameters
    ----------
    model : with BridgeStan's `param_unc_num`, `log_density_gradient` and `param_constrain`
    names : (P,) of its parameters, in their order; by default those of its `param_unc_names`
    """
    for function in ("param_unc_num", "log_density_gradient", "param_constrain"):
        if not callable(getattr(model, function, None)):
            raise JobError(f"from_stan: the model has no {function}; wanted what bridgestan.StanModel has")
    size, names_of = int(model.param_unc_num()), getattr(model, "param_unc_names", None)
    if names is None:
        if not callable(names_of):
            raise JobError("from_stan: the model does not name its parameters (param_unc_names); give names")
        names = names_of()
    parameters = tuple(map(str, names))
    if len(parameters) != size:
        raise JobError(f"from_stan: {len(parameters)} names for {size} parameters; give one for each")
    return FromStan(parameters, model)
