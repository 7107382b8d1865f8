"""Rare levels that become "other (rare)" at all clients: the answer is that of pooled rows in which they were joined by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import rare_levels
from fedkern.algorithms.exchanges.columns import join_levels
from fedkern.api import check_job
from fedkern.data.cells import Text, as_text
from fedkern.data.joined import as_agreed, find_rare, gone_of, with_other
from fedkern.data.table import Table
from fedkern.errors import FedkernError, JobError
from fedkern.jobs import joining
from fedkern.methods import load
from fedkern.models.encoding import Column, Encoding
from fedkern.transports.inprocess import InProcess
from support.found import ids
from support.wires import Wire, ledgers, listed

Frames = dict[str, pd.DataFrame]
# At site a 2 rows have "porter", and the last of the others joins them; at c 1 has "smith", which no other has.
WARDS = {
    "a": {"clerk": 70, "nurse": 40, "orderly": 30, "porter": 2},
    "b": {"clerk": 90, "nurse": 25, "orderly": 35, "porter": 20},
    "c": {"clerk": 80, "nurse": 60, "orderly": 25, "porter": 12, "smith": 1, "guard": 4},
}
JOINED = {"porter", "orderly", "smith", "guard"}
STANDARD: dict[str, Any] = {"level": "standard", "rare": "join"}


def frames(names: Mapping[str, Mapping[str, int]] = WARDS, seed: int = 53) -> Frames:
    """Rows of three sites, with a binary response."""
    rng = np.random.default_rng(seed)
    found: Frames = {}
    for site, counts in names.items():
        job = np.repeat([*counts], [*counts.values()])
        x = rng.normal(size=len(job)).round(3)
        y = (rng.random(len(job)) < 1 / (1 + np.exp(-0.3 - 0.5 * x - 0.6 * (job == "nurse")))).astype(int)
        found[site] = pd.DataFrame({"y": y, "x": x, "job": job}).sample(frac=1, random_state=1).reset_index(drop=True)
    return found


def by_hand(data: Frames, gone: set[str] = JOINED) -> Frames:
    return {site: rows.assign(job=rows["job"].where(~rows["job"].isin(gone), "other (rare)")) for site, rows in data.items()}


def job(method: str = "likelihood", *, formula: str = "", **sections: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"job": {"method": method}, "data": {}, "model": {}, "disclosure": STANDARD}
    made["model"] |= {"formula": formula} if formula else {}
    made["data"] |= {} if formula else {"response": "y"}
    for section, keys in sections.items():
        made[section] = {**made.get(section, {}), **keys}
    return made


def numbers(result: fedkern.Result) -> dict[str, tuple[float, float]]:
    parameters = {**result.summary["parameters"], **result.summary.get("contrasts", {})}
    return {name: (row["mean"], row["sd"]) for name, row in parameters.items()}


def columns(result: fedkern.Result) -> list[dict[str, Any]]:
    return [one for one in result.summary["encoding"]["columns"] if "levels" in one]


def refused(made: Mapping[str, Any], data: Frames) -> str:
    with pytest.raises(FedkernError) as fault:
        fedkern.run(made, data=data)
    return str(fault.value)


# Which levels join --------------------


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ({"a": 20, "b": 9}, ""),
        ({"a": 20, "b": 5}, ""),
        ({"a": 20, "b": 9, "c": 4}, "bc"),
        ({"a": 20, "b": 9, "c": 4, "d": 3}, "cd"),
        ({"a": 20, "b": 9, "c": 4, "d": 1}, "cd"),
        ({"a": 20, "b": 4}, "ab"),
        ({"a": 20, "b": 9, "other (rare)": 2}, ["other (rare)", "b"]),
    ],
)
def test_levels_join_until_what_is_left_and_other_have_enough_rows(counts: dict[str, int], wanted: str | list[str]) -> None:
    cells = as_text(np.repeat([*counts], [*counts.values()]).tolist())
    gone = find_rare(cells, cells.levels, np.ones(len(cells.codes)), 5)
    assert gone == {*wanted}
    if gone:
        joined = with_other(cells, gone)
        assert joined.levels[-1] == "other (rare)"
        assert gone_of(joined) == gone - {"other (rare)"}
        assert np.bincount(joined.codes).min() >= 5
        assert (before := joined.select(np.arange(3)).before) is not None
        assert [before.levels[code] for code in before.codes] == ["a"] * 3
        assert not find_rare(joined, joined.levels, np.ones(len(cells.codes)), 5)


def test_rows_count_by_their_weights_and_a_label_that_may_not_join_stays() -> None:
    cells = as_text([*"aaaaaaaa", *"bbbbbbbb", *"cccccccc"])
    weights = np.where(cells.codes == 1, [1000.0] + [1.0] * 23, 1.0)
    weights[8:16] = [1000, 1, 1, 1, 1, 1, 1, 1]
    assert find_rare(cells, cells.levels, weights, 5) == {"a", "b", "c"}, "the others' rows weigh nothing beside the heavy one"
    assert find_rare(cells, ("a", "c"), weights, 5) == frozenset()


@pytest.mark.parametrize("seed", range(60))
def test_every_level_that_is_left_has_enough_rows_at_each_client_that_has_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"l{k}" for k in range(int(rng.integers(2, 9)))] + ["other (rare)"] * int(rng.integers(2))
    tables, told = list[Table](), list[tuple[str, ...]]()
    for _ in range(3):
        cells = as_text(rng.choice(names, 60, p=rng.dirichlet(np.full(len(names), 0.5))).tolist())
        gone = find_rare(cells, cells.levels, np.ones(60), 5)
        own = with_other(cells, gone) if gone else cells
        tables.append(Table("rows", ("job",), {"job": own}, 60))
        told.append(tuple(sorted({own.levels[code] for code in own.codes})))
    known = Column("job", "categorical", join_levels(told))
    clients = [rare_levels.Client(joining.told(table, [known])) for table in tables]
    server, _ = asked(rare_levels.Server(tuple("abc"), len(clients[0].rare)), clients)
    joined = dict(rare_levels.joined_columns([known], server))
    assert bool(joined) == any(gone_of(table.columns["job"]) or client.rare.any() for table, client in zip(tables, clients))
    encoding = joining.agreed(load(job(data={"clients": ["a.csv"]}))[0], Encoding((known,), None), joined)
    for table in tables:
        last = as_agreed(table, encoding).columns["job"]
        assert isinstance(last, Text)
        there = np.bincount(last.codes)
        assert there[there > 0].min() >= 5 or (encoding.columns[0].levels == ("other (rare)",))
        assert {last.levels[code] for code in last.codes} <= {*(encoding.columns[0].levels or ())}


# The answer --------------------


@pytest.mark.parametrize("formula", ["", "y ~ x * job", "y ~ x + C(job, Treatment('nurse'))"])
@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_the_posterior_is_that_of_pooled_rows_in_which_the_levels_were_joined(method: str, formula: str) -> None:
    data = frames()
    result = fedkern.run(job(method, formula=formula), data=data)
    assert result.summary["converged"] in (True, "settled")
    hand = by_hand(data)
    same = fedkern.run(job(method, formula=formula, disclosure={"rare": "refuse"}), data=hand)
    pooled = fedkern.run(
        job(method, formula=formula, disclosure={"level": "none", "rare": "refuse"}), data={"all": pd.concat([*hand.values()])}
    )
    found, apart, together = numbers(result), numbers(same), numbers(pooled)
    assert found.keys() == apart.keys() == together.keys()
    for name, (mean, sd) in found.items():
        for other in (apart[name], together[name]):
            assert abs(mean - other[0]) < 0.1 * other[1], name
            assert abs(sd / other[1] - 1) < 0.1, name
    assert [one["levels"] for one in columns(result)] == ([] if formula else [["clerk", "nurse", "other (rare)"]])
    assert result.summary["encoding"]["joined"] == {"job": ["orderly", "porter"]}
    assert 'rare levels are "other (rare)": job (orderly, porter, any that no client keeps)' in str(result)
    assert "smith" not in json.dumps(result.summary), "of a level that no client keeps nobody learns the name"
    assert Encoding.from_dict(result.summary["encoding"]).to_dict() == result.summary["encoding"]


@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_the_same_levels_join_by_masked_answers(method: str) -> None:
    data = frames()
    plain = fedkern.run(job(method), data=data)
    masked = fedkern.run(job(method, job={"method": method, "sums": "secure"}), data=data)
    assert masked.summary["encoding"]["joined"] == plain.summary["encoding"]["joined"] == {"job": ["orderly", "porter"]}
    found, wanted = numbers(masked), numbers(plain)
    assert all(abs(found[name][0] - mean) < 0.1 * sd for name, (mean, sd) in wanted.items())


@pytest.mark.parametrize("declared", [True, False])
def test_labels_that_no_level_has_are_other_in_predictions(declared: bool) -> None:
    known = {"columns": {"job": {"levels": sorted({*JOINED, "clerk", "nurse"})}}} if declared else {}
    result = fedkern.run(job(data=known), data=frames())
    assert columns(result)[0]["levels"] == ["clerk", "nurse", "other (rare)"]
    rows = pd.DataFrame({"x": 0.2, "job": ["other (rare)", "porter", "smith", "none of all", "clerk"]})
    shown = pd.DataFrame(result.predict(rows))["mean"].to_numpy()
    assert len({*shown[:4].round(12)}) == 1
    assert shown[4] != shown[0]


def test_a_column_with_an_own_level_of_that_name() -> None:
    """Without rare levels it stays as it is, and an unknown label is one; with some they join it."""
    data = {
        site: rows.replace("orderly", "other (rare)") for site, rows in by_hand(frames(), {"porter", "smith", "guard"}).items()
    }
    result = fedkern.run(job(), data=data)
    assert columns(result)[0]["levels"] == ["clerk", "nurse", "other (rare)"]
    assert "joined" not in result.summary["encoding"]
    with pytest.raises(JobError, match="unknown level"):
        result.predict(pd.DataFrame({"x": [0.2], "job": ["porter"]}))
    data["c"].loc[data["c"].query("job == 'nurse'").index[:2], "job"] = "porter"
    result = fedkern.run(job(), data=data)
    assert result.summary["encoding"]["joined"] == {"job": []}
    assert 'rare levels are "other (rare)": job (any that no client keeps)' in str(result)


def test_a_level_called_other_is_not_what_rare_ones_become() -> None:
    """It was: a large level of the data and the rare ones had one coefficient, under "converged"."""
    data = {site: rows.replace({"clerk": "other", "orderly": "smith"}) for site, rows in frames().items()}
    levels = columns(fedkern.run(job(), data=data))[0]["levels"]
    assert levels == ["nurse", "other", "other (rare)"]


def test_whole_numbers_have_no_other_order_where_rare_ones_have_joined() -> None:
    """A note said that tables give them orders that do not agree: 2, 10 as numbers, 10, 2 beside a word."""
    names = {"clerk": 2, "nurse": 10, "orderly": 30, "porter": 31, "smith": 32, "guard": 33}
    data = {site: rows.assign(job=rows["job"].map(names)) for site, rows in frames().items()}
    result = fedkern.run(job(formula="y ~ x + factor(job)"), data=data)
    assert "levels-in-other-orders" not in ids(result)
    assert result.summary["encoding"]["joined"]


def test_numbers_that_are_categories_elsewhere_join_once_the_job_says_so() -> None:
    data = frames(
        {"a": {"0": 60, "1": 40, "2": 30, "3+": 20}, "b": {"0": 60, "1": 40, "2": 30, "3+": 20}, "c": {"0": 60, "1": 20, "2": 3}}
    )
    data["c"]["job"] = data["c"]["job"].astype(int)
    assert 'set disclosure.rare = "join", and kind = "categorical" in [data.columns.NAME]' in refused(job(), data)
    result = fedkern.run(job(data={"columns": {"job": {"kind": "categorical"}}}), data=data)
    assert result.summary["encoding"]["joined"] == {"job": ["1", "2"]}
    assert columns(result)[0]["levels"] == ["0", "3+", "other (rare)"]


# Who says what --------------------


def test_what_leaves_is_listed_and_names_of_levels_that_nobody_keeps_stay(tmp_path: Path) -> None:
    for site, rows in frames().items():
        rows.to_csv(tmp_path / f"{site}.csv", index=False)
    path = tmp_path / "job.toml"
    path.write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["a.csv", "b.csv", "c.csv"]\nresponse = "y"\n'
        '[model]\nfamily = "bernoulli"\n'
        '[disclosure]\nlevel = "standard"\nrare = "join"\n'
    )
    wire, (config, folder) = Wire(), load(path)
    said = "\n".join(check_job(InProcess(), config, folder) or [])
    with wire as sent:
        result = fedkern.run(path, out=tmp_path / "out")
    for what in (("to_server", "RareLevels"), ("to_client", "AskRareLevels")):
        assert sent[what] == listed(said)[0][what] == ledgers(tmp_path / "out").get(what, sent[what])
    assert 'joined   levels in fewer than 5 rows of any client become "other (rare)" at all' in said
    assert "which levels of its columns join, for it has them in few rows" in said
    assert result.summary["encoding"]["joined"] == {"job": ["orderly", "porter"]}
    texts = {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file() and "client-" not in str(file)}
    assert texts
    assert not [file for file, content in texts.items() if b"smith" in content or b"guard" in content]
    own = json.loads((tmp_path / "out" / "client-c" / "rows.json").read_text())
    assert (
        "column 'job': 'guard', 'orderly', 'porter', 'smith' count as \"other (rare)\", for some client has few rows of each"
        in own["notes"]
    )


def test_check_says_so_of_the_job_and_of_ones_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedkern.cli.__main__ import main

    for site, rows in frames().items():
        rows.to_csv(tmp_path / f"{site}.csv", index=False)
    path = tmp_path / "job.toml"
    text = '[job]\nmethod = "likelihood"\n[data]\nclients = ["a.csv", "b.csv", "c.csv"]\nresponse = "y"\n'
    path.write_text(text + '[disclosure]\nrare = "refuse"\n')
    assert main(["check", str(path), "--local", str(tmp_path / "c.csv")]) != 0
    assert 'set disclosure.rare = "join"' in capsys.readouterr().out
    path.write_text(text + '[model]\nfamily = "bernoulli"\n')
    assert main(["check", str(path), "--local", str(tmp_path / "c.csv")]) == 0
    assert "column 'job': 'guard', 'smith' count as \"other (rare)\"" in capsys.readouterr().out


def test_a_holder_asks_for_more_rows_of_a_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".fedkern").mkdir()
    (tmp_path / ".fedkern" / "policy.toml").write_text("open = true\n[disclosure]\nrows_per_value = 21\n[data.b]\n")
    data = frames()
    data["a"] = data["a"].replace("porter", "clerk")
    for site, rows in data.items():
        rows.to_csv(tmp_path / f"{site}.csv", index=False)
    path = tmp_path / "job.toml"
    path.write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["a.csv", "b.csv", "c.csv"]\nresponse = "y"\n'
        '[model]\nfamily = "bernoulli"\n'
        '[disclosure]\nrare = "join"\n'
    )
    result = fedkern.run(path, out=tmp_path / "out")
    assert result.summary["encoding"]["joined"] == {"job": ["orderly", "porter"]}, "b has 20 porters"


def test_at_level_none_nothing_joins_without_the_key_and_with_it_by_the_number_of_standard() -> None:
    data = frames()
    whole = fedkern.run(job(disclosure={"level": None, "rare": None}), data=data)
    assert len(columns(whole)[0]["levels"]) == 6
    joined = fedkern.run(job(disclosure={"level": None}), data=data)
    assert joined.summary["encoding"]["joined"] == {"job": ["orderly", "porter"]}


@pytest.mark.parametrize("formula", ["", "y ~ x + job", "y ~ x * job"])
@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_a_column_all_of_whose_levels_join_has_one_value_and_refuses_nothing(method: str, formula: str) -> None:
    """Each of two clients could keep some levels, and no level can be kept at both: nobody can say so before all have told."""
    names = {
        "a": {"clerk": 50, "nurse": 40, "orderly": 3, "guard": 3},
        "b": {"clerk": 3, "nurse": 3, "orderly": 50, "guard": 40},
        "c": {"clerk": 50, "nurse": 50},
    }
    data = frames(names)
    result = fedkern.run(job(method, formula=formula), data=data)
    assert result.summary["converged"] in (True, "settled")
    assert result.summary["encoding"]["joined"] == {"job": ["clerk", "guard", "nurse", "orderly"]}
    assert any("'job' has one value at every client" in note for note in result.summary["notes"])
    assert not any("no level at" in note for note in result.summary["notes"])
    without = fedkern.run(job(method, formula=formula and "y ~ x", data={} if formula else {"ignore": ["job"]}), data=data)
    for name, row in without.parameters.items():
        assert abs(result.parameters[name]["mean"] - row["mean"]) < 0.02 * row["sd"]


def test_a_reference_that_joined_is_said() -> None:
    said = refused(job(data={"columns": {"job": {"reference": "porter"}}}), frames())
    assert "data.columns.job.reference = 'porter': none of the 3 levels that were found, for rare ones joined" in said
    kept = fedkern.run(job(data={"columns": {"job": {"reference": "nurse"}}}), data=frames())
    assert {"job[clerk vs nurse]", "job[other (rare) vs nurse]"} <= kept.summary["contrasts"].keys()


def test_levels_join_by_default_where_one_is_left() -> None:
    """Of two levels one would be all that is left at a client, and at all clients together none."""
    by_default = job(disclosure={"rare": None})
    assert fedkern.run(by_default, data=frames()).summary["encoding"]["joined"] == {"job": ["orderly", "porter"]}
    few = {"clerk": 70, "nurse": 2}
    assert "rows that values of 'job' have to themselves: 2" in refused(by_default, frames({"a": few, "b": few}))
    rarer = {"a": {"clerk": 70, "nurse": 30, "orderly": 2}, "b": {"clerk": 30, "nurse": 70, "orderly": 2}}
    assert columns(fedkern.run(by_default, data=frames(rarer)))[0]["levels"] == ["clerk", "other (rare)"], "both choose the last"
    rarer = {"a": {"clerk": 70, "guard": 30, "smith": 2}, "b": {"aide": 30, "clerk": 70, "smith": 2}}
    rarer["c"] = {"aide": 2, "clerk": 70, "guard": 30}
    assert "each level of column 'job' is in few rows of some client" in refused(by_default, frames(rarer))
    assert fedkern.run(job(), data=frames(rarer)).summary["encoding"]["joined"] == {"job": ["aide", "clerk"]}


@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_a_refusal_proposes_the_key(method: str) -> None:
    said = refused(job(method, disclosure={"rare": "refuse"}), frames())
    assert 'set disclosure.rare = "join"' in said
    assert fedkern.run(job(method), data=frames()).summary["converged"] in (True, "settled")


@pytest.mark.parametrize(
    ("method", "sections", "words"),
    [
        ("pvi", {"privacy": {"epsilon": 3.0, "delta": 1e-5, "clip": 1.0}}, "disclosure.rare is of jobs without noise"),
        (
            "vertical",
            {"data": {"id": "x", "server": "a.csv"}},
            'disclosure.rare = "join" is of jobs of likelihood without model.factory, of pvi',
        ),
    ],
)
def test_jobs_that_join_nothing_say_so_in_a_sentence(method: str, sections: dict[str, Any], words: str) -> None:
    assert words in refused(job(method, disclosure={"level": None}, **sections), frames())


# Two jobs on nearly the same rows --------------------


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(tmp_path / "homes"))
    return tmp_path / "homes"


def changed(data: Frames, was: str, now: str) -> Frames:
    """The same with one row of site c of another level."""
    rows = data["c"].copy()
    rows.loc[rows.query(f"job == '{was}'").index[0], "job"] = now
    return {**data, "c": rows}


def test_the_first_set_is_taken_where_it_is_enough_and_else_the_holder_reads_that_rows_differ(
    homes: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With one guard more the level would be one of its own, which less "other (rare)" of the job before is that row."""
    counts = {"clerk": 60, "guard": 20, "orderly": 30}
    data = frames({"a": counts, "b": counts, "c": {**counts, "clerk": 80, "guard": 4}})
    one_more = changed(data, "clerk", "guard")
    first = fedkern.run(job(), data=data)
    assert first.summary["encoding"]["joined"] == {"job": ["guard", "orderly"]}
    for path in homes.rglob("budget.jsonl"):
        assert b"guard" not in path.read_bytes(), "it is sealed"
    again = fedkern.run(job(), data=one_more)
    assert again.summary["encoding"]["joined"] == {"job": ["guard", "orderly"]}
    capfd.readouterr()
    other = fedkern.run(job(), data=changed(data, "clerk", "porter"))
    assert other.summary["encoding"]["joined"] == {"job": ["guard"]}, "the first set would leave one porter alone"
    said = capfd.readouterr().err
    assert "client 'c'" in said
    assert "for fewer than 20: what was told once in both tells, subtracted, what is theirs alone" in said
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(homes / "others"))
    assert "joined" not in fedkern.run(job(), data=one_more).summary["encoding"]


