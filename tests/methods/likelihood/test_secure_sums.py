"""Jobs whose server gets sums of all clients' log-likelihoods: the same posterior, nothing of one client, no mask used twice."""

from __future__ import annotations

import hmac
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import fedkern
from fedkern.algorithms.core.messages import RemoteFault, schema
from fedkern.algorithms.importance import single_values
from fedkern.api import perform
from fedkern.errors import FedkernError, JobError
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.methods.likelihood.keys import Config
from fedkern.privacy.masks import Pairs
from fedkern.transports.driver import Timeouts
from fedkern.transports.inprocess import InProcess
from support import wires
from support.found import ids
from support.interrupted import Crash, run
from support.mask_streams import Streams, assert_uniform, many_starts, tell_one_another_thing, watched_streams, watched_words
from support.refusal import refusal
from support.relayed import careless, over_threads
from support.wards import write_wards

CLIENTS = ("ada", "bo", "cy")
JOB = """
[job]
method = "likelihood"
seed = 2
sums = "secure"
[data]
clients = ["rows/*.csv"]
response = "y"
[model]
family = "poisson"
[model.random]
group = "ward"
[algorithm]
points = 256
effective = 100
checkpoint_every = 1e-6
[output]
draws = 50
chains = 2
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of three clients with eight wards each."""
    folder = tmp_path_factory.mktemp("secure")
    write_wards(folder, CLIENTS)
    (folder / "job.toml").write_text(JOB)
    (folder / "plain.toml").write_text(JOB.replace('sums = "secure"\n', ""))
    return folder / "job.toml"


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets clients of a job without masks not round either, so that both tell the same."""
    monkeypatch.setattr(Config, "rounds_messages", False)


@pytest.fixture(scope="module")
def whole(job: Path) -> fedkern.Result:
    return fedkern.run(job)


@pytest.mark.usefixtures("exact")
def test_the_posterior_is_that_of_a_job_without_masks(job: Path, whole: fedkern.Result) -> None:
    plain = fedkern.run(job.with_name("plain.toml"))
    assert plain.summary["converged"] is whole.summary["converged"] is True
    for name, numbers in plain.parameters.items():
        for figure, value in numbers.items():
            assert whole.parameters[name][figure] == pytest.approx(value, rel=1e-3, abs=1e-3), (name, figure)


@pytest.mark.usefixtures("exact")
def test_the_sums_of_a_measured_response_are_masked(job: Path, tmp_path: Path) -> None:
    texts = {"gaussian": JOB.replace("poisson", "gaussian")}
    texts["plain-gaussian"] = texts["gaussian"].replace('sums = "secure"\n', "")
    results = []
    for name, text in texts.items():
        (job.parent / f"{name}.toml").write_text(text)
        results.append(fedkern.run(job.parent / f"{name}.toml", out=tmp_path / name))
    for name, numbers in results[1].parameters.items():
        for figure in ("mean", "sd"):
            assert results[0].parameters[name][figure] == pytest.approx(numbers[figure], rel=1e-3, abs=1e-3), (name, figure)
    kinds = {kind for _, kind in wires.ledgers(tmp_path / "gaussian")}
    assert {"MaskedColumnSums", "MaskedLevelSums"} <= kinds
    assert "LevelSums" not in kinds


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("time,", "age,"), "client 'bo': .*missing"),
        (("time,ward,y", "time,ward,y\nx,w1,2"), "client 'bo'"),
        ((",w", "e-90,w"), "client 'bo': covariate no. 1: its values are too large, or too small, for secure sums"),
    ],
    ids=["another-column", "a-text", "too-small"],
)
def test_a_client_s_own_columns_are_judged_where_they_are(change: tuple[str, str], told: str, tmp_path: Path) -> None:
    write_wards(tmp_path, CLIENTS)
    own = tmp_path / "rows" / "bo.csv"
    own.write_text(own.read_text().replace(*change).replace("timee-90,ward", "time,ward"))
    (tmp_path / "job.toml").write_text(JOB)
    with pytest.raises(JobError, match=told):
        fedkern.run(tmp_path / "job.toml")


def test_clients_that_were_told_other_units_give_no_sum(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell_one_another_thing(monkeypatch)
    with pytest.raises(RemoteFault, match=r"masks do not cancel: clients were told different things"):
        fedkern.run(job)


@pytest.mark.usefixtures("exact")
def test_sums_of_rows_without_themselves_are_those_of_a_job_without_masks(job: Path, tmp_path: Path) -> None:
    text, results = JOB.replace("[output]", "[output]\nloo = true"), []
    for name, one in (("masked", text), ("plain", text.replace('sums = "secure"\n', ""))):
        (job.parent / f"loo-{name}.toml").write_text(one)
        results.append(fedkern.run(job.parent / f"loo-{name}.toml", out=tmp_path / name).summary)
    (masked, plain), names = (one["loo"] for one in results), {kind for _, kind in wires.ledgers(tmp_path / "masked")}
    assert masked["rows"] == plain["rows"] == 168
    assert masked["k_hat"] == plain["k_hat"]
    for figure in ("elpd", "se", "p_loo"):
        # Weights go by values in thousandths: of the draws that are resampled some may be others.
        assert masked[figure] == pytest.approx(plain[figure], abs=0.1), figure
    assert "MaskedLooSums" in names
    assert "LooSums" not in names
    assert "few-hidden-in-sums" in ids(results[0])


def chains(folder: Path, *, secure: bool) -> Path:
    """A job of sixty trajectories of two chains."""
    text = JOB.replace("points = 256\neffective = 100", 'sampler = "hmc"').replace("draws = 50\n", "")
    text = text.replace('sums = "secure"', 'rounds = 60\nsums = "secure"')
    path = folder / f"chains-{secure}.toml"
    path.write_text(text if secure else text.replace('sums = "secure"\n', ""))
    return path


@pytest.mark.usefixtures("exact")
def test_chains_are_those_of_a_job_without_masks(job: Path, tmp_path: Path) -> None:
    secure, plain = (fedkern.run(chains(job.parent, secure=one), out=tmp_path / str(one)) for one in (True, False))
    for name, numbers in plain.parameters.items():
        for figure in ("mean", "sd", "q50"):
            assert secure.parameters[name][figure] == pytest.approx(numbers[figure], rel=1e-3, abs=1e-3), (name, figure)
    assert {"MaskedSlope", "MaskedChange"} <= {kind for _, kind in wires.ledgers(tmp_path / "True")}
    assert not {"LikelihoodSlope", "LikelihoodChange"} & {kind for _, kind in wires.ledgers(tmp_path / "True")}


def test_chains_go_on_with_new_keys(job: Path, tmp_path: Path, streams: Streams) -> None:
    path = chains(job.parent, secure=True)
    with pytest.raises(FedkernError):
        run(path, tmp_path / "out", stop=150)
    resumed, whole = run(path, tmp_path / "out", resume=True), run(path, None)
    assert resumed is not None
    assert whole is not None
    assert resumed.digest == whole.digest
    streams.check(starts=3)


def test_masks_change_no_bit_of_the_result(job: Path, whole: fedkern.Result) -> None:
    assert fedkern.run(job).digest == whole.digest


def test_ledger_and_check_have_the_masked_messages_alone(job: Path, tmp_path: Path) -> None:
    wires.checked_and_run(job, tmp_path / "out", wanted=("SumKey", "MaskedColumnSums", "MaskedCurvature", "MaskedValues"))
    kinds = {kind for _, kind in wires.ledgers(tmp_path / "out")}
    assert "MaskedOddResponse" in kinds  # by which each client compares its counts with all others together
    assert not kinds & {"Curvature", "Values", "LevelSums", "Replicated"}
    said = "\n".join(fedkern.api.check_job(fedkern.places.InProcess(), *load(job)) or [])
    told = str(fedkern.api.ledger(tmp_path / "out"))
    assert told.endswith("Masked ..: it hides whose number it was, not what the sum says")
    assert said.count("it hides whose number it was, not what the sum says") == 10  # of the job, and of nine messages
    assert "not seen: at which client a column, the response or times are in another unit" in said
    assert "sums and sums of squares of the numeric columns" not in said  # of `SchemaReply`
    assert "protects against the server only if it is not the authority" in said


@pytest.mark.parametrize("after", [14, 26, *(pytest.param(n, marks=pytest.mark.nightly) for n in (10, 21))])
@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_job_that_goes_on_has_new_keys_and_the_same_bits(
    how: str, after: int, job: Path, whole: fedkern.Result, tmp_path: Path, streams: Streams
) -> None:
    with pytest.raises((FedkernError, Crash)):
        run(job, tmp_path / "out", **{how: after})
    resumed = run(job, tmp_path / "out", resume=True)
    assert resumed is not None
    assert resumed.digest == whole.digest
    streams.check(starts=2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('clients = ["rows/*.csv"]', 'clients = ["rows/ada.csv", "rows/bo.csv"]'), "needs 3 clients, and there are 2 (ada, bo)"),
        (("[output]", "[output]\nwithout = true"), "output.without is made of them"),
        (("[output]", "[output]\nsites = true"), "output.sites is made of them"),
        (('"secure"', '"plain"'), "job.sums"),
        (("[data]", '[data]\nsmall = "leave-out"'), "sums of two starts, with a client and without it, would tell its numbers"),
    ],
)
def test_jobs_that_cannot_have_it_are_refused(change: tuple[str, str], told: str, job: Path, tmp_path: Path) -> None:
    text = JOB.replace(*change)
    path = job.with_name(f"{tmp_path.name}.toml")
    path.write_text(text)
    with pytest.raises(JobError) as fault:
        fedkern.run(path)
    assert told in str(fault.value)


def test_too_few_clients_are_refused_before_anything_leaves(job: Path, tmp_path: Path) -> None:
    path = job.with_name("two.toml")
    path.write_text(JOB.replace('clients = ["rows/*.csv"]', 'clients = ["rows/ada.csv", "rows/bo.csv"]'))
    for ask in (lambda: fedkern.run(path, out=tmp_path / "out"), lambda: fedkern.api.check_job(InProcess(), *load(path))):
        with pytest.raises(JobError, match="needs 3 clients, and there are 2"):
            ask()
    assert not wires.ledgers(tmp_path / "out")


@dataclass
class Known(InProcess):
    """A place whose clients have identities: who knows the secret of a name can sign for it."""

    stranger: str = ""

    def signer(self, client: int) -> Identity:
        return Identity(self.names[client], self.stranger)


@dataclass(frozen=True)
class Identity:
    name: str
    stranger: str  # whose signature is another's

    def sign(self, content: bytes) -> bytes:
        return hmac.digest(self.name.encode() * (1 + (self.name == self.stranger)), content, "sha256")

    def fault(self, name: str, content: bytes, signature: bytes) -> str:
        same = hmac.compare_digest(hmac.digest(name.encode(), content, "sha256"), signature)
        return "" if same else "it is another's"


def test_keys_are_signed_where_the_place_knows_its_clients(job: Path, whole: fedkern.Result) -> None:
    config, folder = load(job)
    done = perform(Known(), config, folder, Output(quiet=True))
    assert done is not None
    assert done.digest == whole.digest
    said = "\n".join(fedkern.api.check_job(Known(), config, folder) or [])
    assert "each site signs its own, and knows the others' by their fingerprints" in said
    with refusal(JobError, "ada", "bo"):
        perform(Known(stranger="bo"), config, folder, Output(quiet=True))


# Many clients --------------------


def test_many_clients_share_masks_with_some_and_have_the_posterior_of_all(tmp_path: Path) -> None:
    write_wards(tmp_path, tuple(f"clinic-{k:02}" for k in range(13)))
    job, plain = (tmp_path / name for name in ("job.toml", "plain.toml"))
    job.write_text(JOB)
    plain.write_text(JOB.replace('sums = "secure"\n', ""))
    wires.checked_and_run(job, tmp_path / "out", wanted=("SumCommitment", "SumKey", "MaskedCurvature", "MaskedValues"))
    said = "\n".join(fedkern.api.check_job(InProcess(), *load(job)) or [])
    assert "a server that works with 10 other clients, all that a client shares masks with, reads a client's numbers" in said
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    for name, numbers in fedkern.run(plain).parameters.items():
        assert summary["parameters"][name]["mean"] == pytest.approx(numbers["mean"], rel=1e-3, abs=1e-3), name


# Single values, where job and policy name them --------------------

EXCEPT = JOB.replace("[output]", "[output]\nwithout = true").replace(
    'sums = "secure"', 'sums = "secure"\nsums_except = "without"'
)
POLICY = 'open = true\n{}[data.wards]\npaths = "*.csv"\n'


def written(folder: Path, text: str, policy: str | None = None, names: tuple[str, ...] = CLIENTS) -> Path:
    """A job in a folder of its own, with a policy beside its data."""
    if not (folder / "rows").exists():
        write_wards(folder, names)
    (folder / "job.toml").write_text(text)
    if policy is not None:
        (folder / "rows" / "fedkern-policy.toml").write_text(POLICY.format(policy))
    return folder / "job.toml"


@pytest.mark.usefixtures("exact")
def test_the_result_without_each_client_is_that_of_an_open_job(tmp_path: Path) -> None:
    names, many = (
        tuple(f"clinic-{k}" for k in range(8)),
        EXCEPT.replace("points = 256\neffective = 100", "points = 4096\neffective = 1000"),
    )
    job = written(tmp_path, many, names=names)
    wires.checked_and_run(job, tmp_path / "out", wanted=("MaskedValues", "SingleValues"))
    secure = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "Values" not in {kind for _, kind in wires.ledgers(tmp_path / "out")}
    assert "SingleValues" in str(fedkern.api.ledger(tmp_path / "out"))
    (tmp_path / "plain.toml").write_text(many.replace('sums = "secure"\nsums_except = "without"\n', ""))
    plain = fedkern.run(tmp_path / "plain.toml").summary
    assert list(secure["without"]) == [*names]
    known = 0
    for client, content in plain["without"].items():
        mine = secure["without"][client]
        assert mine["known"] == content["known"]
        assert mine["k_hat"] == pytest.approx(content["k_hat"], abs=0.02)
        for name, numbers in content.get("parameters", {}).items():
            known += 1
            for figure, value in numbers.items():
                assert mine["parameters"][name][figure] == pytest.approx(value, rel=1e-2, abs=5e-3), (client, name, figure)
    assert known > 3
    moved = [abs(one["shift"]) for content in secure["without"].values() for one in content.get("parameters", {}).values()]
    assert max(moved) > 0.1  # without a client something is another


def test_check_says_that_values_leave_one_by_one(tmp_path: Path) -> None:
    said = "\n".join(fedkern.api.check_job(InProcess(), *load(written(tmp_path, EXCEPT))) or [])
    assert (
        "but not of each client's own log-likelihoods at the draws (SingleValues): these leave one by one, without a mask" in said
    )
    assert "a server that works with all other clients reads a client's numbers" in said
    told = fedkern.api.check_job(InProcess(), *load(written(tmp_path, JOB)))
    assert "SingleValues" not in "\n".join(told or [])


def test_refusals_tell_what_to_write_and_then_the_job_runs(tmp_path: Path) -> None:
    """Each message is obeyed to the letter, until the job runs."""
    text = EXCEPT.replace('sums_except = "without"\n', "")
    with pytest.raises(JobError) as fault:
        fedkern.run(written(tmp_path, text, ""))
    asked = re.search(r'set job\.(sums_except = "without")', str(fault.value))
    assert asked is not None
    text = text.replace('sums = "secure"', f'sums = "secure"\n{asked[1]}')
    policy = ""
    for wanted in ("values = true", 'sums_except = "without"'):
        with pytest.raises(JobError) as refused:
            fedkern.run(written(tmp_path, text, policy))
        line = re.search(r"\(((?:values|sums_except) = [^)]*)\)", str(refused.value))
        assert line is not None
        assert line[1] == wanted
        policy += f"{line[1]}\n"
    done = fedkern.run(written(tmp_path, text, policy))
    assert set(done.summary["without"]) == {*CLIENTS}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('sums = "secure"\n', ""), 'job.sums_except = "without" is for jobs with job.sums = "secure"; set that, or remove it'),
        (("without = true", ""), 'job.sums_except = "without" is for jobs with output.without = true; set that, or remove it'),
        (("without = true", "sites = true\nwithout = true"), "output.sites is made of them; remove one of the two"),
        (('"without"', '"sites"'), "job.sums_except"),
    ],
)
def test_exceptions_that_mean_nothing_are_refused(change: tuple[str, str], told: str, tmp_path: Path) -> None:
    with pytest.raises(JobError) as fault:
        load(written(tmp_path, EXCEPT.replace(*change)))
    assert told in str(fault.value)


def test_single_values_that_are_not_those_that_were_masked_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = single_values.answer_of

    def another(values: Any, most: int) -> Any:
        values = values.copy()
        values[-1, 5] += 1.0
        return answer(values, most)

    monkeypatch.setattr(single_values, "answer_of", another)
    with refusal(RemoteFault, "SingleValues"):
        fedkern.run(written(tmp_path, EXCEPT))


def test_a_server_gets_single_values_of_no_other_points(tmp_path: Path) -> None:
    """The question names rounds that were masked before, and no points; of more rounds than there were nothing is told."""
    answer = single_values.answer_of(np.arange(8.0).reshape(2, 4), 3)
    assert answer(single_values.AskSingleValues(1)).values.tolist() == [4, 5, 6, 7, *[0] * 8]
    assert answer(single_values.AskSingleValues(2)).values.tolist() == [*range(8), *[0] * 4]
    for rounds in (0, -1, 3):
        with pytest.raises(RemoteFault, match=f"AskSingleValues of {rounds} rounds, and there were 2"):
            answer(single_values.AskSingleValues(rounds))
    assert set(schema(single_values.AskSingleValues)) == {"rounds"}


def test_a_job_that_goes_on_tells_the_same_single_values(tmp_path: Path) -> None:
    job = written(tmp_path, EXCEPT)
    whole = fedkern.run(job)
    for after in (26, 34):
        with pytest.raises((FedkernError, Crash)):
            run(job, tmp_path / str(after), stop=after)
        resumed = run(job, tmp_path / str(after), resume=True)
        assert resumed is not None
        assert resumed.digest == whole.digest
        assert resumed.summary["without"] == whole.summary["without"]


# Streams --------------------


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    return watched_streams(monkeypatch)


@pytest.mark.parametrize("runs", [3, pytest.param(200, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])])
def test_no_stream_meets_two_plaintexts(runs: int, job: Path, whole: fedkern.Result, tmp_path: Path, streams: Streams) -> None:
    for seed in range(runs):
        assert many_starts(job, tmp_path / str(seed), seed).digest == whole.digest
    streams.check()


def test_a_derivation_that_forgets_the_count_and_the_question_is_found(
    job: Path, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Pairs.stream
    monkeypatch.setattr(Pairs, "stream", lambda own, other, counter, kind, question: stream(own, other, 0, kind, b""))
    fedkern.run(job)
    with pytest.raises(AssertionError):
        streams.check()


def test_replies_that_are_lost_or_doubled_are_sent_again_as_they_were(
    job: Path, whole: fedkern.Result, tmp_path: Path, streams: Streams
) -> None:
    """Over a relay: a site that is asked again by the same request gives the same bytes, and masks nothing anew."""
    results = []

    def main(place: Any, site: str | None) -> int:
        config, folder = load(job)
        done = perform(place, config, folder, Output(tmp_path / (site or "server"), quiet=True))
        results.extend([done] if place.is_server else [])
        return 0

    with threadpool_limits(1, user_api="blas"):
        codes, said, _ = over_threads(main, CLIENTS, careless(3), Timeouts(lost=20.0, grace=3.0), again=0.05, busy=0.5)
    assert (set(codes.values()), said) == ({0}, [])
    assert results[0].digest == whole.digest
    streams.check(starts=1)


def test_what_is_masked_looks_like_nothing_and_no_secret_is_kept(
    job: Path, tmp_path: Path, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = watched_words(monkeypatch)
    fedkern.run(job, out=tmp_path / "out")
    assert_uniform(*words)
    kept = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(kept) > 5
    assert not any(secret in one or secret.hex().encode() in one for secret in streams.secrets for one in kept)
