"""Classes of modules, as the manifest keeps them: `submodules.NAME.modules`, path → class.

A module's path says where an operator lies, its class what it is: reports find roles by both.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

__all__ = ["known_modules"]

_MOST = 20_000  # modules of a submodule; SD3.5 large has some 1,500


def known_modules(classes: Mapping[str, str]) -> dict[str, str]:
    """`Submodule.modules` of the manifest; "" is the path of the submodule itself.

    Nothing where no class is known; of more than 20,000 modules the first.
    """
    return dict(islice(classes.items(), _MOST))
