"""What a curious server can compute of the rows of jobs of method "likelihood", from the messages of real jobs.

As in `test_disclosure`: the attacks find rows where they are few, or else they show nothing; jobs at the defaults refuse such
clients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

import fedkern
from fedkern.algorithms.hmc.machine import Launch, Move, Place
from fedkern.algorithms.importance.settings import FINE, Settings, Values, excess
from fedkern.disclosure.rules import LEVELS, told_by_values, told_up_to
from fedkern.errors import JobError
from fedkern.methods import parse
from fedkern.models.mixed import Layout, Rows, predictive
from fedkern.models.survey import Clusters, Pseudo
from support import curious, curious_jobs, curious_likelihood, curious_rounded, curious_sigma, curious_survey, rounded_jobs

STRICT = LEVELS["strict"]


def test_log_likelihoods_and_curvatures_of_five_rows_are_most_of_these_with_their_labels() -> None:
    """Also rounded; with all digits they were all."""
    tape, rows = curious_likelihood.logistic(5, 2)
    seen = curious_likelihood.seen(tape, 0)
    guess = curious.solve(seen, 60.0, np.random.default_rng(1), wanted=1)
    assert curious.recovered(guess, *curious_jobs.standardised(rows, seen)) >= 3


def test_rounded_next_to_no_row_is_determined_of_clients_that_pvi_takes_and_none_of_those_that_are_taken() -> None:
    """With thousandths of a nat and all digits of derivatives all of the first were, 20 rows too, and a third of the last."""
    p = 3
    pvi, least = told_up_to(p + 1, STRICT, diagonal=False) + 1, told_by_values(p + 1, STRICT) + 1
    with pytest.raises(
        JobError, match=r"client 'a'.*more than 60 rows are asked for, since what is sent of fewer can tell them: take"
    ):
        fedkern.run(
            {"job": {"method": "likelihood"}, "data": {"response": "y"}, **curious_jobs.AT_STRICT},
            data={"a": few_rows(pvi, p), "b": few_rows(least, p, 1)},
        )
    for n, most in ((20, 4), (pvi, 1), (least, 0)):
        tape, rows = curious_likelihood.logistic(n, p)
        seen = curious_likelihood.seen(tape, 0, most=4096)
        x, y = curious_jobs.standardised(rows, seen)
        sign = 2 * y - 1
        residuals, _ = seen.system(curious.z_of(x[None], sign[None]), sign[None])
        assert (
            np.abs(residuals).max() < 7
        )  # the equations hold, in units that follow from rounded values: four times as fine at most
        assert (curious.known(seen, x, sign) < curious.WITHIN).sum() <= most


def few_rows(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, p))
    return X, (random.random(n) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)


def test_a_group_of_one_row_is_that_row_and_of_three_no_row_is() -> None:
    """Of a gaussian response with an intercept of each group, whatever other sizes there are. So such a client is refused."""
    with pytest.raises(JobError, match=r"client 'a'.*column 'ward' has \d groups of one row"):
        curious_likelihood.groups([9, 8, 8, 7, 6, 5, 5, 4, 1], **curious_jobs.FIVE_GROUPS)
    for sizes, told in (([1, *[5] * 6], 1), ([3, *[5] * 6], 0), ([3] * 5, 0)):
        random = np.random.default_rng(len(sizes))
        layout = Layout(("intercept", "x"), "gaussian", ("intercept",))

        def client(sizes: list[int], random: np.random.Generator = random, layout: Layout = layout) -> Rows:
            X = np.column_stack([np.ones(sum(sizes)), random.standard_normal(sum(sizes))])
            y = 0.3 * X[:, 1] + np.repeat(random.standard_normal(len(sizes)), sizes) + 0.7 * random.standard_normal(len(X))
            return Rows(layout, X, y, np.append(0, np.cumsum(sizes)))

        rows = [client(sizes), client([6] * 20), client([6] * 20)]
        known = curious_rounded.known(rounded_jobs.played(layout, rows), rows[0]) < curious.WITHIN
        assert known.tolist() == [True] * told + [False] * (sum(sizes) - told)


def test_of_errors_that_vary_the_rows_that_are_asked_for_are_not_determined_and_a_fifth_of_them_are() -> None:
    model = {"family": "gaussian", "sigma": "~ x0 + x1 + x2"}
    fewest = parse({"job": {"method": "likelihood"}, "data": {"clients": ["a.csv"], "response": "y"}, "model": model})
    n = fewest.requirement.told_up_to(4) + 1
    assert curious_sigma.known("gaussian", n // 5, 3, 0).mean() > 0.5
    assert curious_sigma.known("gaussian", n, 3, 0).mean() < 0.03


def test_least_squares_of_rounded_messages_finds_no_group_of_one_row() -> None:
    """With all digits its row came back to some hundredths."""
    tape, rows, _ = curious_likelihood.groups([9, 8, 8, 7, 6, 5, 5, 4, 1])
    _, products = curious_likelihood.by_size(tape, 0, 10)
    assert np.abs(products[0, 0, 1:] - rows[-1]).max() > 0.5


def test_a_level_of_one_row_among_groups_of_one_row_is_refused() -> None:
    """It is in enough rows of the client, and what is sent of groups of one row is of these alone."""
    random = np.random.default_rng(0)
    n = 60
    group = np.append(np.arange(n - 8) // 4, 100 + np.arange(8))
    x = np.where(np.arange(n) % 4 == 0, 1.0, 0.0)
    x[-8:] = np.arange(8) == 3
    own = {"x": x, "ward": np.array([f"w{k}" for k in group]), "y": random.normal(size=n)}
    other = {"x": np.arange(n) % 2 * 1.0, "ward": np.array([f"w{k // 4}" for k in range(n)]), "y": random.normal(size=n)}
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, **curious_jobs.AT_STRICT}
    job["model"] = {"family": "gaussian", "random": {"group": "ward"}}
    with pytest.raises(JobError, match=r"client 'a'.*among groups of one row: rows that values of 'x' have to themselves: 1;"):
        fedkern.run(job, data={"a": pandas.DataFrame(own), "b": pandas.DataFrame(other)})


def test_responses_drawn_anew_tell_rows_to_whoever_knows_the_numbers_and_these_are_the_clients_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a linear model with an intercept of each group: in the file's order, by least squares from zeros."""
    n, p = 20, 2
    key = curious_likelihood.of_the_seed(0)
    tape, X = curious_likelihood.linear(n, p)
    found, misfit = curious_likelihood.drawn_anew(tape, 0, n, key)
    assert misfit > 0.1
    assert np.abs(found - X).max(axis=1).min() > 0.01
    monkeypatch.setattr("fedkern.jobs.run.Run.secret_key", lambda *about: key)
    tape, X = curious_likelihood.linear(n, p)
    found, misfit = curious_likelihood.drawn_anew(tape, 0, n, key)
    assert misfit < 1e-5
    np.testing.assert_allclose(found, X, atol=1e-4)


