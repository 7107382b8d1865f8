"""Simulated federations: their files hold what the truth says, and depend on the settings alone."""

import json
import tomllib

import numpy as np
import pytest
from scipy.optimize import minimize

from fedkern.api import run
from fedkern.data import graph, table
from fedkern.data.design import Spec, encode
from fedkern.data.simulate import federations as synthetic
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.errors import JobError
from fedkern.kernels import mixed, survival
from fedkern.methods import load as job_of
from fedkern.methods.vertical.keys import Config
from fedkern.models.encoding import Column
from support.refusal import refusal

NEGATIVE_LOGLIK = {
    "logistic": lambda a, y: np.logaddexp(0, a).sum() - y @ a,
    "poisson": lambda a, y: np.exp(a).sum() - y @ a,
    "regression": lambda a, y: ((y - a) ** 2).sum() / 2,
}


GRAPHS = ("mrf", "sem")


def load(folder, kind):
    """X with a column of ones, y, and the truth's coefficients, from the files."""
    job = tomllib.loads((folder / "job.toml").read_text())
    truth = json.loads((folder / "truth.json").read_text())["parameters"]
    paths = table.find(job["data"]["clients"], folder)
    names = table.header(next(iter(paths.values())))[:-1]
    columns = tuple(Column(name, center=0.0, scale=1.0) for name in names)
    encoding = Spec(job["data"]["response"], family=job["model"]["family"]).encoding(columns)
    parts = [encode(table.load(path), encoding, client=name) for name, path in paths.items()]
    theta = np.array([truth["intercept"], *(truth[f"theta[{name}]"] for name in names)])
    return np.vstack([part.X for part in parts]), np.concatenate([part.y for part in parts]), theta, list(paths)


@pytest.mark.parametrize("kind", NEGATIVE_LOGLIK)
def test_the_truth_is_that_of_the_rows(tmp_path, kind):
    simulate(kind, tmp_path, Settings(clients=3, rows=1500, columns=3, seed=4))
    X, y, theta, names = load(tmp_path, kind)
    assert names == ["client-01", "client-02", "client-03"]
    assert X.shape == (4500, 4)
    Z, scale = X.copy(), np.r_[1.0, X[:, 1:].std(axis=0)]
    Z[:, 1:] = (X[:, 1:] - X[:, 1:].mean(axis=0)) / scale[1:]
    true = theta * scale
    true[0] += X[:, 1:].mean(axis=0) @ theta[1:]
    # The mean over rows: of the sum, differences of the function lose the digits that its gradient needs.
    fit = minimize(lambda t: NEGATIVE_LOGLIK[kind](Z @ t, y) / len(y), true + 0.05, method="BFGS")
    assert abs((fit.x - true) / np.sqrt(np.diag(fit.hess_inv) / len(y))).max() < 4.5
    wrong = NEGATIVE_LOGLIK[kind](X @ (theta * [1, 1.3, 1, 1]), y)
    assert NEGATIVE_LOGLIK[kind](X @ theta, y) < wrong - 5  # and another truth would be noticed


def test_the_truth_of_ordered_levels_is_that_of_the_rows(tmp_path):
    """By Newton's steps with the kernel: coefficients, and thresholds on the data's scale."""
    path = simulate("ordinal", tmp_path, Settings(clients=3, rows=1000, columns=3, seed=4))
    truth = json.loads((tmp_path / "truth.json").read_text())["parameters"]
    files = sorted((tmp_path / "clients").glob("*.csv"))
    whole = np.concatenate([np.loadtxt(one, delimiter=",", skiprows=1) for one in files])
    X, y = np.ascontiguousarray(whole[:, :3]), whole[:, 3] - 1
    assert "levels = [1, 2, 3, 4, 5]" in path.read_text()
    cuts = np.array([truth[f"threshold[{k}|{k + 1}]"] for k in range(1, 5)])
    xi = np.array([*(truth[f"theta[x{j}]"] for j in (1, 2, 3)), cuts[0], *np.log(np.diff(cuts))])
    rows, true, at = (X, np.empty((3000, 0)), y, None, None, np.array([0, 3000])), xi.copy(), np.tril_indices(7)
    for _ in range(6):
        _, gradient, lower = mixed.curvature(xi[np.newaxis], *rows, family="ordinal", nodes=1)
        H = np.zeros((7, 7))
        H[at] = lower[0]
        H += np.tril(H, -1).T
        xi = xi + np.linalg.solve(H, gradient[0])
    assert (xi - true) @ H @ (xi - true) < 24  # chi-square of 7: one in a thousand is above


