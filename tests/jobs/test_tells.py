"""What messages tell, as `fedkern check` says it: every one that a client sends says it, and a job's line is that of its own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from fedkern.algorithms.core.masked import Sum
from fedkern.algorithms.core.messages import KINDS, Message, Protocol
from fedkern.algorithms.core.tells import FEW_OR_FULL, Draw
from fedkern.algorithms.soul import Predicted
from fedkern.api import check_job, perform
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.disclosure.describe import COMBINATIONS, tells
from fedkern.disclosure.rules import LEAST_ROWS
from fedkern.errors import JobError
from fedkern.jobs.run import Output
from fedkern.jobs.wire import ALSO
from fedkern.methods import METHODS, load, load_method
from fedkern.models.encoding import Spec
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import InProcess
from support import input_cases
from support.declared import DECLARED, MODULES, QUESTIONS
from support.refusal import refusal

ANY = ("rows_per_coefficient=0", "rows_per_value=0", "combinations=0", "leverage=1", "groups=0")
OF_MODULES = [value for module in MODULES for value in vars(module).values()]
PROTOCOLS = {id(one): one for one in (*OF_MODULES, *(kind.protocol for kind in QUESTIONS)) if isinstance(one, Protocol)}.values()
OURS = [kind for kind in KINDS.values() if kind.__module__.startswith("fedkern.")]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_a_message_says_what_it_tells_where_a_client_sends_it(kind: type[Message]) -> None:
    begin = (kind.__doc__ or "").partition(" to ")[0]
    assert begin in ("Client", "Server"), "the document of a message begins with who sends it"
    assert (kind.tells is not None) == (begin == "Client"), f"{kind.__name__}: give it a class of core.tells, or none"
    if kind.tells is not None:
        assert kind.tells.what or kind.tells.private
        assert kind.tells.computed or not kind.tells.where


def test_every_protocol_s_messages_are_a_method_s() -> None:
    """What no method lists could be sent without a line of the page."""
    listed = {kind for method in METHODS for kind in load_method(method).stages.MAY_SEND} | {*ALSO["to_server"]}
    assert listed == {kind for kind in OURS if kind.tells is not None}
    assert len(PROTOCOLS) > 15
    for protocol in PROTOCOLS:
        assert {*protocol.to_server} <= listed, protocol.name
        assert all(kind.tells is None for kind in protocol.to_client), protocol.name


def test_a_message_that_does_not_say_it_is_in_no_protocol() -> None:
    class Silent(Message, kind=991):
        """Client to server."""

        values: Annotated[np.ndarray[Any, Any], "d"]

    del KINDS[991]
    protocol = next(one for one in PROTOCOLS if one.to_server)
    with refusal(TypeError, "Silent"):
        replace(protocol, to_server=(*protocol.to_server, Silent))
    Silent.tells = Draw()
    assert Silent in replace(protocol, to_server=(*protocol.to_server, Silent)).to_server
    assert tells(Silent, Spec("y")).what == "a draw"


TUPLES = [value for value in (*OF_MODULES, *(kind.hidden for kind in DECLARED)) if isinstance(value, tuple)]
SUMS = {one.kind: one for every in TUPLES for one in every if isinstance(one, Sum) and issubclass(one.kind, Message)}.values()


@pytest.mark.parametrize("one", SUMS, ids=lambda one: one.kind.__name__)
def test_a_masked_message_tells_what_the_sum_of_all_does(one: Sum) -> None:
    plain, masked = one.kind.tells, one.masked.tells
    assert plain is not None
    assert masked is not None
    assert (masked.what, masked.computed) == (plain.masked.what, plain.masked.computed)
    assert masked.where in (plain.where, FEW_OR_FULL)


def said(path: Path, *sets: str) -> str:
    return "\n".join(check_job(InProcess(), *load(path, sets=sets)) or [])


def computed(path: Path, *sets: str) -> str:
    (line,) = (line for line in said(path, *sets).splitlines() if line.startswith("computed  "))
    return line


def federation(folder: Path, method: str) -> Path:
    """A job at the strict level, where it has one, of which a test sets the number of rows."""
    path = folder / input_cases.METHODS[method](folder).job
    if method in ("pvi", "sparse", "vertical"):
        path.write_text(f'{path.read_text("utf-8")}\n[disclosure]\nlevel = "strict"\n', "utf-8")
    return path


def of_rows(n: int) -> tuple[str, ...]:
    """Of clients of n rows, of which nothing else is asked."""
    return tuple(f"disclosure.{one}" for one in (f"rows={n}", *ANY))


@pytest.mark.usefixtures("_here")
class TestTheLine:
    @pytest.fixture
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_of_few_rows(self, tmp_path: Path) -> None:
        path, each = federation(tmp_path, "pvi"), "disclosure.rows_per_coefficient=2"
        told = computed(path, each)
        assert COMBINATIONS in told
        linear = computed(path, "model.family=gaussian", each)
        assert "combinations" not in linear
        assert "of every client: by second moments of its columns, response included, how many rows have a value of" in linear
        assert "rows and labels (" not in told, "of as many rows as are asked for"
        told = computed(path, *of_rows(3))
        assert "its rows and labels (SiteDelta)" in told
        assert "each column's values (SchemaReply)" not in told
        told = computed(path, *of_rows(1))
        assert all(words in told for words in ("each column's values (SchemaReply)", "its response (LevelSums)"))

    def test_of_a_full_covariance(self, tmp_path: Path) -> None:
        """With no more rows than coefficients the first sites are all rows, however many these are: such a client is no part of a
        job that does not lower its least number of rows."""
        columns = ", ".join(f"x{j}" for j in range(LEAST_ROWS)).replace(" ", "")
        for k, name in enumerate("ab"):
            cells = np.random.default_rng(k).normal(size=(LEAST_ROWS, LEAST_ROWS))
            rows = [f"{','.join(f'{x:.3f}' for x in row)},{i % 2}" for i, row in enumerate(cells)]
            (tmp_path / f"{name}.csv").write_text("\n".join([f"{columns},y", *rows]) + "\n")
        path = tmp_path / "job.toml"
        path.write_text('[data]\nclients = ["a.csv", "b.csv"]\nresponse = "y"\n[disclosure]\nlevel = "strict"\n')
        for full in ("model.covariance=full", "model.covariance=auto"):
            with refusal(JobError, "a", "disclosure.rows_per_coefficient"):
                computed(path, full)
            few = computed(path, full, *of_rows(19))
            assert "its rows and labels (SiteDelta)" in few
            assert "(Slope)" in few
        with refusal(JobError, "a", "disclosure.rows_per_coefficient"):
            computed(path, "model.covariance=diagonal")

    def test_of_noise(self, tmp_path: Path) -> None:
        path = federation(tmp_path, "private")
        assert "computed  keyed noise bounds nothing" in said(path)
        text = said(path, "privacy.noise_source=secure")
        assert "noised sums, charged to its budget" in text
        assert "computed  epsilon and delta bound what this job tells anybody of one row" in text
        assert not any(words in text for words in ("function of its likelihood", "sum over", "a draw"))
        path.write_text(path.read_text("utf-8").replace("sampling_rate = 0.5", 'unit = "client"'), "utf-8")
        text = said(path, "privacy.noise_source=secure")
        assert "a function of its likelihood; the server, which is trusted, adds the noise" in text
        assert "tells anybody but the server of a whole client" in text
        assert "the server, which is trusted, computes: its rows and labels (SiteDelta)" in text

    @pytest.mark.parametrize(
        ("method", "sets"),
        [
            ("pvi", ("algorithm.batch=0.5", "algorithm.optimiser=adam", *of_rows(3))),
            ("sparse", ("model.family=bernoulli", "algorithm.random_source=keyed")),
        ],
    )
    def test_what_is_said_first_is_not_taken_back(self, tmp_path: Path, method: str, sets: tuple[str, ...]) -> None:
        """Of a job that tells rows by its choices, at any number of rows."""
        text = said(federation(tmp_path, method), *sets)
        assert "ROWS     " in text
        (line,) = (line for line in text.splitlines() if line.startswith("computed  "))
        assert re.search("else a server[^:]*: of every client: what ROWS, first of all lines, says; ", line)
        assert "no row in any way" not in line


def test_what_a_soul_client_sends_spans_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/concepts/disclosure.md: of two columns the matrix of all that was sent has rank two, with nothing in its way."""
    path = simulate("vertical", tmp_path / "job", Settings(clients=2, rows=60, columns=2))
    heard: dict[int, list[Any]] = {}
    decode = Codec.decode

    def noted(codec: Codec, *given: Any) -> tuple[int, Message]:
        client, message = decode(codec, *given)
        if isinstance(message, Predicted):
            heard.setdefault(client, []).append(message.g.copy())
        return client, message

    monkeypatch.setattr(Codec, "decode", noted)
    path.write_text(re.sub("auxiliary = .*", 'inference = "soul"', path.read_text()))
    perform(InProcess(), *load(path, sets=["job.rounds=30"]), Output(tmp_path / "out", quiet=True))
    assert heard.keys() == {0, 1}
    for sent in heard.values():
        singular = np.linalg.svd(np.array(sent), compute_uv=False)
        assert (singular > 1e-9 * singular[0]).sum() == 2
