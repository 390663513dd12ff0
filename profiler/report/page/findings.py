"""What stands out: findings with their evidence, and links to what they are about."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from profiler.analysis.findings.finding import Finding, Where
from profiler.analysis.findings.rules import RULES
from profiler.analysis.result import Analysis
from profiler.report.facts import named_value
from profiler.report.page.content import Part, Section
from profiler.report.units import count, counted, duration

__all__ = ["finding_html", "finding_section"]

_CALLS = 6  # links to calls


def finding_section(analysis: Analysis) -> Section:
    """All findings, worst first, or that no rule has evidence."""
    found = analysis.findings
    order = ", worst first. What they save may be the same time: it does not add up."
    lead = counted(len(found), "finding") + (order if len(found) > 1 else ".")
    if not found:
        lead = f"None: {counted(len(RULES), 'rule')} found no evidence."
    return Section(
        "findings", "Findings", "Findings", (Part(lead=lead, findings=found, always=True),)
    )


def finding_html(finding: Finding) -> str:
    """One finding; what it is about are buttons that `templates/findings.js` brings to life."""
    saves = f"saves at most {duration(finding.cost_ns)}" if finding.cost_ns is not None else ""
    head = (
        f'<p class="verdict"><span class="severity">{escape(finding.severity)}</span>'
        f"<strong>{escape(finding.title)}</strong>"
        + (f'<span class="saves">{escape(saves)}</span>' if saves else "")
        + "</p>"
    )
    evidence = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in (_named(str(key), value) for key, value in finding.evidence.items())
    )
    links = "".join(_links(finding.where))
    return (
        f'<article class="finding {escape(finding.severity)}" data-rule="{escape(finding.rule)}">'
        f'{head}<dl class="evidence">{evidence}</dl>'
        f'<p class="remedy">{escape(finding.remedy)}</p>'
        f'<p class="help"><b>Beware:</b> {escape(finding.hazard)}</p>'
        + (f'<p class="where">{links}</p>' if links else "")
        + "</article>"
    )


def _named(key: str, value: int | float | str) -> tuple[str, str]:
    name, text = named_value(key, value)
    whole = isinstance(value, int) and text == str(value)  # and has no unit
    return name, count(int(value)) if whole else text


def _links(where: Where) -> Iterator[str]:
    """Buttons that look for an operator or zoom into a call; the rest as text."""
    if where.layer:
        yield _button("layer", where.layer, f"Operator {where.layer}")
    elif where.submodule:
        yield _button("submodule", where.submodule, f"Operators of {where.submodule}")
    for call in where.calls[:_CALLS]:
        yield _button("call", str(call), f"Call {call}")
    if len(where.calls) > _CALLS:
        yield f"<span>and {len(where.calls) - _CALLS} more calls</span>"
    named = (("device", where.device), ("pipeline call", where.pipeline), ("step", where.step))
    for name, value in named:
        if value is not None:
            yield f"<span>{name} {escape(str(value))}</span>"


def _button(kind: str, value: str, text: str) -> str:
    return (
        f'<button type="button" class="link" data-find-{kind}="{escape(value)}">'
        f"{escape(text)}</button>"
    )
