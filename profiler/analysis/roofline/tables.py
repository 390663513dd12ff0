"""The tables of operators and roles against the roofline of their device."""

from __future__ import annotations

import polars as pl

from profiler.analysis.host_side import host_unseen
from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.roles.tables import cell_partials, kind_roles
from profiler.analysis.roofline.attained import with_attained
from profiler.analysis.roofline.bounds import (
    kind_roofline,
    operations_of,
    operator_roofline,
    role_roofline,
)
from profiler.analysis.roofline.columns import ROOFLINE, ROOFLINE_ROLES
from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.analysis.roofline.device_profiles import profiles_of
from profiler.analysis.table import Table
from profiler.analysis.work.of_kinds import KindWork, kind_work

__all__ = ["TABLES", "kind_bounds", "profiles", "works"]


@shared
def profiles(of: Inputs) -> dict[str, DeviceProfile]:
    """The profile of each device that has one; a measured one with what this run reached beyond
    it."""
    devices = dict.fromkeys(of.commands.devices) | dict(of.run.info.devices)
    found = profiles_of(devices, of.measured)
    measured = {device for device, profile in found.items() if profile.measured}
    limits = profiles_of({device: devices[device] for device in measured})
    if not limits:
        return found
    return with_attained(found, limits, operations_of(of.kinds, works(of), of.commands))


@shared
def works(of: Inputs) -> KindWork:
    """The work of the kinds of the selected commands."""
    return kind_work(of.kinds, of.frame)


@shared
def kind_bounds(of: Inputs) -> pl.DataFrame:
    """The selected commands against the roofline, one row a kind and device."""
    seen = not host_unseen(of.run)
    return kind_roofline(of.kinds, works(of), of.commands, profiles(of), host_seen=seen)


TABLES = (
    Table(
        name="roofline",
        row="one operator on a device, against its roofline",
        section="roofline",
        columns=ROOFLINE,
        make=lambda of: operator_roofline(kind_bounds(of), of.kinds),
        title="Operators against the roofline",
        about="Rows are in order of `total_ns`, longest first. They show what the operator "
        "computed and moved, and how fast the device could have done so. "
        "[roofline.md](roofline.md) has the formulas and the rule for the bound.",
        rank=("-total_ns",),
        partials=lambda of: (cell_partials(of),),
    ),
    Table(
        name="roofline_roles",
        row="one role on a device, against its roofline",
        section="roofline",
        columns=ROOFLINE_ROLES,
        make=lambda of: role_roofline(kind_bounds(of), of.kinds, kind_roles(of)["role"]),
        title="Roles against the roofline",
        about="The table has the columns of [roofline](#roofline), by role. It is empty where no "
        "roles are known.",
        rank=("-total_ns",),
        partials=lambda of: (cell_partials(of),),
    ),
)
