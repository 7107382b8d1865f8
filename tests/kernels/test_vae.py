"""The hierarchical autoencoder: sizes, gradients against JAX and differences, KLs, the bound, training, what stops it.

(mlp.vae_gradient and mlp.vae_step are also in the conformance test of all kernels; sizes at which compiled code takes other ways
are in test_vae_compiled.py.)
"""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.kernels import mlp, optim, rng, spatial
from fedkern.kernels._record import KERNELS
from fedkern.kernels._reference import mlp as reference
from fedkern.testing.mlp import vae_near_a_kink as near_a_kink
from oracles import vae_jax
from oracles.differences import relative

BACKENDS = KERNELS["mlp.vae_gradient"].backends
STEPPING = KERNELS["mlp.vae_step"].backends
VARIANTS = ("printed", "amended", "multiplicative")
DIFFERENCES = 5e-6  # of four-point central differences
PAPER = {"groups": (34, 33, 33)}
SLIPS = ("gamma is a variance", "theta for z_L", "no KL through z_G")


def small(variant):
    return mlp.Architecture(variant, (4, 3, 2), 2, 3, (2, 1, 2), hidden=5, local_hidden=4, width=6, rank=3)


def problem(a, rows=6, scale=1.0, seed=0, dtype="f8"):
    """parameters, theta, t, noise; no kink within 1e-5, so that differences are of a smooth function."""
    for attempt in range(100):
        draw = np.random.default_rng([seed, attempt]).standard_normal
        parameters = scale * (a.initial(seed) + 0.2 * draw(a.n_parameters))
        arrays = (parameters, draw((rows, a.n_values)), draw((rows, a.n_conditions)), draw((rows, a.n_latents)))
        if not near_a_kink(arrays, a, 1e-5):
            return [array.astype(dtype) for array in arrays]
    raise AssertionError("a kink in every problem")


# Sizes -------------------------------------------------------------------------------------------------------------------------


def sizes(a):
    return {name: part.where.stop - part.where.start for name, part in a.parts.items()}


def test_numbers_of_parameters_are_those_of_the_specification():
    printed, amended = (mlp.Architecture(variant, **PAPER) for variant in ("printed", "amended"))
    found = sizes(printed)
    assert (found["global_encoder"], found["prior[0]"], found["global_decoder"]) == (2074, 554, 384)
    assert sum(found[f"decoder[{j}]"] for j in range(3)) == 2300
    assert (printed.n_parameters, amended.n_parameters) == (6420, 10186)

    states = mlp.Architecture("printed", (615, 500, 520, 200, 150, 100, 67, 69), 1, 100, (50,) * 8, 2024, 1048)
    found = sizes(states)
    assert (found["global_encoder"], found["global_decoder"]) == (9002952, 4305048)
    assert sum(found[f"prior[{j}]"] for j in range(8)) == 8 * 1311148
    assert sum(found[f"decoder[{j}]"] for j in range(8)) == 4610796
    assert states.n_parameters == 28407980


@pytest.mark.parametrize("variant", VARIANTS)
def test_parts_follow_each_other_and_are_all_of_the_parameters(variant):
    a = small(variant)
    end = 0
    for part in a.parts.values():
        assert part.where.start == end
        end = part.where.stop
        assert end - part.where.start == sum(layer.n_out * (layer.n_in + layer.bias) for layer in part.layers)
    assert end == a.n_parameters
    assert mlp.Architecture.of(a.code) == a


