"""Rules on sums are judged on all clients' rows together where sites sign: by each client itself, whatever the server says."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.core import pieces
from fedkern.algorithms.core.masked import CHECKED, Hider
from fedkern.algorithms.core.messages import Message, RemoteFault
from fedkern.algorithms.exchanges import counted, sum_keys
from fedkern.algorithms.importance.settings import ASKED_OF_ALL
from fedkern.errors import JobError
from fedkern.jobs.hooks import RunHooks
from fedkern.privacy.masks import ONCE, from_words, total
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import InProcess
from support.signing import Signing

SIZES = {"ada": 7, "bo": 28, "cy": 29, "di": 30}
JOB = {"job": {"method": "likelihood", "sums": "secure"}, "model": {"family": "bernoulli"}}
POLICY = 'open = true\nplaces = ["support.signing:Signing"]\n[disclosure]\n{}\n[data.{}]\npaths = ["{}.csv"]\n'
REFUSES = 'differencing = "refuse"'
NAMES = tuple(SIZES)
NUMBERS = np.array([[1.0, 0.0, 7.0, 3.5], [0.0, 0.0, 28.0, 0.25], [0.0, 1.0, 29.0, 2.0**-20], [1.0, 0.0, 30.0, 2.0**20]])
FIRST = {"SumKey", "SumSignature", "SchemaReply", "SignedCounts", "Received"}  # what leaves before a sum does

pytestmark = pytest.mark.usefixtures("one_thread_of_blas")


def rows(n: int, seed: int, slope: float = 0.6) -> pd.DataFrame:
    """Rows of a number, a yes or no, and a label."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {
            "x": x.round(3),
            "old": np.arange(n) % 2,
            "y": (rng.random(n) < 1 / (1 + np.exp(-slope * x))).astype(int),
            "t": rng.exponential(size=n).round(3) + 0.01,
            "word": np.where(np.arange(n) % 3 == 0, "no", "yes"),
        }
    )


def federation(sizes: Mapping[str, int] = SIZES, **columns: Any) -> dict[str, pd.DataFrame]:
    return {name: rows(n, seed).assign(**columns) for seed, (name, n) in enumerate(sizes.items())}


def merged(job: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {**job.get(name, {}), **keys.get(name, {})} for name in {*job, *keys}}


USED = {"data": {"ignore": ["t", "word"]}}


def run(
    folder: Path, data: Mapping[str, pd.DataFrame], keys: Any = USED, policy: str = REFUSES, *, signs: bool = True
) -> fedkern.Result:
    """Runs a job of the clients' files, each beside the policy of its holder."""
    paths = []
    for name, frame in data.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        frame.to_csv(folder / name / f"{name}.csv", index=False)
        (folder / name / "fedkern-policy.toml").write_text(POLICY.format(policy, name, name))
        paths.append(str(folder / name / f"{name}.csv"))
    job = merged(merged(JOB, {"data": {"response": "y"}} if "formula" not in keys.get("model", {}) else {}), keys)
    job = merged(job, {"data": {"clients": paths}})
    return fedkern.run(job, place=Signing(data) if signs else None, out=folder / "out", progress=False)