def test_the_truth_of_survival_times_is_that_of_the_rows(tmp_path):
    """The mode of the stratified partial likelihood, in its own standard errors."""
    path = simulate("survival", tmp_path, Settings(clients=3, rows=1000, columns=4, seed=4))
    truth = truth_of(tmp_path)
    assert [*truth] == ["theta[age]", "theta[sex]", "theta[x3]", "theta[x4]"]
    files = [table.load(file) for file in table.find(["clients/*.csv"], tmp_path).values()]
    rows = np.vstack([np.column_stack([f.columns[name] for name in files[0].names]) for f in files])
    X, (months, died) = rows[:, :4] - rows[:, :4].mean(axis=0), rows[:, 4:].T
    assert 0.3 < died.mean() < 0.9
    order, *sets = survival.arranged(months, died > 0, None, np.repeat([0, 1, 2], 1000))
    scale, beta = X.std(axis=0), np.zeros(4)
    for _ in range(8):
        _, gradient, lower = survival.cox_curvature(beta[np.newaxis], (X / scale)[order], None, None, *sets)
        H = np.zeros((4, 4))
        H[np.tril_indices(4)] = lower[0]
        H += np.tril(H, -1).T
        beta = beta + np.linalg.solve(H, gradient[0])
    z = (beta - np.array([*truth.values()]) * scale) / np.sqrt(np.diag(np.linalg.inv(H)))
    assert abs(z).max() < 4
    assert abs(beta).max() > 0.3  # and another truth would be noticed
    assert job_of(path)[0].model.family == "cox"


def test_weibull_times_have_their_shape(tmp_path):
    """The mode of the job's own likelihood; a shape that is not there is refused by name."""
    path = simulate("survival", tmp_path, Settings(clients=2, rows=1000, columns=2, seed=4, family="weibull"))
    truth, (job, _) = truth_of(tmp_path), job_of(path)
    assert (job.model.family, job.random.client, truth["shape"]) == ("weibull", True, 1.5)
    rows = table.load(next(iter(table.find(["clients/*.csv"], tmp_path).values())))
    months, died = (np.asarray(rows.columns[name], np.float64) for name in ("months", "died"))
    X = np.column_stack([np.ones(1000), *(rows.columns[name] for name in ("age", "sex"))])
    X[:, 1] -= 63

    def negative(xi):
        k, eta = np.exp(xi[3]), X @ xi[:3]
        return -(died * (xi[3] + (k - 1) * np.log(months) + eta) - months**k * np.exp(eta)).sum()

    fit = minimize(negative, [-3.0, 0.0, 0.0, 0.2], method="BFGS")
    sd = np.sqrt(np.diag(fit.hess_inv))
    wanted = np.array([truth["theta[age]"], truth["theta[sex]"], np.log(1.5)])
    assert abs((fit.x[1:] - wanted) / sd[1:]).max() < 4
    assert abs(fit.x[3]) > 5 * sd[3]
    with refusal(JobError, "--family", "gamma"):
        Settings(family="gamma")


@pytest.mark.parametrize("kind", [kind for kind in synthetic.KINDS if kind != "sigma"])  # one field over the map of all clients
def test_a_client_s_rows_do_not_depend_on_the_others(tmp_path, kind):
    for name, clients, seed in (("few", 2, 1), ("many", 5, 1), ("other", 2, 2)):
        simulate(kind, tmp_path / name, Settings(clients=clients, rows=20, seed=seed))
    read = {name: (tmp_path / name / "clients" / "client-02.csv").read_bytes() for name in ("few", "many", "other")}
    assert read["few"] == read["many"] != read["other"]
    assert (tmp_path / "few" / "clients" / "client-01.csv").read_bytes() != read["few"]


def sparse_rows(tmp_path, kind, **settings):
    """Rows of each client, and the truth as the files have it."""
    path = simulate(kind, tmp_path, Settings(**settings))
    job = tomllib.loads(path.read_text())
    assert (job["job"]["method"], job["model"]["kind"]) == ("sparse", "regression" if kind == "sparse" else kind)
    assert (job["job"]["rounds"], job["algorithm"]["chains"]) == (2500, 4)
    assert not (tmp_path / "test.csv").exists()
    files = [table.load(file) for file in table.find(job["data"]["clients"], tmp_path).values()]
    return [np.column_stack([f.columns[name] for name in f.names]) for f in files], truth_of(tmp_path), files[0].names


def truth_of(folder):
    return json.loads((folder / "truth.json").read_text())["parameters"]


def slopes(x, y):
    """Least squares with an intercept: slopes and their standard errors."""
    z = np.column_stack([np.ones(len(x)), x])
    inverse = np.linalg.inv(z.T @ z)
    b = inverse @ z.T @ y
    return b[1:], np.sqrt(np.sum((y - z @ b) ** 2) / (len(y) - z.shape[1]) * np.diag(inverse))[1:]


