"""Masked sums: exact, without a mask left, of words that are uniformly distributed, and no stream hides two things."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from fedkern._core import words as compiled
from fedkern.algorithms.core.masked import saturated
from fedkern.errors import JobError
from fedkern.privacy import masks
from fedkern.privacy.masks import (
    LABEL,
    ONCE,
    ROUND,
    Form,
    Group,
    Pairs,
    Stream,
    Words,
    from_words,
    n_neighbours,
    public_key,
    to_words,
)

FORMS = pytest.mark.parametrize("form", [ROUND, ONCE], ids=["round", "once"])
NAMES = ("ada", "bo", "cy", "di", *(f"client-{k}" for k in range(4, 60)))
QUESTION = bytes(32)


def group(n: int = 4, start: int = 0, job: bytes = b"job") -> list[Pairs]:
    """The clients of one start of a run, whose secrets are digests, so that a test repeats."""
    secrets = [hashlib.sha256(b"%d %d" % (start, k)).digest() for k in range(n)]
    keys = [public_key(secret) for secret in secrets]
    return [Pairs.agree(k, secret, NAMES[:n], keys, job) for k, secret in enumerate(secrets)]


def number_of(words: Words, form: Form, i: int) -> Fraction:
    """The number that a word is, by whole numbers of any length."""
    units = whole(words, i)
    return Fraction(units - (1 << (64 * form.limbs)) * (units >> (64 * form.limbs - 1)), 1 << form.fraction)


def nearest(value: float, form: Form) -> Fraction:
    """A value in whole units, ties to even, as Python rounds fractions."""
    return Fraction(round(Fraction(value) * (1 << form.fraction)), 1 << form.fraction)


def whole(words: Words, i: int = 0) -> int:
    """A word without its sign."""
    return sum(int(limb) << (64 * k) for k, limb in enumerate(words[:, i]))


def add(to: Words, words: Words) -> None:
    compiled.add(to, words, 0)


def subtract(of: Words, words: Words) -> None:
    compiled.add(of, words, 1)


floats = st.floats(allow_nan=False, allow_infinity=False)


@FORMS
@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(floats, floats, floats, floats), min_size=1, max_size=5))
def test_a_sum_of_masked_words_is_the_sum_of_the_numbers(form: Form, columns: list[tuple[float, ...]]) -> None:
    values, clients = np.array(columns).T, group()
    parts, inside = [], []
    for own, client in zip(values, clients):
        if (np.abs(own) >= form.each(4)).any():
            with pytest.raises(ValueError, match="a number is out of the range of masked words"):
                to_words(own, form, len(clients))
        clipped = saturated(own, form.each(4))
        words = to_words(clipped, form, len(clients))
        for i, value in enumerate(clipped):
            assert number_of(words, form, i) == nearest(value, form)
        client.hide(words, 3, 201, QUESTION)
        parts.append(words)
        inside.append(clipped)
    sums = masks.total(parts)
    for i, told in enumerate(from_words(sums, form)):
        exact = sum((nearest(own[i], form) for own in inside), Fraction(0))
        assert number_of(sums, form, i) == exact
        assert told == exact.numerator / exact.denominator  # Python rounds a quotient of whole numbers once


@FORMS
def test_numbers_at_the_edges_are_what_they_were(form: Form) -> None:
    largest = math.nextafter(form.each(3), 0)
    unit = 2.0**-form.fraction
    numbers = np.array([0.0, -0.0, unit, -unit, unit / 2, 1.5 * unit, -1.5 * unit, 0.1, -1e9, largest, -largest, 5e-324])
    words = to_words(numbers, form, 3)
    near = [0.0, 0.0, unit, -unit, 0.0, 2 * unit, -2 * unit]
    told = from_words(words, form)
    np.testing.assert_array_equal(told[:7], near)
    np.testing.assert_allclose(told[7:], numbers[7:], rtol=0, atol=unit / 2)
    np.testing.assert_array_equal(told[8:11], numbers[8:11])
    beyond = np.array([form.each(3), -form.each(3), np.inf, -np.inf, np.nan])
    for one in beyond:
        with pytest.raises(ValueError, match="a number is out of the range of masked words"):
            to_words(np.array([one]), form, 3)
    np.testing.assert_array_equal(saturated(beyond, form.each(3)), [largest, -largest, largest, -largest, 0.0])


@FORMS
@settings(deadline=None, max_examples=50)
@given(st.data())
def test_limbs_are_added_with_their_carries(form: Form, data: st.DataObject) -> None:
    edge = st.sampled_from([0, 1, 2**63, 2**64 - 2, 2**64 - 1])
    limbs = st.lists(st.one_of(edge, st.integers(0, 2**64 - 1)), min_size=form.limbs, max_size=form.limbs)
    a, b = (np.array(data.draw(limbs), np.uint64)[:, np.newaxis] for _ in range(2))

    both = a.copy()
    add(both, b)
    assert whole(both) == (whole(a) + whole(b)) % 2 ** (64 * form.limbs)
    subtract(both, b)
    np.testing.assert_array_equal(both, a)
    subtract(both, b)
    assert whole(both) == (whole(a) - whole(b)) % 2 ** (64 * form.limbs)
    many = both.copy()
    compiled.add(many, np.array([a, b, a, b, b]).tobytes(), 2)  # the first two are taken away
    assert whole(many) == (whole(both) + whole(b)) % 2 ** (64 * form.limbs)


@FORMS
@pytest.mark.parametrize("n_clients", [3, 4])
@pytest.mark.parametrize("ones", [False, True])
def test_streams_go_on_from_block_to_block(form: Form, n_clients: int, ones: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whole numbers of any length; also where all words of a stream are ones: carries and borrows go through all limbs."""
    words = np.random.default_rng(2).integers(0, 2**64, (form.limbs, 7), np.uint64)
    if ones:
        monkeypatch.setattr(masks, "_encryptor", lambda key: Ones())
        words[:, 0], words[:, 1], words[:, 2] = 0, 2**64 - 1, 1
    monkeypatch.setattr(masks, "BLOCK", 3)
    for client in group(n_clients):
        hidden = words.copy()
        client.hide(hidden, 3, 243, QUESTION)
        want = [whole(words, i) for i in range(7)]
        for other in client.shared:
            key, nonce = client.stream(other, 3, 243, QUESTION).__dict__.values()
            stream = Cipher(ChaCha20(key, bytes(4) + nonce), None).encryptor().update(bytes(words.nbytes))
            if ones:
                stream = b"\xff" * words.nbytes
            limbs = np.frombuffer(stream, "<u8")
            for first, last in ((0, 3), (3, 6), (6, 7)):
                block = limbs[form.limbs * first : form.limbs * last].reshape(form.limbs, -1)
                for i in range(first, last):
                    want[i] += whole(block, i - first) if other > client.client else -whole(block, i - first)
        assert [whole(hidden, i) for i in range(7)] == [units % 2 ** (64 * form.limbs) for units in want]


