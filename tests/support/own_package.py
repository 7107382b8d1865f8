"""Packages with factories of models, as a holder would have installed them: a module, and a distribution that owns it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SCHOOLS = {  # Rubin (1981): effect and standard error of coaching
    "a": (28.0, 15.0), "b": (8.0, 10.0), "c": (-3.0, 16.0), "d": (7.0, 11.0),
    "e": (-1.0, 9.0), "f": (1.0, 11.0), "g": (18.0, 10.0), "h": (12.0, 18.0),
}  # fmt: skip


def installed(folder: Path, module: str, source: str, version: str = "1.0", name: str = "") -> Path:
    """A folder like site-packages, which has one module and its distribution; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    name = name or module.replace("_", "-")
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{module}.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    return folder


def found_first(monkeypatch: pytest.MonkeyPatch, folder: Path, *modules: str) -> None:
    """This process finds modules in the folder, as if they had never been loaded."""
    monkeypatch.syspath_prepend(str(folder))
    for module in modules:
        monkeypatch.delitem(sys.modules, module, raising=False)


def schools(folder: Path, clients: int = 8) -> None:
    """One school a file, or fewer files with more of them."""
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    for k, name in enumerate([*SCHOOLS][:clients]):
        rows = [f"{effect},{error}" for effect, error in [*SCHOOLS.values()][k::clients]]
        (folder / "rows" / f"{name}.csv").write_text("\n".join(["effect,error", *rows, ""]))


