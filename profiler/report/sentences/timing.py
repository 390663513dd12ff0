"""What is said of the accounting and of steps."""

from __future__ import annotations

from profiler.analysis.steps.codes import OutlierRule, StepSource
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    StepSource: {
        StepSource.STEP_SPANS: said("step spans"),
        StepSource.CALLS: said("calls"),
    },
    OutlierRule: {
        OutlierRule.MEDIAN_DEVIATION: said(
            "longer than the median by more than {deviations} scaled median absolute deviations "
            "({scale} MAD; Leys et al. 2013, J. Exp. Soc. Psychol. 49(4), 764-766) and by more "
            "than {excess_share}; of at least {fewest} steps"
        )
    },
}
