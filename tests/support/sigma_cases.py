"""Small trained-looking priors and sites with random numbers in them."""

from types import SimpleNamespace

import numpy as np

from fedkern.kernels.families import FAMILIES
from fedkern.kernels.mlp import Architecture
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.decoder import Decoder
from fedkern.models.spatial.site import Auxiliary, Layout, Rows, Site

P_G, P_L, D = 3, 2, 7
HIDDEN, LOCAL, WIDTH, RANK = 6, 5, 4, 3
LO, HI = 0.1, 0.95


def sizes(variant, d=D, c=1):
    """Lengths of a client's parts."""

    def count(*layers):
        return sum(out * (into + 1) for out, into in layers)

    if variant == "multiplicative":
        return {"decoder_weights": count((WIDTH, c), (RANK, WIDTH)), "decoder": d * RANK * (P_G + P_L)}
    last = HIDDEN + P_L + c
    local = count((d, last)) if variant == "printed" else count((LOCAL, last), (d, LOCAL))
    prior = count((LOCAL, P_G + c), (LOCAL, LOCAL), (2 * P_L, LOCAL))
    return {"global_decoder": count((HIDDEN, P_G + c), (HIDDEN, HIDDEN)), "prior": prior, "decoder": local}


def decoder(rng, variant="amended", d=D):
    """A decoder with random parameters."""
    parts = {name: rng.normal(0, 0.7, n) for name, n in sizes(variant, d).items()}
    return Decoder(architecture(variant, d), parts, rng.uniform(0.5, 1.5, d))


def architecture(variant="amended", d=D):
    """Of one client."""
    return Architecture(variant, (d,), 1, P_G, (P_L,), HIDDEN, LOCAL, WIDTH, RANK)


def condition(transform="unit"):
    return Condition("phi", LO, HI, transform, Hyperprior("logit-normal"))


def rows(rng, family, n=11, d=D, p=2):
    """Some areas have several rows, some have none."""
    area = rng.integers(0, d - 1, n)
    X, offset = rng.normal(size=(n, p)), rng.normal(0, 0.3, n)
    record, source = FAMILIES[family], SimpleNamespace(uniform=rng.random, normal=rng.standard_normal)
    trials = rng.integers(1, 9, n).astype(float) if record.trials else None
    return Rows(record.draw(source, record.mean(np.full(n, 0.7)), 1.0, trials), area, X, offset, trials)


def auxiliary(rng, kind, d=D):
    if kind is None:
        return None
    grid = np.zeros(1) if kind == "constant" else np.array([LO, 0.32, 0.77, HI])
    return Auxiliary(rng.uniform(0.05, 0.6, (len(grid), d)), grid)


def site(
    rng, variant="amended", family="poisson", tau="constant", *, mixing=False, scale=1.0, integrated=False, transform="unit"
):
    """A site with all unknowns that its kind can have."""
    layout = Layout(not mixing, P_G, mixing, True, 2, True, family == "gaussian" and scale is None)
    where = Condition("none", 0.0, 0.0) if mixing else condition(transform)
    likelihood = Likelihood(family, scale)
    return Site(decoder(rng, variant), where, layout, likelihood, rows(rng, family), auxiliary(rng, tau), integrated)
