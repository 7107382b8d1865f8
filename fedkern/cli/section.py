"""What every table of a job file is made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


def key(default: Any = ..., *, help: str, remedy: str = "", **limits: Any) -> Any:
    """A key of the job file: its default, what it is, what to do when it is wrong, and its limits (gt, ge, lt, le)."""
    return Field(default, description=help, json_schema_extra={"remedy": remedy}, **limits)


class Section(BaseModel):
    """A table of the job file. Unknown keys are errors, and no value is converted except a whole number to a real one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())
