"""What tells kernels of one name apart: the template arguments in which they differ.

telling_apart(["void f<(ggml_type)13, 1>(int)", "void f<(ggml_type)8, 1>(int)"]) == ["13", "8"]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile, zip_longest

__all__ = ["telling_apart"]

_CLOSING = {"<": ">", "(": ")", "[": "]", "{": "}"}
_CAST = re.compile(r"^\([\w: ]+\)(?=[-\w])")
_SCOPE = re.compile(r"(?:\(anonymous namespace\)|[A-Za-z_]\w*)::(?=[\w(])")
_LAMBDA = re.compile(r"(?:::)?(?:operator ?(?:::)?(?: ?const)?(?:::)?)?[{\[]lambda.*")
_LONGEST = 40  # characters


def telling_apart(kernels: Sequence[str]) -> list[str]:
    """For each of several full names of kernels, the fewest template arguments that tell it from
    the others; "" for all where none do."""
    arguments = [_arguments(kernel) for kernel in kernels]
    for written in (_bare, _unscoped, str.strip):
        found = _fewest([[written(text) for text in own] for own in arguments])
        if found is not None:
            return found
    return [""] * len(kernels)


def _fewest(arguments: Sequence[Sequence[str]]) -> list[str] | None:
    """The argument that is another one in each, the first that is no number; else all that
    differ."""
    columns = [*zip_longest(*arguments, fillvalue="")]
    alone = [column for column in columns if len({*column}) == len(arguments)]
    alone.sort(key=lambda column: ("" in column, _numbers(column)))
    differing = [column for column in columns if len({*column}) > 1]
    together = [", ".join(filter(None, texts)) for texts in zip(*differing, strict=True)]
    cut = (_cut(texts) for texts in (*alone, together) if texts)
    return next((texts for texts in cut if texts is not None), None)


def _numbers(texts: Sequence[str]) -> bool:
    """Whether none of the arguments says what it is about."""
    return not any(character.isalpha() for text in texts for character in text)


def _cut(texts: Sequence[str]) -> list[str] | None:
    """The texts at a length that one can read, from their begins or from where they begin to
    differ; None where neither tells them apart."""
    alike = takewhile(lambda column: len({*column}) == 1, zip(*texts, strict=False))
    common = len([*alike])
    begin = max(texts[0].rfind(mark, 0, common) for mark in "<, ") + 1
    for shown in (texts, [f"…{text[begin:]}" for text in texts]):
        cut = [text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in shown]
        if len({*cut}) == len(cut):
            return cut
    return None


def _arguments(kernel: str) -> list[str]:
    """What stands between the first pair of angle brackets, at its commas."""
    begin = kernel.find("<")
    if begin < 0:
        return []
    cuts = [begin, *_commas(kernel, begin + 1)]
    return [kernel[a + 1 : b].strip() for a, b in pairwise(cuts)]


def _commas(text: str, begin: int) -> Iterator[int]:
    """Where the arguments from `begin` on end, the bracket that closes them last."""
    open_ones: list[str] = []
    for place in range(begin, len(text)):
        character = text[place]
        if character in _CLOSING:
            open_ones.append(_CLOSING[character])
        elif open_ones and character == open_ones[-1]:
            open_ones.pop()
        elif not open_ones and character in ",>":
            yield place
            if character == ">":
                return


def _unscoped(text: str) -> str:
    """Without casts and namespaces."""
    return _SCOPE.sub("", _CAST.sub("", text.strip().removeprefix("void ")))


def _bare(text: str) -> str:
    """Without parameters and lambdas either: `copy_kernel(Tensor&)::{lambda(float)#1}` →
    `copy_kernel`."""
    found, depth = [], 0
    for character in _unscoped(text):
        depth += character == "("
        if not depth:
            found.append(character)
        depth -= character == ")" and depth > 0
    return _LAMBDA.sub("", "".join(found)).strip() or _unscoped(text)
