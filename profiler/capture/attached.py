"""What reports to a session: attached pipelines, sources outside of them, what is known of both."""

from __future__ import annotations

from profiler.capture.operator_source import OperatorSource, SourceSummary
from profiler.capture.pipelines.attachment import Attachment
from profiler.capture.run_info import PipelineFacts
from profiler.capture.standalone_sources import StandaloneSources
from profiler.capture.weights import LoadedWeights

__all__ = ["Attached"]


class Attached:
    """Keeps it for a session, which sees to it that one thread at a time changes it. `standalone`
    are the sources that no attachment opened, `weights` what was loaded of all."""

    def __init__(self) -> None:
        self.attachments: list[Attachment] = []
        self.standalone = StandaloneSources()
        self.weights = LoadedWeights()
        self._others: list[PipelineFacts] = []  # of submodules that belong to no pipeline

    def add(self, attachment: Attachment) -> None:
        """Keep an attachment, until the run has been written."""
        self.attachments.append(attachment)

    def remove(self, attachment: Attachment) -> None:
        """Keep it no more, where it could not be used; again without effect."""
        self.attachments = [one for one in self.attachments if one is not attachment]

    def describe(self, facts: PipelineFacts) -> None:
        """Have the manifest describe submodules that no attachment has."""
        self.weights.add(facts.parts)
        if facts not in self._others:  # it may be a session made anew
            self._others.append(facts)

    def facts(self) -> list[PipelineFacts]:
        """What the manifest says of all pipelines and other submodules, each once."""
        found: list[PipelineFacts] = []
        for known in (*(one.facts for one in self.attachments), *self._others):
            if known not in found:
                found.append(known)
        return found

    def traces(self, submodule: str) -> bool:
        """Whether calls of `submodule` may be traced now."""
        traced = any(submodule in attachment.traced for attachment in self.attachments)
        return traced or self.standalone.traces(submodule)

    def staying(self) -> list[tuple[str, OperatorSource]]:
        """The sources, with their submodules, of what is not about to go."""
        return self._of_attachments() + self.standalone.staying()

    def sources(self) -> list[tuple[str, OperatorSource]]:
        """All sources that have not been let go of, with their submodules."""
        return self._of_attachments() + self.standalone.all_here()

    def summaries(self) -> list[tuple[str, SourceSummary]]:
        """What all sources say of the run, also those that were let go of."""
        here = [(submodule, source.summary()) for submodule, source in self.sources()]
        return [*self.standalone.let_go(), *here]

    def close(self) -> None:
        """Leave everything as it was; what was recorded stays. Again without effect."""
        for attachment in reversed(self.attachments):
            attachment.detach()
        self.standalone.close()

    def _of_attachments(self) -> list[tuple[str, OperatorSource]]:
        return [pair for attachment in self.attachments for pair in attachment.sources()]
