"""Prints what programs of Python compute of lung.csv: row of conventions.toml, program, version and number.

python peers.py FOLDER, where there are lifelines, statsmodels, scikit-learn, arviz-stats, formulaic, esda and dp-accounting.
fedkern is not imported. A program that is lacking is told, and the others go on.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

warnings.simplefilter("ignore")
FOLDER = Path(sys.argv[1])
d = pd.read_csv(FOLDER / "lung.csv")
chains = pd.read_csv(FOLDER / "chains.csv")
d["a"], d["level"], d["share"], d["y"] = (d.age - 60) / 10, d.ecog.clip(upper=2), (d.karno - 1) / 100, d.karno / 10
X = d[["a", "female"]].to_numpy(float)
design = np.column_stack([np.ones(60), X])
beta = np.array([0.3, -0.5])


def say(row: str, package: str, value: float, convention: str = "") -> None:
    print(row, f"{package}: {convention}" if convention else package, version(package), f"{float(value):.15g}", sep="\t")


@contextlib.contextmanager
def part() -> Iterator[None]:
    try:
        yield
    except Exception as fault:
        print(f"{type(fault).__name__}: {fault}", file=sys.stderr)


with part():
    import statsmodels.api as sm
    from statsmodels.duration.hazard_regression import PHReg

    def hazards(ties: str, time: object = d.month, **options: object) -> PHReg:
        return PHReg(time, X, status=d.event, ties=ties, **options)

    say("cox-ties", "statsmodels", hazards("efron").loglike(beta), "ties = efron")
    say("cox-ties", "statsmodels", hazards("breslow").loglike(beta), "ties = breslow, the default")
    say("cox-entry", "statsmodels", hazards("efron", entry=d.entry).loglike(beta), "who enters at a time is at risk at it")
    say("cox-strata", "statsmodels", hazards("efron", strata=d.ward).loglike(beta))
    offset = PHReg(d.month, X[:, :1], status=d.event, ties="efron", offset=0.1 * d.ecog)
    say("cox-offset", "statsmodels", offset.loglike(beta[:1]))
    near = np.where(np.arange(1, 61) % 2 == 0, (d.month + 0.3) / 10 - 0.03, d.month / 10)
    say("cox-timefix", "statsmodels", hazards("efron", near).loglike(beta), "times as they are")
    say(
        "cox-baseline",
        "statsmodels",
        hazards("efron").baseline_cumulative_hazard(beta)[0][1].max(),
        "without the last time's own jump",
    )

with part():
    say("gaussian-loglik", "statsmodels", sm.OLS(d.meal, design).fit().llf)
    say("bernoulli-loglik", "statsmodels", sm.Logit(d.event, design).fit(disp=0).llf)
    say(
        "binomial-loglik",
        "statsmodels",
        sm.GLM(np.column_stack([d.y, 10 - d.y]), design, family=sm.families.Binomial()).fit().llf,
    )
    say("poisson-loglik", "statsmodels", sm.GLM(d.loss, design, family=sm.families.Poisson()).fit().llf)
    gamma = sm.GLM(d.meal, design, family=sm.families.Gamma(sm.families.links.Log())).fit()
    say("gamma-shape", "statsmodels", 1 / gamma.scale, "1 / scale: Pearson")
    say("gamma-loglik", "statsmodels", gamma.llf, "GLM.llf: at Pearson's scale")
    negative = sm.NegativeBinomial(d.loss, design).fit(disp=0, method="bfgs", maxiter=500, gtol=1e-9)
    say("negative-binomial-r", "statsmodels", 1 / negative.params.iloc[-1], "1 / alpha")
    say("negative-binomial-r", "statsmodels", negative.params.iloc[-1], "alpha")
    say("negative-binomial-loglik", "statsmodels", negative.llf)
    glm = sm.GLM(d.loss, design, family=sm.families.NegativeBinomial()).fit()
    say("negative-binomial-loglik", "statsmodels", glm.llf, "GLM: alpha is 1, not estimated")
    from statsmodels.othermod.betareg import BetaModel

    say("beta-loglik", "statsmodels", BetaModel(d.share, design).fit(disp=0).llf)
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    ordered = OrderedModel(d.level, X, distr="logit").fit(disp=0, method="bfgs", gtol=1e-9)
    say("ordinal-slope", "statsmodels", ordered.params.iloc[0], "OrderedModel")
    say("ordinal-loglik", "statsmodels", ordered.llf)
    say("ordinal-threshold", "statsmodels", ordered.params.iloc[2], "first threshold")
    say("ordinal-gap", "statsmodels", ordered.params.iloc[3], "logarithm of the step to the next threshold")
    several = sm.MNLogit(d.level, design).fit(disp=0)
    say("multinomial-slope", "statsmodels", several.params.iloc[1, 0], "level 1 against the first")
    say("multinomial-loglik", "statsmodels", several.llf)
    from statsmodels.discrete.count_model import ZeroInflatedPoisson

    zeros = ZeroInflatedPoisson(d.loss, design, exog_infl=np.ones((60, 1))).fit(disp=0, method="bfgs", maxiter=500)
    say("zero-inflated-loglik", "statsmodels", zeros.llf)
    say("zero-inflated-share", "statsmodels", 1 / (1 + np.exp(-zeros.params.iloc[0])), "probability of a structural zero")

with part():
    from lifelines import CoxPHFitter, WeibullAFTFitter

    frame = d[["month", "event", "age"]]
    ridge = CoxPHFitter(penalizer=1.0).fit(frame, "month", "event")
    say("cox-ridge", "lifelines", ridge.params_["age"], "penalizer = 1: n Var x / 2 times the square")
    aft = WeibullAFTFitter().fit(d[["month", "event", "a", "female"]], "month", "event")
    say("weibull-shape", "lifelines", np.exp(aft.params_["rho_", "Intercept"]), "exp(rho_)")
    say("weibull-slope", "lifelines", aft.params_["lambda_", "a"], "lambda_: of the logarithm of time")
    say("weibull-loglik", "lifelines", aft.log_likelihood_)
    entered = WeibullAFTFitter().fit(d[["month", "event", "entry", "a", "female"]], "month", "event", entry_col="entry")
    say("weibull-entry-loglik", "lifelines", entered.log_likelihood_)
    from lifelines.utils import concordance_index

    say("cox-concordance", "lifelines", concordance_index(d.month, -(X @ beta), d.event), "events at one time make pairs")

with part():
    from sklearn.preprocessing import StandardScaler

    say("scale-divisor", "scikit-learn", StandardScaler().fit(d[["age"]]).scale_[0], "divisor n")
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1e9, tol=1e-10, max_iter=10_000).fit(X, d.level)
    say("multinomial-slope", "scikit-learn", model.coef_[1, 0], "a coefficient of each level, whose sum is 0")
    from sklearn.gaussian_process.kernels import Matern

    say("matern-covariance", "scikit-learn", Matern(0.7, nu=1.5)([[0.0]], [[1.0]])[0, 0], "Matern(0.7, nu = 1.5)")
    say("scale-divisor", "pandas", d.age.std(), "std: divisor n - 1")
    say("quantile", "numpy", np.quantile(chains.draw, 0.05))

with part():
    from scipy import stats

    say("negative-binomial-limit", "scipy", stats.nbinom.logpmf(3, 1e15, 1e15 / (1e15 + 2.0)), "r = 1e15")
    say("negative-binomial-limit", "scipy", stats.poisson.logpmf(3, 2.0), "Poisson")

with part():
    import formulaic

    letters = pd.DataFrame({"g": ["b", "A", "a", "B"]})
    names = list(formulaic.model_matrix("0 + g", letters).columns)
    say("factor-order", "formulaic", names.index("g[a]") + 1 if "g[a]" in names else names.index("g[T.a]") + 1, "capitals first")

with part():
    import arviz_stats.base as base

    stats_ = base.array_stats
    draws = chains.draw.to_numpy().reshape(4, 50)
    say("rhat", "arviz-stats", stats_.rhat(draws, chain_axis=0, draw_axis=1))
    say("ess-bulk", "arviz-stats", stats_.ess(draws, chain_axis=0, draw_axis=1, method="bulk"))
    say("mcse-mean", "arviz-stats", stats_.mcse(draws, chain_axis=0, draw_axis=1, method="mean"))
    say("ess-short", "arviz-stats", stats_.ess(draws[:, :8], chain_axis=0, draw_axis=1, method="bulk"), "4 chains of 8 draws")
    say("psis-k", "arviz-stats", stats_.psislw(-chains.ratio.to_numpy())[1], "psislw of minus the log ratios")
    say("psis-k", "arviz-stats", stats_.psislw(chains.ratio.to_numpy())[1], "psislw of the log ratios")

with part():
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    step = dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.0))
    many = dp_event.SelfComposedDpEvent(step, 500)
    once = dp_event.GaussianDpEvent(2.0)
    for relation, name in (
        (NeighboringRelation.ADD_OR_REMOVE_ONE, "add or remove one"),
        (NeighboringRelation.REPLACE_ONE, "replace one"),
    ):
        say("epsilon-sampled", "dp-accounting", PLDAccountant(relation).compose(many).get_epsilon(1e-5), f"PLD, {name}")
        say("epsilon-gaussian", "dp-accounting", PLDAccountant(relation).compose(once).get_epsilon(1e-5), f"PLD, {name}")
    say("epsilon-sampled", "dp-accounting", RdpAccountant().compose(many).get_epsilon(1e-5), "RDP, add or remove one")
    say("epsilon-rdp", "dp-accounting", RdpAccountant().compose(many).get_epsilon(1e-5), "its own orders")
    whole = RdpAccountant(orders=range(2, 257)).compose(many)
    say("epsilon-rdp", "dp-accounting", whole.get_epsilon(1e-5), "orders 2, 3, .. 256")
    say("epsilon-gaussian", "dp-accounting", RdpAccountant().compose(once).get_epsilon(1e-5), "RDP, add or remove one")

with part():
    from esda.moran import Moran
    from libpysal.weights import W

    pairs = [(1, 2), (2, 3), (3, 4), (4, 1), (2, 4), (5, 6), (6, 7), (7, 8), (8, 5), (4, 5)]
    near = {i: sorted([b for a, b in pairs if a == i] + [a for a, b in pairs if b == i]) for i in range(1, 9)}
    values = d.age.to_numpy(float)[:8]
    say(
        "moran", "esda", Moran(values, W(near, silence_warnings=True), transformation="b", permutations=0).I, "transformation = b"
    )
    say("moran", "esda", Moran(values, W(near, silence_warnings=True), permutations=0).I, "rows of weights sum to 1, the default")
