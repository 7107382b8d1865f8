"""The note on a built prior's error says numbers that differ, and why no more latents were taken."""

from __future__ import annotations

from fedkern.methods.sigma.prior.build import _of_error


def test_the_numbers_differ_and_the_reason_is_the_one_that_holds() -> None:
    said = _of_error(19, 40, 0.050012, 0.05)
    assert "off by 0.05001 of what independent areas have, and within.error asks for 0.05 at most" in said
    assert "within.latents" in said
    assert "1,500 are ever taken" in _of_error(1500, 4000, 0.2, 0.05)
    assert "there are 19 areas on borders" in _of_error(19, 19, 0.2, 0.05)
