"""Reads `expected.txt` and the stored times in `reference`, and compares roles with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import polars as pl

from profiler.analysis import CommandArrays, kinds_of
from profiler.analysis.roles import roles_of

HERE = Path(__file__).parent
ROOT_CLASS = "class "  # before the class of a submodule whose classes were taken away
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_DIMS = re.compile(r"\w+\[([\d,]*)\]")


@dataclass(frozen=True)
class Row:
    """Operators that are one in the table: all of a submodule's with this path, type and form."""

    submodule: str
    path: str
    op: str


@dataclass(frozen=True)
class _Line:
    path: str
    ops: tuple[str, ...]
    roles: tuple[str, ...]
    norm_kinds: tuple[str, ...]

    def fits(self, path: str, op: str) -> bool:
        plain = op.removesuffix("=").removesuffix("v")
        return fnmatchcase(path, self.path) and any(o in ("*", op, plain) for o in self.ops)


class Expectation:
    """The hand-written table, by class of the submodule."""

    def __init__(self, text: str) -> None:
        macros, classes = {}, ()
        self._lines: dict[str, list[_Line]] = {}
        for line in text.splitlines():
            words = line.split()
            if not words or line.startswith("#"):
                continue
            if line.startswith("@"):
                macros[words[0]] = words[1]
            elif line.startswith("["):
                classes = tuple(name.strip() for name in line.strip("[]").split(","))
            else:
                path, ops, role, *norm = words
                for name, value in macros.items():
                    ops = ops.replace(name, value)
                kinds = tuple(norm[0].split("|")) if norm else ()
                parsed = _Line(path, tuple(ops.lower().split("|")), tuple(role.split("|")), kinds)
                for name in classes:
                    self._lines.setdefault(name, []).append(parsed)

    def of(self, class_name: str, row: Row) -> _Line:
        """The line for a row of a submodule of this class; fails where there is none."""
        for line in (*self._lines["*"], *self._lines[class_name]):
            if line.fits(row.path, row.op.lower()):
                return line
        raise AssertionError(f"expected.txt says nothing of {class_name}: {row}")


EXPECTED = Expectation((HERE / "expected.txt").read_text(encoding="utf-8"))


def _root_class(known) -> str:
    """The class of a submodule whose classes were taken away, which is there in place of its
    model."""
    return known.model.removeprefix(ROOT_CLASS) if known.model.startswith(ROOT_CLASS) else ""


def found_roles(run) -> pl.DataFrame:
    """The kinds of a run that have a role, with `row` (submodule, path, op) and `class_name`."""
    arrays = CommandArrays.of(run.commands, run.calls)
    kinds = kinds_of(run.calls, run.commands, arrays.call)
    roles = roles_of(run.info.submodules, kinds, arrays.call)
    table = kinds.table.join(roles, on="kind").drop_nulls("submodule")
    table = table.filter(pl.col("category") != "host")
    roots = {
        name: known.modules.get("", _root_class(known))
        for name, known in run.info.submodules.items()
    }
    paths = [
        "-" if place == roots[submodule] else _NUMBER.sub("N", place)
        for submodule, place in table.select("submodule", "place").rows()
    ]
    ops = [op(*values) for values in table.select("op_type", "shapes").rows()]
    classes = [roots[name] for name in table["submodule"]]
    return table.with_columns(
        path=pl.Series(paths), op=pl.Series(ops), class_name=pl.Series(classes)
    )


def op(op_type: str, shapes: str | None) -> str:
    """`aten::add` of two equal shapes → `add=`; of vectors alone → `addv`."""
    name = op_type.removeprefix("aten::")
    inputs = [dims.split(",") for dims in _DIMS.findall((shapes or "").split("->")[0])]
    inputs = [[size for size in dims if size] for dims in inputs]
    if inputs and all(len(dims) <= 2 for dims in inputs):
        return f"{name}v"
    return f"{name}=" if len(inputs) > 1 and inputs[0] == inputs[1] else name


def write_reference(run, path: Path) -> None:
    """Store how long the operators of each row took: the weights of the comparison."""
    rows = (
        found_roles(run)
        .group_by("submodule", "path", "op")
        .agg((pl.col("total_ns").sum() / 1000).round().cast(pl.Int64).alias("us"))
        .sort("submodule", "path", "op")
    )
    path.write_text(rows.write_csv(separator="\t"), encoding="utf-8")


def _weights(reference: Path) -> dict[tuple[str, str, str], int]:
    table = pl.read_csv(reference, separator="\t")
    return {(submodule, path, name): us for submodule, path, name, us in table.iter_rows()}


def coverage(run, reference: Path) -> float:
    """The share of the stored time whose rows the run has."""
    weights = _weights(reference)
    there = set(found_roles(run).select("submodule", "path", "op").rows())
    return sum(us for key, us in weights.items() if key in there) / sum(weights.values())


def agreement(run, reference: Path) -> tuple[float, list[str]]:
    """The share of the stored time whose role is the expected one, and what differs.

    Where a row's commands have several roles its time is divided by their number. Kinds of norms
    count where the run has classes of modules, which they follow from.
    """
    weights = _weights(reference)
    right, total, differing = 0.0, 0.0, []
    for row, share, wrong in _judged(run):
        us = weights.get((row.submodule, row.path, row.op), 0)
        total += us
        right += us * share
        differing += [f"{us * part:.0f} us {text}" for part, text in wrong]
    return right / total, differing


def agreement_of_rows(run) -> float:
    """The share of rows whose role is the expected one: no row outweighs the others."""
    shares = [share for _, share, _ in _judged(run)]
    return sum(shares) / len(shares)


def _judged(run) -> Iterator[tuple[Row, float, list[tuple[float, str]]]]:
    """Each row, which part of its commands has the role in the table, and what differs."""
    with_classes = any(known.modules for known in run.info.submodules.values())
    found = found_roles(run)
    for key, part in found.group_by("submodule", "path", "op", "class_name", maintain_order=True):
        submodule, path, name, class_name = map(str, key)
        row = Row(submodule, path, name)
        line = EXPECTED.of(class_name, row)
        counted = part.group_by("role", "norm_kind").agg(pl.col("commands").sum())
        commands, right, wrong = counted["commands"].sum(), 0.0, []
        for role, norm_kind, count in counted.iter_rows():
            kind_fits = not (line.norm_kinds and with_classes) or norm_kind in line.norm_kinds
            if role in line.roles and kind_fits:
                right += count / commands
            else:
                wanted = f"{'|'.join(line.roles)} {'|'.join(line.norm_kinds)}"
                where = f"{submodule} {path} {name}"
                wrong.append((count / commands, f"{where}: {role} {norm_kind}, not {wanted}"))
        yield row, right, wrong


def rows(path: Path) -> Iterator[Row]:
    """The rows of a stored reference."""
    for submodule, own, name, _ in pl.read_csv(path, separator="\t").iter_rows():
        yield Row(submodule, own, name)
