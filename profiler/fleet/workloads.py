"""What groups of comparable runs are of: their identity, and a name that tells each from others.

known = identities(groups(data.runs()))
names(known)["5f0c…"]          # "sd3.5, steps=28"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from profiler.fleet.identity import FIELDS

__all__ = ["identities", "names"]

_BARE = frozenset({"resolution", "hardware", "software"})  # whose values say what they are
_LONGEST = 60  # characters of a value
_BETWEEN = ", "  # entries of a value that is a list


def identities(grouped: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """The identity of each group of `identity.groups`, in the order of their newest run, newest
    first; of an assumed field the value that some of its runs have."""
    known = grouped.drop_nulls("group")
    found = known.group_by("group").agg(
        *(pl.col(field).drop_nulls().first() for field in FIELDS), pl.col("time_ns").max()
    )
    ordered = found.sort(["time_ns", "group"], descending=[True, False])
    return {row["group"]: {field: row[field] for field in FIELDS} for row in ordered.to_dicts()}


def names(known: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A name by group: its model, and the fields in which groups of that model differ, as `--where`
    takes them."""
    by_lead: dict[str, list[str]] = {}
    for group, identity in known.items():
        by_lead.setdefault(_lead(identity), []).append(group)
    found = {}
    for lead, members in by_lead.items():
        differ = [f for f in FIELDS if len({known[group][f] for group in members}) > 1]
        every = {field: [known[group][field] for group in members] for field in differ}
        for group in members:
            parts = [
                _part(field, _apart(known[group][field], every[field]))
                for field in differ
                if field != "model"
            ]
            found[group] = ", ".join([lead, *parts])
    return found


def _lead(identity: Mapping[str, Any]) -> str:
    return next(
        (_short(identity[name]) for name in ("model", "pipeline") if identity[name]), "runs"
    )


def _part(field: str, value: Any) -> str:
    bare = field in _BARE and value is not None
    return _short(value) if bare else f"{field}={_short(value)}"


def _apart(value: Any, every: Sequence[Any]) -> Any:
    """Of a list, such as that of the software, the entries that not all have."""
    if not isinstance(value, str) or _BETWEEN not in value:
        return value
    lists = [str(other).split(_BETWEEN) for other in every]
    own = [one for one in value.split(_BETWEEN) if not all(one in other for other in lists)]
    return _BETWEEN.join(own) or value


def _short(value: Any) -> str:
    text = "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