def test_the_sparse_truth_is_that_of_the_rows_and_one_client_differs(tmp_path):
    rows, truth, names = sparse_rows(tmp_path, "sparse", clients=3, rows=2000, columns=6, seed=2)
    for k, own in enumerate(rows):
        b, se = slopes(own[:, :-1], own[:, -1])
        expected = np.array([truth[f"theta[{name}]" + ("@client-01" if k == 0 else "")] for name in names[:-1]])
        assert abs((b - expected) / se).max() < 4.5
        common = np.array([truth[f"theta[{name}]"] for name in names[:-1]])
        assert (abs((b - common) / se).max() > 8) == (k == 0)
    assert sum(value == 0 for name, value in truth.items() if "@" not in name) == 2


def test_the_field_s_truth_is_each_node_s_regression_on_the_others(tmp_path):
    rows, truth, names = sparse_rows(tmp_path, "mrf", clients=2, rows=3000, columns=5, seed=2)
    for own in rows:
        for j, to in enumerate(names):
            others = [h for h in range(5) if h != j]
            b, se = slopes(own[:, others], own[:, j])
            expected = np.array([truth[f"theta[{names[h]} -> {to}]"] for h in others])
            assert np.count_nonzero(expected) == 2
            assert abs((b - expected) / se).max() < 4.5
            assert abs((b - 0.5 * expected) / se).max() > 5


def test_the_cyclic_model_s_truth_gives_independent_laplace_errors(tmp_path):
    rows, truth, names = sparse_rows(tmp_path, "sem", clients=2, rows=4000, columns=4, seed=2)
    theta = np.array([[truth.get(f"theta[{source} -> {to}]", 0.0) for source in names] for to in names])
    assert np.count_nonzero(theta) == 4  # a chain of three, and one arc back
    assert truth["theta[x2 -> x1]"] * truth["theta[x1 -> x2]"] == pytest.approx(0.24)
    for own in rows:
        e = (own - own.mean(axis=0)) @ (np.eye(4) - theta).T
        e /= synthetic._scale(4)
        assert abs(np.corrcoef(e.T) - np.eye(4)).max() < 4.5 / np.sqrt(4000)
        assert np.mean(abs(e), axis=0) == pytest.approx(np.ones(4), abs=0.08)
        assert (np.mean(e**2, axis=0) / np.mean(abs(e), axis=0) ** 2) == pytest.approx(np.full(4, 2.0), abs=0.25)  # normal: 1.57
        wrong = (own - own.mean(axis=0)) @ (np.eye(4) - theta.T).T
        assert abs(np.corrcoef(wrong.T) - np.eye(4)).max() > 0.2


def vertical_files(folder):
    """Ids and columns of each client's file and of the server's, as they stand there."""
    job = tomllib.loads((folder / "job.toml").read_text())
    assert (job["job"]["method"], job["data"]["id"], job["data"]["holdout"]) == ("vertical", "id", 0.2)
    paths = [*table.find(job["data"]["clients"], folder).values(), folder / job["data"]["server"]]
    files = [table.load(path) for path in paths]
    return [(file.columns["id"], {name: file.columns[name] for name in file.names if name != "id"}) for file in files]


def test_vertical_files_share_ids_alone_and_their_truth_is_that_of_the_joined_rows(tmp_path):
    simulate("vertical", tmp_path, Settings(clients=3, rows=4000, columns=2, seed=4))
    files = vertical_files(tmp_path)
    names = [name for _, columns in files for name in columns]
    assert names == ["x1_1", "x1_2", "x2_1", "x2_2", "x3_1", "x3_2", "y"]
    joined = {name: values[np.argsort(ids)] for ids, columns in files for name, values in columns.items()}
    X, y = np.column_stack([joined[name] for name in names[:-1]]), joined["y"]
    truth = truth_of(tmp_path)
    true = np.array([truth["intercept"], *(truth[f"theta[{name}]"] for name in names[:-1])])
    Z = np.column_stack([np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0)])
    expected = np.r_[true[0], true[1:] * X.std(axis=0)]
    fit = minimize(lambda t: NEGATIVE_LOGLIK["logistic"](Z @ t, y), expected, method="BFGS")
    assert abs((fit.x - expected) / np.sqrt(np.diag(fit.hess_inv))).max() < 4.5
    # Rows joined by their place rather than by their id say nothing.
    shuffled = np.column_stack([values for _, columns in files for values in columns.values()])[:, :-1]
    unjoined = np.column_stack([np.ones(4000), (shuffled - X.mean(axis=0)) / X.std(axis=0)])
    wrong = NEGATIVE_LOGLIK["logistic"](unjoined @ expected, files[-1][1]["y"])
    assert wrong > NEGATIVE_LOGLIK["logistic"](Z @ expected, y) + 500


