"""What is said of the accounting."""

from __future__ import annotations

from profiler.analysis.accounting.codes import NoAccount
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    NoAccount: {
        NoAccount.NO_SPAN: said("the trace holds no {kind} span"),
        NoAccount.NO_SPANS: said("the trace holds no {one} and no {other} span"),
        NoAccount.HOST_FILE_MISSING: said("{reason}, host.pb is missing"),
    },
}
