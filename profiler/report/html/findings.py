"""Findings as HTML: their evidence, and links to what they are about."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from profiler.analysis.findings.finding import Finding, Severity, Where
from profiler.report.language import spoken
from profiler.report.sentences.findings.words import evidence_pairs, number, words
from profiler.text import Noun, Said, duration, said

__all__ = ["finding_html"]

_CALLS = 6  # links to calls
_SEVERITIES: dict[Severity, Said] = {
    "high": said("high"),
    "medium": said("medium"),
    "low": said("low"),
}


def finding_html(finding: Finding, noun: Noun = Noun.COMMANDS, anchor: str = "") -> str:
    """One finding; what it is about are buttons that `templates/findings.js` brings to life. `noun`
    is what commands are called, `anchor` what links to it name."""
    cost, said_of = finding.cost_ns, words(finding)
    saves = "" if cost is None else said("saves at most {time}", time=duration(cost))
    if "gain_ns" in finding.evidence:
        low, high = (duration(number(finding, f"gain_{end}_ns")) for end in ("low", "high"))
        saves = said("saves {time}, {low} to {high}", time=duration(cost or 0), low=low, high=high)
        if low == high:
            saves = said("saves {time}", time=low)
    head = (
        f'<p class="headline"><span class="severity">{spoken(_SEVERITIES[finding.severity])}</span>'
        f"<strong>{spoken(said_of.title)}</strong>"
        + (f'<span class="saves">{spoken(saves)}</span>' if saves else "")
        + "</p>"
    )
    evidence = "".join(
        f"<div><dt>{spoken(said(name))}</dt><dd>{spoken(value)}</dd></div>"
        for name, value in evidence_pairs(finding, noun)
    )
    links = "".join(_links(finding.where))
    named = f' id="{anchor}"' if anchor else ""
    return (
        f"<article{named} "
        f'class="finding {escape(finding.severity)}" data-rule="{escape(finding.rule)}"'
        f"{_about(finding.where)}>"
        f'{head}<dl class="evidence">{evidence}</dl>'
        f'<p class="recommendation">{spoken(said_of.recommendation)}</p>'
        f'<p class="help"><b>{spoken(said("Caveat:"))}</b> {spoken(said_of.caveat)}</p>'
        + (f'<p class="where">{links}</p>' if links else "")
        + "</article>"
    )


def _about(where: Where) -> str:
    """What the page can choose of what a finding is about, for `templates/findings.js`."""
    named = (
        ("submodule", where.submodule),
        ("operator", where.layer),
        ("device", where.device),
        ("step", where.step),
    )
    return "".join(
        f' data-about-{name}="{escape(str(value))}"' for name, value in named if value is not None
    )


def _links(where: Where) -> Iterator[str]:
    """Buttons that look for an operator or zoom into a call; the rest as text."""
    if where.layer:
        yield _button("layer", where.layer, said("Operator {layer}", layer=where.layer))
    elif where.submodule:
        yield _button(
            "submodule",
            where.submodule,
            said("Operators of {submodule}", submodule=where.submodule),
        )
    for call in where.calls[:_CALLS]:
        yield _button("call", str(call), said("Call {call}", call=call))
    if len(where.calls) > _CALLS:
        more = said("and {number} more calls", number=len(where.calls) - _CALLS)
        yield f"<span>{spoken(more)}</span>"
    if where.device is not None:
        yield f"<span>{spoken(said('device {value}', value=where.device))}</span>"
    if where.pipeline is not None:
        yield f"<span>{spoken(said('pipeline call {value}', value=where.pipeline))}</span>"
    if where.step is not None:
        yield f"<span>{spoken(said('step {value}', value=where.step))}</span>"


def _button(kind: str, value: str, text: str) -> str:
    return (
        f'<button type="button" class="link" data-find-{kind}="{escape(value)}">'
        f"{spoken(text)}</button>"
    )
