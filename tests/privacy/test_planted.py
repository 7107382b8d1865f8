"""Planted faults of privacy, and for each the test of the suite that notices it.

A fault is a few lines that change the package while it runs. The named test, which stands elsewhere and knows nothing of the
fault, must pass without it and fail with it. (`test_neighbours` and `test_vertical_release` plant more, beside their own tests.)
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core.messages import Charge, Charged
from fedkern.algorithms.pvi import client_level, local
from fedkern.algorithms.pvi import machine as pvi_client
from fedkern.algorithms.split import private as private_split
from fedkern.jobs.holding import budget
from fedkern.jobs.holding.budget import Decision, Holder
from fedkern.jobs.outbox import Outbox
from fedkern.methods.pvi import run as pvi_run
from fedkern.privacy import accountant, noise
from fedkern.privacy.accountant import GRID, Mechanism
from fedkern.privacy.noise import SecureSource
from fedkern.transports.driver import ClientSide, Received

TESTS = Path(__file__).parents[1]


# --- the ten of the audit


def noise_halved(patch):
    real = SecureSource.add_noise
    patch.setattr(SecureSource, "add_noise", lambda self, total, sigma, step=0: real(self, total, sigma / 2, step))


def noise_once_per_job(patch):
    """What was drawn first is added at every step."""
    real, drawn = SecureSource.add_noise, {}

    def add_noise(self, total, sigma, step=0):
        first = drawn.setdefault((id(self), len(total)), real(self, np.zeros_like(total), sigma, step))
        return total + first

    patch.setattr(SecureSource, "add_noise", add_noise)


def sampling_at_twice_the_rate(patch):
    real = SecureSource.coins
    patch.setattr(SecureSource, "coins", lambda self, n, threshold, step=0: real(self, n, min(2 * threshold, 2**32), step))


def clip_after_the_sum(patch):
    def change(real, X, y, mu, omega, k):
        total, skipped = real(X, y, mu, omega, **(k | {"clip": 1e3}))
        norm = np.linalg.norm(total * k["grid"])
        return np.trunc(total * min(1, k["clip"] / max(norm, 1e-300))).astype(np.int64), skipped

    of_rows(patch, change)


def charge_after_the_read(patch):
    """The driver lets the machine work, and asks the budget before it sends."""

    def ask(self, client, question):
        state, effects = self.protocol.client_receive(self.clients[client], question)
        owed = [effect for effect in effects if isinstance(effect, Charge)]
        messages = [effect for effect in effects if not isinstance(effect, Charge)]
        for charge in owed:
            state, more = self.protocol.client_receive(state, Charged(charge.steps))
            messages += more
        self.clients[client] = state
        charged = sum(self.hooks.charge(client, charge).steps for charge in owed)
        return messages or [Received()], charged

    patch.setattr(ClientSide, "_ask", ask)


def key_stream_reused_after_resume(patch):
    """A client's keys are its own, but they begin with the first again when it is started again."""
    real, made = SecureSource.__init__, itertools.count()

    def init(self):
        self.client, self.keys = next(made) % 3, itertools.count()
        real(self)

    patch.setattr(SecureSource, "__init__", init)
    keyed_by(patch, lambda source: (source.client, next(source.keys)))


def noise_cut_at_3_sd(patch):
    real = SecureSource.add_noise

    def add_noise(self, total, sigma, step=0):
        return total + np.clip(real(self, np.zeros_like(total), sigma, step), -3 * sigma / GRID, 3 * sigma / GRID)

    patch.setattr(SecureSource, "add_noise", add_noise)


def accountant_told_another_sampler(patch):
    """Batches of a fixed size are accounted as if every row had its own coin, as in the public code of two papers."""
    real = accountant.nominal_epsilon

    def told(m):
        if m.sampling != "without-replacement":
            return m
        return replace(m, sampling="poisson", sampling_rate=m.rate, batch_size=None, dataset_size=None, accountant="pld")

    patch.setattr(accountant, "nominal_epsilon", lambda parts, delta: real(tuple((told(m), n) for m, n in parts), delta))


