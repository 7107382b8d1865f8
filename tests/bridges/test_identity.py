"""A site signs its keys of secure sums, and knows the others' by fingerprints: a server that changes keys is caught by name."""

import os
import shutil
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

from fedkern.algorithms.core import masked
from fedkern.algorithms.exchanges import sum_keys
from fedkern.bridges.consent import Consent
from fedkern.bridges.identity import Identity, _scheme, as_fingerprint, check_peers, read_key
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs import secure
from fedkern.methods import load
from fedkern.privacy.masks import Pairs, from_words, public_key
from support.organisations import NAMES, POLICY, audit, digest_of_run, found, in_one_process, residents, run
from support.refusal import refusal

SECURE = {"rounds": 'sums = "secure"\n'}
MAKERS = {
    "rsa": lambda: rsa.generate_private_key(65537, 2048),  # as `nvflare cert request`
    "ec": lambda: ec.generate_private_key(ec.SECP384R1()),  # as `ssh-keygen -t ecdsa -b 384`
    "ed25519": ed25519.Ed25519PrivateKey.generate,
}
KINDS = dict(zip(NAMES, MAKERS))
CONTROL = {"hello", "run", "fault", "bye"}  # by which a job begins and ends
OF_KEYS = CONTROL | {"SumKey", "SumSignature", "Received", "hello", "run", "fault", "stop"}  # messages that tell nothing of rows
OTHER = Identity(MAKERS["ed25519"]()).fingerprint

pytestmark = pytest.mark.usefixtures("one_thread_of_blas")


def write_key(path, key, form=serialization.PrivateFormat.PKCS8, password=None):
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, hidden))
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A file with a private key for each site: each of another kind, bo's as ssh-keygen writes it."""
    folder = tmp_path_factory.mktemp("keys")
    forms = {"bo": serialization.PrivateFormat.OpenSSH}
    return {
        name: write_key(folder / name, MAKERS[kind](), forms.get(name, serialization.PrivateFormat.PKCS8))
        for name, kind in KINDS.items()
    }


@pytest.fixture(scope="module")
def fingerprints(keys):
    return {name: Identity(read_key(path)).fingerprint for name, path in keys.items()}


def with_keys(folder, keys, fingerprints, policy=POLICY, **wrong):
    """Makes the folders of three sites that sign; `wrong`: what ada's people were told of another's key."""
    found(folder, policy=policy, accepted=(), **SECURE)
    for name in NAMES:
        shutil.copy2(keys[name], folder / name / "site.key")
        with (folder / name / "site.toml").open("a") as site:
            site.write('signing_key = "site.key"\n')
        told = {other: fingerprints[other] for other in NAMES if other != name} | (wrong if name == "ada" else {})
        peers = [option for other, known in told.items() for option in ("--peer-key", f"{other}={known}")]
        assert main(["site", "accept", str(folder / name / "job.toml"), "--yes", *peers]) == 0
    return folder


def test_sites_sign_by_keys_of_every_kind(tmp_path, keys, fingerprints, capsys):
    with_keys(tmp_path, keys, fingerprints)
    told = capsys.readouterr().out
    assert "each site signs its own, and knows the others' by their fingerprints:" in told
    assert f"This site signs by the key  {fingerprints['ada']}" in told
    assert main(["site", "list", str(tmp_path / "ada")]) == 0
    assert "as accepted, 0 begun, keys signed" in capsys.readouterr().out
    assert main(["site", "fingerprint", str(tmp_path / "ada")]) == 0
    assert capsys.readouterr().out == f"{fingerprints['ada']}\n"
    said = []
    assert run(tmp_path, residents(tmp_path, said))[:2] == (0, []), said
    assert digest_of_run(tmp_path) == in_one_process(tmp_path, **SECURE)
    for name in NAMES:
        accepted, _, ended = audit(tmp_path, name)
        assert accepted["peers"] == {other: fingerprints[other] for other in NAMES if other != name}
        assert ended["sent"]["SumSignature"]["messages"] == 1


