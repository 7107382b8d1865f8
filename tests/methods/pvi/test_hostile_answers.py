"""Messages that come once, after the rounds, with finite numbers that can be nobody's: what is done stays done.

Budgets are spent by then. A client that sends such numbers is not in what is made of them, a note says so, and the result of the
others is what it would be without it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.exchanges.answers import Certificate, LogTerms
from fedkern.algorithms.exchanges.arrival import Slope
from fedkern.algorithms.exchanges.sums import FitSums, LooSums
from fedkern.algorithms.pvi import noise_aware
from fedkern.errors import LostPeer
from fedkern.methods.pvi import publish
from fedkern.methods.pvi import run as pvi_run
from fedkern.methods.pvi.publish import Ended
from fedkern.results import loo
from fedkern.results.reweighed import reweigh
from support.interrupted import job, run

SETS = 'algorithm.posterior="noise-aware"', 'privacy.noise_source="keyed"'
EXTREMES = (0.0, -1.0, 1.0, 1e-300, 1e16, -1e16, 1e50, 1e100, 1e154, -1e154, 1e308, -1e308)
WHOLE = (0, -1, 1, 2**31, 2**62, -(2**62))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Ended]:
    """What the server of a noise-aware job has after the last round; both clients are honest."""
    kept: list[Any] = []
    path = job(tmp_path_factory.mktemp("private"), "private")
    with pytest.MonkeyPatch.context() as patched:
        fit = publish.fit
        patched.setattr(publish, "fit", lambda model, ended, test: (kept.append((model, ended)), fit(model, ended, test))[1])
        run(path, None, *SETS)
    return kept[0]


def hostile_sums(honest: noise_aware.Sums) -> Iterator[tuple[str, noise_aware.Sums]]:
    """Name -> sums with one field, or several, that are not the client's."""
    for one in fields(noise_aware.Sums):
        value = getattr(honest, one.name)
        if isinstance(value, int):
            yield from ((f"{one.name} {x}", replace(honest, **{one.name: x})) for x in WHOLE)
            continue
        for x in EXTREMES:
            yield f"{one.name} all {x:g}", replace(honest, **{one.name: np.full_like(value, x)})
            single = value.copy()
            single.flat[-1] = x
            yield f"{one.name} last {x:g}", replace(honest, **{one.name: single})
        yield f"{one.name} negative", replace(honest, **{one.name: -value})
        yield f"{one.name} large", replace(honest, **{one.name: 1e20 * value})
    d = len(honest.early_point)
    for scale in (1.0, 1e100, 1e307):
        indefinite = scale * (np.ones((d, d)) - 2 * np.eye(d))
        yield f"indefinite {scale:g}", replace(honest, points=indefinite)
        yield f"indefinite beside {scale:g}", replace(honest, points=scale * (2 * np.ones((d, d)) - np.eye(d)))
        crossed = honest.points.copy()
        crossed[0, 1] += scale
        yield f"not symmetric {scale:g}", replace(honest, points=crossed)
    for x in EXTREMES:
        everything = {one.name: np.full_like(getattr(honest, one.name), x) for one in fields(honest)[2:]}
        yield f"everything {x:g}", replace(honest, **everything)


def fitted(model: Any, ended: Ended, answers: dict[int, noise_aware.Sums]) -> Any:
    """What is published where clients answer with these."""
    server, _ = noise_aware.start([model.known(k, ended.server) for k in range(len(model.names))])
    for k, sums in answers.items():
        told = {one.name: getattr(sums, one.name) for one in fields(sums)}
        server, _ = noise_aware.server_receive(server, k, noise_aware.NoisySums(0, **told))
    assert noise_aware.finished(server) or len(answers) < len(model.names)
    return publish.fit(model, replace(ended, noisy_sums=server), None)


def test_noisy_sums_that_cannot_be_cost_only_their_client(ended: tuple[Any, Ended]) -> None:
    model, end = ended
    assert end.noisy_sums is not None
    honest = dict(end.noisy_sums.replies)
    both, alone = fitted(model, end, honest), fitted(model, end, {0: honest[0]})
    assert not any("not in the result" in note for note in both.notes)
    tried = list(hostile_sums(honest[1]))
    dropped = 0
    assert len(tried) >= 132
    for name, sums in tried:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = fitted(model, end, {0: honest[0], 1: sums})
        assert np.isfinite(found.posterior.q.mean).all(), name
        assert (found.posterior.q.sd > 0).all(), name
        notes = [note for note in found.notes if "b: not in the result, for" in note]
        dropped += len(notes)
        if notes:
            np.testing.assert_array_equal(found.posterior.q.h, alone.posterior.q.h, err_msg=name)
            np.testing.assert_array_equal(found.posterior.q.P, alone.posterior.q.P, err_msg=name)
        elif any(word in name for word in ("1e+50", "1e+100", "e+154", "e+30")):
            pytest.fail(f"{name} is taken")
    assert dropped > 132
    broken = {k: replace(sums, points=-sums.points) for k, sums in honest.items()}
    released = fitted(model, end, broken)
    assert publish.LACKING in released.notes
    assert released.verdict.converged is False
    np.testing.assert_array_equal(released.posterior.q.h, pvi_run.pvi.released(end.server).h)