def test_layers_are_views_of_the_parameters():
    a = small("amended")
    parameters = np.arange(float(a.n_parameters))
    (W1, b1), (W2, b2) = a.layers(parameters, "decoder[1]")
    begin = a.parts["decoder[1]"].where.start
    assert W1.shape == (4, 5 + 1 + 2)
    assert W2.shape == (3, 4)
    assert (W1[0, 0], W1[1, 0], b1[0], W2[0, 0], b2[-1]) == (begin, begin + 8, begin + 32, begin + 36, begin + 50)
    W1[...] = 0
    assert parameters[begin] == 0
    assert a.layers(parameters, "prior[2]")[-1][0].shape == (2 * 2, 4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_starts_uniformly_by_the_inputs_of_a_layer(variant):
    a = mlp.Architecture(variant, **PAPER)
    initial = a.initial(3)
    assert (initial == a.initial(3)).all()
    assert abs(initial - a.initial(4)).max() > 0.1
    for part, (where, layers) in a.parts.items():
        begin = where.start
        for layer in layers:
            values = initial[begin : begin + layer.n_parameters] * np.sqrt(layer.n_in)
            assert abs(values).max() <= 1
            assert abs(values.mean()) <= 5 / np.sqrt(3 * len(values)), part
            assert abs((values**2).mean() - 1 / 3) <= 5 * np.sqrt(4 / 45 / len(values)), part
            begin += len(values)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"variant": "deep"}, ValueError, "variant must be one of printed, amended, multiplicative, got 'deep'"),
        ({"groups": ()}, ValueError, "one number of local latents for each group, got 0 groups and 3 in n_local"),
        ({"groups": (3, 4)}, ValueError, "got 2 groups and 3 in n_local"),
        ({"groups": (3, 4, 0)}, ValueError, r"groups must be positive integers below 2\^31, got \(3, 4, 0\)"),
        ({"n_local": (3, -4, 1)}, ValueError, r"n_local must be positive .*, got \(3, -4, 1\)"),
        ({"hidden": 0}, ValueError, r"hidden must be a positive integer below 2\^31, got 0"),
        ({"n_conditions": 0}, ValueError, "n_conditions must be"),
        ({"rank": 2.5}, TypeError, "float"),
    ],
)
def test_impossible_architectures_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        mlp.Architecture(**{"variant": "amended", "groups": (3, 2, 2)} | change)


# The gradient ------------------------------------------------------------------------------------------------------------------


