"""How well a fit agrees with its areas: each number against another computation, and what of it leaves a client."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fedkern
from fedkern.algorithms.exchanges.sums import FitSums
from fedkern.cli.report import write as write_report
from fedkern.data.graph import grid, make_map
from fedkern.kernels.families import taken_by
from fedkern.methods.sigma import fitness, own
from fedkern.methods.sigma.prior import keys as prior_keys
from fedkern.methods.sigma.prior.source import of_map
from fedkern.models import psis
from fedkern.models.spatial import checks, factors
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior
from fedkern.models.spatial.site import Layout, Rows
from fedkern.models.spatial.within_site import WithinSite
from methods.sigma.test_areas import areas, change, job
from support import maps
from support import sigma_artifacts as artifacts
from support import sigma_cases as cases
from support.wires import checked_and_run

FAMILIES = taken_by("sigma")
SCALES = {"negative-binomial": 1.8, "gaussian": 0.7}


def dist(family: str, mu: Any, trials: Any = None) -> Any:
    """The distribution of a row, by SciPy."""
    r = SCALES.get(family, 1.0)
    return {
        "poisson": lambda: stats.poisson(mu),
        "negative-binomial": lambda: stats.nbinom(r, r / (r + mu)),
        "binomial": lambda: stats.binom(trials, mu),
        "bernoulli": lambda: stats.bernoulli(mu),
        "gaussian": lambda: stats.norm(mu, r),
    }[family]()


def inverse(family: str, eta: Any) -> Any:
    if family in ("binomial", "bernoulli"):
        return 1 / (1 + np.exp(-eta))
    return eta if family == "gaussian" else np.exp(eta)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_area_s_rows_are_foreseen_by_quadrature(family: str) -> None:
    rng = np.random.default_rng(5)
    site = cases.site(rng, family=family, scale=SCALES.get(family, 1.0))
    xi, d = rng.normal(0, 0.4, (3, site.n_global)), site.n_areas
    mean, v = rng.normal(0, 0.5, (3, d)), rng.uniform(0.05, 2.0, (3, d))
    found = checks.log_density(site, xi, mean, v)
    fixed, scale, rows = site.fixed(xi), site.scale(xi)[:, 0], site.rows
    for k, i in np.ndindex(3, d):
        at = np.flatnonzero(rows.area == i)
        e = np.linspace(-10, 10, 4001)[:, None]
        mu = inverse(family, fixed[k, at] + scale[k] * (mean[k, i] + np.sqrt(v[k, i]) * e))
        one = dist(family, mu, None if rows.trials is None else rows.trials[at])
        likelihood = one.pdf(rows.y[at]) if family == "gaussian" else one.pmf(rows.y[at])
        value = np.trapezoid(likelihood.prod(axis=1) * stats.norm.pdf(e[:, 0]), e[:, 0])
        assert found[k, i] == pytest.approx(np.log(value) if len(at) else 0.0, abs=2e-4)
    # without a variance it is the density of the rows themselves
    alone = checks.log_density(site, xi, mean, None)
    np.testing.assert_allclose(alone, checks.log_density(site, xi, mean, np.full_like(v, 1e-10)), atol=1e-6)


def test_weights_are_arvizs() -> None:
    """To rounding those of ArviZ 0.x; 1.x takes one draw more or less for the tail."""
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(3)
    for shape in (0.5, 2.0, 6.0):
        log_ratios = shape * rng.standard_exponential(1000)
        if older := hasattr(arviz, "psislw"):
            want, k_hat = arviz.psislw(log_ratios.copy())
        else:
            want, k_hat = pytest.importorskip("arviz_stats").base.array_stats.psislw(-log_ratios)
        found = psis.smoothed(log_ratios)
        np.testing.assert_allclose(found[0], np.asarray(want), rtol=1e-9, atol=1e-9 if older else 0.3)
        assert found[1] == pytest.approx(float(k_hat), rel=1e-9 if older else 0.05)
    flat = psis.smoothed(np.zeros(100))
    np.testing.assert_allclose(flat[0], -np.log(100))
    assert flat[1] == np.inf


def test_waic_is_that_of_its_definition() -> None:
    """Watanabe (2010): the density of an area by the mean over draws, less the variance of its logarithm."""
    log_density = np.random.default_rng(3).normal(-2, 0.4, (4000, 6))
    p_waic = log_density.var(axis=0, ddof=1).sum()
    elpd_waic = np.log(np.exp(log_density).mean(axis=0)).sum() - p_waic
    assert fitness._waic(log_density).sum(axis=0) == pytest.approx([elpd_waic, p_waic], rel=1e-3)


def test_areas_left_out_have_their_exact_density() -> None:
    """y_i ~ N(theta_i, s^2), theta_i ~ N(z, v), z ~ N(0, 1): all is Gaussian. With the area's own effect in the density (the
    broken version) it is far off."""
    rng, n, v, s, m = np.random.default_rng(4), 12, 0.8, 0.3, 4000
    y = rng.normal(0.5, np.sqrt(v + s**2), n)
    total = v + s**2
    precision = 1 + n / total
    z = rng.normal(y.sum() / total / precision, precision**-0.5, m)
    exact = np.empty(n)
    for i in range(n):
        others = 1 + (n - 1) / total
        exact[i] = stats.norm.logpdf(y[i], (y.sum() - y[i]) / total / others, np.sqrt(1 / others + total))
    found = psis.left_out(stats.norm.logpdf(y, z[:, None], np.sqrt(total)))
    np.testing.assert_allclose(found.elpd, exact, atol=0.02)
    assert (found.k_hat < psis.UNRELIABLE).all()
    assert 0.5 < found.effective.sum() < 2.0  # z alone
    k = v / total
    theta = z[:, None] + k * (y - z[:, None]) + rng.normal(0, np.sqrt(k) * s, (m, n))
    broken = psis.left_out(stats.norm.logpdf(y, theta, s))
    assert np.abs(broken.elpd - exact).max() > 0.1
    assert (broken.k_hat > psis.UNRELIABLE).any()


def test_morans_index_its_mean_and_sd() -> None:
    indptr, indices = maps.grid(5, 6)
    rows = np.repeat(np.arange(30), np.diff(indptr))
    pairs = np.column_stack([rows, indices])[rows < indices]
    W = np.zeros((30, 30))
    W[pairs[:, 0], pairs[:, 1]] = W[pairs[:, 1], pairs[:, 0]] = 1

    def index(x: Any, W: Any) -> float:
        z = x - x.mean()
        return float(len(x) / W.sum() * (z @ W @ z) / (z @ z))

    rng = np.random.default_rng(6)
    x = rng.normal(size=30)
    found = checks.moran(x, pairs)
    assert found is not None
    assert found.index == pytest.approx(index(x, W), rel=1e-12)
    many = np.array([index(one, W) for one in rng.normal(size=(20_000, 30))])
    assert found.expected == pytest.approx(many.mean(), abs=4 * many.std() / 141)
    assert found.sd == pytest.approx(many.std(), rel=0.03)
    x[[3, 17]] = np.nan  # areas without rows
    keep = np.isfinite(x)
    part = checks.moran(x, pairs)
    assert part is not None
    assert part.index == pytest.approx(index(x[keep], W[np.ix_(keep, keep)]), rel=1e-12)
    smooth = checks.moran(np.arange(30.0), pairs)
    assert smooth is not None
    assert smooth.z > 4
    assert checks.moran(np.ones(30), pairs) is None
    for n in (4, 5, 6, 7, 11, 14):  # all touch all: I is -1 / (n - 1) whatever x is, and its variance rounding
        every = np.array([*itertools.combinations(range(n), 2)])
        values = rng.normal(size=n)
        assert checks.moran(values, every) is None
        assert checks.moran(values, every[1:]) is not None
    assert checks.moran(x, np.zeros((0, 2), np.int64)) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_residuals_are_what_scipy_says(family: str) -> None:
    rng, m = np.random.default_rng(7), 40
    site = cases.site(rng, family=family, scale=SCALES.get(family, 1.0))
    xi, theta = rng.normal(0, 0.3, (m, site.n_global)), rng.normal(0, 0.5, (m, site.n_areas))
    weights = rng.dirichlet(np.ones(m), site.n_areas).T
    rows, fixed, scale = site.rows, site.fixed(xi), site.scale(xi)[:, 0]
    residuals, pit = checks.pearson(site, xi, theta), checks.pit(site, xi, theta, weights)
    for i in range(site.n_areas):
        at = np.flatnonzero(rows.area == i)
        if not len(at):
            assert np.isnan([residuals[i], pit[i]]).all()
            continue
        left = spread = 0.0
        for r in at:
            mu = float(np.mean([inverse(family, fixed[k, r] + scale[k] * theta[k, i]) for k in range(m)]))
            one = dist(family, mu, None if rows.trials is None else rows.trials[r])
            left, spread = left + rows.y[r] - one.mean(), spread + one.var()
        assert residuals[i] == pytest.approx(left / np.sqrt(spread), rel=1e-9)
        if len(at) > 1:
            assert np.isnan(pit[i])
            continue
        y, want = rows.y[at[0]], 0.0
        for k in range(m):
            mu = inverse(family, fixed[k, at[0]] + scale[k] * theta[k, i])
            one = dist(family, mu, None if rows.trials is None else rows.trials[at[0]])
            below = one.cdf(y) if family == "gaussian" else (one.cdf(y) + one.cdf(y - 1)) / 2
            want += weights[k, i] * below
        assert pit[i] == pytest.approx(want, rel=1e-9)


def test_inside_a_client_an_area_depends_on_its_neighbours() -> None:
    """Against the dense conditional distribution of each theta_i given all others."""
    phi = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
    prior = factors.tie(AreaPrior(*maps.grid(4, 4), phi), (9, 7), ("a", "b"), n_latents=5, nodes=9).clients[0]
    rng, d = np.random.default_rng(8), prior.size
    rows = Rows(rng.poisson(2.0, 12).astype(float), rng.integers(0, d, 12), np.zeros((12, 0)), np.zeros(12))
    site = WithinSite(prior, phi, Layout(True, prior.n_latents), cases.site(rng).likelihood, rows)
    xi, u = rng.normal(0, 0.5, (2, site.n_global)), rng.normal(size=(2, d))
    theta = site.theta_given(xi, u, u)
    mean, variance = site.without_rows(xi, u, theta)
    ties = prior.ties(phi.at(xi[:, 0])[0])
    for k in range(2):
        C = np.linalg.inv(prior.precision(ties, k))
        centre = C @ (prior.pull(ties, k) @ xi[k, site.layout.parts["z"]])
        for i in range(d):
            rest = np.delete(np.arange(d), i)
            gain = np.linalg.solve(C[np.ix_(rest, rest)], C[rest, i])
            assert mean[k, i] == pytest.approx(centre[i] + gain @ (theta[k, rest] - centre[rest]), rel=1e-8)
            assert variance[k, i] == pytest.approx(C[i, i] - gain @ C[rest, i], rel=1e-8)


@pytest.mark.usefixtures("undrawn")
def test_a_job_keeps_areas_and_sends_sums_of_five(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """East and west have 4 and 3 areas with rows: they send zeros. North has 6."""
    kept: dict[str, Any] = {}
    original = own.fitness_of

    def fitness_of(site: Any, drawn: Any, pairs: Any, unit: float) -> Any:
        kept[str(len(kept))] = original(site, drawn, pairs, unit)
        return kept[str(len(kept) - 1)]

    monkeypatch.setattr(own, "fitness_of", fitness_of)
    result = checked_and_run(job(tmp_path, output={"chains": 2, "fit": True}), tmp_path / "out")
    for name, one in zip(artifacts.NAMES, kept.values()):
        rows = areas(tmp_path / "out", name)
        assert [row["elpd"] == "" for row in rows] == [row["rows"] == "0" for row in rows]
        content = json.loads((tmp_path / "out" / f"client-{name}" / "fit.json").read_text())
        elpd = [float(row["elpd"]) for row in rows if row["elpd"]]
        pearson = [float(row["pearson"]) for row in rows if row["pearson"]]
        assert content["elpd"] == pytest.approx(sum(elpd), rel=1e-5)
        assert content["pearson"] == {"areas": len(elpd), "chi_square": pytest.approx(sum(v * v for v in pearson), rel=1e-4)}
        assert content["pit"]["mean"] == pytest.approx(np.mean([float(row["pit"]) for row in rows if row["pit"]]), rel=1e-5)
        sent = [json.loads(line) for line in (tmp_path / "out" / "ledger" / f"{name}.jsonl").read_text().splitlines()]
        assert sum(message["kind"] == "FitSums" for message in sent) == 1
        assert one.sums.leaving() == (one.sums if name == "north" else FitSums(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0))
        if name == "north":
            said = result.summary["sigma"]["fit"]
            assert said["areas"] == len(elpd) == 6
            assert said["elpd"] == pytest.approx(sum(elpd), rel=1e-5)
            assert (said["waic"], said["p_waic"]) == (content["waic"]["waic"], content["waic"]["p_waic"])
            assert said["se"] == pytest.approx(np.sqrt(6 * np.var(elpd, ddof=1)), rel=1e-4)
    page = write_report(tmp_path / "out").read_text()
    assert "PIT below .05 / above .95" in page
    notes = result.summary["notes"]
    assert "2 clients have fewer than 5 areas with rows: they are not in the sums of the fit" in notes
    without = fedkern.run(tmp_path / "job.toml", output={"fit": False})
    assert without.digest == result.digest
    assert "fit" not in without.summary["sigma"]
    assert "fit" in fedkern.run(tmp_path / "job.toml").summary["sigma"], "also where nothing is written"


@pytest.mark.parametrize(("family", "value"), [("poisson", "0"), ("binomial", "0"), ("bernoulli", "1")])
def test_responses_that_are_all_the_same_are_warned_of(tmp_path: Path, family: str, value: str) -> None:
    path = job(tmp_path, family, output={"chains": 2})
    warned = "every response of every client is"
    assert not any(warned in note for note in fedkern.run(path).summary["notes"])
    for name in artifacts.NAMES:
        change(tmp_path, name, "cases", lambda row, cell: cell and value)
    notes = [note for note in fedkern.run(path).summary["notes"] if warned in note]
    assert len(notes) == 1
    assert ("a success" if value == "1" else "is 0") in notes[0]


def test_a_map_that_is_trained_gives_clients_their_own_neighbours() -> None:
    """Of a 4 x 6 grid cut into three: pairs inside of a client, by its own numbers; none across a border."""
    rows, columns = np.divmod(np.arange(24), 6)
    source = of_map(make_map(grid(4, 6), [f"c{k // 8}" for k in range(24)]), prior_keys.parse(PRIOR))
    for j in range(3):
        own_cells = np.arange(8 * j, 8 * j + 8)
        near = {(a, b) for a in range(8) for b in range(a) if _adjacent(rows, columns, own_cells[a], own_cells[b])}
        pairs = source.pairs(j)
        assert pairs is not None
        assert {(max(p), min(p)) for p in pairs.tolist()} == near
        assert len(pairs) == len(near)


PRIOR = {"prior": {"kind": "car"}, "data": {"areas": "a", "area": "a", "client": "c", "adjacency": "e"}}


def _adjacent(rows: Any, columns: Any, a: int, b: int) -> bool:
    return abs(int(rows[a] - rows[b])) + abs(int(columns[a] - columns[b])) == 1