# The exchange --------------------


def asked(state: rare_levels.Server, clients: list[rare_levels.Client]) -> tuple[rare_levels.Server, list[rare_levels.Client]]:
    """The exchange to its end, with clients that answer in reverse order."""
    effects: list[tuple[int, Any]] = [*rare_levels.start(state.n_levels, state.clients)[1]]
    while effects:
        replies: list[tuple[int, Any]] = []
        for k, message in effects:
            clients[k], out = rare_levels.client_receive(clients[k], message)
            replies += [(k, reply) for reply in out]
        effects = []
        for k, reply in reversed(replies):
            state, more = rare_levels.PROTOCOL.server_receive(state, k, reply)
            effects += more
    return state, clients


@pytest.mark.parametrize("n", [1, rare_levels.WIDTH, rare_levels.WIDTH + 1, 3 * rare_levels.WIDTH])
def test_levels_that_any_client_cannot_keep_join_at_all(n: int) -> None:
    rare = (np.random.default_rng(n).random((3, n)) < 0.3).astype(float)
    server, clients = asked(rare_levels.Server(tuple("abc"), n), [rare_levels.Client(own) for own in rare])
    assert server.done
    for joined in (server.joined, *(client.joined for client in clients)):
        assert joined.tolist() == rare.max(axis=0).tolist()