def test_a_fingerprint_that_differs_is_refused_by_name_before_a_number_leaves(tmp_path, keys, fingerprints):
    with_keys(tmp_path, keys, fingerprints, cy=OTHER)
    code, heard, _ = run(tmp_path, residents(tmp_path))
    assert code == 2
    assert "the key of client 'cy' is not signed by it: its fingerprint is " + fingerprints["cy"] in " ".join(heard)
    # bo and cy know each other, and have been asked for columns perhaps
    assert set(audit(tmp_path, "ada")[-1]["sent"]) <= OF_KEYS


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda site: _cut(site, "peers"), "no fingerprint of bo, cy is known here"),
        (lambda site: _edit(site / "site.toml", 'signing_key = "site.key"\n', ""), "site.toml names no signing_key now"),
        (lambda site: (site / "site.key").chmod(0o640), r"other users may read site.key (mode 640); chmod go-rwx site.key"),
        (lambda site: (site / "site.key").unlink(), "signing_key: site.key is not there"),
        (lambda site: (site / "site.key").write_text("none"), "is no private key that can be used here"),
    ],
)
def test_a_site_that_cannot_sign_as_it_accepted_does_not_begin(tmp_path, keys, fingerprints, change, why):
    with_keys(tmp_path, keys, fingerprints)
    change(tmp_path / "ada")
    code, heard, _ = run(tmp_path, residents(tmp_path))
    assert code == 2
    assert "site 'ada' takes no part: this job is not accepted here" in " ".join(heard)
    assert why in audit(tmp_path, "ada")[-1]["why"]


def _edit(path, old, new):
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def _cut(site, name):
    """Takes a key of the accepted job out of the list."""
    lines = (site / "consent.toml").read_text().splitlines()
    assert any(line.startswith(f"{name} =") for line in lines)
    (site / "consent.toml").write_text("\n".join(line for line in lines if not line.startswith(f"{name} =")) + "\n")


# A man in the middle --------------------


class Middle:
    """A server that puts keys of its own in the place of others', at every client, and reads what each has masked."""

    def __init__(self, monkeypatch, job):
        self.job, self.secrets = job, [os.urandom(32) for _ in NAMES]
        self.undo, self.heard, self.knew = {}, {}, defaultdict(list)
        self.used, self.read, self.plain = defaultdict(int), defaultdict(list), defaultdict(list)
        sums, hide = masked.Sums, masked.Hider.hide
        self.start, self.receive = sums.start, sums._server_receive
        known = sum_keys.PROTOCOL
        self.receive_keys = known.server_receive
        ours = replace(known, server_receive=self.of_keys)
        monkeypatch.setattr(sum_keys, "PROTOCOL", ours)
        monkeypatch.setattr(sums, "start", lambda own, *given: self.note(self.start(own, *given), begins=True))
        monkeypatch.setattr(sums, "_server_receive", lambda own, *given: self.of_sums(own, *given))

        def hidden(own, numbers, *about):
            self.plain[own.pairs.client].append(numbers.copy())
            self.knew[own.pairs.client].append(own.known)  # of what the server has told all: it knows that itself
            return hide(own, numbers, *about)

        monkeypatch.setattr(masked.Hider, "hide", hidden)

    def of_keys(self, state, sender, event):
        state, effects = self.receive_keys(state, sender, event)
        return state, [(k, self.changed(k, one) if isinstance(one, sum_keys.SumKeys) else one) for k, one in effects]

    def changed(self, k, message):
        n = len(NAMES)
        keys = [message.keys[32 * k : 32 * k + 32] if j == k else public_key(self.secrets[j]) for j in range(n)]
        shared = {j: Pairs.agree(j, self.secrets[j], NAMES, keys, self.job).shared[k] for j in range(n) if j != k}
        # Numbers from the other end: what a client adds, this takes away.
        self.undo[k] = Pairs(n - 1 - k, n, {n - 1 - j: secret for j, secret in shared.items()})
        return replace(message, keys=b"".join(keys))

    def note(self, started, *, begins=False):
        """Keeps what each client has heard in this exchange, after each message to it."""
        self.heard = {k: [bytes(32)] for k in range(len(NAMES))} if begins else self.heard
        for k, effect in started[1]:
            if k >= 0:
                self.heard[k].append(masked._chained(self.heard[k][-1], masked.digest(effect)))
        return started

    def of_sums(self, own, state, sender, event):
        if isinstance(event, masked.Masked):
            form = next(one.form for one in own.used if one.masked is type(event))
            came, knew = np.frombuffer(event.words, "<u8").reshape(form.limbs, -1), self.knew[sender].pop(0)
            for heard in self.heard[sender]:  # where it was asked several things at once, one of them
                words = came.astype(np.uint64)
                self.undo[sender].hide(words, self.used[sender], type(event).kind, masked._chained(knew, heard))
                if not words[:, -1].any():  # the word that is 0 for each client
                    break
            self.used[sender] += 1
            assert not words[:, -1].any()
            self.read[sender].append(from_words(words, form))
            event = replace(event, words=words.astype("<u8").tobytes())
        return self.note(self.receive(own, state, sender, event))


