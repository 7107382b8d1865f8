"""Signatures: fedkern.kernels says what the arguments mean."""

from typing import Any

def bind(
    function: object,
    arguments: object,
    names: object,
    arrays: object,
    numbers: object,
    lengths: object,
    outputs: object,
    returns: bool,
    otherwise: object,
) -> Any: ...