def test_responses_drawn_anew_without_groups_tell_cross_products_alone_whoever_knows_the_numbers() -> None:
    """Of a linear model, whose other messages are cross-products: other rows that have the same ones say the same."""
    random, n = np.random.default_rng(0), 20
    layout = Layout(("intercept", "x0", "x1"), "gaussian")
    X = np.column_stack([np.ones(n), random.normal(size=(n, 2))])
    centre = np.linalg.qr(np.column_stack([np.ones(n), random.normal(size=(n, n - 1))]))[0]
    turn = centre @ np.block([[np.eye(1), np.zeros((1, n - 1))], [np.zeros((n - 1, 1)), _orthogonal(n - 1, random)]]) @ centre.T
    draws = random.normal(size=(200, layout.size))
    y, starts, key = X[:, 1] + random.normal(size=n), np.array([0, n]), curious_likelihood.of_the_seed(0)
    told, again = (predictive.sums(Rows(layout, own, y, starts), draws, key).replicated for own in (X, turn @ X))
    assert np.abs(turn @ X - X).max(axis=1).min() > 0.1
    np.testing.assert_allclose(told, again, rtol=1e-10, atol=1e-10)


def _orthogonal(n: int, random: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(random.normal(size=(n, n)))[0]


@pytest.mark.parametrize(
    ("family", "sizes", "says"),
    [
        ("bernoulli", [6] * 25, r"client 'a'.*more than 200 rows are asked for"),
        ("gaussian", [8] * 6 + [2] * 30, r"client 'a'.*column 'ward' has .*30 of two; .*none or 60 of two"),
        ("gaussian", [8] * 6 + [1], r"client 'a'.*column 'ward' has .*none or 60 of one row"),
    ],
)
def test_random_slopes_ask_for_more_rows_and_for_no_groups_of_one_or_two(family: str, sizes: list[int], says: str) -> None:
    """At steep slopes each group has a likelihood of its own, and not that of all groups of its size."""
    random = np.random.default_rng(0)
    data = {}
    for name, own in (("a", sizes), ("b", [8] * 24)):
        group = np.repeat(np.arange(len(own)), own)
        y = random.normal(size=len(group))
        cells = {"x": random.normal(size=len(group)), "ward": [f"w{k}" for k in group]}
        data[name] = pandas.DataFrame({**cells, "y": y if family == "gaussian" else (y > 0).astype(float)})
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y"}, **curious_jobs.FIVE_GROUPS}
    with pytest.raises(JobError, match=says):
        fedkern.run({**job, "model": {"family": family, "random": {"group": "ward", "slopes": ["x"]}}}, data=data)


def test_all_draws_tell_as_much_as_4096_in_the_finest_unit() -> None:
    """A net that is asked alone tells half of it. Eight rounds in thousandths determined all of 61 rows of three columns."""
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y"}}
    job["algorithm"] = {"points": 256, "effective": 1e9}
    with curious.Tape() as tape:
        fedkern.run(job, data={name: few_rows(40, 1, seed) for seed, name in enumerate("ab")})
    values = [m.values for m in tape.of(0, Values) if isinstance(m, Values)]
    assert [len(told) for told in values] == [128] * 16
    layout = Layout(("intercept", "x"), "bernoulli")
    settings = Settings(256, 1e9, 8, starts=1, nodes=1, most_nodes=1, told=0, seed=0, clients=2, net=128)
    least = np.repeat([settings.needed_at_draws(k) for k in range(16)], 128)
    assert (settings.needed() ** 2 / least**2).sum() <= FINE
    for units, told in zip(curious_likelihood.units_of_values(tape, 0, layout, settings), values, strict=True):
        rounded = told + excess(units)
        assert (rounded / units == np.round(rounded / units)).mean() > 0.97  # the client knows its values before they are rounded
        assert (rounded / (2 * units) == np.round(rounded / (2 * units))).mean() < 0.9
    p = 2
    layout = Layout(("intercept", *(f"x{k}" for k in range(p))), "bernoulli")
    cells = [few_rows(39, p, seed) for seed in range(3)]
    rows = [Rows(layout, np.column_stack([np.ones(39), X]), y, np.array([0, 39])) for X, y in cells]
    for net in (128, 1024):
        eight = rounded_jobs.played(layout, rows, rounds=8, effective=1e9, net=net)
        assert len(eight.draws) == 8 * 4096
        seen = curious_rounded.seen(eight, rows[0], most=len(eight.draws))
        known = curious.known(seen, rows[0].X[:, 1:], 2 * rows[0].y - 1) < curious.WITHIN
        assert known.sum() <= 1


def test_marginal_effects_determine_no_row_that_the_values_do_not() -> None:
    """With six digits they did, of 61 rows of three columns five."""
    p = 3
    n = told_by_values(p + 1, STRICT) + 1
    tape, rows = curious_likelihood.logistic(n, p, 0, (n, n), output={"marginal": True})
    seen = curious_likelihood.seen(tape, 0, most=2000)
    x, y = curious_jobs.standardised(rows, seen)
    sign = 2 * y - 1
    effects = curious_likelihood.of_marginal(tape, 0, seen.scale)
    residual, _ = curious.Seen(n, p + 1, (effects,)).system(curious.z_of(x[None], sign[None]), sign[None])
    assert np.abs(residual).max() < 2  # the sums are these
    without, beside = (
        int((curious.known(curious.Seen(n, p + 1, terms), x, sign) < curious.WITHIN).sum())
        for terms in (seen.terms, (*seen.terms, effects))
    )
    assert beside <= without + 1


def test_chains_ask_nowhere_that_is_far_from_the_mode() -> None:
    """While their steps adapt they went thousands of standard deviations away, and what clients said there was single rows'."""
    n = 2 * told_by_values(2, STRICT)
    job: dict[str, Any] = {"job": {"method": "likelihood", "rounds": 400}, "data": {"response": "y"}}
    job["algorithm"] = {"sampler": "hmc"}
    with curious.Tape() as tape:
        fedkern.run(job, data={name: few_rows(n, 1, seed) for seed, name in enumerate("abc")})
    asked = np.concatenate([m.xi for m in tape.of(0, Place, Launch, Move) if isinstance(m, Place | Launch | Move)])
    spread = np.diff(np.quantile(asked, [0.16, 0.84], axis=0), axis=0)[0] / 2
    assert np.abs((asked - np.median(asked, axis=0)) / spread).max() < 25


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({}, None),
        ({"prior_sd": 100.0}, None),  # as a default prior that rows have widened
        ({"intercept_sd": 0.01}, "model.intercept_sd = 0.01: the prior holds the posterior"),
    ],
)
def test_priors_by_which_few_rows_weigh_are_said_first(model: dict[str, Any], says: str | None) -> None:
    config = parse({"job": {"method": "likelihood"}, "data": {"clients": ["*.csv"], "response": "y"}, "model": model})
    assert [found.startswith(str(says)) for found in config.tells_rows] == [True] * (says is not None)


