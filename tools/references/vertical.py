"""Long NUTS runs of the vertical models: `make references` writes vertical.json into
benchmarks/papers/references, from where the reproductions and the tests read it.

An independent program (NumPyro) for the simulated data of vertical.md, section 9: the true logistic model, the augmented-variable
(AV) and power-likelihood (PL) models with rho = 0.5, 1, 2 for 2 and 10 clients, the true Poisson multilevel model, and that of
the county homicides, in the folder FEDKERN_DATA. Auxiliary variables are sampled in the form z_j = X_j beta_j + rho e_j.

Some are made in two unrelated ways, and both are stored. The true logistic model: NUTS, and a Gibbs sampler with Polya-Gamma
variables. AV: NUTS of beta with z integrated out by quadrature, since sum_j z_j is one normal number a row, and for rho = 1 also
of (beta, z). PL: of (beta, z), and for two clients and rho = 1 also by quadrature: there each term has one normal number.
"""

from __future__ import annotations

import json
import sys
import time

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from scipy.stats import gaussian_kde

from fedkern.kernels import rng
from papers import county_homicide, vertical_examples
from papers.common import REFERENCES

RHOS, CLIENTS, CHAINS = (0.5, 1.0, 2.0), (2, 10), 4
LEVELS = np.array([0.005, 0.025, *np.arange(0.05, 0.96, 0.05).round(2), 0.975, 0.995])
DRAWN = 3  # the coefficient whose density is drawn


def log_bernoulli(y, eta):
    return y * eta - jnp.logaddexp(0.0, eta)


def coefficients(X):
    """b, and beta of all columns."""
    p = sum(x.shape[1] for x in X)
    return numpyro.sample("intercept", dist.Normal(0, 1)), numpyro.sample("theta", dist.Normal(0, 1).expand([p]))


def parts(X, beta):
    """(J, n) each client's part of the predictor."""
    ends = np.cumsum([x.shape[1] for x in X])
    return jnp.stack([x @ beta[end - x.shape[1] : end] for x, end in zip(X, ends)])


def true_model(X, y):
    b, beta = coefficients(X)
    numpyro.factor("rows", log_bernoulli(y, b + parts(X, beta).sum(axis=0)).sum())


def augmented(X, y, rho, power):
    """AV or PL with the auxiliary variables."""
    b, beta = coefficients(X)
    g = parts(X, beta)
    z = g + rho * numpyro.sample("e", dist.Normal(0, 1).expand(g.shape).to_event(2))
    eta = b + z.sum(axis=0)
    rows = log_bernoulli(y, eta + g - z).mean(axis=0) if power else log_bernoulli(y, eta)
    numpyro.factor("rows", rows.sum())


def integrated(X, y, rho, power, nodes=21):
    """The same without them: AV, or PL of two clients."""
    b, beta = coefficients(X)
    t, w = np.polynomial.hermite_e.hermegauss(nodes)
    log_w = jnp.asarray(np.log(w / w.sum()))
    eta = b + parts(X, beta).sum(axis=0)
    sd = rho if power else rho * np.sqrt(len(X))
    rows = jax.scipy.special.logsumexp(log_w + (0.5 if power else 1.0) * log_bernoulli(y[:, None], eta[:, None] + sd * t), axis=1)
    numpyro.factor("rows", (2.0 if power else 1.0) * rows.sum())


def multilevel(X, y, offset, group, levels, centred):
    """Slopes that vary by group about mu with standard deviation sigma."""
    p = X.shape[1]
    b = numpyro.sample("intercept", dist.Normal(0, 1))
    mu = numpyro.sample("mu", dist.Normal(0, 1).expand([p]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1).expand([p]))
    if centred:
        beta = numpyro.sample("beta", dist.Normal(mu, sigma).expand([levels, p]).to_event(2))
    else:
        beta = mu + sigma * numpyro.sample("standard", dist.Normal(0, 1).expand([levels, p]).to_event(2))
        numpyro.deterministic("beta", beta)
    eta = b + offset + (X * beta[group]).sum(axis=1)
    numpyro.factor("rows", (y * eta - jnp.exp(eta)).sum())


def nuts(model, *data, draws, warmup, seed=1):
    """Draws by name, (chain, draw, ...), and how the sampler went."""
    size = {"num_warmup": warmup, "num_samples": draws, "num_chains": CHAINS}
    sampler = MCMC(NUTS(model), **size, chain_method="sequential", progress_bar=False)
    sampler.run(jax.random.key(seed), *data, extra_fields=("diverging", "num_steps"))
    extra = sampler.get_extra_fields(group_by_chain=True)
    found = {name: np.asarray(a) for name, a in sampler.get_samples(group_by_chain=True).items()}
    found = {name: a for name, a in found.items() if name not in ("e", "standard")}
    return found, {"divergences": int(extra["diverging"].sum()), "leapfrogs": float(extra["num_steps"].mean())}