def test_without_signatures_a_server_in_the_middle_reads_every_client_and_nobody_sees_it(tmp_path, monkeypatch, capsys):
    found(tmp_path, **SECURE)
    job, whole = tmp_path / "server" / "job.toml", in_one_process(tmp_path, **SECURE)
    middle = Middle(monkeypatch, secure.job_digest(load(job)[0], NAMES))
    assert run(tmp_path, residents(tmp_path))[:2] == (0, [])
    assert digest_of_run(tmp_path) == whole
    for k in range(len(NAMES)):
        assert len(middle.read[k]) > 3
        for read, plain in zip(middle.read[k], middle.plain[k]):
            assert np.abs(read[: len(plain)] - plain).max() < 1e-12 * (1 + np.abs(plain).max())
    # And that is what a holder is told before.
    assert main(["site", "accept", str(tmp_path / "ada" / "job.toml"), "--yes", "--runs", "1"]) == 0
    told = capsys.readouterr().out
    assert "a server that was changed can put its own in their place, and read each client's numbers" in " ".join(told.split())
    assert "This site signs no key, as its site.toml names no signing_key" in told


def test_with_signatures_the_server_in_the_middle_is_refused_by_name(tmp_path, keys, fingerprints, monkeypatch):
    with_keys(tmp_path, keys, fingerprints)
    middle = Middle(monkeypatch, secure.job_digest(load(tmp_path / "server" / "job.toml")[0], NAMES))
    code, heard, _ = run(tmp_path, residents(tmp_path))
    assert code == 2
    assert "is not signed by it: somebody has put another in its place" in " ".join(heard)
    assert len(middle.undo) == 3  # it has tried
    assert not middle.plain  # and no client had a number to hide yet
    assert not middle.read
    for name in NAMES:
        assert set(audit(tmp_path, name)[-1]["sent"]) <= OF_KEYS


# Keys --------------------


@pytest.mark.parametrize("kind", MAKERS)
def test_a_signature_is_of_one_name_one_key_and_one_content(kind):
    ada, bo = Identity(MAKERS[kind]()), Identity(MAKERS[kind]())
    eve = Identity(MAKERS[kind](), {"ada": ada.fingerprint, "bo": bo.fingerprint})
    signature = ada.sign(b"content")
    assert 0 < len(signature) <= sum_keys.LONGEST
    assert eve.fault("ada", b"content", signature) == ""
    assert "somebody has put another in its place" in eve.fault("ada", b"contents", signature)
    assert f"its fingerprint is {ada.fingerprint}, and {bo.fingerprint} is known here" in eve.fault("bo", b"content", signature)
    assert "not known here" in eve.fault("cy", b"content", signature)
    for cut in (b"", b"\0", signature[:1], signature[:20], signature[:-1], b"\xff\xff" + signature[2:]):
        assert eve.fault("ada", b"content", cut) != ""
    public = signature[: 2 + int.from_bytes(signature[:2], "little")]
    bare = ada.key.sign(b"content", *_scheme(ada.key.public_key()))  # as an engine would have it sign what a server says
    assert "another in its place" in eve.fault("ada", b"content", public + bare)