def batch_size_in_a_message(patch):
    """`version` of a SiteDelta counts the rows of the last batch."""
    real_draw, real_delta, size = Mechanism.draw, pvi_client.SiteDelta, [0]

    def draw(self, source, n_rows, step):
        rows = real_draw(self, source, n_rows, step)
        size[0] = len(rows)
        return rows

    patch.setattr(Mechanism, "draw", draw)
    patch.setattr(pvi_client, "SiteDelta", lambda round, version, *rest: real_delta(round, version + size[0], *rest))


def budget_without_its_lock(patch):
    patch.setattr(budget.fcntl, "flock", lambda *arguments: None)


# --- fourteen more


def all_rows_summed(patch):
    """The batch is drawn and accounted, and then all rows are summed."""
    of_rows(patch, lambda real, X, y, mu, omega, k: real(X, y, mu, omega, **(k | {"rows": None})))


def clients_clipped_by_their_largest_number(patch):
    def clipped(change, mechanism):
        with np.errstate(over="ignore"):
            largest = np.abs(change).max()
        if not np.isfinite(largest):
            return np.zeros(len(change), np.int64), 0.0
        factor = min(1.0, mechanism.clip * (1 - 1e-9) / largest) if largest else 1.0
        return np.trunc(change * (factor / mechanism.grid)).astype(np.int64), factor

    patch.setattr(client_level, "clipped", clipped)