class Tape:
    """What clients have sent: numbers of clients, and messages."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message]] = []

    @property
    def kinds(self) -> set[str]:
        return {type(message).__name__ for _, message in self.sent}

    def texts(self, kind: str) -> list[tuple[int, bytes]]:
        return [(k, getattr(message, "text", b"")) for k, message in self.sent if type(message).__name__ == kind]


@pytest.fixture
def tape(monkeypatch: pytest.MonkeyPatch) -> Tape:
    tape, sending = Tape(), RunHooks.sending

    def taped(hooks: RunHooks, client: int, message: Message, *more: int) -> None:
        tape.sent.append((client, message))
        sending(hooks, client, message, *more)

    monkeypatch.setattr(RunHooks, "sending", taped)
    return tape


def test_small_clients_whose_sum_is_large_are_answered_as_their_pooled_rows(tmp_path: Path, tape: Tape) -> None:
    data = federation()
    result, pooled = (
        run(tmp_path, data),
        fedkern.run(merged({"job": {"method": "likelihood"}, "data": {"response": "y"}}, USED), data=data),
    )
    assert result.converged
    for one, other in zip(result.rows(), pooled.rows()):
        assert one["parameter"] == other["parameter"]
        assert abs(one["mean"] - other["mean"]) < 0.05 * other["sd"]
        assert one["sd"] == pytest.approx(other["sd"], rel=0.05)
    assert "SignedCounts" in tape.kinds


@pytest.mark.parametrize(
    ("policy", "signs", "why"),
    [
        (REFUSES, False, "client 'ada'.*refused by the holder's policy"),
        ('differencing = "say"', True, "client 'ada': refused by a disclosure rule"),
        (f'{REFUSES}\nlevel = "standard"', True, "client 'ada'.*refused by the holder's policy"),
    ],
    ids=["nobody signs", "a second job may be subtracted", "a holder's own rule"],
)
def test_else_each_client_is_judged_by_its_own_rows(tmp_path: Path, policy: str, signs: bool, why: str, tape: Tape) -> None:
    with pytest.raises(JobError, match=why):
        run(tmp_path, federation(), policy=policy, signs=signs)
    assert not tape.sent


DECLARED = {"data": {"ignore": ["t", "old"], "columns": {"word": {"kind": "categorical", "levels": ["no", "yes", "odd"]}}}}
LARGE = {name: 30 * (k + 2) for k, name in enumerate(SIZES)}


def odd(frame: pd.DataFrame, n: int) -> pd.DataFrame:
    return frame.assign(word=np.where(np.arange(len(frame)) < n, "odd", frame["word"]))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"ada": 2}, "'ada': all clients together have too few rows in column 'word' with 'odd'"),
        (
            {"ada": 3, "bo": 2},
            "'ada': all clients but this one have too few rows in column 'word' with 'odd'",
        ),  # which ada would read
        ({"ada": 2, "bo": 50}, "'bo': all clients but this one have too few rows in column 'word' with 'odd'"),  # bo would
        ({"ada": 2, "bo": 3, "cy": 3}, None),
        ({"ada": 50}, None),  # whose level it is alone, and who has enough
    ],
)
def test_a_level_is_judged_by_what_each_client_reads_of_the_others(
    tmp_path: Path, words: dict[str, int], why: str | None, tape: Tape
) -> None:
    data = {name: odd(frame, words.get(name, 0)) for name, frame in federation(LARGE).items()}
    data["ada"].loc[:2, "y"] = 1 - data["ada"].loc[:2, "y"]
    data["di"] = data["di"].iloc[:8]  # by itself it has too few rows
    if why is None:
        assert run(tmp_path, data, DECLARED).converged
        return
    with pytest.raises(JobError, match=why):
        run(tmp_path, data, DECLARED)
    assert tape.kinds <= FIRST


def test_all_rows_less_the_largest_clients_are_too_few(tmp_path: Path, tape: Tape) -> None:
    """In all there are enough; its holder alone reads how many the others have."""
    with pytest.raises(JobError, match="client 'di': all clients but this one have too few rows for 3 coefficients"):
        run(tmp_path, federation({"ada": 8, "bo": 8, "cy": 8, "di": 400}))
    assert tape.kinds <= FIRST
    own = "all clients but this one have 24 rows for 3 coefficients; 55 are asked for"
    (found,) = [path for path in (tmp_path / "out").rglob("holder.txt") if own in path.read_text()]
    assert "di" in str(found)


def test_what_leaves_without_a_mask_is_judged_on_its_own_rows(tmp_path: Path, tape: Tape) -> None:
    """Fewer rows than a name may be of; and a name in few rows, which nobody has in more, leaves nobody."""
    data = federation({**LARGE, "ada": 4})
    with pytest.raises(JobError, match=r"client 'ada'.*refused by the holder's policy"):
        run(tmp_path, data)
    data = federation(LARGE)
    data = {name: frame.assign(word=[f"{name}-1"] * 2 + [*frame["word"]][2:]) for name, frame in data.items()}
    with pytest.raises(JobError, match="column 'word' has a level in fewer than 3 rows, and no client has it in more"):
        run(tmp_path, data, {"data": {"ignore": ["t", "old"]}})
    assert tape.kinds <= FIRST - {"SignedCounts"}
    told = b"".join(text for _, text in tape.texts("SchemaReply"))
    assert b"yes" in told
    assert not any(f"{name}-1".encode() in told for name in data)


@pytest.mark.parametrize("formula", [None, "y ~ x + word"])
def test_no_message_says_whether_a_client_has_a_rare_level(tmp_path: Path, formula: str | None, tape: Tape) -> None:
    data = {name: odd(frame, {"bo": 60, "cy": 60}.get(name, 0)) for name, frame in federation(LARGE).items()}
    data["di"] = data["di"].iloc[:8]  # by itself it has too few rows
    keys: Any = {"model": {"formula": formula}} if formula else {"data": {"ignore": ["t", "old"]}}
    texts = []
    for n in (0, 2):
        data["ada"] = odd(federation(LARGE)["ada"], n)
        run(tmp_path / str(n), data, keys)
        texts.append([tape.texts(kind) for kind in ("SchemaReply", "ColumnNotes")])
        tape.sent.clear()
    assert texts[0] == texts[1]
    assert all(texts[0])


def test_levels_that_are_rare_at_a_client_join_before_rules_on_sums_are_judged(tmp_path: Path) -> None:
    data = {name: odd(frame, {"ada": 2, "bo": 60}.get(name, 0)) for name, frame in federation(LARGE).items()}
    with pytest.raises(JobError, match="all clients but this one have too few rows in column 'word' with 'odd'"):
        run(tmp_path / "refused", data, {"data": {"ignore": ["t", "old"]}})
    joined = run(tmp_path / "joined", data, {"data": {"ignore": ["t", "old"]}, "disclosure": {"rare": "join"}})
    assert joined.converged
    assert "odd" in joined.summary["encoding"]["joined"]["word"]


def test_events_of_a_cox_model_are_counted_of_all_clients(tmp_path: Path, tape: Tape) -> None:
    """Of them those at whose time five rows of their own client are at risk; else as of times with a term of each row."""
    times: Any = {"data": {"response": None, "time": "t", "event": "y", "ignore": ["word"]}, "model": {"family": "cox"}}
    assert run(tmp_path / "cox", federation(dict.fromkeys(SIZES, 40)), times).converged
    times["model"] = {"family": "weibull"}
    assert run(tmp_path / "weibull", federation(dict.fromkeys(SIZES, 60)), times).converged
    assert "SignedCounts" in tape.kinds
    tape.sent.clear()
    times["model"], late = {"family": "cox"}, federation(dict.fromkeys(SIZES, 40))
    for name in ("bo", "cy", "di"):
        late[name]["y"] = (late[name]["t"].rank(ascending=False) <= 4).astype(int)
    with pytest.raises(JobError, match="client 'ada': all clients together have too few events"):
        run(tmp_path / "late", late, times)
    assert tape.kinds <= FIRST


def test_too_few_rows_for_values_take_part_by_one_summary_of_all(tmp_path: Path, tape: Tape) -> None:
    """Five questions, and no values at draws; where rows are too few for these, too, nothing leaves."""
    data = federation(dict.fromkeys(SIZES, 16), t=1.0)
    result = run(tmp_path / "few", data)
    assert result.converged
    assert set(result.summary["summaries"]["clients"]) == set(SIZES)
    assert "MaskedValues" not in tape.kinds
    assert sum(type(message).__name__ == "MaskedCurvature" for k, message in tape.sent if k == 0) <= ASKED_OF_ALL
    pooled = fedkern.run(merged({"job": {"method": "likelihood"}, "data": {"response": "y"}}, USED), data=data)
    for one, other in zip(result.rows(), pooled.rows()):
        assert abs(one["mean"] - other["mean"]) < 0.1 * other["sd"]
        assert one["sd"] == pytest.approx(other["sd"], rel=0.1)
    tape.sent.clear()
    with pytest.raises(JobError, match="all clients but this one have too few rows for 3 coefficients"):
        run(tmp_path / "fewer", federation(dict.fromkeys(SIZES, 13)))
    assert tape.kinds <= FIRST


TRIALS: Any = {"data": {"ignore": ["t", "word"], "trials": "m"}, "model": {"family": "binomial"}}


def of_trials(counts: Callable[[int, str], Any]) -> dict[str, pd.DataFrame]:
    data = federation({**dict.fromkeys(SIZES, 40), "ada": 12})
    return {name: frame.assign(m=counts(len(frame), name)) for name, frame in data.items()}


def test_rows_of_as_many_trials_are_enough(tmp_path: Path) -> None:
    assert run(tmp_path / "alike", of_trials(lambda n, name: 3 + np.arange(n) % 3), TRIALS).converged


def test_rows_of_trials_count_by_these(tmp_path: Path, tape: Tape) -> None:
    data = of_trials(lambda n, name: np.where(np.arange(n) < 7, 60, 3 if name == "ada" else 4))
    with pytest.raises(JobError, match="too few rows for 3 coefficients"):
        run(tmp_path / "unlike", data, TRIALS)
    assert tape.kinds <= FIRST


# A server that was changed --------------------


class Bad:
    """Four clients of one start, and a server that changes what it tells them of each other."""

    def __init__(self, start: int = 0) -> None:
        self.place = Signing(NAMES)
        self.start(start)

    def start(self, start: int) -> None:
        """New keys, as at each start."""
        clients = {
            k: sum_keys.Client(k, NAMES, bytes(32), bytes([start, k]) * 16, self.place.signer(k)) for k in range(len(NAMES))
        }
        protocol = sum_keys.protocol(len(NAMES))
        codec = Codec(sum_keys.dims(len(NAMES)), len(NAMES))
        _, ended = InProcess().run_protocol(protocol, sum_keys.start(NAMES), clients, codec)
        self.hiders = [Hider(pairs, NAMES[k]) for k, pairs in sorted(sum_keys.pairs_of(ended).items())]
        self.keys = ended

    def asked(self, numbers: np.ndarray = NUMBERS) -> tuple[list[counted.Client], list[dict[str, str]]]:
        """The clients once each has sent its numbers, and what they have sent."""
        clients, told = [], []
        for k, own in enumerate(numbers):
            state = counted.Client(0, self.keys[k], self.hiders[k], own)
            state, effects = counted.client_receive(state, counted.AskCounts(0))
            clients.append(state)
            told.append(pieces.add("", (), effects[0])[1])
        return clients, told


def hears(client: counted.Client, told: list[dict[str, str]]) -> counted.Client:
    for piece in pieces.cut({"every": told}):
        client, effects = counted.client_receive(client, counted.AllCounts(0, *piece))
        assert not effects
    return client


def plus_one(words: str) -> str:
    changed = np.frombuffer(b64decode(words), "<u8").copy()
    changed[0] += 1
    return b64encode(changed.tobytes()).decode()


def test_each_client_adds_up_all_numbers_and_all_but_its_own() -> None:
    clients, told = Bad().asked()
    for k, client in enumerate(clients):
        ended = hears(client, told)
        assert ended.total is not None
        assert ended.others is not None
        assert (ended.total == NUMBERS.sum(axis=0)).all()
        assert (ended.others == NUMBERS.sum(axis=0) - NUMBERS[k]).all()


@pytest.mark.parametrize("whose", [1, 3])
def test_words_that_a_server_changes_are_refused_by_name(whose: int) -> None:
    clients, told = Bad().asked()
    changed = [dict(one) for one in told]
    changed[whose]["words"] = plus_one(changed[whose]["words"])
    for k, client in enumerate(clients):
        said = "are others than it has sent" if k == whose else "are not signed by it: somebody has put another in its place"
        with pytest.raises(JobError, match=f"client {NAMES[k]!r}: the numbers of client {NAMES[whose]!r} {said}"):
            hears(client, changed)


def test_words_that_a_server_leaves_out_doubles_or_exchanges_are_refused() -> None:
    clients, told = Bad().asked()
    for k, client in enumerate(clients):
        with pytest.raises(RemoteFault, match="AllCounts are not those of 4 clients"):
            hears(client, [one for j, one in enumerate(told) if j != (k + 1) % 4])
        for changed in ([told[0], *told[:3]], [told[1], told[0], *told[2:]], [*told[:3], {}]):
            with pytest.raises((JobError, RemoteFault)):
                hears(client, changed)


def test_words_of_an_earlier_start_are_refused() -> None:
    bad = Bad()
    _, earlier = bad.asked()
    bad.start(1)
    clients, told = bad.asked()
    for k, client in enumerate(clients):
        other = (k + 1) % 4
        with pytest.raises(JobError, match=f"the numbers of client {NAMES[other]!r} are not signed by it"):
            hears(client, [earlier[j] if j == other else one for j, one in enumerate(told)])


def test_a_client_signs_once_at_a_start() -> None:
    """So no two clients can be given different words of a third one, each signed by it; nor words of another question."""
    bad = Bad()
    clients, told = bad.asked()
    with pytest.raises(RemoteFault, match="AskCounts was not expected"):
        counted.client_receive(clients[0], counted.AskCounts(0))
    with pytest.raises(RemoteFault, match="AskCounts was not expected"):
        counted.client_receive(replace(clients[0], words=b""), counted.AskCounts(1))
    for hider in bad.hiders:
        hider.know(b"what all are told later")
    later, now = bad.asked()
    with pytest.raises(JobError, match="the numbers of client 'bo' are not signed by it"):
        hears(later[0], [now[0], *told[1:]])


def test_a_server_reads_the_same_of_two_federations_with_equal_sums() -> None:
    """All that its transcript determines is the sum; words of one client say nothing of its numbers."""
    dealt = np.roll(NUMBERS, 1, axis=0) + np.array([[3.0], [-3.0], [1.0], [-1.0]])
    assert (dealt.sum(axis=0) == NUMBERS.sum(axis=0)).all()
    sums, words = [], []
    for numbers in (NUMBERS, dealt):
        _, told = Bad().asked(numbers)
        parts = [np.frombuffer(b64decode(one["words"]), "<u8").reshape(ONCE.limbs, -1) for one in told]
        sums.append(total(parts))
        words += parts
    assert (sums[0] == sums[1]).all()
    assert (from_words(np.ascontiguousarray(sums[0]), ONCE)[:-CHECKED] == NUMBERS.sum(axis=0)).all()
    ones = np.unpackbits(np.concatenate([one.ravel() for one in words]).view(np.uint8)).mean()
    assert abs(ones - 0.5) < 0.02  # bits of words that are masked are even


def test_a_whole_job_ends_before_a_sum_leaves_where_a_server_changes_words(
    tmp_path: Path, tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(state: counted.Server, sender: int, event: Any) -> Any:
        state, effects = counted.server_receive(state, sender, event)
        if not effects:
            return state, effects
        every = [dict(state.replies[k]) for k in range(len(NAMES))]
        every[0]["words"] = plus_one(every[0]["words"])
        return state, [(k, counted.AllCounts(0, *piece)) for piece in pieces.cut({"every": every}) for k in range(len(NAMES))]

    monkeypatch.setattr(counted, "PROTOCOL", replace(counted.PROTOCOL, server_receive=changed))
    with pytest.raises(JobError, match="the numbers of client 'ada' are"):
        run(tmp_path, federation())
    assert tape.kinds <= FIRST


def test_no_sum_leaves_before_rules_are_judged() -> None:
    (hider, *_) = Bad().hiders
    hider.waits = True
    with pytest.raises(RuntimeError, match="rules on sums are not judged yet"):
        hider.begin("importance")


def test_signatures_are_no_remedy_where_all_rows_are_in_one_process() -> None:
    """There is no site to sign; the same job apart has it."""
    frames = {name: {"x": np.arange(n) % 7.0, "y": np.arange(n) % 3} for name, n in (("a", 60), ("b", 60), ("c", 6))}
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "poisson"}}
    with pytest.raises(JobError, match="6 rows that count") as refused:
        fedkern.run(job | {"disclosure": {"level": "standard"}}, data=frames)
    assert "pool its rows" in str(refused.value)
    assert "sites that sign" not in str(refused.value)