def test_vertical_files_have_their_own_orders_of_rows(tmp_path):
    simulate("vertical", tmp_path, Settings(clients=2, rows=50, columns=1))
    ids = [ids for ids, _ in vertical_files(tmp_path)]
    for k, own in enumerate(ids):
        assert len(set(own)) == 50
        assert set(own) == set(ids[0])
        assert all(abs(np.corrcoef(own, other)[0, 1]) < 0.6 for other in ids[:k])


@pytest.mark.parametrize("kind", NEGATIVE_LOGLIK)
def test_the_job_and_the_test_rows(tmp_path, kind):
    path = simulate(kind, tmp_path, Settings(clients=2, rows=10, columns=2))
    job = tomllib.loads(path.read_text())
    assert (path, job["job"]["seed"]) == (tmp_path / "job.toml", 1)
    assert table.load(tmp_path / job["data"]["test"]).n_rows == 100
    assert table.header(tmp_path / job["data"]["test"]) == ("x1", "x2", "y")


def test_faults(tmp_path):
    known = "logistic, poisson, regression, ordinal, survival, sparse, mrf, sem, vertical"
    with pytest.raises(JobError, match=f"weather: no such kind; there are {known}"):
        simulate("weather", tmp_path)
    for kind in GRAPHS:
        with pytest.raises(JobError, match=f"simulate {kind}: a graph needs --columns of at least 2, got 1"):
            simulate(kind, tmp_path, Settings(columns=1))
    simulate("logistic", tmp_path, Settings(rows=1))
    with refusal(JobError, "--out"):
        simulate("logistic", tmp_path)
    with refusal(JobError, "--rows", "1"):
        Settings(rows=0)
    with refusal(JobError, "--seed", "64"):
        Settings(seed=-1)


def test_the_vertical_job_runs_from_its_files(tmp_path):
    path = simulate("vertical", tmp_path, Settings(clients=2, rows=60, columns=2))
    config = job_of(path)[0]
    assert isinstance(config, Config)
    assert config.model.rho is None, "it is worked out, as in a job that gives none"
    assert config.algorithm.until is not None
    done = run(path, out=tmp_path / "out", job={"rounds": 20})
    assert done.summary["encoding"] == {"id": "id", "response": "y", "rows": 48, "test_rows": 12}
    assert "intercept" in done.summary["parameters"]


def test_the_map_s_field_crosses_borders_and_its_counts_follow_it(tmp_path):
    path = simulate("sigma", tmp_path, Settings(clients=3, rows=120, columns=2, seed=4))
    prior = tomllib.loads((tmp_path / "prior.toml").read_text())
    job = tomllib.loads(path.read_text())
    assert (job["job"]["method"], prior["prior"]["kind"]) == ("sigma", "car")
    made = graph.read_map(
        tmp_path / prior["data"]["areas"], tmp_path / prior["data"]["adjacency"], area="area", client="client", x="x", y="y"
    )
    assert made.clients == ("client-01", "client-02", "client-03")
    assert made.notes == ()
    truth = truth_of(tmp_path)
    theta = np.array([truth[f"field[{name}]"] for name in made.graph.names])
    i, k = made.graph.rows, made.graph.indices
    across = made.client[i] != made.client[k]
    assert across.sum() > 20
    assert np.corrcoef(theta[i[across]], theta[k[across]])[0, 1] > 0.3
    scores, counts, expected = [], [], []
    for name, file in table.find(job["data"]["clients"], tmp_path).items():
        read = table.load(file)
        assert read.names == ("area", "expected", "x1", "x2", "cases")
        assert tuple(f"{a:.0f}" for a in read.columns["area"]) == made.areas_of(made.clients.index(name))
        field = np.array([truth[f"field[{a:.0f}]"] for a in read.columns["area"]])
        slope = truth["theta[x1]"] * read.columns["x1"] + truth["theta[x2]"] * read.columns["x2"]
        mean = read.columns["expected"] * np.exp(truth["intercept"] + slope + truth["sigma_theta"] * field)
        scores.append((read.columns["cases"] - mean) / np.sqrt(mean))
        counts.append(read.columns["cases"])
        expected.append(mean)
    scores = np.concatenate(scores)
    assert abs(scores.mean()) * np.sqrt(360) < 4.5
    assert abs((scores**2).mean() - 1) < 0.5
    assert np.mean((np.concatenate(counts) / np.concatenate(expected).mean() - 1) ** 2) > 0.3  # far from one common mean


def test_a_map_of_one_area(tmp_path):
    with pytest.raises(JobError, match="a map needs at least two areas"):
        simulate("sigma", tmp_path, Settings(clients=1, rows=1))
