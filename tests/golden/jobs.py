"""Small jobs, their data, three trainings and a prior that is built: what the golden test runs.

A job is a base file and the keys that it overrides, as `--set` has them. Data are made by plain arithmetic from one generator and
rounded, so that no file depends on the machine. `PORTABLE` are jobs whose digest is stored too: no number of their result comes
from BLAS (`record.py --write` tries it with another of its kernels).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

TERMS = """
[privacy]
epsilon = 50.0
delta = 1e-3
clip = 2.0
noise_multiplier = 3.0
noise_source = "keyed"
accountant = "rdp"
"""
DECLARED = """
[data.columns.x]
kind = "numeric"
center = 0.5
scale = 2.0
[data.columns.z]
kind = "numeric"
lower = -3.0
upper = 3.0
[data.columns.s]
kind = "categorical"
levels = ["f", "m"]
"""
PVI = """
[job]
method = "pvi"
seed = 5
rounds = 3
[data]
clients = ["rows/*.csv"]
response = "{response}"
{positive}
row_id = "id"
test = "test.csv"
ignore = [{ignore}]
[model]
family = "{family}"
covariance = "diagonal"
{prior}[algorithm]
local_steps = 3
[output]
draws = 20
chains = 2
"""
PLAIN = "intercept_sd = 1.0\nintercept_centre = 0.0\n"  # of open jobs; the linear one has their defaults
CLIENTS = ("ada", "bo", "cy")
RESPONSES = {"bernoulli": "sick", "poisson": "visits", "gaussian": "pressure"}


def table(path: Path, names: tuple[str, ...], rows: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n")


def patients(generator: np.random.Generator, k: int, n: int) -> list[list[object]]:
    """Rows with an id, two numbers, a text, a case weight and a response of every family."""
    rows: list[list[object]] = []
    for i in range(n):
        x, z, e = (round(float(v), 2) for v in generator.normal(size=3))
        a = 0.3 + 0.8 * x - 0.5 * z
        visits = max(0, round(1.5 + a + e))
        rows.append([f"{k}-{i}", x, z, "fm"[(i + k) % 2], 1 + i % 2, "no" if a + e < 0 else "yes", visits, round(a + e, 2)])
    return rows


def pvi(folder: Path) -> None:
    generator = np.random.default_rng(1)
    names = ("id", "x", "z", "s", "w", "sick", "visits", "pressure")
    for k, name in enumerate(CLIENTS):
        table(folder / "rows" / f"{name}.csv", names, patients(generator, k, 36 + 4 * k))
    table(folder / "test.csv", names, patients(generator, 9, 20))
    for family, response in RESPONSES.items():
        ignore = ", ".join(f'"{name}"' for name in ("w", *RESPONSES.values()) if name != response)
        positive = 'positive = "yes"' if family == "bernoulli" else ""
        text = partial(PVI.format, response=response, positive=positive, family=family, ignore=ignore)
        (folder / f"{family}.toml").write_text(text(prior="" if family == "gaussian" else PLAIN))
        (folder / f"private-{family}.toml").write_text(text(prior="") + DECLARED + TERMS)
    (folder / "describe.toml").write_text(
        '[job]\nmethod = "describe"\n[data]\nclients = ["rows/*.csv"]\nignore = ["id"]\n[model]\ngroup = "s"\n'
        '[disclosure]\nlevel = "standard"\n'
    )
    (folder / "breast-cancer.toml").write_text(
        '[job]\nseed = 2\nrounds = 2\n[data]\nbuiltin = "breast-cancer"\nsplit = {clients = 3}\n'
        f"[model]\n{PLAIN}[output]\ndraws = 20\n"
    )


LIKELIHOOD = """
[job]
method = "likelihood"
seed = 6
rounds = 3
[data]
clients = ["rows/*.csv"]
response = "sick"
positive = "yes"
row_id = "id"
ignore = ["visits", "pressure", "ward"]
test = "test.csv"
[algorithm]
points = 256
effective = 150
[output]
draws = 20
chains = 2
"""


def likelihood(folder: Path) -> None:
    generator = np.random.default_rng(7)
    names = ("id", "x", "z", "s", "ward", "sick", "visits", "pressure")
    for k, name in enumerate(CLIENTS):
        rows = patients(generator, k, 120 + 4 * k)
        sampled = [[*row[:4], f"w{i % 24}", *row[5:], round(float(np.exp(row[7])), 2), 1 + i % 3] for i, row in enumerate(rows)]
        table(folder / "sampled" / f"{name}.csv", (*names, "dose", "w"), sampled)
        rows = [[*row[:4], f"w{i % 8}", *row[5:]] for i, row in enumerate(rows)]
        table(folder / "rows" / f"{name}.csv", names, rows)
    rows = patients(generator, 9, 20)
    table(folder / "test.csv", names, [[*row[:4], "w0", *row[5:]] for row in rows])
    (folder / "bernoulli.toml").write_text(LIKELIHOOD)
    formula = LIKELIHOOD.replace('response = "sick"\npositive = "yes"\n', "").replace(
        'ignore = ["visits", "pressure", "ward"]\n', ""
    )
    terms = '[model]\nfamily = "gaussian"\nformula = "pressure ~ x * s + cs(z, df = 3) + (1 | ward)"\n[algorithm]'
    (folder / "formula.toml").write_text(formula.replace("[algorithm]", terms))
    for family, response in RESPONSES.items():
        others = ", ".join(f'"{name}"' for name in ("ward", *RESPONSES.values()) if name != response)
        text = LIKELIHOOD.replace('"sick"\npositive = "yes"', f'"{response}"').replace(
            'ignore = ["visits", "pressure", "ward"]', f"ignore = [{others}]"
        )
        if family != "bernoulli":
            (folder / f"{family}.toml").write_text(text.replace("[algorithm]", f'[model]\nfamily = "{family}"\n[algorithm]'))
    sampled = (
        LIKELIHOOD.replace('"sick"\npositive = "yes"', '"dose"').replace("rows/*", "sampled/*").replace('test = "test.csv"\n', "")
    )
    sampled = sampled.replace('"visits", "pressure", "ward"', '"sick", "visits", "pressure"')
    (folder / "sampled.toml").write_text(sampled.replace("[algorithm]", '[model]\nfamily = "lognormal"\n[algorithm]'))


SURVIVAL = LIKELIHOOD.replace('response = "sick"\npositive = "yes"', 'time = "months"\nevent = "died"').replace(
    'row_id = "id"\nignore = ["visits", "pressure", "ward"]\ntest = "test.csv"', 'ignore = ["until", "ward", "since"]'
)


def survival(folder: Path) -> None:
    """Patients who were seen for some months, from a day on, with an event that was seen or was between two visits."""
    generator = np.random.default_rng(8)
    names = ("x", "s", "ward", "months", "until", "died", "since")
    for k, name in enumerate(CLIENTS):
        rows: list[list[object]] = []
        for i in range(210 + 5 * k):
            x, life, seen = float(generator.normal()), float(generator.exponential()), float(generator.exponential())
            life, seen = round(0.1 + 20 * life / np.exp(0.5 * x), 1), round(0.1 + 40 * seen, 1)
            died, months = int(life <= seen), min(life, seen)
            until = "" if not died else months if i // 2 % 2 else round(months + 2, 1)
            rows.append([round(x, 4), "fm"[i % 2], f"w{i % 8}", months, until, died, round(0.3 * months, 1)])
        table(folder / "rows" / f"{name}.csv", names, rows)
        of_causes = [[*row[:5], row[5] and 1 + (i % 3 > 0), row[6]] for i, row in enumerate(rows)]
        table(folder / "causes" / f"{name}.csv", names, of_causes)
    (folder / "cox.toml").write_text(SURVIVAL.replace("[algorithm]", '[model]\nfamily = "cox"\n[algorithm]'))
    causes = SURVIVAL.replace("rows/*", "causes/*").replace('event = "died"', 'event = "died"\nevents = [1, 2]')
    (folder / "causes.toml").write_text(causes.replace("[algorithm]", '[model]\nfamily = "cox"\n[algorithm]'))
    weibull = SURVIVAL.replace('["until", "ward", "since"]', '["since"]\ntime_upper = "until"')
    random = '[model]\nfamily = "weibull"\nrandom = {group = "ward"}\n[algorithm]'
    (folder / "weibull.toml").write_text(weibull.replace("[algorithm]", random) + "survival_at = [5, 20]\n")
    piecewise = '[model]\nfamily = "piecewise"\ncuts = [5, 15]\n[algorithm]'
    (folder / "piecewise.toml").write_text(SURVIVAL.replace("[algorithm]", piecewise) + "restricted_mean = 20\n")


def levels(folder: Path) -> None:
    """Grades of pain, in order and without one."""
    generator = np.random.default_rng(9)
    for k, name in enumerate(CLIENTS):
        rows: list[list[object]] = []
        for i in range(200 + 4 * k):
            x, e = (float(value) for value in generator.normal(size=2))
            rows.append([round(x, 4), f"w{i % 8}", ("none", "mild", "severe")[int(np.searchsorted([-0.5, 0.8], x + 1.2 * e))]])
        table(folder / "rows" / f"{name}.csv", ("x", "ward", "pain"), rows)
        table(folder / "few" / f"{name}.csv", ("x", "ward", "pain"), rows[: 60 + 4 * k])
    text = LIKELIHOOD.replace('response = "sick"\npositive = "yes"', 'response = "pain"\nlevels = ["none", "mild", "severe"]')
    text = text.replace('row_id = "id"\nignore = ["visits", "pressure", "ward"]\ntest = "test.csv"\n', "")
    ordinal = '[model]\nfamily = "ordinal"\nlink = "probit"\nrandom = {group = "ward"}\n[algorithm]'
    few = text.replace("rows/*", "few/*")
    (folder / "ordinal.toml").write_text(few.replace("[algorithm]", ordinal))
    multinomial = text.replace("[algorithm]", '[model]\nfamily = "multinomial"\n[algorithm]') + "loo = true\nsites = true\n"
    (folder / "multinomial.toml").write_text(multinomial.replace("[data]", '[data]\nignore = ["ward"]'))


SPARSE = """
[job]
method = "sparse"
seed = 3
rounds = 40
[data]
clients = ["{rows}/*.csv"]
{response}
[model]
kind = "{kind}"
[algorithm]
chains = 2
burn_in = 10
[output]
metrics_every = 10
"""


def sparse(folder: Path) -> None:
    generator = np.random.default_rng(2)
    for k, name in enumerate(CLIENTS):
        x = np.round(generator.normal(size=(30, 4)) + 0.3 * generator.normal(size=(30, 1)), 3)
        noise = generator.normal(size=(30, 2))
        y = np.round(1 + x[:, 0] - 0.7 * x[:, 1] + 0.4 * k * x[:, 3] + noise[:, 0], 3)
        rows = [[*row, value, int(value > 1 + e)] for row, value, e in zip(x.tolist(), y.tolist(), noise[:, 1])]
        table(folder / "rows" / f"{name}.csv", ("age", "bmi", "dose", "iron", "y", "ill"), rows)
        table(folder / "nodes" / f"{name}.csv", ("age", "bmi", "dose", "iron"), x.tolist())
        holes: list[list[object]] = [
            ["" if (i + j + k) % 9 == 0 else v for j, v in enumerate(row[:4])] + row[4:5] for i, row in enumerate(rows)
        ]
        table(folder / "holes" / f"{name}.csv", ("age", "bmi", "dose", "iron", "y"), holes)
    for name, rows_at, kind, response in (
        ("regression", "rows", "regression", 'response = "y"\nignore = ["ill"]'),
        ("logistic", "rows", "regression", 'response = "ill"\nignore = ["y"]'),
        ("holes", "holes", "regression", 'response = "y"'),
        ("mrf", "nodes", "mrf", ""),
        ("sem", "nodes", "sem", ""),
    ):
        (folder / f"{name}.toml").write_text(SPARSE.format(rows=rows_at, kind=kind, response=response))


VERTICAL = """
[job]
method = "vertical"
seed = 4
rounds = 30
[data]
clients = ["columns/*.csv"]
id = "id"
response = "y"
server = "server.csv"
[output]
metrics_every = 10
draws = 20
chains = 2
"""
VERTICAL_TERMS = """
[privacy]
epsilon = 50.0
delta = 1e-5
noise_multiplier = 8.0
noise_source = "keyed"
accountant = "rdp"
""" + "".join(f"[data.columns.{name}]\nkind = 'numeric'\ncenter = 0.0\nscale = 2.0\n" for name in ("u", "v", "p", "q"))


def vertical(folder: Path) -> None:
    generator = np.random.default_rng(3)
    n = 60
    x = np.round(generator.normal(size=(n, 4)), 3)
    y = (x[:, 0] - 0.6 * x[:, 2] + generator.normal(size=n) > 0).astype(int).tolist()
    order = generator.permutation(n).tolist()
    ids = [f"r{i:02}" for i in range(n)]
    held = folder / "columns"
    table(held / "ada.csv", ("id", "u", "v"), [[ids[i], *x[i, :2].tolist()] for i in range(n)])
    table(held / "bo.csv", ("id", "p", "q"), [[ids[i], *x[i, 2:].tolist()] for i in order])
    table(folder / "server.csv", ("id", "y"), [[ids[i], y[i]] for i in reversed(range(n))])
    for name, columns in (("ada", ("u", "v")), ("bo", ("p", "q"))):  # the response at every client
        first = 0 if name == "ada" else 2
        rows = [[ids[i], *x[i, first : first + 2].tolist(), y[i]] for i in range(n)]
        table(folder / "both" / f"{name}.csv", ("id", *columns, "y"), rows)
    (folder / "open.toml").write_text(VERTICAL)
    (folder / "private.toml").write_text(VERTICAL + VERTICAL_TERMS)


AREAS = 5  # of each client
SIGMA = """
[job]
method = "sigma"
seed = 6
rounds = 30
[data]
clients = ["rows/*.csv"]
area = "district"
response = "cases"
exposure = "expected"
[model]
prior = "trained/car"
kind = "auxiliary"
[algorithm]
checkpoint_every = 1000.0
[output]
metrics_every = 10
draws = 20
chains = 2
"""
PRIOR = """
[prior]
kind = "{kind}"
{range}
[data]
areas = "areas.csv"
area = "district"
client = "client"
x = "lon"
y = "lat"
{edges}
[network]
global_latents = 3
local_latents = 2
hidden = 6
local_hidden = 5
[training]
steps = 20
batch = 8
table = 8
draws = 50
threads = 1
[auxiliary]
draws = 200
[fit]
draws = 200
"""
# Three trainings of 20 steps: name -> kind, its range, more keys
TRAININGS = {
    "car": ("car", "phi = [0.0, 0.99]", ("network.width=4", "network.rank=2")),
    "bym2": ("bym2", "", ("network.variant=amended", "network.gamma=learn")),
    "gp": ("gp", "lengthscale = [0.2, 1.0]", ("network.variant=printed", "training.precision=float64", "auxiliary.by=phi")),
}
BUILT = """
[prior]
kind = "leroux"
[data]
areas = "areas.csv"
area = "district"
client = "client"
x = "lon"
y = "lat"
adjacency = "edges.csv"
[within]
values = 9
latents = 6
"""  # into sigma/built


def sigma(folder: Path) -> None:
    generator = np.random.default_rng(4)
    areas: list[list[object]] = []
    for k, name in enumerate(CLIENTS):
        rows: list[list[object]] = []
        for i in range(AREAS):
            areas.append([f"d{k}{i}", name, round(i + 0.1 * k, 2), k])
            expected = round(2 + 10 * float(generator.random()), 2)
            rows.append(
                [f"d{k}{i}", "" if i == 1 else int(generator.poisson(expected)), expected, round(float(generator.normal()), 2)]
            )
        table(folder / "rows" / f"{name}.csv", ("district", "cases", "expected", "poverty"), rows)
    table(folder / "areas.csv", ("district", "client", "lon", "lat"), areas)
    edges: list[list[object]] = [[f"d{k}{i}", f"d{k}{i + 1}"] for k in range(3) for i in range(AREAS - 1)]
    edges += [[f"d{k}{i}", f"d{k + 1}{i}"] for k in range(2) for i in range(AREAS)]
    table(folder / "edges.csv", ("one", "other"), edges)
    for name, (kind, bounds, _) in TRAININGS.items():
        graph = "" if kind == "gp" else 'adjacency = "edges.csv"'
        (folder / f"prior-{name}.toml").write_text(PRIOR.format(kind=kind, range=bounds, edges=graph))
    (folder / "prior-built.toml").write_text(BUILT)
    (folder / "map.toml").write_text(SIGMA)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "pvi": pvi,
    "likelihood": likelihood,
    "survival": survival,
    "levels": levels,
    "sparse": sparse,
    "vertical": vertical,
    "sigma": sigma,
}

SHARDS = ("privacy.noise_multiplier=16.0", "algorithm.shards=4")
# Name of the job -> its base file, and the keys that it overrides
JOBS: dict[str, tuple[str, ...]] = {
    "likelihood-bernoulli": ("likelihood/bernoulli",),
    "likelihood-gaussian": ("likelihood/gaussian",),
    "likelihood-groups": (
        "likelihood/poisson",
        'data.ignore=["sick", "pressure"]',
        'model.random={group = "ward", client = true}',
    ),
    "likelihood-student": (
        "likelihood/gaussian",
        "model.family=student",
        'data.ignore=["sick", "visits"]',
        'model.random={group = "ward"}',
    ),
    "likelihood-formula": ("likelihood/formula",),
    "likelihood-nested": (
        "likelihood/sampled",
        'data.ignore=["sick", "visits", "pressure", "w"]',
        'model.random={groups = [{by = "s"}, {by = ["s", "ward"]}]}',
        "disclosure.level=none",
    ),
    "likelihood-shared": (
        "likelihood/sampled",
        'data.ignore=["sick", "visits", "pressure", "w"]',
        'model.random={groups = [{by = "ward"}, {by = "s", shared = true, levels = ["f", "m"]}]}',
        "disclosure.level=none",
    ),
    "likelihood-survey": (
        "likelihood/sampled",
        "data.weight=w",
        "data.weight_kind=survey",
        "data.psu=ward",
    ),
    "likelihood-hurdle": (
        "likelihood/poisson",
        "model.family=hurdle-poisson",
    ),
    "likelihood-sigma": ("likelihood/gaussian", 'model.sigma="~ x + s"'),
    "likelihood-cox": ("survival/cox", 'data.strata="s"', "output.survival_at=[10]"),
    "likelihood-frailty": (
        "survival/cox",
        'data.ignore=["until", "since"]',
        'model.random={group = "ward"}',
    ),
    "likelihood-causes": ("survival/causes", "output.survival_at=[10]"),
    "likelihood-weibull": ("survival/weibull",),
    "likelihood-loglogistic-aft": ("survival/weibull", "model.family=loglogistic-aft"),
    "likelihood-piecewise": ("survival/piecewise",),
    "likelihood-ordinal": ("levels/ordinal",),
    "likelihood-multinomial": ("levels/multinomial",),
    # pvi, open
    "pvi-sequential": ("pvi/bernoulli",),
    "pvi-random-full": (
        "pvi/poisson",
        "algorithm.schedule=random",
        "algorithm.client_weights={bo = 2.0}",
        "model.covariance=full",
    ),
    "pvi-synchronous-weighted": (
        "pvi/gaussian",
        "algorithm.schedule=synchronous",
        "data.weight=w",
        'data.ignore=["sick", "visits"]',
    ),
    "pvi-asynchronous-adam": (
        "pvi/bernoulli",
        "algorithm.schedule=asynchronous",
        "algorithm.optimiser=adam",
        "algorithm.estimator=stl",
        "algorithm.draws=2",
        "algorithm.batch=0.5",
        "algorithm.random_source=keyed",
        "data.least_rows=15",
        "algorithm.updates_per_client=2",
    ),
    "pvi-global-vi": ("pvi/bernoulli", "algorithm.variant=global-vi", "job.rounds=12"),
    "pvi-one-shot": ("pvi/poisson", "algorithm.variant=bcm-split", "job.rounds=1"),
    "pvi-breast-cancer": ("pvi/breast-cancer",),
    # pvi, private; noise that can be drawn again
    "pvi-private-poisson": ("pvi/private-bernoulli", "privacy.sampling_rate=0.2", "algorithm.schedule=asynchronous"),
    "pvi-private-truncated": (
        "pvi/private-poisson",
        "privacy.sampling=poisson-truncated",
        "privacy.sampling_rate=0.2",
        "privacy.accountant=pld",
        "privacy.noise_multiplier=16.0",
        "privacy.max_batch=12",
        "privacy.dataset_size=40",
        "algorithm.estimator=weight-mc",
        "privacy.clients={ada = {dataset_size = 36}, cy = {dataset_size = 44, clip = 1.0}}",
    ),
    "pvi-private-without-replacement": (
        "pvi/private-gaussian",
        "privacy.sampling=without-replacement",
        "privacy.batch_size=8",
        "privacy.dataset_size=40",
        "algorithm.estimator=activation-mc",
        "privacy.clients={ada = {dataset_size = 36}, cy = {dataset_size = 44}}",
    ),
    "pvi-private-global-vi": ("pvi/private-bernoulli", "privacy.sampling=full", "algorithm.variant=global-vi"),
    "pvi-private-local-averaging": ("pvi/private-bernoulli", *SHARDS, "algorithm.variant=local-averaging"),
    "pvi-private-virtual-clients": ("pvi/private-poisson", *SHARDS, "algorithm.variant=virtual-clients"),
    "pvi-private-clients": (
        "pvi/private-bernoulli",
        "privacy.unit=client",
        "privacy.client_rate=0.6",
        "algorithm.sites=averaged",
    ),
    "pvi-private-budget": (
        "pvi/private-bernoulli",
        "privacy.sampling_rate=0.2",
        "privacy.epsilon=4.0",
        "privacy.last_update=shorten",
        "job.rounds=budget",
        "algorithm.schedule=random",
    ),
    # sparse
    "sparse-regression": (
        "sparse/regression",
        "algorithm.share_local=true",
        'algorithm.moves=["interweave"]',
        "output.site_fits=true",
        "output.leave_one_out=true",
    ),
    "sparse-sums": (
        "sparse/logistic",
        "algorithm.aggregate=sums",
        "algorithm.random_source=keyed",
        "algorithm.server_sweeps=1",
        "model.slab=2.0",
        "model.splines={age = [-1.0, 0.0, 1.0]}",
    ),
    "sparse-imputed": ("sparse/holes", "model.missing=impute", "output.sensitivity=true", "algorithm.random_source=keyed"),
    "sparse-mrf": ("sparse/mrf", "algorithm.participation=0.7"),
    "sparse-sem": ("sparse/sem", "algorithm.tempering=2", "algorithm.random_source=keyed"),
    # vertical
    "vertical-amortised": ("vertical/open", "data.holdout=0.2", "output.missing_party=true", "output.bound=true"),
    "vertical-mean-field": (
        "vertical/open",
        "algorithm.auxiliary=mean-field",
        "algorithm.covariance=full",
        "algorithm.local_steps=2",
    ),
    "vertical-power": ("vertical/open", "model.augmentation=power", 'data.clients=["both/*.csv"]', "data.folds=5"),
    "vertical-bayes-network": (
        "vertical/open",
        "model.kind=bayes-network",
        "model.hidden=[3]",
        "algorithm.batch_size=20",
        "data.holdout=0.2",
    ),
    "vertical-soul": ("vertical/open", "algorithm.inference=soul", "algorithm.auxiliary=mean-field", "algorithm.moves=3"),
    "vertical-private": ("vertical/private",),
    # sigma
    "sigma-sfvi": ("sigma/map", "output.bound=true"),
    "sigma-hmc": ("sigma/map", "algorithm.inference=hmc", "algorithm.leapfrog_steps=2", "job.rounds=12", "algorithm.burn_in=4"),
    "sigma-resumed": ("sigma/map", "output.bound=true"),
    "sigma-nested": (
        "sigma/map",
        "model.prior=built",
        "model.kind=within",
        "model.phi=0.9",
        'data.censored={"1" = [0, 4]}',
        "output.fit=true",
    ),
    "sigma-private": ("sigma/map", "privacy.epsilon=1.0"),
    # describe
    "describe": ("pvi/describe",),
    "describe-secure": ("pvi/describe", "job.sums=secure"),
}
# Their noise comes from the operating system alone, in whose place the recorder gives the same bytes every time
SECURE = ("sigma-private",)
# Stopped by a signal once so many checkpoints are written, and gone on with
INTERRUPTED = {"sigma-resumed": 2}
PORTABLE = (
    "pvi-asynchronous-adam",
    "pvi-global-vi",
    "pvi-private-poisson",
    "pvi-private-truncated",
    "pvi-private-without-replacement",
    "pvi-private-global-vi",
    "pvi-private-local-averaging",
    "pvi-private-virtual-clients",
    "pvi-private-clients",
    "pvi-private-budget",
    "vertical-mean-field",
    "vertical-private",
)


def write(folder: Path) -> None:
    """All base files with their data; the trainings write theirs into sigma/trained."""
    for name, made in FOLDERS.items():
        (folder / name).mkdir(parents=True)
        made(folder / name)