def rounded_away_from_zero(patch):
    def change(real, X, y, mu, omega, k):
        total = 0
        for row in range(len(X)) if k["rows"] is None else k["rows"].tolist():
            fine, _ = real(X, y, mu, omega, **(k | {"rows": np.array([row]), "grid": k["grid"] / 2**10}))
            total += np.sign(fine) * -(-np.abs(fine) // 2**10)
        return total + np.zeros(2 * len(mu), np.int64), 0

    of_rows(patch, change)


def an_empty_batch_gets_no_noise(patch):
    """A step without rows has nothing to hide."""
    real_draw, real_release, size = Mechanism.draw, Mechanism.release, [0]

    def draw(self, source, n_rows, step):
        rows = real_draw(self, source, n_rows, step)
        size[0] = len(rows)
        return rows

    def release(self, source, total, step):
        return real_release(self, source, total, step) if size[0] else np.zeros(len(total))

    patch.setattr(Mechanism, "draw", draw)
    patch.setattr(Mechanism, "release", release)


def one_subset_for_all_steps(patch):
    real, kept = SecureSource.subset, {}
    patch.setattr(
        SecureSource, "subset", lambda self, n, size, step=0: kept.setdefault((id(self), n, size), real(self, n, size, step))
    )


def clients_share_one_key_stream(patch):
    real = SecureSource.__init__

    def init(self):
        self.keys = itertools.count()
        real(self)

    patch.setattr(SecureSource, "__init__", init)
    keyed_by(patch, lambda source: next(source.keys))


def momentum_of_unclipped_gradients(patch):
    """The step follows the noisy sum and, a little, the mean of what the sums were before the clip."""
    real = local._private_sums

    def sums(own, mechanism, fixed):
        silent = replace(own, settings=replace(own.settings, by_client=True))  # gradients that are not finite do not end it
        private, plain, momentum = real(own, mechanism, fixed), local._open_sums(silent, fixed), [0.0]

        def gradient(mu, omega, step):
            momentum[0] = 0.9 * momentum[0] + 0.1 * plain(mu, omega, step)
            return private(mu, omega, step) + 0.01 * momentum[0]

        return gradient

    patch.setattr(local, "_private_sums", sums)


def charge_written_after_the_message(patch):
    """Every charge is granted at once, and written with the next one."""
    real, owed = Holder.charge, {}

    def charge(self, asked):
        if self in owed:
            real(self, owed.pop(self))
        owed[self] = asked
        return Decision(asked.steps, self.spent, self.allowed)

    patch.setattr(Holder, "charge", charge)


def noise_drawn_again_after_a_crash(patch):
    """A question that was answered before the crash is answered anew."""
    patch.setattr(Outbox, "recall", lambda self, question: None)


def certificate_of_the_job_file(patch):
    """The account is that of the job file, and the machine runs with half of its noise."""
    real = pvi_run.Local

    def made(*arguments, mechanism=None, **words):
        ran = None if mechanism is None else replace(mechanism, noise_multiplier=mechanism.sigma / 2)
        return real(*arguments, mechanism=ran, **words)

    patch.setattr(pvi_run, "Local", made)


def keyed_noise_called_secure(patch):
    patch.setattr(Mechanism, "epsilon", Mechanism.nominal_epsilon)
    real = budget.certificate
    patch.setattr(budget, "certificate", lambda mechanism, **words: real(replace(mechanism, secure=True), **words))


def clients_of_one_round_kept_for_all(patch):
    real, kept = Mechanism.draw, {}
    patch.setattr(Mechanism, "draw", lambda self, source, n, step: kept.setdefault((id(source), n), real(self, source, n, step)))


def theta_learns_the_exact_sum(patch):
    """A vertical client's noisy sum is charged and released, and q(theta) moves by the exact one."""
    real = private_split.Release.gradient

    def gradient(self, rows, step):
        real(self, rows, step)
        return rows.sum(axis=0)

    patch.setattr(private_split.Release, "gradient", gradient)


def earlier_jobs_forgotten(patch):
    """The holder's cap holds for each job, and not for all together."""
    real = budget.max_steps
    patch.setattr(budget, "max_steps", lambda mechanism, epsilon, delta, earlier=(), **k: real(mechanism, epsilon, delta, **k))


# --- what faults are made of


def of_rows(patch, change):
    """The sum over rows of a private step, changed."""
    real = local.glm.bind_clipped_grad_sum

    def bind(X, y, mu, omega, **k):
        def sums(mu, omega, rows, step):
            total, skipped = change(local.glm.clipped_grad_sum, X, y, mu, omega, k | {"rows": rows, "step": step})
            return total, skipped

        return real(X, y, mu, omega, **k) if k.get("grid") is None else sums

    patch.setattr(local.glm, "bind_clipped_grad_sum", bind)


def keyed_by(patch, name):
    """Keys that are a function of what `name` says of a source."""
    real_chacha20, real_urandom = noise._chacha20, noise.os.urandom

    def rekey(self):
        key = sha256(repr(name(self)).encode()).digest()
        patch.setattr(noise.os, "urandom", lambda n: key)
        self._stream, self._at = real_chacha20(), noise.CHUNK
        patch.setattr(noise.os, "urandom", real_urandom)

    patch.setattr(SecureSource, "rekey", rekey)


# --- the table


@dataclass(frozen=True)
class Planted:
    """A fault, the test that notices it (file and function), and the parameters with which this test is called."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    test: str
    parameters: Callable[[], dict[str, Any]] = dict


AUDIT, BUDGET, DRAWS, NEIGHBOURS, TRANSCRIPTS = (
    f"{folder}/test_{name}.py::"
    for folder, name in (
        ("privacy", "audit"),
        ("jobs", "budget"),
        ("privacy", "draws"),
        ("privacy", "neighbours"),
        ("privacy", "transcripts"),
    )
)
FAULTS = (
    Planted("noise halved", noise_halved, NEIGHBOURS + "check_noise_scale"),
    Planted("noise once per job", noise_once_per_job, NEIGHBOURS + "check_transcript"),
    Planted("sampling at twice the rate", sampling_at_twice_the_rate, NEIGHBOURS + "check_sampler"),
    Planted("clip after the sum", clip_after_the_sum, NEIGHBOURS + "check_sensitivity"),
    Planted("charge after the read", charge_after_the_read, TRANSCRIPTS + "test_rows_are_read_after_the_charge"),
    Planted("key stream reused after resume", key_stream_reused_after_resume, TRANSCRIPTS + "test_no_noise_comes_twice"),
    Planted("discrete noise cut at 3 sd", noise_cut_at_3_sd, "statistics/test_noise.py::test_tails", lambda: {"secure": True}),
    Planted("accountant told another sampler", accountant_told_another_sampler, AUDIT + "test_no_step_is_sold_below_its_price"),
    Planted("batch size in a message", batch_size_in_a_message, TRANSCRIPTS + "test_messages_are_functions_of_the_releases"),
    Planted("budget without its lock", budget_without_its_lock, BUDGET + "test_a_charge_waits_while_another_is_decided"),
    Planted(
        "all rows summed",
        all_rows_summed,
        DRAWS + "test_the_rows_that_are_summed_are_those_that_were_drawn",
        lambda: {"sampling": "poisson", "n": 2**14 + 1},
    ),
    Planted(
        "clients clipped by their largest number",
        clients_clipped_by_their_largest_number,
        "algorithms/test_private.py::test_one_client_moves_the_released_sum_by_at_most_the_clip",
    ),
    Planted("rounded away from zero", rounded_away_from_zero, NEIGHBOURS + "check_sensitivity"),
    Planted(
        "no noise on an empty batch", an_empty_batch_gets_no_noise, TRANSCRIPTS + "test_messages_are_functions_of_the_releases"
    ),
    Planted(
        "one subset for all steps",
        one_subset_for_all_steps,
        "privacy/test_accountant.py::test_subsets_are_uniform",
        lambda: {"source": SecureSource()},
    ),
    Planted("clients share one key stream", clients_share_one_key_stream, TRANSCRIPTS + "test_no_noise_comes_twice"),
    Planted(
        "momentum of unclipped gradients",
        momentum_of_unclipped_gradients,
        TRANSCRIPTS + "test_messages_are_functions_of_the_releases",
    ),
    Planted(
        "charge written after the message",
        charge_written_after_the_message,
        TRANSCRIPTS + "test_what_leaves_is_on_the_disk_before",
    ),
    Planted(
        "noise drawn again after a crash",
        noise_drawn_again_after_a_crash,
        TRANSCRIPTS + "test_a_resumed_job_sends_again_what_it_had_sent",
    ),
    Planted(
        "certificate of the job file, not of what ran",
        certificate_of_the_job_file,
        AUDIT + "test_a_whole_job_keeps_its_claim",
        lambda: {"clients": 400, "power": 0.3},
    ),
    Planted("keyed noise called secure", keyed_noise_called_secure, BUDGET + "test_keyed_noise_makes_no_claim"),
    Planted(
        "clients of one round kept for all",
        clients_of_one_round_kept_for_all,
        DRAWS + "test_the_clients_of_every_round_are_drawn_anew",
    ),
    Planted(
        "theta learns the exact sum",
        theta_learns_the_exact_sum,
        "privacy/test_vertical_release.py::test_one_row_moves_its_own_z_and_each_sum_by_at_most_two_clips",
        lambda: {"options": {}},
    ),
    Planted("earlier jobs forgotten", earlier_jobs_forgotten, BUDGET + "test_the_smaller_cap_holds_and_outlives_the_job"),
)


@lru_cache
def module(path: str) -> ModuleType:
    spec = spec_from_file_location("planted_" + Path(path).stem, TESTS / path)
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    sys.modules[spec.name] = loaded  # where its dataclasses look for it
    spec.loader.exec_module(loaded)
    return loaded


def no_fault(patch: pytest.MonkeyPatch) -> None:
    """The package as it is."""


@lru_cache
def outcome(plant: Callable[[pytest.MonkeyPatch], None], test: str, parameters: Callable[[], dict[str, Any]]) -> str:
    """What a named test says: "passed", or its assertion."""
    path, _, name = test.partition("::")
    function = getattr(module(path), name)
    with pytest.MonkeyPatch.context() as fault, pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        offered = {"tmp_path": Path(folder), "monkeypatch": patch, **parameters()}
        plant(fault)
        try:
            function(**{name: value for name, value in offered.items() if name in inspect.signature(function).parameters})
        except (AssertionError, pytest.fail.Exception) as failure:  # another exception would be the plant's own
            return str(failure).strip().partition("\n")[0] or "an assertion failed"
    return "passed"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_noticed(fault):
    assert outcome(no_fault, fault.test, fault.parameters) == "passed"
    assert outcome(fault.plant, fault.test, fault.parameters) != "passed"


def test_all_are_noticed():
    caught = [outcome(fault.plant, fault.test, fault.parameters) for fault in FAULTS]
    for fault, said in zip(FAULTS, caught):
        print(f"{fault.name}: {fault.test}: {said}")
    n = len(FAULTS) - caught.count("passed")
    print(f"{n} of {len(FAULTS)} planted privacy faults caught")
    assert n == len(FAULTS) == 24
