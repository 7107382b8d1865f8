"""Agrees on the level of instructions with which all ranks of a job compute.

A rank tells the levels that it can use: its module was built with them, its processor has them, and FEDKERN_ISA allows them. In
the message they are bits, one for each name of LEVELS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import JobError
from .rollcall import name_ranks

LEVELS = ("baseline", "avx2", "avx512", "neon")  # numbers of messages: new ones come behind
OF_ARM = 1 << LEVELS.index("neon")


def usable_levels() -> int:
    """Returns the levels that this process can use.

    Examples
    --------
    >>> from fedkern.transports import levels
    >>> levels.usable_levels() > 0
    True
    """
    from .. import _core

    known = list(_core.levels().items())
    names = [name for name, _ in known]
    return sum(1 << LEVELS.index(name) for name, here in known[names.index(_core.isa()) :] if here)


def agree_on_level(by_rank: Sequence[int], label: Callable[[int], str] | None = None) -> int:
    """Returns the number of the highest level that all ranks can use.

    Where there is none, a JobError names the ranks whose module must be built anew, by `label` if it is given.

    Examples
    --------
    >>> from fedkern.transports.levels import LEVELS, agree_on_level
    >>> LEVELS[agree_on_level([0b111, 0b011])]
    'avx2'
    """

    def call(ranks: Sequence[int]) -> str:
        return ", ".join(map(label, ranks)) if label else name_ranks(ranks)

    for rank, levels in enumerate(by_rank):
        if not 0 < levels < 1 << len(LEVELS):
            raise JobError(f"{call([rank])} tells no level of instructions that is known ({levels}): install fedkern there anew")
    common = by_rank[0]
    for levels in by_rank:
        common &= levels
    if common:
        return common.bit_length() - 1
    highest = [levels.bit_length() - 1 for levels in by_rank]
    arm = [rank for rank, levels in enumerate(by_rank) if levels & OF_ARM]
    if arm and len(arm) < len(by_rank):
        other = next(rank for rank in range(len(by_rank)) if rank not in arm)
        raise JobError(
            f"{call(arm)} would compute with neon and {call([other])} with {LEVELS[highest[other]]}, and no processor has "
            "both: give all ranks processors of one kind"
        )
    # A processor with a higher level has the lower ones, too: a rank that cannot use the lowest of these was not built for it.
    lowest = min(highest)
    lacking = [rank for rank, levels in enumerate(by_rank) if not levels >> lowest & 1]
    raise JobError(
        f"fedkern of {call(lacking)} was built without the instructions {LEVELS[lowest]}, the highest that "
        f"{call([highest.index(lowest)])} can use: build it there with FEDKERN_LEVELS=all"
    )


def use_level(number: int) -> None:
    """Lets the kernels of this process use a level that `agree_on_level` gave, and no higher one.

    Examples
    --------
    >>> from fedkern.transports.levels import agree_on_level, usable_levels, use_level
    >>> use_level(agree_on_level([usable_levels()]))
    """
    from .. import _core

    _core.limit_isa(LEVELS[number])