MODELS = '''
import numpy as np
from fedkern.models.own import from_jax, from_numpyro, from_stan


def loglik(theta, y, s):
    """Effects of schools are integrated out: y ~ N(mu, s^2 + tau^2)."""
    import jax.numpy as jnp
    mu, tau = theta
    v = s**2 + tau**2
    return jnp.sum(-0.5 * (y - mu) ** 2 / v - 0.5 * jnp.log(2 * jnp.pi * v))


def in_jax(table, options):
    return from_jax(loglik, ["mu", "tau"], table["effect"], table["error"])


class Stan:
    """What bridgestan.StanModel has, of real mu; real<lower=0> tau; and the same density without priors."""

    def __init__(self, y, s):
        self.y, self.s = y, s

    def param_unc_num(self):
        return 2

    def param_unc_names(self):
        return ["tau", "mu"]

    def param_constrain(self, theta_unc):
        return np.array([np.exp(theta_unc[0]), theta_unc[1]])

    def log_density_gradient(self, theta_unc, propto=True, jacobian=True):
        assert not propto and not jacobian
        tau, mu = np.exp(theta_unc[0]), theta_unc[1]
        v, d = self.s**2 + tau**2, self.y - mu
        value = (-0.5 * d**2 / v - 0.5 * np.log(2 * np.pi * v)).sum()
        return value, np.array([((d**2 / v**2 - 1 / v) * tau**2).sum(), (d / v).sum()])


def in_stan(table, options):
    return from_stan(Stan(table["effect"], table["error"]))


def program(y, s):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    numpyro.sample("y", dist.Normal(mu, jnp.sqrt(jnp.asarray(s) ** 2 + tau**2)), obs=y)


def with_a_factor(y, s):
    """A soft constraint of mu, which is no site's prior."""
    import numpyro
    program(y, s)
    numpyro.factor("soft", -200.0 * (numpyro.sample("nu", numpyro.distributions.Normal(0.0, 1.0)) - 1.0) ** 2)


def factored(table, options):
    rows = (None, 1.0) if table is None else (table["effect"], table["error"])
    return from_numpyro(with_a_factor, ["mu", "tau", "nu"], *rows)


def logistic(x, y):
    """The plainest program: at 0 all its logits are 0, where NumPyro clips them and JAX's derivative is another one."""
    import numpyro
    import numpyro.distributions as dist
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    b = numpyro.sample("b", dist.Normal(0.0, 2.0))
    if y is not None:
        numpyro.sample("y", dist.Bernoulli(logits=a + b * x), obs=y)


def of_logits(table, options):
    if table is None:
        return from_numpyro(logistic, ["a", "b"], np.zeros(1), None)
    return from_numpyro(logistic, ["a", "b"], table["error"] / 10, (table["effect"] > 7).astype(float))


def centred(y, s):
    """A prior that depends on rows."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    mu = numpyro.sample("mu", dist.Normal(0.0 if y is None else float(np.mean(y)), 1.0))
    tau = numpyro.sample("tau", dist.HalfNormal(5.0))
    numpyro.sample("y", dist.Normal(mu, jnp.sqrt(jnp.asarray(s) ** 2 + tau**2)), obs=y)


def prior_of_rows(table, options):
    rows = (None, 1.0) if table is None else (table["effect"], table["error"])
    return from_numpyro(centred, ["mu", "tau"], *rows)


def in_numpyro(table, options):
    table = table or {"effect": None, "error": np.ones(1)}
    return from_numpyro(program, ["mu", "tau"], table["effect"], table["error"])


def with_effects(y, s):
    """The same, each school's effect a number of its own."""
    import numpyro
    import numpyro.distributions as dist
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    eta = numpyro.sample("eta", dist.Normal(0.0, 1.0).expand([len(s)]).to_event(1))
    numpyro.sample("y", dist.Normal(mu + tau * eta, s), obs=y)


def with_local(table, options):
    table = table or {"effect": None, "error": np.ones(1)}
    return from_numpyro(with_effects, ["mu", "tau"], table["effect"], table["error"])


class Local:
    """With local unknowns, by hand: y ~ N(mu + tau u, s^2), u ~ N(0, 1)."""
    names = ("mu", "tau")

    def __init__(self, table):
        self.y, self.s = table["effect"], table["error"]
        self.local_size = len(self.y)

    def log_joint_grad(self, xi, u):
        mu, tau = xi
        r = (self.y - mu - tau * u) / self.s**2
        value = -0.5 * (r**2 * self.s**2).sum() - 0.5 * u @ u
        return value, np.array([r.sum(), r @ u]), tau * r - u


def by_hand(table, options):
    return Local(table)


class Plain:
    names = ("mu", "tau")

    def __init__(self, table):
        self.y, self.s = table["effect"], table["error"]

    def values(self, points):
        v = self.s**2 + points[:, 1:] ** 2
        return (-0.5 * (self.y - points[:, :1]) ** 2 / v - 0.5 * np.log(2 * np.pi * v)).sum(axis=1)


def plain(table, options):
    return Plain(table)


class Counted(Plain):
    """Whose answers are never the same, and which counts the questions that each client was asked."""

    ASKED = []

    def values(self, points):
        Counted.ASKED.append(self.y.tobytes() + points.tobytes())
        return super().values(points) + 1e-9 * np.random.default_rng().standard_normal()


def counted(table, options):
    return Counted(table)


class TwoHills:
    names = ("a",)

    def values(self, points):
        a = points[:, 0]
        return np.logaddexp(-0.5 * ((a - 8) / 0.3) ** 2, -0.5 * ((a + 8) / 0.3) ** 2 + np.log(0.5))


def two_hills(table, options):
    return TwoHills()


class Cox:
    """By fedkern's own kernel; or by its definition alone."""
    names = ("age", "dose")

    def __init__(self, table, kernel):
        from fedkern.models import survival
        from fedkern.models.mixed import Layout
        X, time, event = np.column_stack([table["age"], table["dose"]]), table["months"], table["died"] > 0
        self.X, self.time, self.event = X, time, event
        if kernel:
            rows = survival.Rows.of(Layout(self.names, "cox"), X, time, event)
            self.values = lambda points: rows.values(points, 1)
            self.gradient = lambda points: rows.curvature(points, 1)[1]
            self.curvature = lambda points: rows.curvature(points, 1)[2]

    def values(self, points):
        eta, total = points @ self.X.T, np.zeros(len(points))
        for t in np.unique(self.time[self.event]):
            dying = (self.time == t) & self.event
            risk, own = np.exp(eta[:, self.time >= t]).sum(axis=1), np.exp(eta[:, dying]).sum(axis=1)
            total += eta[:, dying].sum(axis=1)
            for l in range(dying.sum()):
                total -= np.log(risk - l / dying.sum() * own)
        return total


def cox(table, options):
    return Cox(table, options.get("kernel", False))


def failing(table, options):
    raise KeyError(f"no column for patient {table['effect'][0]:.0f}")


def shaped(table, options):
    model = Plain(table)
    model.values = lambda points: np.zeros(3)
    return model


def slow(table, options):
    import time
    model = Plain(table)
    quick = model.values
    model.values = lambda points: (time.sleep(options["seconds"] * (model.y[0] == 28.0)), quick(points))[1]
    return model


class Correlated:
    """Standard normal columns with correlations R; by names in another order than the job's."""

    def __init__(self, table):
        self.x = np.column_stack([table[name] for name in sorted(table)])
        d = self.x.shape[1]
        self.pairs = [(i, k) for i in range(d) for k in range(i)][::-1]
        self.names = [f"R[{i + 1},{k + 1}]" for i, k in self.pairs]

    def values(self, points):
        d = self.x.shape[1]
        R = np.tile(np.eye(d), (len(points), 1, 1))
        for e, (i, k) in enumerate(self.pairs):
            R[:, i, k] = R[:, k, i] = points[:, e]
        quadratic = np.einsum("ni,sij,nj->s", self.x, np.linalg.inv(R), self.x)
        return -0.5 * len(self.x) * np.linalg.slogdet(R)[1] - 0.5 * quadratic


def correlated(table, options):
    return Correlated(table)


def cut(values):
    def make(table, options):
        model = Plain(table)
        before = model.values
        model.values = lambda points: values(points, before(points))
        return model
    return make


half = cut(lambda points, v: np.where(points[:, 0] > 6, -np.inf, v))
lost = cut(lambda points, v: np.full(len(v), -np.inf))
endless = cut(lambda points, v: points[:, 0])
number = 3
'''

JOB = """
[job]
method = "likelihood"
seed = 3
[data]
clients = ["rows/*.csv"]
least_rows = 1
[model]
kind = "own"
factory = "own_models_of_tests:{}"
"""
PRIORS = """
[model.priors]
mu = {kind = "normal", sd = 5.0}
tau = {kind = "half-student", df = 1.0, scale = 5.0}
"""
SMALL = "[algorithm]\npoints = 1024\neffective = 300\n[output]\ndraws = 100\nchains = 2\n"
MODULE = "own_models_of_tests"


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package, installed for this process."""
    folder = installed(tmp_path_factory.mktemp("site"), MODULE, MODELS, "1.2", "own-models-of-tests")
    with pytest.MonkeyPatch.context() as patch:
        found_first(patch, folder, MODULE)
        yield folder
    sys.modules.pop(MODULE, None)


def job(folder: Path, factory: str, more: str = PRIORS + SMALL, clients: int = 2) -> Path:
    """Of eight schools, four a client."""
    schools(folder, clients)
    (folder / "job.toml").write_text(JOB.format(factory) + more)
    return folder / "job.toml"