class Ones:
    """A stream of ones."""

    def reset_nonce(self, nonce: bytes) -> None:
        """It is the same for all."""

    def update_into(self, zeros: bytes, buffer: bytearray) -> None:
        buffer[: len(zeros)] = b"\xff" * len(zeros)


def test_masks_are_the_streams_of_the_standards() -> None:
    """ChaCha20 of RFC 8439 from its first block; the nonce is a count and a keyed BLAKE2b (RFC 7693) of all that it is for."""
    ada, bo, cy = group(3)
    keys = dict(bo.shared)
    for counter in (7, 2**32 - 1):
        words = np.zeros((2, 5), np.uint64)
        bo.hide(words, counter, 243, QUESTION)
        want = np.zeros((2, 5), np.uint64)
        for other, change in ((0, subtract), (2, add)):
            about = LABEL + b"message " + counter.to_bytes(8, "little") + (243).to_bytes(4, "little") + QUESTION
            code = hashlib.blake2b(about, key=keys[other][32:], digest_size=8).digest()
            nonce = counter.to_bytes(4, "little") + code
            assert bo.stream(other, counter, 243, QUESTION) == Stream(keys[other][:32], nonce)
            stream = Cipher(ChaCha20(keys[other][:32], bytes(4) + nonce), None).encryptor().update(bytes(80))
            change(want, np.frombuffer(stream, "<u8").reshape(2, 5))
        np.testing.assert_array_equal(words, want)
    assert keys[0] == ada.shared[1]
    assert keys[2] == cy.shared[1]
    with pytest.raises(OverflowError):
        bo.hide(words, 2**32, 243, QUESTION)  # a count that had to begin again


