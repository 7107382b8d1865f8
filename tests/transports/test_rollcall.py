"""Who has come and who has died before a job begins: by what ranks say, and never because they are slow."""

import pytest

from fedkern.transports.rollcall import ALONE, BEHIND, FIRST, Fault, RollCall


def called(ranks=3, here=(), joined=(), seen=None, now=0.0):
    roll = RollCall(ranks)
    if seen is not None:
        roll.look(seen, now)
    for rank in here:
        roll.hello(rank, ranks, ranks, now)
    for rank in joined:
        roll.joins(rank, now)
    return roll


def test_nothing_is_known_as_long_as_nobody_has_come():
    """The ranks may all be on other machines."""
    assert called().fault(1e6, 1.0) is None
    assert called(seen={}).fault(1e6, 1.0) is None


@pytest.mark.parametrize("ranks", [2, 32])
def test_ranks_that_come_slowly_one_after_the_other_have_not_died(ranks):
    """Each as late as is allowed, on a machine with so many processes a core."""
    crowd, roll, now = 15.0, RollCall(ranks), 0.0
    for rank in range(ranks):
        roll.look({100 + r: (r, ranks, ranks) for r in range(rank + 1)}, now)
        assert roll.fault(now, crowd) is None
        now += FIRST
        assert roll.fault(now, crowd) is None
        roll.hello(rank, ranks, ranks, now)
    assert roll.complete
    for rank in range(ranks):
        now += BEHIND
        roll.joins(rank, now)
        assert roll.fault(now, crowd) is None
    assert roll.fault(now + ALONE, crowd) is None
    assert "did not find each other" in roll.fault(now + ALONE + 1, crowd).text


def test_a_rank_whose_line_ends_has_died_and_is_named():
    roll = called(here=range(3))
    roll.cut(1, 5.0)
    assert roll.fault(5.5, 1.0) is None  # mpirun may end by itself
    fault = roll.fault(7.0, 1.0)
    assert fault == Fault(3, "rank 1 died while the job was starting; start it again")
    assert fault.words  # what was said until then may be the reason
    roll.cut(2, 5.1)  # ended with it
    assert roll.died() == fault


def test_what_is_said_while_mpi_starts_is_of_those_who_lose_their_peers():
    roll = called(here=range(3), joined=[1, 2])
    roll.cut(1, 5.0)
    assert not roll.fault(7.0, 1.0).words


def test_a_process_that_is_gone_before_it_said_hello_has_died():
    seen = {10: (0, 3, 3), 11: (1, 3, 3), 12: (2, 3, 3)}
    roll = called(seen=seen, here=[0])
    roll.look({pid: who for pid, who in seen.items() if pid != 11}, 1.0)
    assert roll.fault(3.0, 1.0).text.startswith("rank 1 died")


def test_a_process_that_was_overlooked_once_lives():
    seen = {10: (0, 2, 2), 11: (1, 2, 2)}
    for again in (lambda roll: roll.look(seen, 1.2), lambda roll: roll.hello(1, 2, 2, 1.2)):
        roll = called(ranks=2, seen=seen, here=[0])
        roll.look({10: (0, 2, 2)}, 1.0)
        assert roll.dead
        again(roll)
        assert not roll.dead


def test_a_rank_of_which_there_is_nothing_is_waited_for_as_long_as_the_machine_is_busy():
    roll = called(here=[0, 2])
    assert roll.fault(FIRST, 1.0) is None
    assert roll.fault(FIRST + 9, 30.0) is None
    assert roll.fault(FIRST + 1, 1.0).text.startswith("rank 1 did not start within 11 s of the others")


def test_ranks_of_other_machines_are_not_missed():
    roll = RollCall(4)  # as asked for; two live elsewhere
    for rank in (0, 2):
        roll.hello(rank, 2, 4, 0.0)
        roll.joins(rank, 0.0)
    assert roll.complete
    assert roll.fault(ALONE - 1, 1.0) is None


def test_a_rank_that_hangs_before_mpi_is_named():
    roll = called(here=range(3), joined=[0, 2])
    assert roll.fault(BEHIND - 1, 1.0) is None
    assert roll.fault(BEHIND + 1, 1.0).text.startswith("rank 1 did not come as far as MPI within 31 s")


def test_others_tell_how_long_it_takes():
    roll = called(here=range(3))
    roll.joins(0, 50.0)
    assert roll.fault(50.0 + BEHIND + 1, 1.0) is None
    assert roll.fault(50.0 + 4 * 50 + 1, 1.0) is not None


def test_a_rank_that_leaves_with_a_reason_ends_the_job_with_its_code():
    roll = called(here=range(3))
    roll.leaves(1, 2, 4.0)
    roll.cut(1, 4.0)
    assert roll.fault(4.5, 1.0) is None
    assert roll.fault(6.0, 1.0) == Fault(2, "rank 1 ended before the job had begun")
    for rank in (0, 2):
        roll.leaves(rank, 2, 4.1)
    assert roll.refused() == Fault(2, "")  # all say the same


def test_one_that_leaves_because_another_has_died_is_not_the_reason():
    roll = called(here=range(3))
    roll.cut(1, 4.0)
    roll.leaves(2, 3, 4.1)
    assert roll.refused() is None
    assert roll.fault(6.0, 1.0).text.startswith("rank 1 died")
