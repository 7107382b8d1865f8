"""Numbers the kinds of messages between ranks.

Plain numbers: an enumeration's members cost a tenth of a microsecond at every look.
"""

from __future__ import annotations

import struct

FRAME = 1  # a frame of the codec, between the server and a client
END = 2  # server to ranks: this protocol has finished
PING = 3  # server to ranks: still here
STOP = 4  # rank to server: a signal asks us to stop
GATHER = 5  # rank to server: a few fixed bytes
SPREAD = 6  # the server's reply to them
FAULT = 7  # rank to server: exit code and text
BYE = 8  # rank to server: nothing more will come
EXIT = 9  # server to ranks: all end now, with this code
LEAVE = 10  # server to ranks, over MPI: everybody is at the end

NAMES = {number: name for name, number in list(vars().items()) if type(number) is int}

RUN = 16  # a FRAME's tag also has a multiple of this, the number of its protocol, so that nothing stale is taken for news

VERSION = struct.Struct("<32s")  # of the package: with it every hello begins, whatever follows in other versions
HELLO = struct.Struct("<32sB16s16sI32s")  # that, levels, host, the cores it may use, how many, digest of the configuration
OFFER = struct.Struct("<qq")  # a party, the number of one of its checkpoints


def numbered(tag: int, run: int) -> int:
    """Returns a tag as it travels: a frame's has the number of its protocol, too."""
    return tag + RUN * run if tag == FRAME else tag
