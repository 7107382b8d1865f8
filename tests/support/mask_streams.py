"""Runs with secure sums that are watched: which streams hid anything, whether one was used twice, and words before and after."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core.masked import Hider
from fedkern.errors import FedkernError
from fedkern.privacy.masks import Pairs, Stream, Words
from support.interrupted import Crash, run


class Streams:
    """Holds every stream that hid anything, over as many starts as there are."""

    def __init__(self) -> None:
        self.hid: dict[Stream, list[int]] = defaultdict(list)  # the clients that it hid something of
        self.secrets: set[bytes] = set()

    def check(self, *, starts: int = 0) -> None:
        """No stream has hidden two things of one client: it is of two clients, and each hides one thing under it."""
        assert self.hid
        assert all(len(clients) == len(set(clients)) <= 2 for clients in self.hid.values())
        counts = {(stream.key, stream.nonce[:4]) for stream in self.hid}
        assert len(counts) == len(self.hid)  # the count alone tells all streams of a key apart
        if starts:
            assert len(self.secrets) == 3 * starts  # of three pairs


def watched_streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Returns the streams of all runs from here to the end of the test."""
    seen, agree = Streams(), Pairs.agree

    def watched(*given: Any) -> Pairs:
        made = agree(*given)
        seen.secrets.update(made.shared.values())
        return replace(made, watch=lambda stream, plain: seen.hid[stream].append(made.client))

    monkeypatch.setattr(Pairs, "agree", watched)
    return seen


def watched_words(monkeypatch: pytest.MonkeyPatch) -> tuple[list[bytes], list[bytes]]:
    """Returns the bytes of all words from here to the end of the test, as they travel and as they were before."""
    hidden, plain, hide = list[bytes](), list[bytes](), Pairs.hide

    def watched(own: Pairs, words: Words, *about: Any) -> None:
        plain.append(words.tobytes())
        hide(own, words, *about)
        hidden.append(words.tobytes())

    monkeypatch.setattr(Pairs, "hide", watched)
    return hidden, plain


def assert_uniform(hidden: list[bytes], plain: list[bytes]) -> None:
    """All bytes of masked words are as likely; those of the words beneath them are not."""
    counts = [np.bincount(np.frombuffer(b"".join(parts), np.uint8), minlength=256) for parts in (hidden, plain)]
    far = [float(((one - one.mean()) ** 2 / one.mean()).sum()) for one in counts]  # chi-square of 255 degrees of freedom
    assert far[0] < 255 + 6 * np.sqrt(2 * 255)
    assert far[1] > 1e4


def many_starts(job: Path, out: Path, seed: int) -> fedkern.Result:
    """A job that is stopped or crashes at random, as often as luck has it, and is gone on with until it ends."""
    luck, resume = random.Random(seed), False
    while True:
        how = {luck.choice(["stop", "crash"]): luck.randint(1, 24)} if luck.random() < 0.7 else {}
        with suppress(FedkernError, Crash):
            if (ended := run(job, out, resume=resume, **how)) is not None:
                return ended
        resume = (out / "job.json").exists()


def tell_one_another_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the second client know other units, or scales, than the others; of columns, which are JSON, it knows the same."""
    know = Hider.know

    def knows(own: Hider, known: bytes) -> None:
        know(own, known if known.startswith(b"{") or own.pairs.client != 1 else known + b".")

    monkeypatch.setattr(Hider, "know", knows)