@pytest.mark.parametrize("told", [0.0, 0.5, np.nan])
def test_a_server_that_keeps_a_level_which_a_client_cannot_keep_is_refused(told: float) -> None:
    state, _ = rare_levels.client_receive(rare_levels.Client(np.array([0.0, 1.0])), ask(0))
    with pytest.raises(RemoteFault, match="lacks a level"):
        rare_levels.client_receive(state, ask(1, told))
    good, out = rare_levels.client_receive(state, ask(1, 1.0))
    assert (good.joined.tolist(), out) == ([0.0, 1.0], [])
    for at, round in ((good, 2), (state, 0), (state, 2)):
        with pytest.raises(RemoteFault, match="was not expected"):
            rare_levels.client_receive(at, ask(round))


def ask(round: int, second: float = 1.0) -> rare_levels.AskRareLevels:
    joined = np.zeros(rare_levels.WIDTH)
    joined[1] = second
    return rare_levels.AskRareLevels(round, joined)


@pytest.mark.parametrize("term", ["job", "C(job, contr.treatment(base='porter'))"])
def test_a_reference_that_has_joined_is_said_to_have(term: str) -> None:
    columns = {"job": {"reference": "porter"}} if term == "job" else {}
    with pytest.raises(
        JobError, match="'porter' is none of the 3 labels of the column after rare ones joined \"other \\(rare\\)\": name"
    ):
        fedkern.run(job(formula=f"y ~ x + {term}", model={"family": "bernoulli"}, data={"columns": columns}), data=frames())
