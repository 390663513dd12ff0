"""Words of analyses that stand in tables as values: verdicts, causes, kinds of repetition.

Names from traces are none of them, whatever they are called: a table says which of its columns hold
words (`Column.kind` is `word`).
"""

from __future__ import annotations

import re

from profiler.messages import Said, joined, said

__all__ = ["word"]

_WORDS: dict[str, Said] = {
    str(each): each
    for each in (
        # verdicts of the roofline
        said("compute-bound"),
        said("memory-bound"),
        said("launch-bound"),
        said("host-bound"),
        # parts of the critical path, and of split operators
        said("call"),
        said("compute"),
        said("transfer"),
        said("queued"),
        said("host work"),
        said("other"),
        said("whole"),
        said("movement"),
        said("device"),
        # causes of outliers
        said("warm-up"),
        said("first step"),
        said("commands"),
        said("overlap"),
        said("idle"),
        said("no other track explains it"),
        # what guidance is
        said("classifier-free guidance"),
        said("negative prompt"),
        said("skip-layer guidance"),
        said("half of batched calls, none of which was traced with operators"),
        # what is computed again, and over what it is the same
        said("conditioning"),
        said("position"),
        said("cross-attention"),
        said("shape arithmetic"),
        said("timestep"),
        said("modulation"),
        said("steps"),
        said("branches"),
        said("steps, branches"),
        said("known ahead"),
        said("known ahead, branches"),
        # chains that could be fused
        said("attention"),
        said("norm"),
        said("norm and modulation"),
        said("rope"),
        said("softmax"),
        said("elementwise"),
        # comparisons
        said("slower"),
        said("faster"),
        said("within noise"),
        said("measured once"),
        said("only in base"),
        said("only in new"),
        said("base"),
        said("new"),
    )
}


# What findings of guidance and of repeated work were found by; several pieces, joined with commas.
_EVIDENCE = tuple(
    (re.compile(re.sub(r"\\\{\w+\\\}", "(.+?)", re.escape(each))), each)
    for each in (
        said("calls of branch {branch}"),
        said("batched against {calls} cond calls"),
        said("half the batch of each operator: {share} ({low} to {high}) of batched calls stays"),
        said("path {path}"),
        said("class {name}"),
        said("{tokens} tokens where to_q has {others}"),
        said("role rope"),
        said("in no block"),
        said("role modulation"),
        said("one vector a sample"),
        said("integers"),
        said("no data"),
        said("equal shapes"),
        said("no shapes"),
    )
)


def word(text: str) -> str:
    """`text` with its languages, where it is a word of an analysis or evidence of one."""
    if text in _WORDS:
        return _WORDS[text]
    pieces = [_piece(piece) for piece in text.split(", ")]
    return joined(", ", pieces) if all(isinstance(piece, Said) for piece in pieces) else text


def _piece(text: str) -> str:
    if text in _WORDS:
        return _WORDS[text]
    for pattern, template in _EVIDENCE:
        if found := pattern.fullmatch(text):
            names = re.findall(r"\{(\w+)\}", template)
            return Said(text, template, dict(zip(names, found.groups(), strict=True)))
    return text
