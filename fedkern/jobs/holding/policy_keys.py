"""Declares the keys of a policy file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from ...disclosure.rules import OPEN_JOBS, Level
from ...plain import Json
from ...privacy.accountant import Unit
from ...sections import Section, key, validate_file

Word = TypeVar("Word", bound=str)


def _listed(value: Json) -> Json:
    return [value] if isinstance(value, str) else value


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise PydanticCustomError("path", "a path")
    return text


Text = Annotated[str, AfterValidator(_path)]
OneOrMore = Annotated[list[Word], Field(min_length=1), BeforeValidator(_listed)]

Sums = Literal["any", "secure", "signed"]


class Disclosure(Section):
    """Declares a table [disclosure], of the file or of a data set: limits for open jobs with few rows, or one after another."""

    level: Level | None = key(None, help="of what open jobs ask of the rows, or the job's, if stricter; default: standard")
    rows: int | None = key(None, ge=0, help="rows that data must have to be in an open job; or the job's, if more")
    rows_per_coefficient: float | None = key(None, ge=0, help="the same a coefficient, whatever the method")
    rows_per_value: int | None = key(None, ge=0, help="the same that have a level, or a value of a column of two")
    groups: int | None = key(None, ge=0, help="groups, in a job with effects of groups")
    combinations: int | None = key(None, ge=0, help="rows of each combination of covariates' values, where few can occur")
    leverage: float | None = key(None, gt=0, le=1, help="of a row at the fit of these data, at most; or the job's, if less")
    lower: bool | None = key(None, help="whether an open job may ask for less than the level by numbers of its own")
    least_rows: int | None = key(None, ge=1, help="of earlier versions: level strict, rows, and half of it as rows_per_value")
    least_groups: int | None = key(None, ge=1, help="of earlier versions: level strict and groups")
    differencing: Literal["say", "refuse"] | None = key(
        None, help="of an open job with clients, rows or a column of an earlier one but for a few: said to the holder, or refused"
    )
    tell: Literal["nothing", "rules"] | None = key(
        None, help="of refused rows: others read no more than that they are, or the names of the rules; not with secure sums"
    )
    jobs: int | None = key(
        None, ge=1, help=f"open jobs on the same rows with other columns; {OPEN_JOBS} by default; or the job's, if fewer"
    )


class Data(Section):
    """Declares a table [data.NAME]."""

    paths: Annotated[list[Text], BeforeValidator(_listed)] = key([], help="files, folders with all below them, or patterns")
    epsilon: float | None = key(None, gt=0, allow_inf_nan=False, help="a finite number above 0, over all jobs")
    delta: float | None = key(None, gt=0, lt=1, help="a number above 0 and below 1, over all jobs")
    fingerprint: str | None = key(None, help="of the data's rows, as fedkern check JOB --local FILE prints it")
    open: bool | None = key(None, help="whether jobs without [privacy] are allowed; default: the file's")
    client_level: bool | None = key(None, help='whether jobs with unit = "client" are allowed; default: the file\'s')
    values: bool | None = key(None, help="whether results may say what one client's rows say; default: the file's")
    factories: list[str] | None = key(None, help="functions that own models may have run on these data; default: the file's")
    methods: list[str] | None = key(None, help="methods of other packages that these data may be in; default: the file's")
    places: list[str] | None = key(None, help="places of others that may carry their messages; default: the file's")
    extendable: bool | None = key(None, help="whether later clients may come to a job's result; default: the file's")
    most_ids: int | None = key(None, ge=1, help="ids that each party of a vertical job may put in; default: the file's")
    sums: Sums | None = key(None, help="what jobs without noise must have of secure sums; default: the file's")
    sums_except: Literal["without"] | None = key(
        None, help="values that leave one by one beside secure sums; default: the file's"
    )
    disclosure: Disclosure = key(Disclosure(), help="of open jobs on these data, where it is another than the file's")


class File(Section):
    """Declares the keys of a policy file; see the head of `policy`."""

    require: bool = key(False, help="whether data that no policy names are in no job")
    open: bool = key(False, help="whether jobs without [privacy] are allowed")
    client_level: bool = key(False, help='whether jobs with unit = "client" are allowed')
    values: bool = key(False, help="whether results may say what one client's rows say (output.without, output.sites)")
    extendable: bool = key(False, help="whether later clients may come to a job's result, or go (output.extendable)")
    factories: list[str] = key([], help='functions that own models may have run, "package.module:function" each')
    methods: list[str] = key([], help="methods of other packages that jobs may use; fedkern's own are allowed")
    places: list[str] = key([], help="places of other packages, or fedkern.places:Spoke, that may carry messages")
    unit: OneOrMore[Unit] = key(["example"], help="what jobs may protect")
    noise_source: OneOrMore[Literal["secure", "keyed"]] = key(["secure"], help="where their noise may come from")
    least_noise_multiplier: float | None = key(None, gt=0, allow_inf_nan=False, help="the least noise of a job")
    most_ids: int | None = key(
        None, ge=1, help="ids that each party may put in where they find the rows that all have (data.most_ids of a job)"
    )
    sums: Sums = key(
        "any", help='"secure": jobs without noise need job.sums = "secure"; "signed": and this client signs its keys'
    )
    sums_except: Literal["without"] | None = key(
        None, help='"without": jobs with secure sums may have each client send its own values for output.without (with values)'
    )
    accounts: Text | None = key(None, help="a folder for budgets, if not the file's own")
    disclosure: Disclosure = key(Disclosure(), help="of open jobs: least numbers of rows, and what two jobs tell together")
    data: dict[str, Data] = key({}, help="a table [data.NAME] for each data set")

    def lacks(self) -> Iterator[str]:
        """Yields caps that a table must have: both, except where open jobs are allowed and none is given; and keys at odds."""
        for name, table in self.data.items():
            allowed = self.open if table.open is None else table.open
            if not allowed or table.epsilon is not None or table.delta is not None:
                for missing in (cap for cap in ("epsilon", "delta") if getattr(table, cap) is None):
                    yield f"data.{name}.{missing} is missing: {Data.model_fields[missing].description}"
            both = self.disclosure.model_dump(exclude_none=True) | table.disclosure.model_dump(exclude_none=True)
            if both.get("tell") == "rules" and both.get("differencing") == "refuse":
                why = "by which others read the same of all refusals: remove one of them"
                yield f'data.{name}: disclosure.tell = "rules" is not for differencing = "refuse", {why}'


def policy_file(tables: dict[str, Any], name: str) -> File:
    """Checks the tables of a policy file. Raises JobError: it has a key or a value that it should not have; `name` begins the
    text."""
    return validate_file(File, tables, File.lacks, name)