def test_the_longest_key_has_a_signature_that_travels():
    assert len(Identity(rsa.generate_private_key(65537, 4096)).sign(b"x")) <= sum_keys.LONGEST


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: write_key(path, MAKERS["ec"](), password=b"secret"), "it has a password"),
        (
            lambda path: write_key(path, rsa.generate_private_key(65537, 1024)),
            "is a key of another kind; wanted RSA of 2048 to 4096",
        ),
        (lambda path: write_key(path, ec.generate_private_key(ec.SECP256K1())), "is a key of another kind"),
        (lambda path: write_key(path, dsa.generate_private_key(2048)), "is a key of another kind"),
        (lambda path: path.write_bytes(b"\xff" * 100), "is no private key"),
        (lambda path: path.mkdir(), "cannot be read"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(tmp_path, make, why):
    make(tmp_path / "own.key")
    if (tmp_path / "own.key").is_file():
        (tmp_path / "own.key").chmod(0o600)
    with pytest.raises(JobError) as fault:
        read_key(tmp_path / "own.key")
    assert why in str(fault.value)
    assert str(tmp_path) not in str(fault.value)


def test_a_fingerprint_is_that_of_openssl(tmp_path):
    """SHA-256 of the public key in DER, which `openssl pkey -pubout -outform DER | sha256sum` prints, in any way of writing."""
    import hashlib

    key = MAKERS["ec"]()
    der = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digits = hashlib.sha256(der).hexdigest()
    own = Identity(key).fingerprint
    assert as_fingerprint(digits) == as_fingerprint(f" SHA256:{digits.upper()} ") == as_fingerprint(own) == own
    for wrong in ("", "SHA256:", digits[1:], f"{digits}0", digits.replace(digits[0], "g")):
        with pytest.raises(JobError, match="is no fingerprint: wanted SHA256: and 64 digits"):
            as_fingerprint(wrong)


def test_a_list_of_fingerprints_is_one_of_all_others():
    one, two = "SHA256:01", "SHA256:02"
    own = "SHA256:00"
    check_peers(NAMES, "ada", {"bo": one, "cy": two}, own)
    for peers, why in (
        ({"bo": one}, "no fingerprint of cy is known here"),
        ({"bo": one, "cy": one}, "bo and cy have one fingerprint"),
        ({"bo": one, "cy": two, "ada": "SHA256:03"}, "a fingerprint of ada was given"),
        ({"bo": one, "cy": own}, "cy and ada, this site, have one fingerprint: each site has a key of its own"),
    ):
        with pytest.raises(JobError, match=why):
            check_peers(NAMES, "ada", peers, own)


def test_a_sites_own_fingerprint_is_nobody_elses(tmp_path, keys, fingerprints, capsys):
    """Neither when a job is accepted nor when it begins, with a list from a version that took it; the advice leads to a job."""
    found(tmp_path, accepted=(), **SECURE)
    site, own, told = tmp_path / "ada", fingerprints["ada"], fingerprints
    shutil.copy2(keys["ada"], site / "site.key")
    with (site / "site.toml").open("a") as file:
        file.write('signing_key = "site.key"\n')
    wrong = ["--peer-key", f"bo={told['bo']}", "--peer-key", f"cy={own}"]
    assert main(["site", "accept", str(site / "job.toml"), "--yes", *wrong]) == 2
    assert "cy and ada, this site, have one fingerprint" in capsys.readouterr().err
    assert not (site / "consent.toml").exists()
    assert main(["site", "accept", str(site / "job.toml"), "--yes", *wrong[:-1], f"cy={told['cy']}"]) == 0
    _edit(site / "consent.toml", told["cy"], own)
    capsys.readouterr()
    assert main(["site", "list", str(site)]) == 0
    assert "refused: cy and ada, this site, have one fingerprint" in capsys.readouterr().out


@pytest.mark.parametrize("kind", MAKERS)
def test_a_server_cannot_hand_a_site_its_own_signature_as_anothers(kind):
    """What is signed ends with the signer's name: not even a site that took its own fingerprint for another's believes it."""
    signers = [Identity(MAKERS[kind]()) for _ in NAMES]
    secrets, believes = [os.urandom(32) for _ in NAMES], signers[0].fingerprint
    ada = replace(signers[0], peers={"bo": signers[1].fingerprint, "cy": believes})
    state = sum_keys.Client(NAMES.index("ada"), tuple(NAMES), bytes(16), secrets[0], ada)
    state, _ = sum_keys.client_receive(state, sum_keys.AskSumKey(0))
    everybody = b"".join(map(public_key, secrets))  # the last of these secrets is the server's: it plays cy
    state, [told] = sum_keys.client_receive(state, sum_keys.SumKeys(everybody, 1))
    of_bo = signers[1].sign(sum_keys.signed(state, 1))
    handed = [told.signature, of_bo, told.signature]
    lengths = b"".join(len(one).to_bytes(2, "little") for one in handed)
    with pytest.raises(JobError, match="the key of client 'cy' is not signed by it: somebody has put another in its place"):
        sum_keys.client_receive(state, sum_keys.SumSignatures(lengths, b"".join(handed)))
    # Its own key in another's place would make a secret that the server lacks, but no sum that cancels: it is refused, too.
    mirrored = b"".join(map(public_key, [secrets[0], secrets[1], secrets[0]]))
    fresh = sum_keys.Client(0, tuple(NAMES), bytes(16), secrets[0], ada)
    with refusal(JobError, "ada", "cy"):
        sum_keys.client_receive(fresh, sum_keys.SumKeys(mirrored, 1))


def test_a_job_is_accepted_with_a_fingerprint_of_everybody_or_not_at_all(tmp_path, keys, fingerprints, capsys, monkeypatch):
    with_keys(tmp_path, keys, fingerprints)
    site = tmp_path / "ada"
    monkeypatch.chdir(site)
    assert main(["site", "accept", "job.toml"]) == 0
    assert "accepted already" in capsys.readouterr().out
    # Another job of the same clients: what was compared once is shown again, and not asked for.
    shutil.copy(site / "job.toml", site / "second.toml")
    _edit(site / "second.toml", "seed = 5", "seed = 6")
    assert main(["site", "accept", "second.toml", "--yes", "--peer-key", f"bo={OTHER}"]) == 0
    assert [said.peers["bo"] for said in Consent(site).read().job] == [fingerprints["bo"], OTHER]
    (site / "consent.toml").unlink()
    for options, why in (
        ([], "no fingerprint of bo, cy is known here"),
        (["--peer-key", f"bo={OTHER}"], "no fingerprint of cy is known here"),
        (["--peer-key", "bo"], "wanted NAME=FINGERPRINT"),
        (["--peer-key", "bo=12"], "'12' is no fingerprint"),
    ):
        assert main(["site", "accept", "job.toml", "--yes", *options]) == 2
        assert why in capsys.readouterr().err
    _edit(site / "site.toml", 'signing_key = "site.key"\n', "")
    assert main(["site", "accept", "job.toml", "--yes", "--peer-key", f"bo={OTHER}"]) == 2
    assert "site.toml names no signing_key, so nobody's key is looked at" in capsys.readouterr().err
    assert main(["site", "fingerprint"]) == 2
    assert "signing_key is missing" in capsys.readouterr().err


def test_fingerprints_that_no_option_gives_are_asked_for(tmp_path, keys, fingerprints, monkeypatch, capsys):
    found(tmp_path, accepted=(), **SECURE)
    site = tmp_path / "ada"
    shutil.copy2(keys["ada"], site / "site.key")
    with (site / "site.toml").open("a") as file:
        file.write('signing_key = "site.key"\n')
    asked, answers = [], iter([fingerprints["bo"].lower().removeprefix("sha256:"), fingerprints["cy"], "yes"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda text: (asked.append(text), next(answers))[1])
    assert main(["site", "accept", str(site / "job.toml")]) == 0
    assert [("bo" in text, "cy" in text) for text in asked] == [(True, False), (False, True), (False, False)]
    assert Consent(site).read().job[0].peers == {name: fingerprints[name] for name in ("bo", "cy")}
    assert capsys.readouterr().out.count(fingerprints["bo"]) == 1  # shown before the yes


# A holder that demands them --------------------


@pytest.mark.parametrize(
    ("sums", "signs", "allowed"), [("secure", False, True), ("signed", False, False), ("signed", True, True)]
)
def test_a_holder_can_demand_signed_sums(tmp_path, keys, fingerprints, capsys, sums, signs, allowed):
    policy = f'sums = "{sums}"\n' + POLICY
    if signs:
        with_keys(tmp_path, keys, fingerprints, policy)
    else:
        found(tmp_path, policy, **SECURE)
    assert main(["check", str(tmp_path / "ada" / "job.toml"), "--local", str(tmp_path / "ada" / "private" / "ada.csv")]) == (
        0 if allowed else 2
    )
    told = capsys.readouterr().out
    assert ("no key of this client is signed here" in told) is not allowed
    code, heard, _ = run(tmp_path, residents(tmp_path))
    assert code == (0 if allowed else 2), heard
    if not allowed:
        assert "refused by the holder's policy" in " ".join(heard)
        assert audit(tmp_path, "ada")[-1]["sent"].keys() <= CONTROL


def test_a_holder_that_demands_secure_sums_sends_nothing_of_a_job_without(tmp_path, capsys):
    found(tmp_path, 'sums = "secure"\n' + POLICY)
    code, heard, _ = run(tmp_path, residents(tmp_path))
    assert code == 2
    assert "refused by the holder's policy" in " ".join(heard)
    assert all(audit(tmp_path, name)[-1]["sent"].keys() <= CONTROL for name in NAMES)
    assert main(["site", "accept", str(tmp_path / "ada" / "job.toml"), "--yes"]) in (0, 2)
    (tmp_path / "ada" / "consent.toml").unlink()
    assert main(["site", "accept", str(tmp_path / "ada" / "job.toml"), "--yes"]) == 2
    told = capsys.readouterr()
    assert 'the policy wants job.sums = "secure"' in told.out + told.err
