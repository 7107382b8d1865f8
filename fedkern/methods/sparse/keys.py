"""The job file's sections where method = "sparse". Source: docs/methods/sparse.md, sections 1, 5-7, 9-11."""

from __future__ import annotations

from typing import Literal

from ...jobs.section import CommonOutputSection, Count, Positive, Section, key
from ...kernels import families


class SparseModelSection(Section):
    kind: Literal["regression", "mrf", "sem"] = key(
        "regression", help="Markov random field, structural equations, or a regression"
    )
    family: families.OfSparse = key("gaussian", help="of a regression's response")
    intercept: bool = key(True, help="of every client, integrated out (bernoulli: drawn)")
    scale: Literal["pooled", "given", "none"] = key("pooled", help="columns by pooled moments, by [data.columns], or not at all")
    always: list[str] = key([], help="regression: columns that are always included (adjusters)")
    c0: float | None = key(None, gt=0, lt=1, help="variance of the spike over that of the slab; default 0.01")
    negligible: Positive | None = key(None, help="instead of c0: effects below this (standardised) belong to the spike")
    eta: Literal["common", "coordinate"] = key("common", help="one slab variance, or one for each coefficient")
    a_eta: Positive = key(2.0, help="eta ~ IG(a_eta, b_eta)")
    b_eta: Positive = key(1.0, help="see a_eta")
    a_rho: Positive = key(1.0, help="share of included coefficients, rho ~ Beta(a_rho, b_rho)")
    b_rho: Positive = key(1.0, help="see a_rho")
    a_sigma: Positive = key(2.0, help="error variance of a client, IG(a_sigma, b_sigma); of sem: of its Laplace scales")
    b_sigma: Positive = key(1.0, help="see a_sigma")
    s_lambda: Positive = key(1.0, help="scale of the half-Cauchy prior of a client's own deviations")
    s_tau: Positive = key(1.0, help="scale of the half-Cauchy prior of all clients' deviations")
    rho: Literal["own", "shared"] = key("own", help="mrf: of each regression, or one for all")
    slab: Positive | None = key(
        None, help="regularised horseshoe: largest deviations are about this large (Nishimura and Suchard)"
    )
    missing: Literal["refuse", "impute"] = key("refuse", help="empty cells of a covariate: a fault, or drawn by the model")
    splines: dict[str, list[float]] = key({}, help="regression: column -> at least 3 knots of a natural cubic spline, data scale")
    stable: bool = key(False, help="sem: only graphs with spectral radius below 1")


class UntilSection(Section):
    """When a sampler may stop before its last round."""

    ess: Positive = key(1000.0, help="effective draws of the slowest quantity")
    rhat: float = key(1.01, gt=1, help="largest rank-normalised R-hat")
    max_rounds: Count = key(20000, help="rounds after which it stops anyway")


class SparseAlgorithmSection(Section):
    chains: Count = key(4, help="independent chains; they share all messages")
    burn_in: int = key(ge=0, help="rounds that are not kept; part of job.rounds; default a fifth of them, at most 500")
    thin: Count = key(1, help="every how many rounds a draw is kept")
    until: UntilSection | None = key(None, help="stop when converged")
    local_sweeps: Count = key(1, help="sweeps of a client in a round")
    server_sweeps: Count = key(help="of the server in a round; 5, or 1 with sums or expanded scales")
    scales: Literal["exact", "expanded"] = key("exact", help="draws of the horseshoe's scales, without or with auxiliaries")
    draw: Literal["auto", "gram", "data"] = key("auto", help="of a client's coefficients: from the Gram matrix, or from rows")
    sweep: Literal["blocked", "printed"] = key("blocked", help="indicator and coefficient together, or in the order of the paper")
    moves: list[Literal["translate", "interweave"]] = key([], max_length=1, help="one, at the server; discloses second moments")
    block: Count | None = key(None, help="interweaving: coordinates that are drawn at once; default all")
    participation: float = key(1.0, gt=0, le=1, help="probability that a client takes part in a round")
    aggregate: Literal["locals", "sums"] = key("locals", help="what a client sends: its coefficients, or sums to be added")
    statistics: Literal["local", "pooled"] = key("local", help="pooled: clients send their sufficient statistics, once")
    topology: Literal["server", "allgather"] = key("server", help="allgather: no server; all clients see all messages")
    share_local: bool = key(False, help="the server keeps the clients' own coefficients")
    on_loss: Literal["stop", "drop"] = key("stop", help="of a client: stop, or go on as the model without it")
    update: Literal["auto", "row-gibbs", "row", "element"] = key("auto", help="sem: of the coefficients")
    tempering: Count = key(1, help="sem: chains of a ladder of temperatures; those at temperature 1 count")
    swap: bool = key(True, help="sem: moves between modes that permute equations")
    checkpoint_every: Positive = key(60.0, help="seconds between checkpoints")


class SparseOutputSection(CommonOutputSection):
    metrics_every: Count = key(50, help="rounds between two lines of metrics.jsonl")
    fdr: float = key(0.1, gt=0, lt=1, help="level of the Bayesian false discovery rate")
    delta: Positive = key(0.2, help="a client deviates if its coefficient differs by more, in standardised units")
    largest: Count = key(2000, help="coefficients above which only streaming moments are kept")
    sensitivity: bool = key(False, help="the table of PIPs under other priors: six more runs")
    leave_one_out: bool = key(False, help="the effects without each client: as many more runs")
    site_fits: bool = key(False, help="each client also sends least-squares estimates and errors, for a meta-analysis")
