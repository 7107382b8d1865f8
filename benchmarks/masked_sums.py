"""What masked sums cost a client, and the server: seconds of CPU for a message of many numbers.

    python benchmarks/masked_sums.py [--numbers 100000] [--rounds 15]

Prints medians of: words made of the numbers, masks of all other clients added to them, and numbers made of the sum's words.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

from fedkern.privacy.masks import ONCE, ROUND, Form, Pairs, from_words, public_key, to_words


def pairs(n_clients: int) -> Pairs:
    """The secrets of the client in the middle with all others."""
    secrets = [os.urandom(32) for _ in range(n_clients)]
    names, keys = [str(k) for k in range(n_clients)], [public_key(secret) for secret in secrets]
    return Pairs.agree(n_clients // 2, secrets[n_clients // 2], names, keys, b"benchmark")


def milliseconds(call: Callable[[], object], rounds: int) -> float:
    """The median of CPU time."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        taken.append(time.process_time() - began)
    return 1e3 * statistics.median(taken)


def measure(n_clients: int, form: Form, n: int, rounds: int) -> tuple[float, float, float]:
    """Milliseconds of words, masks, and numbers of the sum."""
    values, own = np.random.default_rng(1).normal(0, 1e3, n), pairs(n_clients)
    words, _ = to_words(values, form, n_clients)
    counter = iter(range(10**6))

    def make() -> object:
        return to_words(values, form, n_clients)

    def hide() -> None:
        own.hide(words, next(counter), 201, bytes(32))

    def read() -> object:
        return from_words(words, form)

    return milliseconds(make, rounds), milliseconds(hide, rounds), milliseconds(read, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    print(f"{chosen.numbers:,} numbers, CPU milliseconds (medians of {chosen.rounds})")
    print(f"{'clients':>7} {'bits':>5} {'words':>7} {'masks':>7} {'client':>7} {'server':>7}")
    for n_clients, form in ((3, ROUND), (10, ROUND), (49, ROUND), (10, ONCE)):
        words, masks, read = measure(n_clients, form, chosen.numbers, chosen.rounds)
        print(f"{n_clients:7} {64 * form.limbs:5} {words:7.2f} {masks:7.2f} {words + masks:7.2f} {read:7.2f}")


if __name__ == "__main__":
    main()
