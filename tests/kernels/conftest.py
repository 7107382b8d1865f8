"""What tests of kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import emulated

# They equal the reference, which the conformance test holds at every push: the truth of a formula is shown on them at night.
AT_NIGHT = ("numba", "cuda")


@pytest.hookimpl(tryfirst=True)  # before the tests of the night are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        of, _, test = item.nodeid.removeprefix("tests/").partition("::")
        backend = getattr(item, "callspec", None) and item.callspec.params.get("backend")  # type: ignore[attr-defined]
        if of.startswith("kernels/") and "conform" not in test and backend in AT_NIGHT:
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(autouse=True)
def emulator(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the place of a card, where a test is about the cuda backend."""
    if getattr(request.node, "callspec", None) is None or request.node.callspec.params.get("backend") != "cuda":
        yield
        return
    with emulated.instead_of_a_card(emulated.Emulator(emulated.built(emulated.FOLDER))):
        yield