def polya_gamma(X, y, draws, warmup, seed=1):
    """The true logistic model by Gibbs: given PG(1, eta_i) variables, beta is Gaussian (Polson, Scott and Windle, 2013)."""
    Z = np.column_stack([np.ones(len(y)), *X])
    d, kappa, chains = Z.shape[1], Z.T @ (y - 0.5), []
    for chain in range(CHAINS):
        key, random = rng.key(seed, "augmentation", chain), np.random.default_rng([seed, chain])
        beta, kept = random.standard_normal(d), []
        for t in range(warmup + draws):
            omega = rng.polya_gamma(Z @ beta, key=key, step=t)
            L = np.linalg.cholesky((Z.T * omega) @ Z + np.eye(d))
            beta = np.linalg.solve(L.T, np.linalg.solve(L, kappa) + random.standard_normal(d))
            if t >= warmup:
                kept.append(beta)
        chains.append(kept)
    found = np.array(chains)
    return {"intercept": found[..., 0], "theta": found[..., 1:]}, {}


def summaries(draws):
    """name -> mean, sd, the Monte-Carlo errors of both, and quantiles (last axis), from (chain, draw, ...) arrays."""
    out = {}
    for name, a in draws.items():
        mean, sd = a.mean(axis=(0, 1)), a.std(axis=(0, 1))
        error, of_square = (az.mcse({"x": x}, method="mean")["x"].values for x in (a, (a - mean) ** 2))
        numbers = {"mean": mean, "sd": sd, "mean_error": error, "sd_error": of_square / (2 * sd)}
        if name in ("intercept", "theta", "mu", "sigma"):
            numbers["quantiles"] = np.moveaxis(np.quantile(a, LEVELS, axis=(0, 1)), 0, -1)
        out[name] = {key: np.round(value, 5).tolist() for key, value in numbers.items()}
    return out


def mixing(draws):
    """The worst of both diagnostics."""
    return {
        "rhat": max(float(az.rhat({"x": a})["x"].max()) for a in draws.values()),
        "ess": min(float(az.ess({"x": a})["x"].min()) for a in draws.values()),
    }


def runs(size):
    """name -> a function that samples."""
    logistic = {J: vertical_examples.logistic(J) for J in CLIENTS}
    for name, data, centred in (("areas", vertical_examples.areas(), True), ("counties", county_homicide.read(), False)):
        given = (*map(jnp.asarray, (data.pooled(), data.y, data.offset)), data.group, len(data.groups), centred)
        yield name, lambda given=given: nuts(multilevel, *given, **size)
    X, y = tuple(map(jnp.asarray, logistic[2].X)), jnp.asarray(logistic[2].y)
    yield "logistic", lambda: nuts(true_model, X, y, **size)
    yield "logistic, another way", lambda: polya_gamma(logistic[2].X, logistic[2].y, 10 * size["draws"], size["warmup"])
    for J, data in logistic.items():
        X = tuple(map(jnp.asarray, data.X))
        for rho in RHOS:
            for power in (False, True):
                ways = [augmented, integrated] if power else [integrated, augmented]
                two = rho == 1 and (J == 2 or not power)
                for model, more in zip(ways, ("", ", another way") if two else ("",)):
                    name = f"{'PL' if power else 'AV'}, J = {J}, rho = {rho:g}{more}"
                    yield name, lambda X=X, rho=rho, power=power, model=model: nuts(model, X, y, rho, power, **size)


def density(a):
    """A smooth density of one coefficient: where it was evaluated, and its values."""
    at = a.mean() + a.std() * np.linspace(-4, 4, 41)
    return {"at": np.round(at, 4).tolist(), "density": np.round(gaussian_kde(a.ravel())(at), 4).tolist()}


def main(path, only=(), draws=600, warmup=300):
    jax.config.update("jax_enable_x64", True)
    stored = json.loads(path.read_text()) if only and path.exists() else {}
    for name, sample in runs({"draws": draws, "warmup": warmup}):
        if only and not name.startswith(tuple(only)):
            continue
        begin = time.perf_counter()
        found, how = sample()
        kept = next(iter(found.values())).shape[1]
        stored[name] = {"chains": CHAINS, "draws": kept, **how, **mixing(found), "posterior": summaries(found)}
        if "theta" in found:
            stored[name]["drawn"] = density(found["theta"][..., DRAWN])
        short = {key: value for key, value in stored[name].items() if key not in ("posterior", "drawn")}
        print(name, short, f"{time.perf_counter() - begin:.0f} s", flush=True)
        path.write_text(json.dumps(stored, separators=(",", ":")) + "\n")


if __name__ == "__main__":  # with names: only the runs whose names start with one of these, beside what is stored
    main(REFERENCES / "vertical.json", sys.argv[1:])
