"""A run exchanges what `fedkern check` lists, and nothing else: a method that tries is stopped before a byte leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedkern.algorithms.exchanges import response
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.jobs import engine
from fedkern.jobs.run import Output, Part, Run
from fedkern.jobs.stage import Stage
from fedkern.methods import load, load_method
from fedkern.methods.pvi.model import Model
from fedkern.methods.pvi.stages import trained
from fedkern.transports.inprocess import InProcess


def performed(folder: Path, changed: Any) -> None:
    """A small job of a method whose `run` is another."""
    config, place = load(simulate("logistic", folder / "job", Settings(clients=2, rows=20, columns=2)))
    method = load_method("pvi")._replace(run=SimpleNamespace(fit=changed))  # type: ignore[arg-type]
    engine.perform(method, Part(InProcess(), config, place), Output(folder / "out", quiet=True))


def sent(folder: Path) -> list[str]:
    return [line for path in (folder / "out" / "ledger").glob("client-*.jsonl") for line in path.read_text().splitlines()]


def agreed(run: Run[Any]) -> tuple[Run[Any], Model]:
    model = Model(run.config, run.names, run.agreed(run.tables()))
    return run, model


def responses(run: Run[Any], stage: Stage) -> None:
    run.exchange(stage, lambda: response.start(0), {k: response.Client(run.names[k], None) for k in run.mine})


def test_another_exchange_is_refused(tmp_path: Path) -> None:
    def fit(run: Run[Any]) -> None:
        responses(run, Stage(response.PROTOCOL, {"n": 20}))

    with pytest.raises(RuntimeError, match="response: `fedkern check` does not list this exchange"):
        performed(tmp_path, fit)
    assert not sent(tmp_path)


def test_a_stage_of_the_model_is_refused_before_the_model_is_known(tmp_path: Path) -> None:
    def fit(run: Run[Any]) -> None:
        run, model = agreed(run)
        run.exchange(trained(model), model.start, {})

    with pytest.raises(RuntimeError, match="does not list this exchange"):
        performed(tmp_path, fit)
    assert {"SiteDelta" in line for line in sent(tmp_path)} == {False}


@pytest.mark.parametrize("what", ["sizes", "messages"])
def test_a_listed_exchange_with_other_messages_is_refused(tmp_path: Path, what: str) -> None:
    def fit(run: Run[Any]) -> None:
        run, model = agreed(run)
        stage = trained(model)
        other = {
            "sizes": replace(stage, dims={**stage.dims, "d": 99}),
            "messages": replace(
                stage, protocol=replace(stage.protocol, to_server=(*stage.protocol.to_server, response.Response))
            ),
        }[what]
        run.with_model(model).exchange(other, model.start, {})

    with pytest.raises(RuntimeError, match="or not with these messages"):
        performed(tmp_path, fit)


def test_a_listed_exchange_may_come_again_under_another_name(tmp_path: Path) -> None:
    """Control: what is listed is run, and its alias is the name in the ledger."""

    def fit(run: Run[Any]) -> None:
        run, model = agreed(run)
        from fedkern.algorithms.exchanges import column_notes
        from fedkern.data.degenerate import Degenerate

        clients = {k: column_notes.Client(Degenerate()) for k in run.mine}
        stage = Stage.of(column_notes).with_alias("once more")
        run.with_model(model).exchange(stage, lambda: column_notes.start(run.names), clients)

    performed(tmp_path, fit)
    assert any('"once more"' in line for line in sent(tmp_path))
