"""What is said of memory."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, number, texts
from profiler.text import percent, said

__all__ = ["WORDS"]


def _little_headroom(found: Finding) -> Words:
    given = texts(found)
    needed, whole = number(found, "needed_bytes"), number(found, "size_bytes")
    title = said(
        "{device} has {share} of its memory left at the peak",
        device=given["device"],
        share=given["headroom_share"],
    )
    if needed > whole:
        title = said(
            "The run needs {share} of the memory of {device}: it does not fit",
            share=percent(needed / whole).replace("\N{NO-BREAK SPACE}", " "),
            device=given["device"],
        )
    return Words(
        title=title,
        caveat=said(
            "Counters see tensors: fragmentation, contexts of the driver and "
            "libraries, and a second request need memory that is not counted."
        ),
        recommendation=said(
            "Place submodules on other devices, quantize the largest, offload encoders "
            "when they are done, or decode in tiles where the peak is there."
        ),
    )


def _decode_peak(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "The peak of {device} is in {submodule}: its activations are {share} of it",
            device=given["device"],
            submodule=given["submodule"],
            share=given["activation_share"],
        ),
        caveat=said(
            "Tiles take longer and may show seams; a VAE in float16 may overflow "
            "(bfloat16 or a fixed VAE does not)."
        ),
        recommendation=said(
            "Decode in tiles or slices (vae.enable_tiling(), vae.enable_slicing()), in "
            "16 bits, or after the denoiser's weights have left the device."
        ),
    )


WORDS: RuleWords = {
    "little_headroom": _little_headroom,
    "decode_peak": _decode_peak,
}
