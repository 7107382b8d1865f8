"""What ends a run before its first row is sent ends `fedkern check` too, with the same sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedkern.api import check_job, perform
from fedkern.errors import FedkernError
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support.two_clients import TwoClients

PVI, SPARSE = "pvi, open", "sparse"
VERTICAL, PRIVATE = "vertical, open", "vertical, private"


def faults(path: Path, *sets: str) -> tuple[str, str]:
    """What check says, and what run says."""
    config, folder = load(path, sets)
    texts = []
    for command in (
        lambda: check_job(InProcess(), config, folder),
        lambda: perform(InProcess(), config, folder, Output(quiet=True)),
    ):
        with pytest.raises(FedkernError) as caught:
            command()
        assert caught.value.exit_code == 2
        texts.append(str(caught.value))
    return texts[0], texts[1]


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        (VERTICAL, "algorithm.batch_size=500", "algorithm.batch_size = 500: there are 40 training rows; lower it"),
        (VERTICAL, 'data.response="nope"', "the server's file: column 'nope' (data.server) is missing"),
        (VERTICAL, 'data.server="nope.csv"', "data.server: "),
        (PVI, 'data.test="nope.csv"', "no such file where the server runs; correct the path"),
        (PVI, 'data.response="x"', "column 'x'"),
        (PVI, 'data.positive="maybe"', "column 'y' has other labels than a response may have, and positive = 'maybe'"),
        (SPARSE, "model.family=bernoulli data.response=x", "column 'x'"),
    ],
)
def test_both_refuse(tmp_path: Path, kind: str, key: str, text: str) -> None:
    check, run = faults(TwoClients(tmp_path).job(kind), *key.split())
    assert check == run
    assert text in check


@pytest.mark.parametrize("kind", [PVI, SPARSE])
def test_a_file_that_is_only_a_header(tmp_path: Path, kind: str) -> None:
    path = TwoClients(tmp_path).job(kind)
    (tmp_path / "data" / "b.csv").write_text("id,x,y\n")
    check, run = faults(path)
    assert check == run
    assert "client 'b', b.csv: no rows; remove the client from [data] clients, or give it data" in check
    path.write_text(f'{path.read_text()}\n[disclosure]\nlevel = "strict"\n')
    check, run = faults(path)
    assert check == run
    assert "client 'b': refused by disclosure.rows;" in check


def test_rows_without_a_response_in_a_private_job(tmp_path: Path) -> None:
    path = TwoClients(tmp_path).job(PRIVATE)
    server = tmp_path / "server.csv"
    server.write_text(server.read_text().replace("\n7,1\n", "\n7,\n"))
    check, run = faults(path)
    assert check == run
    assert "data.server: 1 rows have no response, and predictions would leave a client without noise" in check


def test_no_party_has_the_response(tmp_path: Path) -> None:
    path = TwoClients(tmp_path).job(VERTICAL)
    path.write_text(path.read_text().replace('server = "server.csv"\n', ""))
    check, run = faults(path)
    assert check == run
    assert "data.server is missing, and no client has a column 'y'" in check