@pytest.mark.parametrize(
    ("density", "squares", "taken"), [(-3.0, 1.5, True), (-3.0, 1.4, False), (-1e90, 1e100, False), (-0.05, 0.0, True)]
)
def test_squares_are_at_least_those_of_the_mean(density: float, squares: float, taken: bool) -> None:
    """(-3)^2 / 6 = 1.5; what thousandths take is allowed for."""
    sums = LooSums(0, 6, density, squares, 0.5, np.array([6.0, 0, 0, 0]))
    server, _ = LooSums.question.server_receive(LooSums.question.start(1, LooSums.ask(0))[0], 0, sums)
    assert (not server.dropped) is taken


def test_the_largest_numbers_that_are_taken_have_finite_figures() -> None:
    """Of all other answers `algorithms/test_hostile.py` says that they are not taken."""
    told = LooSums(0, 6, -1e100, 1e200, 1e100, np.array([6.0, 0, 0, 0]))
    fit = FitSums(0, 6, -1e100, 1e200, 1e100, -1e100, 1e100, 0)
    assert not told.wrong() + fit.wrong()
    theta = np.random.default_rng(0).normal(size=(60, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        content = loo.summary([told, told])
        total = FitSums.total({0: fit, 1: fit})
        assert np.isfinite([content["elpd"], content["se"], content["p_loo"], total.density**2, total.squares]).all()
        for x in (x for x in EXTREMES if abs(x) <= 1e100):
            for values in (np.full(60, x), np.where(np.arange(60) == 7, x, 0.0), np.where(np.arange(60) % 2, x, -x)):
                assert not LogTerms(0, values).wrong()
                found = reweigh(("a", "b"), theta, 2 * values)
                assert not np.isnan(found.excess).any()
                assert json.dumps(found.content)


# Whole jobs ------------------


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Any:
    """hostile(protocol's name, where, wrong): the second client's answer in this exchange is wrong(answer)."""

    def patched(module: Any, name: str, wrong: Any) -> None:
        protocol, asked = getattr(module, name), list[int]()

        def receive(state: Any, event: Any) -> Any:
            state, effects = protocol.client_receive(state, event)
            asked.append(1)
            return state, [wrong(effects[0])] if len(asked) == 2 else effects

        monkeypatch.setattr(module, name, replace(protocol, client_receive=receive))

    return patched


def huge(answer: Any) -> Any:
    return replace(answer, cross=np.full_like(answer.cross, 1e308), late_gradient=np.full_like(answer.late_gradient, -1e308))


def test_a_private_job_ends_with_the_others_and_says_who_is_not_in_it(tmp_path: Path, hostile: Any) -> None:
    path = job(tmp_path, "private")
    hostile(noise_aware, "PROTOCOL", huge)
    hostile(Certificate, "protocol", lambda answer: replace(answer, text=b"{}"))
    result = run(path, tmp_path / "out", *SETS)
    notes = "\n".join(result.summary["notes"])
    assert "b: not in the result, for its NoisySums have late gradient too large to be any" in notes
    assert "client 'b' has no certificate in this result, for its Certificate.claim is missing" in notes
    assert list(result.privacy) == ["a"]
    assert (tmp_path / "out" / "posterior.nc").exists()


def test_a_job_that_ended_there_goes_on_and_charges_nothing(
    tmp_path: Path, hostile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server dies over the answers; they are replayed from the clients' folders, and what cannot be is left out."""
    path, out = job(tmp_path, "private"), tmp_path / "out"
    with monkeypatch.context() as dying:
        dying.setattr(publish, "fit", lambda *_: (_ for _ in ()).throw(LostPeer("gone")))
        hostile(noise_aware, "PROTOCOL", huge)
        with pytest.raises(LostPeer, match="gone"):
            run(path, out, *SETS)
    budgets = sorted(out.rglob("budget.jsonl"))
    before = [budget.read_bytes() for budget in budgets]
    assert before
    result = run(path, out, *SETS, resume=True)
    assert "b: not in the result, for its NoisySums" in "\n".join(result.summary["notes"])
    assert [budget.read_bytes().count(b"\n") for budget in budgets] == [text.count(b"\n") for text in before]
    assert (out / "posterior.nc").exists()


def test_an_open_job_keeps_its_result(tmp_path: Path, hostile: Any) -> None:
    path = job(tmp_path, "pvi")
    honest = run(path, None)
    hostile(Slope, "protocol", lambda answer: replace(answer, gradient=np.full_like(answer.gradient, 1e308)))
    result = run(path, None)
    assert result.digest == honest.digest
    assert "client 'b' is not in it, for its gradient or its X'WX is none that rows can have" in result.summary["verdict"]
