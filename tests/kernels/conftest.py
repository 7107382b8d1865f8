"""What tests of kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import emulated


@pytest.fixture(autouse=True)
def emulator(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the place of a card, where a test is about the cuda backend."""
    if getattr(request.node, "callspec", None) is None or request.node.callspec.params.get("backend") != "cuda":
        yield
        return
    with emulated.instead_of_a_card(emulated.Emulator(emulated.built(emulated.FOLDER))):
        yield
