"""Jobs of Cox models with effects of groups: their posterior, what holders get, and which are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp

import fedkern
from fedkern.errors import FedkernError
from fedkern.models import survival
from fedkern.models.mixed import Layout
from models.test_frailty import G, client, prior_of_effects

OPEN, FAST = {"level": "none"}, {"points": 1024, "effective": 400.0}
FORMULA = "Surv(time, died) ~ x + (1 | ward)"
SD = "group_sd[intercept]"


def frame(seed: int = 1, n: int = 60) -> pd.DataFrame:
    given = client(n, seed)
    columns = {"time": given["time"], "died": given["event"].astype(int), "x": given["x"]}
    return pd.DataFrame({**columns, "ward": [f"w{k}" for k in given["code"]]})


def fit(data: dict[str, pd.DataFrame], out: Path, formula: str = FORMULA, **keys: Any) -> fedkern.Result:
    return fedkern.fit(formula, data, "cox", out=out, **{"disclosure": OPEN, "algorithm": FAST, **keys})


@pytest.mark.digits
def test_the_posterior_is_that_of_a_grid_and_a_cloud_of_effects(tmp_path: Path) -> None:
    result = fit({"a": frame()}, tmp_path / "out", algorithm={})
    assert result.summary["converged"] is True
    given, scale, u = client(), frame().x.std(ddof=0), prior_of_effects()
    betas, logs = np.linspace(-0.6, 1.6, 15), np.linspace(-5, 2.0, 26)
    X = np.column_stack([given["x"], np.eye(G)[given["code"]]])
    rows = survival.Rows.of(Layout(("x", *"abcd"), "cox"), X, given["time"], given["event"])

    def integral(beta: float, log_s: float) -> float:
        return float(logsumexp(rows.values(np.column_stack([np.full(len(u), beta), np.exp(log_s) * u]), 1)))

    log = np.array([[integral(beta, log_s) for log_s in logs] for beta in betas])
    log += stats.norm.logpdf(betas * scale, 0, 2.5)[:, np.newaxis] + stats.t.logpdf(np.exp(logs) / 2.5, 3) + logs
    share = np.exp(log - logsumexp(log))
    for name, values, part in (("theta[x]", betas, share.sum(axis=1)), (SD, np.exp(logs), share.sum(axis=0))):
        mean = float(part @ values)
        sd = float(np.sqrt(part @ values**2 - mean**2))
        told = result.parameters[name]
        assert told["mean"] == pytest.approx(mean, abs=0.1 * sd), name
        assert told["sd"] == pytest.approx(sd, rel=0.1), name


def test_holders_get_their_groups_and_hazards_and_sums_may_be_secure(tmp_path: Path) -> None:
    data = {name: frame(seed) for seed, name in enumerate("abc", 1)}
    plain = fit(data, tmp_path / "plain", output={"restricted_mean": 1.0, "sites": True})
    assert plain.summary["converged"] is True
    assert {*plain.summary["sites"]} == {"a", "b", "c"}
    assert "log_evidence" not in plain.summary
    folder = tmp_path / "plain" / "client-a"
    groups = pd.read_csv(folder / "groups.csv")
    assert sorted(groups.group) == ["w0", "w1", "w2", "w3"]
    assert groups.rows.sum() == 60
    assert (groups.intercept_q05 < groups.intercept).all()
    hazard = pd.read_csv(folder / "baseline.csv").cumulative_hazard
    assert (np.diff(hazard) > 0).all()
    assert 0 < pd.read_csv(folder / "restricted_mean.csv").restricted_mean[0] < 1
    summed = fit(data, tmp_path / "summed", job={"sums": "secure"})
    for name, told in plain.parameters.items():
        assert summed.parameters[name]["mean"] == pytest.approx(told["mean"], abs=0.25 * told["sd"])


def test_groups_of_a_client_without_events_have_the_prior(tmp_path: Path) -> None:
    data = {"a": frame(), "b": frame(2).assign(died=0)}
    result = fit(data, tmp_path / "out")
    assert result.summary["converged"] is True
    groups = pd.read_csv(tmp_path / "out" / "client-b" / "groups.csv")
    assert groups.intercept.to_numpy() == pytest.approx(np.zeros(4), abs=0.1)
    alone = fit({"a": frame()}, tmp_path / "alone").parameters
    for name in ("theta[x]", SD):
        assert result.parameters[name]["mean"] == pytest.approx(alone[name]["mean"], abs=0.2 * alone[name]["sd"]), name


def test_rules_count_groups_with_effects_and_events_by_strata_alone(tmp_path: Path) -> None:
    random, n = np.random.default_rng(4), 240
    columns = {"time": random.exponential(size=n), "died": 1, "x": random.normal(size=n), "sex": random.choice(["f", "m"], n)}
    data = pd.DataFrame({**columns, "ward": [f"w{k}" for k in random.integers(0, 12, n)]})
    formula, asked = "Surv(time, died) ~ x + strata(sex) + (1 | ward)", {"disclosure": {"level": "standard"}}
    assert fit({"a": data}, tmp_path / "out", formula, **asked).summary["converged"] is True
    with pytest.raises(FedkernError, match="2 groups in column 'sex'; 5 are asked for"):
        fit({"a": data}, tmp_path / "again", "Surv(time, died) ~ x + (1 | sex)", **asked)


@pytest.mark.parametrize(
    ("random", "more", "words"),
    [
        ({"client": True}, {}, "takes up all that an effect of the client"),
        ({"group": "ward", "client": True}, {}, "takes up all that an effect of the client"),
        ({"group": "ward", "slopes": ["x"]}, {}, "a Cox model takes one effect"),
        ({"groups": [{"by": "ward"}, {"by": "site"}]}, {}, "a Cox model takes one effect"),
        ({"groups": [{"by": "ward", "shared": True}]}, {}, "a Cox model takes one effect"),
        ({"group": "ward"}, {"formula": "Surv(time, died) ~ x + strata(ward)"}, "a stratum's own hazard takes up its effect"),
        ({"group": "ward"}, {"algorithm": {"sampler": "hmc"}}, "has no gradient here"),
        ({"group": "ward"}, {"output": {"survival_at": [1.0]}}, "of a new group are not built"),
    ],
)
def test_jobs_that_are_refused(random: dict[str, Any], more: dict[str, Any], words: str, tmp_path: Path) -> None:
    data = {"a": frame(), "b": frame(2)}
    with pytest.raises(FedkernError, match=words):
        fit(data, tmp_path / "out", **{"formula": "Surv(time, died) ~ x", "model": {"random": random}, **more})


def test_groups_have_no_effects_beside_several_causes(tmp_path: Path) -> None:
    keys = {"time": "time", "event": "died", "events": ["1", "2"], "censored": "0"}
    job = {"job": {"method": "likelihood"}, "data": keys, "model": {"family": "cox", "random": {"group": "ward"}}}
    with pytest.raises(FedkernError, match="are of one kind of event"):
        fedkern.run(job, data={"a": frame(), "b": frame(2)}, out=tmp_path / "out")