def test_few_rows_with_weight_are_looked_for_by_the_prior_of_the_job() -> None:
    """A column that decides the response: the wider its prior, the fewer rows beside the threshold have any weight."""
    random = np.random.default_rng(0)
    data = {}
    for name in "ab":
        X = random.normal(size=(120, 1))
        data[name] = (X, (X[:, 0] > 0.1).astype(float))
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y"}, **curious_jobs.AT_STRICT}
    with pytest.raises(JobError, match=r"the fit gives its rows unequal weights: they count as .*; 50 are asked for"):
        fedkern.run({**job, "model": {"prior_sd": 2.5}}, data=data)
    fedkern.run({**job, "model": {"prior_sd": 1.0}}, data=data)


# --- no measurement: messages tell how many rows have which values


def counted(rows: int, **keys: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a client's first answer tells of the rows with an illness: how many they are, how many are women, how many died.

    And the rows themselves (n, 2), and who died (n,).
    """
    ill, woman = np.arange(200) >= 200 - rows, np.arange(200) % 2 == 0
    died = (np.random.default_rng(1).random(200) < 0.4) | (np.arange(200) == 199)
    died[198] = False
    data = {"ill": ill.astype(float), "woman": woman.astype(float), "y": died.astype(float)}
    other = {name: np.roll(cells, 7) if name != "y" else cells for name, cells in data.items()} | {"ill": np.arange(200) % 2.0}
    job = {"job": {"method": "likelihood"}, "data": {"response": "y", "standardise": "none"}}
    with curious.Tape() as tape:
        fedkern.run({**job, "disclosure": {"level": "standard", **keys}}, data={"a": data, "b": other})
    said = curious_likelihood.Answers.of(tape, 0, Layout(("intercept", "ill", "woman"), "bernoulli"))
    X = np.array([[1, ill, woman] for ill in (0, 1) for woman in (0, 1)], float)
    chance = 1 / (1 + np.exp(-(X @ said.places[0][:3])))
    # Curvatures are sums over four kinds of rows, gradients of the responses' sums beside these.
    products = np.einsum("ci,cj->cij", X, X) * (chance * (1 - chance))[:, None, None]
    n, *_ = np.linalg.lstsq(products.reshape(4, -1).T, said.curvature[0][:3, :3].ravel(), rcond=None)
    n = n.round()
    told = said.gradient[0][:3] + X.T @ (n * chance)
    return np.array([n[2:].sum(), n[3], told[1].round()]), np.column_stack([ill, woman])[-rows:], died[-rows:]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_of_one_row_with_a_value_and_of_two_each_is_told_and_three_of_each_are_taken(rows: int) -> None:
    """Whoever is one of the rows reads the sum of the others: that of one is this row's."""
    told, own, died = counted(rows, rows_per_value=1, leverage=1.0)
    np.testing.assert_array_equal(told, [rows, own[:, 1].sum(), died.sum()])
    others = told - [1, own[0, 1], died[0]] if rows > 1 else told
    assert others[0] == max(rows - 1, 1)
    assert (others[1:] % others[0] == 0).all() == (rows < 3), "else it is one of the two, and nobody knows which"
    if rows < 3:
        with pytest.raises(JobError, match=r"disclosure\.rows_per_value"):
            counted(rows)
    else:
        counted(rows)


# The scores of a survey's clusters --------------------


@pytest.mark.parametrize("p", [1, 2])
def test_the_score_of_one_cluster_is_its_row_and_those_of_few_are_all_rows(p: int) -> None:
    """Why so few are refused: a score is a number times (1, x), and of more of them products, sums and curvature are as many
    equations as there are cells. Of a row for each of twice the unknowns all are determined."""
    rows, weights, point = curious_survey.client("poisson", 1, p, 0)
    found = Pseudo.of(rows, weights).scores(point, Clusters(np.zeros(1, np.int64), None))
    np.testing.assert_allclose(found.products[0, 1:] / found.products[0, 0], rows.X[0, 1:], rtol=1e-9)
    n = 2 * (p + 1) + 1
    assert curious_survey.known(*curious_survey.client("poisson", n, p, 0), np.arange(n)).all()


@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_no_row_is_told_by_the_fewest_clusters_that_are_taken(family: str) -> None:
    """All but one of one row, beside one of the other rows that a job asks for."""
    p, (n, most) = 2, (told_by_values(3, LEVELS["standard"]) + 1, 2 * 4)
    assert not curious_survey.known(*curious_survey.client(family, n, p, 1), curious_survey.singles(n, most)).any()
