"""The server's sweeps of the sparse models: each line against its equation, written down here once more."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import exp1, expit, logit

from fedkern.errors import NumericalError
from fedkern.kernels import shrinkage

BACKENDS = ("cpp", "numba", "reference")
FALSE_ALARM = 1e-6
M, C, P = 3, 20_000, 4


def inputs(random, c=C, m=M, g=1, p=P):
    """c chains in one state: their next states are independent draws of one law."""
    state = {
        "theta": 0.3 * random.standard_normal((1, g, p)),
        "tau_sq": np.exp(random.standard_normal((1, g, p)) - 2),
        "gamma": random.integers(0, 2, (1, g, p)).astype(float),
        "eta": np.full((1, g, p), 0.8),
    }
    each = {"deviation": 0.3 * random.standard_normal((m, 1, g, p)), "lambda_sq": np.exp(random.standard_normal((m, 1, g, p)))}
    rows = {name: np.broadcast_to(a, (*a.shape[:-3], c, g, p)) for name, a in (state | each).items()}
    return rows | {"rho": np.full((c, g), 0.4), "indicators": np.tile(np.arange(p), (g, 1))}


NAMES = ("theta", "tau_sq", "gamma", "eta", "rho", "inclusion", "deviation", "lambda_sq", "events")


def sweep(arguments, **options):
    return dict(zip(NAMES, shrinkage.global_sweep(**arguments, **options)))


def uniform(values):
    """Whether these are draws of the uniform distribution."""
    return stats.kstest(np.ravel(values), "uniform").pvalue > FALSE_ALARM


def tau_cdf(arguments, j, n_clients, scale=1.0):
    """Of log z, z = 1 / tau_j^2, by quadrature over its density."""
    m = 0.5 * (arguments["deviation"] ** 2 / arguments["lambda_sq"])[:, 0, 0, j].sum()
    x = np.linspace(-60, 20, 40_001)
    z = np.exp(x)
    mass = integrate.cumulative_simpson(z ** ((n_clients + 1) / 2) * np.exp(-m * z) / (1 + scale**2 * z), x=x, initial=0)
    return lambda log_z: np.interp(log_z, x, mass / mass[-1])


VARIANTS = {
    "default": {},
    "coordinate": {"eta_form": "coordinate"},
    "negligible": {"spike_variance": 0.02},
    "negligible, coordinate": {"spike_variance": 0.02, "eta_form": "coordinate"},
    "slab": {"slab": 0.5},
    "scales and shapes": {"scale_tau": 0.3, "shape_eta": 3.0, "rate_eta": 0.7, "rho_a": 2.0, "rho_b": 5.0, "c0": 0.1},
    "printed": {"order": "printed"},
    "printed, negligible": {"order": "printed", "spike_variance": 0.02},
}
KINDS = {"plain": [0, 1, 2, 3], "groups": [0, 1, 1, 1], "always and none": [-1, 0, -2, 1]}


def transforms(arguments, new, how, kinds, faults=()):
    """What must be uniform, if each number was drawn from its conditional distribution: name -> values."""
    o = {"c0": 0.01, "spike_variance": 0.0, "slab": np.inf, "shape_eta": 2.0, "rate_eta": 1.0, "rho_a": 1.0, "rho_b": 1.0} | how
    kinds = np.array(kinds)
    blocked, common = o.get("order", "blocked") == "blocked", o.get("eta_form", "common") == "common"
    d, precision = arguments["deviation"][:, :, 0], 1 / arguments["lambda_sq"][:, :, 0]
    old, theta, tau_sq, gamma, eta = (a[:, 0] for a in (arguments["theta"], *(new[n] for n in NAMES[:4])))
    there = kinds > -2
    found = {}
    for j in np.flatnonzero(there):
        found[f"tau {j}"] = tau_cdf(arguments, j, M, o.get("scale_tau", 1.0))(-np.log(tau_sq[:, j]))

    weight = precision / tau_sq + 1 / o["slab"] ** 2  # of each client
    W = weight.sum(axis=0)
    mhat = old + (weight * d).sum(axis=0) / W
    before = (arguments["eta"], arguments["gamma"]) if not blocked else (arguments["eta"], new["gamma"])
    eta_then, gamma_then = (a[:, 0] for a in before)

    def spike(of):
        c0 = o["c0"] ** 2 if "c0 as a ratio of standard deviations" in faults else o["c0"]
        return np.where(o["spike_variance"] > 0, o["spike_variance"], c0 * of)

    v = np.where(gamma_then == 1, eta_then, spike(eta_then))
    v = np.where(kinds == -1, eta_then, v)
    mean, sd = W * mhat / (W + 1 / v), 1 / np.sqrt(W + 1 / v)
    found["theta"] = stats.norm.cdf(theta, mean, sd)[:, there]

    shrunk = o["spike_variance"] > 0
    taken = (gamma_then == 1) | (kinds == -1)
    power = np.where(taken, 1.0, 0.0 if shrunk else 1 / o["c0"]) * there
    half = 1.0 if "eta without 1/2" in faults else 0.5
    squares, count = half * theta**2 * power, 0.5 * (power > 0)
    if common:
        squares, count = (np.tile(a.sum(axis=1, keepdims=True), P) for a in (squares, count))
    of_eta = stats.gamma.cdf((o["rate_eta"] + squares) / eta, o["shape_eta"] + count)
    found["eta"] = of_eta[:, :1] if common else of_eta[:, there]

    point, extra = (mhat, 1 / W) if blocked else (theta, 0 * W)
    of = arguments["eta"][:, 0] if blocked else eta
    ratio = stats.norm.logpdf(point, 0, np.sqrt(of + extra)) - stats.norm.logpdf(point, 0, np.sqrt(spike(of) + extra))
    included, q = 0, new["inclusion"][:, 0]
    for number in range(kinds.max() + 1):
        members = kinds == number
        want = expit(logit(arguments["rho"][:, 0]) + ratio[:, members].sum(axis=1))
        assert (gamma[:, members] == gamma[:, members][:, :1]).all()
        drawn = gamma[:, members][:, 0]
        found[f"gamma {number}"] = (drawn, want)
        if not faults:
            np.testing.assert_allclose(q[:, members], np.tile(want[:, None], members.sum()), rtol=1e-9, atol=1e-14)
        included = included + drawn
    n = kinds.max() + 1
    found["rho"] = stats.beta.cdf(new["rho"][:, 0], o["rho_a"] + included, o["rho_b"] + n - included)
    return found


def good(name, values):
    if isinstance(values, tuple):  # draws of 0 and 1, and their probabilities
        drawn, probability = values
        return abs((drawn - probability).sum()) < stats.norm.isf(FALSE_ALARM) * np.sqrt(
            (probability * (1 - probability)).sum() + 1
        )
    return uniform(values)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_line_draws_from_its_equation(variant, kinds, seed):
    how = VARIANTS[variant]
    arguments = inputs(np.random.default_rng(seed)) | {"indicators": np.array([KINDS[kinds]])}
    new = sweep(arguments, seed=seed, **how)
    bad = [name for name, values in transforms(arguments, new, how, KINDS[kinds]).items() if not good(name, values)]
    assert not bad


@pytest.mark.parametrize("fault", ["eta without 1/2", "c0 as a ratio of standard deviations"])
def test_negative_control_the_equations_of_a_fault_are_noticed(fault, seed):
    arguments = inputs(np.random.default_rng(seed))
    found = transforms(arguments, sweep(arguments, seed=seed), {}, KINDS["plain"], [fault])
    assert not all(good(name, values) for name, values in found.items())


def test_tau_of_one_client_and_tau_by_expansion(seed):
    """Expanded: from exact draws of tau, one draw through xi must lead to exact draws again."""
    for m in (1, 3):
        arguments = inputs(np.random.default_rng(seed), m=m)
        first = sweep(arguments, seed=seed)["tau_sq"]
        again = sweep(arguments | {"tau_sq": first}, seed=seed + 1, scales="expanded")["tau_sq"]
        wrong = sweep(arguments, seed=seed + 1, scales="expanded")["tau_sq"]  # from one and the same tau
        cdf = [tau_cdf(arguments, j, m) for j in range(P)]
        for values, right in ((first, True), (again, True), (wrong, False)):
            assert all(uniform(cdf[j](-np.log(values[:, 0, j]))) for j in range(P)) == right


@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_lambda_is_drawn_at_the_server(scale, seed):
    """The second pass sees the deviations and tau of the first; P(zeta > z) = E1(m (1 + z)) / E1(m)."""
    arguments = inputs(np.random.default_rng(seed))
    first, second = (sweep(arguments, seed=seed, n_passes=n, scale_lambda=scale) for n in (1, 2))
    m = first["deviation"] ** 2 / (2 * first["tau_sq"] * scale**2)
    zeta = scale**2 / second["lambda_sq"]
    keep = m < 300
    tail = np.where(keep, exp1(m * (1 + zeta)) / exp1(np.where(keep, m, 1)), 0.5)
    assert all(uniform(tail[k, :, 0, j][keep[k, :, 0, j]]) for k in range(M) for j in range(P))
    assert not uniform(exp1(2 * m * (1 + zeta))[keep] / exp1(2 * m[keep]))  # control


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pass_is_a_sweep_from_the_state_of_the_pass_before(backend, seed):
    arguments = inputs(np.random.default_rng(seed), c=3, g=2)
    options = {"seed": seed, "backend": backend}
    first, both = (sweep(arguments, n_passes=n, step=7, **options) for n in (1, 2))
    state = {name: first[name] for name in (*NAMES[:5], "deviation")} | {"lambda_sq": both["lambda_sq"]}
    second = sweep(arguments | state, step=8, **options)
    for name in (*NAMES[:5], "deviation"):
        np.testing.assert_array_equal(both[name], second[name])
    np.testing.assert_allclose(both["inclusion"], (first["inclusion"] + second["inclusion"]) / 2, rtol=1e-15)
    np.testing.assert_array_equal(first["deviation"], arguments["deviation"] + (arguments["theta"] - first["theta"]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("slab", [np.inf, 0.7])
def test_sums_give_the_bits_of_locals(backend, slab, seed):
    for m in (1, 3):
        for variant in VARIANTS.values():
            arguments = inputs(np.random.default_rng(seed + m), c=3, m=m, g=2, p=33)
            total = 0
            for d, s in zip(arguments["deviation"], arguments["lambda_sq"]):
                total = total + shrinkage.local_sums(d, s, slab=slab, backend=backend)
            options = variant | {"slab": slab, "seed": seed, "backend": backend}
            want = shrinkage.global_sweep(**arguments, **options)
            del arguments["deviation"], arguments["lambda_sq"]
            got = shrinkage.global_sweep_sums(total, m, **arguments, **options)
            for a, b in zip(got, (*want[:6], want[8])):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("backend", BACKENDS)
def test_chains_do_not_depend_on_how_many_travel_together(backend, seed):
    arguments = inputs(np.random.default_rng(seed), c=4, g=2)
    together = sweep(arguments, seed=seed, chain=5, n_passes=2, backend=backend)
    one = {
        name: a if name == "indicators" else a[:, 2:3] if name in ("deviation", "lambda_sq") else a[2:3]
        for name, a in arguments.items()
    }
    alone = sweep(one, seed=seed, chain=7, n_passes=2, backend=backend)
    np.testing.assert_array_equal(alone["theta"], together["theta"][2:3])
    assert (np.diff(together["theta"], axis=0) != 0).all()


def test_one_rate_for_all_regressions(seed):
    arguments = inputs(np.random.default_rng(seed), g=3)
    new = sweep(arguments, seed=seed, shared_rho=True, rho_b=2.0)
    included = new["gamma"].sum(axis=(1, 2))
    assert (new["rho"] == new["rho"][:, :1]).all()
    assert uniform(stats.beta.cdf(new["rho"][:, 0], 1 + included, 2 + 3 * P - included))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_absent_stays_and_what_is_always_included_counts(backend, seed):
    kinds = np.array([[-2, 0, -1, 0], [0, -2, -1, 3]])
    arguments = inputs(np.random.default_rng(seed), c=2, g=2) | {"indicators": kinds}
    new = sweep(arguments, seed=seed, n_passes=3, eta_form="coordinate", backend=backend)
    for name in ("theta", "tau_sq", "gamma", "eta"):
        np.testing.assert_array_equal(new[name][:, kinds == -2], arguments[name][:, kinds == -2])
    np.testing.assert_array_equal(new["deviation"][:, :, kinds == -2], arguments["deviation"][:, :, kinds == -2])
    assert (new["inclusion"][:, kinds == -2] == 0).all()
    assert (new["inclusion"][:, kinds == -1] == 1).all()
    assert (new["gamma"][:, kinds == -1] == 1).all()
    assert (new["events"] == [0, 0, 0, -1]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_extreme_scales_and_rates(backend, seed):
    """Scales leave their bounds and are clipped and counted; rho at its guards stays within them."""
    arguments = inputs(np.random.default_rng(seed), c=3)
    for size in (0.0, 1e-200, 1e45):
        extreme = arguments | {"deviation": np.full((M, 3, 1, P), size), "lambda_sq": np.full((M, 3, 1, P), 1e-60)}
        new = sweep(extreme, seed=seed, backend=backend)
        assert (new["tau_sq"] == (1e60 if size > 1 else 1e-60)).all()
        assert (new["events"][..., 0] == P).all()
    for rho in (1e-12, 1 - 1e-12):
        new = sweep(arguments | {"rho": np.full((3, 1), rho)}, seed=seed, rho_a=1e-9, rho_b=1e-9, n_passes=5, backend=backend)
        assert ((new["rho"] >= 1e-12) & (new["rho"] <= 1 - 1e-12)).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("deviation", r"tau\^2"),
        ("lambda_sq", r"tau\^2"),
        ("theta", "theta|an inclusion"),
        ("eta", "theta|an inclusion"),
        ("rho", "an inclusion"),
    ],
)
def test_what_is_not_finite_is_named(backend, name, quantity, seed):
    arguments = inputs(np.random.default_rng(seed), c=3, g=2)
    spoiled = np.array(arguments[name])
    spoiled[(..., 1, 1) if name == "rho" else (..., 1, 1, 0)] = np.nan
    with pytest.raises(NumericalError, match=f"global_sweep: chain 11, regression 1: ({quantity}).* sweep 6 is not finite"):
        sweep(arguments | {name: spoiled}, seed=seed, chain=10, step=6, n_passes=2, backend=backend)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_passes": 2, "scales": "expanded"}, r"n_passes must be >= 1 and below 2\^32, and 1 with expanded scales, got 2"),
        ({"indicators": np.full((1, P), P)}, r"indicators must be -2, -1 or in \[0, p\) with p = 4"),
        ({"deviation": np.empty((0, 2, 1, P)), "lambda_sq": np.empty((0, 2, 1, P))}, "needs at least one client"),
    ],
)
def test_numbers_outside_their_range_are_refused(change, message, seed):
    arguments = inputs(np.random.default_rng(seed), c=2)
    with pytest.raises(ValueError, match=f"shrinkage.global_sweep: {message}"):
        shrinkage.global_sweep(**(arguments | {"seed": 1} | change))


def test_sums_of_another_slab_are_refused(seed):
    arguments = inputs(np.random.default_rng(seed), c=2)
    sums = shrinkage.local_sums(arguments.pop("deviation")[0], arguments.pop("lambda_sq")[0])
    with pytest.raises(ValueError, match=r"sums must be 4 with slab = 2\.0, got 3"):
        shrinkage.global_sweep_sums(sums, 1, **arguments, seed=1, slab=2.0)
    with pytest.raises(ValueError, match="n_clients must be >= 1"):
        shrinkage.global_sweep_sums(sums, 0, **arguments, seed=1)


@pytest.mark.parametrize("shared", [True, False])
def test_without_regressions_there_is_nothing_to_draw(shared, seed):
    """Nor a fault to note, where the rate's prior is so small that no draw of it is a number: its first regression had it."""
    arguments = inputs(np.random.default_rng(seed), g=0)
    options = {"rho_a": 1e-200, "rho_b": 1e-200, "shared_rho": shared, "seed": seed, "n_passes": 2}
    assert all(a.size == 0 for name, a in sweep(arguments, **options).items() if name != "events")
