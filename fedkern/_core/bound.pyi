"""Signatures: fedkern.kernels says what the arguments mean."""

from typing import Any

def bind(
    function: Any,
    arguments: Any,
    names: Any,
    arrays: Any,
    numbers: Any,
    lengths: Any,
    outputs: Any,
    returns: bool,
    otherwise: Any,
) -> Any: ...
