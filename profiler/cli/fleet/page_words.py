"""What the pages of many runs say of states and verdicts."""

from __future__ import annotations

from profiler.fleet.states import ChangeState, RunVerdict, State
from profiler.text import Said, count, joined, said

__all__ = [
    "CHANGE_STATES",
    "STATES",
    "VERDICTS",
    "counted_state",
    "quality_word",
    "spoken_words",
]

STATES = {
    State.CHANGE: said("slower, not accepted"),
    State.OUTSIDE: said("newest outside"),
    State.DRIFT: said("drift"),
    State.TWO_MODES: said("two modes"),
    State.ACCEPTED: said("accepted"),
    State.FEW: said("too few runs"),
    State.STEADY: said("steady"),
}
_COUNTED = {  # each by itself among others: no commas in them
    State.CHANGE: said("{n} slower (not accepted)"),
    State.OUTSIDE: said("{n} with its newest run outside its history"),
    State.DRIFT: said("{n} drifting"),
    State.TWO_MODES: said("{n} with two modes"),
    State.ACCEPTED: said("{n} at an accepted level"),
    State.FEW: said("{n} with too few runs"),
    State.STEADY: said("{n} steady"),
}
VERDICTS = {
    RunVerdict.ON_LEVEL: said("on its level"),
    RunVerdict.FIRST_BAD: said("first bad run"),
    RunVerdict.FIRST_FASTER: said("first faster run"),
    RunVerdict.FIRST_ACCEPTED: said("first run of an accepted change"),
    RunVerdict.NOT_ACCEPTED: said("on a level not accepted"),
    RunVerdict.DRIFT: said("in a drift"),
    RunVerdict.OUTSIDE: said("outside its history"),
}
CHANGE_STATES = {
    ChangeState.ALARM: said("alarm"),
    ChangeState.ACCEPTED: said("accepted"),
    ChangeState.FASTER: said("faster"),
    ChangeState.GONE: said("gone again"),
}
_QUALITY = {
    "drops": said("drops"),
    "residual": said("residual"),
    "tracing_cost": said("tracing cost"),
}


def counted_state(state: State, number: int) -> Said:
    """How many histories are in a state: `"1 slower (not accepted)"`."""
    return said(_COUNTED[state].template, n=count(number))


def quality_word(quality: str) -> Said:
    """Why a run is of bad quality, as its column `quality` has it."""
    return joined(", ", [_QUALITY.get(part, part) for part in quality.split(",")])


def spoken_words(qualities: set[str]) -> dict[str, Said]:
    """All words by their English, with those of these `quality` texts."""
    known = (*STATES.values(), *VERDICTS.values(), *CHANGE_STATES.values())
    return {str(one): one for one in (*known, *map(quality_word, sorted(qualities)))}