def clamps(a, parameters, theta, t, noise):
    """Whether a log variance is outside its range."""
    net = reference.networks_of(parameters, np.zeros_like(parameters), a)
    objective = reference.multiplicative if a.variant == "multiplicative" else reference.by_networks
    objective(net, theta, t, noise, a, 1.0, 1.0)
    if a.variant == "multiplicative":
        raw = np.hstack([net[name][1].h[-1] for name in net if name.startswith(("global_encoder", "posterior"))])
    else:
        heads = [net[name].h[-1] for name in net if name.startswith(("global_encoder", "prior", "posterior"))]
        raw = np.hstack([head[:, head.shape[1] // 2 :] for head in heads])
    return bool(((raw < reference.LOWEST) | (raw > reference.HIGHEST)).any())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_and_terms_are_those_of_jax(variant, backend):
    """The last scale clamps many of the log variances."""
    a = mlp.Architecture(variant, (40, 30), 2, 4, (5, 3), hidden=11, local_hidden=7, width=9, rank=4)
    for scale in (1.0, 8.0):
        arrays = problem(a, 9, scale)
        assert (scale == 8.0) == clamps(a, *arrays)
        for gamma, weight in ((0.5, 1.0), (0.03, 0.3), (2.0, 0.0)):
            want = vae_jax.gradient(a, *arrays, gamma, weight)
            found = mlp.vae_gradient(*arrays, architecture=a, gamma=gamma, kl_weight=weight, backend=backend)
            assert max(relative(x, y) for x, y in zip(found, want)) <= 1e-10


# JAX compiles each for two seconds.
BY_DAY, *AT_NIGHT = SLIPS


@pytest.mark.parametrize("slip", [BY_DAY, *(pytest.param(slip, marks=pytest.mark.nightly) for slip in AT_NIGHT)])
def test_negative_control_slips_of_the_paper_are_noticed(slip):
    a = small("amended")
    arrays = problem(a)
    found, terms = mlp.vae_gradient(*arrays, architecture=a, gamma=0.5)
    wrong, wrong_terms = vae_jax.gradient(a, *arrays, 0.5, slip=slip)
    assert relative(found, wrong) > 1e-4
    assert slip == "no KL through z_G" or abs(terms[0] - wrong_terms[0]) > 1e-2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_single_precision(variant, backend):
    a = mlp.Architecture(variant, **PAPER)
    single = problem(a, 32, dtype="f4")
    want = mlp.vae_gradient(*(array.astype("f8") for array in single), architecture=a, gamma=0.5, backend="reference")
    found = mlp.vae_gradient(*single, architecture=a, gamma=0.5, backend=backend)
    assert found[0].dtype == np.float32
    assert max(relative(x, y) for x, y in zip(found, want)) <= 2e-5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_is_the_difference_of_the_elbo(variant, backend):
    """Of every parameter, by four points; on the emulator, which is slow and conforms to the reference, of every tenth."""
    a = mlp.Architecture(variant, (2, 1), 1, 2, (1, 1), hidden=3, local_hidden=3, width=3, rank=2)
    parameters, *batch = problem(a, 3)
    options = {"architecture": a, "gamma": 0.5, "backend": backend}
    chosen = np.arange(0, len(parameters), 10 if backend == "cuda" else 1)
    differences, step, weights = np.empty((len(chosen), 2)), 1e-6, np.array([1.0, 0.2])
    for row, i in enumerate(chosen):
        at = []
        for k in (1, -1, 2, -2):
            moved = parameters + k * step * (np.arange(len(parameters)) == i)
            value, _, global_kl, local_kl = mlp.vae_gradient(moved, *batch, **options)[1]
            at.append(value + (1 - weights) * (global_kl + local_kl))
        differences[row] = (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * step)
    for weight, wanted in zip(weights, differences.T):
        gradient = mlp.vae_gradient(parameters, *batch, **options, kl_weight=weight)[0][chosen]
        assert relative(gradient, wanted) <= DIFFERENCES
        assert relative(gradient * (1 + 1e-5), wanted) > DIFFERENCES  # negative control


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_is_the_mean_of_its_rows(variant, backend):
    a = small(variant)
    parameters, *batch = problem(a, 11)
    options = {"architecture": a, "gamma": 0.5, "backend": backend}
    whole = mlp.vae_gradient(parameters, *batch, **options)
    rows = [mlp.vae_gradient(parameters, *(array[b : b + 1] for array in batch), **options) for b in range(11)]
    for i in range(2):
        np.testing.assert_allclose(whole[i], np.mean([row[i] for row in rows], axis=0), rtol=1e-10, atol=1e-12)


def test_divergences_are_expectations(seed):
    """KL[N(m, v) || N(m0, v0)] against the mean of log q - log p, and its derivatives against differences."""
    m, log_v, m0, log_v0 = np.random.default_rng(1).standard_normal((4, 1, 3))
    (kl,), kl_m, kl_v, kl_v0 = reference.divergence(m, log_v, m0, log_v0)
    z = m + np.exp(log_v / 2) * np.random.default_rng(seed).standard_normal((400_000, 3))
    log_ratio = 0.5 * (log_v0 - log_v - (z - m) ** 2 / np.exp(log_v) + (z - m0) ** 2 / np.exp(log_v0)).sum(axis=1)
    error = log_ratio.std() / np.sqrt(len(z))
    assert abs(log_ratio.mean() - kl) <= 5 * error
    assert abs(log_ratio.mean() - reference.divergence(m, 2 * log_v, m0, log_v0)[0][0]) > 5 * error  # negative control
    for found, i in ((kl_m, 0), (kl_v, 1), (-kl_m, 2), (kl_v0, 3)):
        for k in range(3):
            at = []
            for sign in (1, -1):
                moved = [np.array(x) for x in (m, log_v, m0, log_v0)]
                moved[i][0, k] += sign * 1e-5
                at.append(reference.divergence(*moved)[0][0])
            assert abs((at[0] - at[1]) / 2e-5 - found[0, k]) <= 1e-7 * (1 + abs(found[0, k]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_that_is_not_a_number_makes_the_elbo_none(backend):
    for variant in VARIANTS:
        a = small(variant)
        for i in range(1, 4):
            arrays = problem(a)
            arrays[i][2, 0] = np.nan
            assert np.isnan(mlp.vae_gradient(*arrays, architecture=a, gamma=0.5, backend=backend)[1][0])


# The bound ---------------------------------------------------------------------------------------------------------------------


def log_marginal(theta, A, gamma):
    """log N(theta; 0, A A' + gamma^2 I)."""
    covariance = A @ A.T + gamma**2 * np.eye(len(A))
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    return -0.5 * (log_det + (theta * np.linalg.solve(covariance, theta.T).T).sum(axis=1))


def loadings(a, parameters, t):
    """The matrix A of a multiplicative decoder at a condition: mu = A [z_G; z_L1; ..]."""
    (W1, b1), (W2, b2) = a.layers(parameters, "decoder_weights")
    s = W2 @ np.tanh(W1 @ t + b1) + b2
    A, row, latent = np.zeros((a.n_values, a.n_latents)), 0, a.n_global
    for j, (d_j, q) in enumerate(zip(a.groups, a.n_local)):
        ((M, _),) = a.layers(parameters, f"decoder[{j}]")
        B = np.tensordot(s, M.reshape(d_j, a.rank, a.n_global + q), axes=(0, 1))
        A[row : row + d_j, : a.n_global], A[row : row + d_j, latent : latent + q] = B[:, : a.n_global], B[:, a.n_global :]
        row, latent = row + d_j, latent + q
    return A


def cubature(n):
    """2 n points whose means of polynomials of degree 2 (and 3) are those of standard normals."""
    return np.concatenate([np.sqrt(n) * np.eye(n), -np.sqrt(n) * np.eye(n)])


def exact_elbo(a, parameters, theta, t, gamma):
    """Mean over latents, of every theta: the ELBO of a multiplicative autoencoder has degree 2 in its noise."""
    noise = cubature(a.n_latents)
    rows = np.repeat(theta, len(noise), axis=0), np.repeat(t, len(noise) * len(theta), axis=0), np.tile(noise, (len(theta), 1))
    return mlp.vae_gradient(parameters, *rows, architecture=a, gamma=gamma)[1][0]


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0])
def test_the_elbo_is_below_the_evidence_of_a_linear_decoder(scale):
    """Exact evidence: probabilistic principal components."""
    a = small("multiplicative")
    parameters, theta, t, _ = problem(a, 1, scale)
    evidence = log_marginal(theta, loadings(a, parameters, t[0]), 0.7)[0]
    elbo = exact_elbo(a, parameters, theta, t, 0.7)
    assert elbo < evidence
    draw = np.random.default_rng(5).standard_normal((4000, a.n_latents))
    rows = np.repeat(theta, 4000, axis=0), np.repeat(t, 4000, axis=0), draw
    sampled = [mlp.vae_gradient(parameters, *(r[k::40] for r in rows), architecture=a, gamma=0.7)[1][0] for k in range(40)]
    assert abs(np.mean(sampled) - elbo) <= 5 * np.std(sampled) / np.sqrt(40)


PPCA = mlp.Architecture("multiplicative", (6,), 1, 6, (1,), width=2, rank=1)
GAMMA = 0.5


def factor(seed=3):
    """A (6, 6) factor of a prior whose variances are all above gamma^2."""
    Q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((6, 6)))
    return Q * np.sqrt([4.0, 3.0, 2.2, 1.5, 1.0, 0.6])


def trained(a, table, steps, rate=1e-2, gamma=GAMMA, batch=64, seed=1, dtype="f8", backend=None):
    """Parameters after training with a rate that falls over the second half."""
    parameters, moments = a.initial(seed).astype(dtype), np.zeros((2, a.n_parameters), dtype)
    rates = rate * np.minimum(1, 2 * (1 - np.arange(steps) / steps))
    options = {"architecture": a, "kind": table.kind, "rank": table.rank, "batch": batch, "gamma": gamma, "clip": 1e3}
    given = (table.values, table.phi, table.scale)
    return mlp.vae_step(
        parameters, moments, *given, rates=rates, kl_weights=np.ones(steps), **options, seed=seed, backend=backend
    )


def test_training_reaches_the_optimum_of_principal_components():
    """With as many global latents as coordinates the optimal evidence is that of the prior itself: sigma.md, section 12."""
    F, t = factor(), np.zeros((1, 1))
    table = spatial.DrawTable(F.reshape(1, -1), t, np.ones(6), "dense", 6)
    theta = cubature(6) @ F.T
    evidence = log_marginal(theta, F, 0.0).mean()

    def gaps(steps):
        """Of the decoder's own evidence to the prior's, and of the ELBO to the decoder's own evidence."""
        parameters, _, trace = trained(PPCA, table, steps)
        assert np.isfinite(trace).all()
        own = log_marginal(theta, loadings(PPCA, parameters, t[0]), GAMMA).mean()
        return evidence - own, own - exact_elbo(PPCA, parameters, theta, t, GAMMA)

    decoder, encoder = gaps(5000)
    assert 0 < decoder
    assert 0 < encoder
    assert decoder + encoder < 1e-2
    assert sum(gaps(300)) > 0.05  # negative control: it is training that closes the gap


# Steps -------------------------------------------------------------------------------------------------------------------------


def tables(n=9, T=5, seed=2):
    """One of each kind."""
    random = np.random.default_rng(seed)
    columns = [np.r_[i, i + 1 + np.flatnonzero(random.random(n - i - 1) < 0.4)] for i in range(n)]
    indptr, indices = np.cumsum([0, *map(len, columns)]), np.concatenate(columns)
    lower = 0.3 * random.standard_normal((T, len(indices)))
    lower[:, indptr[:-1]] = random.uniform(1, 2, (T, n))
    phi, scale = random.uniform(0, 1, (T, 2)), random.uniform(0.5, 2, n)
    return {
        "stored": spatial.DrawTable(random.standard_normal((T, n)), phi, scale, "stored"),
        "dense": spatial.DrawTable(random.standard_normal((T, n * 3)), phi, scale, "dense", 3),
        "sparse": spatial.DrawTable(
            lower, phi, scale, "sparse", group=8, indptr=indptr, indices=indices, order=random.permutation(n)
        ),
    }


def run(a, table, steps, state=None, first=0, rates=None, dtype="f8", **options):
    parameters, moments = (a.initial(4).astype(dtype), np.zeros((2, a.n_parameters), dtype)) if state is None else state
    rates = np.linspace(1e-2, 1e-3, 12)[first : first + steps] if rates is None else rates
    weights = np.minimum(1, np.arange(first, first + steps) / 5.0)
    kind = {"kind": table.kind, "rank": table.rank, "group": table.group}
    given = (table.values, table.phi, table.scale, table.indptr, table.indices, table.order)
    fixed = {"architecture": a, "batch": 9, "gamma": 0.5, "seed": 11, "chain": 3}
    return mlp.vae_step(parameters, moments, *given, rates=rates, kl_weights=weights, first=first, **{**fixed, **kind, **options})


@pytest.mark.parametrize("backend", STEPPING)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["stored", "dense", "sparse"])
def test_steps_are_draws_and_gradients_and_adam(kind, variant, backend):
    a, table = small(variant), tables()[kind]
    found = run(a, table, 4, clip=4.0, backend=backend)
    parameters, state, clipped = a.initial(4), np.zeros((3, a.n_parameters)), 0
    for step in range(4):
        theta, entry = spatial.table_sample(
            *(table.values, table.scale, table.indptr, table.indices, table.order),
            kind=kind,
            batch=9,
            seed=11,
            chain=3,
            step=step,
            rank=table.rank,
            group=table.group,
        )
        noise = rng.normal(9 * a.n_latents, key=rng.key(11, "latents", 3), step=step).reshape(9, -1)
        gradient, terms = mlp.vae_gradient(
            parameters, theta, table.phi[entry], noise, architecture=a, gamma=0.5, kl_weight=step / 5
        )
        norm = np.linalg.norm(gradient)
        np.testing.assert_allclose(found[2][step], [*terms, norm], rtol=1e-9)
        clipped += norm > 4
        state, change = optim.adam(state, gradient * min(1, 4 / norm), learning_rate=np.linspace(1e-2, 1e-3, 12)[step])
        parameters = parameters + change
    np.testing.assert_allclose(found[0], parameters, atol=1e-9)
    np.testing.assert_allclose(found[1], state[:2], rtol=1e-7, atol=1e-9)
    assert 0 < clipped
    assert relative(run(a, table, 4, clip=0.0, backend=backend)[1], found[1]) > 1e-3  # negative control


@pytest.mark.parametrize("backend", STEPPING)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("kind", ["stored", "dense", "sparse"])
def test_a_run_that_is_resumed_is_the_same_run(kind, dtype, backend):
    a, table = small("amended"), tables()[kind]
    whole = run(a, table, 12, dtype=dtype, backend=backend)
    for pieces in ((6, 6), (1, 4, 7)):
        state, traces, first = None, [], 0
        for steps in pieces:
            *state, trace = run(a, table, steps, state, first, dtype=dtype, backend=backend)
            traces.append(trace)
            first += steps
        assert state[0].tobytes() == whole[0].tobytes()
        assert state[1].tobytes() == whole[1].tobytes()
        assert np.concatenate(traces).tobytes() == whole[2].tobytes()
    *state, _ = run(a, table, 6, dtype=dtype, backend=backend)  # negative control: numbers of steps matter
    assert run(a, table, 6, state, 0, dtype=dtype, backend=backend)[0].tobytes() != whole[0].tobytes()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_a_resumed_run_of_large_networks_may_have_other_threads(dtype):
    a = mlp.Architecture("amended", (150, 110), 2, 20, (9, 8), hidden=200, local_hidden=200)
    table, options = tables(260, 6)["sparse"], {"dtype": dtype, "batch": 40}
    whole = run(a, table, 4, **options)
    *state, _ = run(a, table, 1, **options, n_threads=2)
    assert run(a, table, 3, state, 1, **options)[0].tobytes() == whole[0].tobytes()


@pytest.mark.parametrize("backend", STEPPING)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_training_stops_before_a_step_that_is_not_finite(bad, backend):
    a, table = small("amended"), tables(T=30)["stored"]
    entries = [
        spatial.table_sample(table.values, table.scale, kind="stored", batch=9, seed=11, chain=3, step=s)[1] for s in range(12)
    ]
    fatal = next(t for t in range(30) if t not in np.concatenate(entries[:4]) and t in np.concatenate(entries))
    stop = next(s for s in range(12) if fatal in entries[s])
    good = run(a, table, stop, backend=backend)
    table.values[fatal, 3] = bad
    found = run(a, table, 12, backend=backend)
    assert stop >= 4
    np.testing.assert_array_equal(found[2][:stop], good[2])
    assert np.isnan(found[2][stop:]).all()
    assert found[0].tobytes() == good[0].tobytes()
    assert found[1].tobytes() == good[1].tobytes()


@pytest.mark.parametrize("backend", STEPPING)
def test_a_rate_far_too_large_ends_in_a_stop_and_not_in_numbers_that_are_none(backend):
    a, table = small("amended"), tables()["stored"]
    found = run(a, table, 12, rates=np.full(12, 1e100), backend=backend)
    assert np.isnan(found[2][-1]).all()
    assert np.isfinite(found[2][0]).all()
    assert np.isfinite(found[0]).all()


ERRORS = [
    ({"first": 2**32 - 2}, ValueError, r"first must be in \[0, 2\^32 - 3\]"),
    ({"rank": 2}, ValueError, "values must have 18 columns where kind is 'dense', n = 9, rank = 2, got 27"),
    ({"order": np.arange(9)}, ValueError, "order must be None where kind is 'dense'"),
    ({"rates": np.array([1e-3, -1e-3, 1e-3])}, ValueError, "rates must be >= 0 and finite"),
    ({"kl_weights": np.array([1.0, np.nan, 1.0])}, ValueError, "kl_weights must be >= 0 and finite"),
]


@pytest.mark.parametrize(("change", "error", "message"), ERRORS)
def test_errors_of_steps_say_what_was_wanted_and_what_came(change, error, message):
    a, table = small("amended"), tables()["dense"]
    call = {
        "parameters": a.initial(0),
        "moments": np.zeros((2, a.n_parameters)),
        "values": table.values,
        "phi": table.phi,
        "scale": table.scale,
        "rates": np.full(3, 1e-3),
        "kl_weights": np.ones(3),
        "architecture": a,
        "kind": "dense",
        "rank": 3,
        "batch": 4,
        "gamma": 0.5,
        "seed": 1,
    }
    mlp.vae_step(**call)
    with pytest.raises(error, match=f"mlp.vae_step: (?:{message})|{message}"):
        mlp.vae_step(**call | change)
