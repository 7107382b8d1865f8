"""Makes an own model of a NumPyro program: of the sites that all clients share, and those that are the client's own.

log p(rows, u | shared) is the sum of the log-densities of all sites but the shared ones, whose own sum is the prior. Sites are
taken as unconstrained numbers by NumPyro's own bijections. The Jacobians of shared sites are in the prior, those of the others in
the client's density.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError
from .from_jax import BATCH, FromJax, double, jax, of_all

Array = NDArray[np.float64]


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
        return tuple(f"{self.name}[{','.join(str(i + 1) for i in at)}]" for at in np.ndindex(*self.shape))


@dataclass(frozen=True)
class FromNumPyro(FromJax):
    """Holds the own model that `from_numpyro` makes; its points are unconstrained.

    Attributes
    ----------
    observed : names of the program's observed sites and factors; a program that is called without rows must have none
    """

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
    """Makes an own model of a NumPyro program, with its own prior: the job has no [model.priors].

    Parameters
    ----------
    model : of one client's rows
    shared : names of the sites that all clients have in common; other latent sites are the client's own
    args, kwargs : of `model`; where it is asked for its prior alone they may be without rows

    Raises
    ------
    JobError
        NumPyro is not installed, a shared site is not there, or a latent site is discrete or a matrix with constraints.
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
                total = total + (log if site.get("scale") is None else site["scale"] * log)
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
        own, log = values(both[1], u[0]) if u else ({}, 0.0)
        return density(traced(held | own), shared, inside=False) + log

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