def chance(counts: np.ndarray) -> float:
    """The probability of counts that lie as far from equal ones, where all are as likely."""
    even = counts.sum() / len(counts)
    return float(chi2.sf(((counts - even) ** 2).sum() / even, len(counts) - 1))


@FORMS
def test_each_masked_word_is_uniform_and_says_nothing_of_its_number(form: Form) -> None:
    n = 4000
    for value in (0.0, 1.0, -1e15):
        plain = to_words(np.full(n, value), form, 4)
        masked = plain.copy()
        group(start=7)[1].hide(masked, 0, 201, QUESTION)
        for limb in masked:
            of_bytes = limb.view(np.uint8).reshape(-1, 8)
            assert all(chance(np.bincount(of_bytes[:, i], minlength=256)) > 1e-5 for i in range(8))
        # The same over the keys of many starts, at one place.
    words = []
    for start in range(300):
        one = to_words(np.array([1.0]), form, 4)
        group(start=start)[2].hide(one, 0, 201, QUESTION)
        words.append(one[:, 0])
    top = np.array(words)[:, -1] >> np.uint64(60)
    assert chance(np.bincount(top.astype(int), minlength=16)) > 1e-5
    # What is not masked fails the same test.
    plain = to_words(np.full(n, 1.0), form, 4)
    assert chance(np.bincount(plain[-1].view(np.uint8), minlength=256)) < 1e-100


@pytest.mark.parametrize("fault", ["absent", "counter", "kind", "question", "job", "start"])
def test_masks_of_clients_that_differ_do_not_cancel(fault: str) -> None:
    clients = group()
    if fault in ("job", "start"):
        clients[2] = group(job=b"another")[2] if fault == "job" else group(start=1)[2]
    parts = []
    for k, client in enumerate(clients):
        words = to_words(np.ones(500), ROUND, 4)
        other = k == 2
        client.hide(
            words,
            1 if fault == "counter" and other else 0,
            202 if fault == "kind" and other else 201,
            b"\1" * 32 if fault == "question" and other else QUESTION,
        )
        if not (fault == "absent" and other):
            parts.append(words)
    left = masks.total(parts)
    assert chance(np.bincount(left[-1] >> np.uint64(60), minlength=16)) > 1e-5
    assert np.median(np.abs(from_words(left, ROUND))) > 2.0**60


def test_no_stream_hides_two_things() -> None:
    seen: Counter[Stream] = Counter()
    for start in range(3):
        for client in group(start=start):
            watched = Pairs(client.client, client.n_clients, client.shared, lambda stream, plain: seen.update([stream]))
            for counter in range(3):
                for kind in (201, 215):
                    for question in (QUESTION, b"\1" * 32):
                        watched.hide(np.zeros((2, 4), np.uint64), counter, kind, question)
    assert len(seen) == 3 * 6 * 12  # of 6 pairs, each with streams of its own
    assert set(seen.values()) == {2}  # of both ends, which is what makes them cancel


# Neighbours --------------------


def graph_of(n: int, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    luck = random.Random(seed)
    return Group.of(b"job", NAMES[:n], [luck.randbytes(32) for _ in range(n)]).neighbours


def pieces(graph: tuple[tuple[int, ...], ...], gone: set[int]) -> int:
    """Into how many pieces a graph falls without some of its clients."""
    left, count = set(range(len(graph))) - gone, 0
    while left:
        open_, count = [left.pop()], count + 1
        while open_:
            more = left.intersection(graph[open_.pop()])
            left -= more
            open_ += more
    return count


def paths(graph: tuple[tuple[int, ...], ...], start: int, end: int) -> int:
    """How many paths join two clients that are no neighbours and share no other client: by Menger, how few cut them apart."""
    n = len(graph)
    # Each client is two nodes, in (k) and out (n + k), so that one path goes through it; the bits of `room` are where one can go.
    room = [1 << (n + k) for k in range(n)] + [sum(1 << j for j in graph[k]) for k in range(n)]
    for count in itertools.count():
        came, open_, seen = {}, [n + start], 1 << (n + start)
        while open_ and end not in came:
            at = open_.pop()
            new = room[at] & ~seen
            seen |= new
            while new:
                node = new.bit_length() - 1
                new ^= 1 << node
                came[node] = at
                open_.append(node)
        if end not in came:
            return count
        node = end
        while node != n + start:
            room[came[node]] ^= 1 << node
            room[node] |= 1 << came[node]
            node = came[node]
    raise AssertionError


def test_few_clients_are_neighbours_of_all_and_more_of_some() -> None:
    for n in range(3, 12):
        assert all(beside == tuple(j for j in range(n) if j != k) for k, beside in enumerate(graph_of(n)))
    for n in range(12, 61):
        graph = graph_of(n)
        assert {len(set(beside)) for beside in graph} == {n_neighbours(n)} == {2 * math.ceil(math.log2(n)) + 2}
        assert all(k != j and k in graph[j] for k, beside in enumerate(graph) for j in beside)


@pytest.mark.parametrize("n", range(3, 61))
def test_no_fewer_than_all_neighbours_of_one_cut_a_group_apart(n: int) -> None:
    """All choices of those that are gone for few clients; for more, as many paths between any two that share no client."""
    graph = graph_of(n)
    k = n_neighbours(n)
    if n <= 15:
        assert all(pieces(graph, set(gone)) == 1 for gone in itertools.combinations(range(n), k - 1))
    for start in (0, 1):  # places on a ring are alike
        far = [end for end in range(n) if end != start and end not in graph[start]]
        assert all(paths(graph, start, end) >= k for end in far)
        assert bool(far) == (n > 11)
        assert not far or pieces(graph, set(graph[start])) > 1  # and so many do


def test_who_is_whose_neighbour_is_by_chance_and_by_every_key() -> None:
    n, k = 20, n_neighbours(20)
    counts = Counter(other for seed in range(2000) for other in graph_of(n, seed)[3])
    assert set(counts) == set(range(n)) - {3}
    want = 2000 * k / (n - 1)
    assert max(abs(count - want) for count in counts.values()) < 5 * math.sqrt(want * (1 - k / (n - 1)))
    keys = [random.Random(1).randbytes(32) for _ in range(n)]
    keys = [bytes([j]) + key[1:] for j, key in enumerate(keys)]
    for changed in range(n):
        other = [key if j != changed else bytes(32) for j, key in enumerate(keys)]
        assert Group.of(b"job", NAMES[:n], keys).neighbours != Group.of(b"job", NAMES[:n], other).neighbours
    assert Group.of(b"job", NAMES[:n], keys).neighbours != Group.of(b"other", NAMES[:n], keys).neighbours


def hidden(clients: list[Pairs]) -> Iterator[Words]:
    for k, client in enumerate(clients):
        words = to_words(np.array([float(k), 0.0]), ROUND, len(clients))
        client.hide(words, 0, 243, QUESTION)
        yield words


def test_masks_of_neighbours_cancel_and_those_of_another_graph_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = group(20)
    assert all(len(client.shared) == 12 for client in clients)
    np.testing.assert_array_equal(from_words(masks.total([*hidden(clients)]), ROUND), [190.0, 0.0])
    # A client that has more neighbours, as of another version, shares no secret with anybody: its graph is part of all.
    monkeypatch.setattr(masks, "n_neighbours", lambda n: 14)
    clients[5] = group(20)[5]
    assert not {*clients[5].shared.values()} & {secret for k in range(20) if k != 5 for secret in clients[k].shared.values()}
    assert masks.total([*hidden(clients)])[:, -1].any()  # which the server's machine never gets


def test_keys_that_cannot_be_are_refused() -> None:
    secrets = [bytes([k]) * 32 for k in (1, 2, 3)]
    keys = [public_key(secret) for secret in secrets]
    with pytest.raises(JobError, match="need 3 clients, and there are 2"):
        Pairs.agree(0, secrets[0], NAMES[:2], keys[:2], b"")
    with pytest.raises(JobError, match="'bo', 'cy' have the same key"):
        Pairs.agree(0, secrets[0], NAMES[:3], [keys[0], keys[1], keys[1]], b"")
    with pytest.raises(JobError, match="another key of client 'bo' than it has sent"):
        Pairs.agree(1, secrets[1], NAMES[:3], [keys[0], keys[2], keys[1]], b"")
    with pytest.raises(JobError, match="key of client 'cy' is none"):
        Pairs.agree(0, secrets[0], NAMES[:3], [keys[0], keys[1], bytes(32)], b"")
    assert repr(Pairs.agree(0, secrets[0], NAMES[:3], keys, b"")) == "Pairs(client=0, 2 neighbours)"
