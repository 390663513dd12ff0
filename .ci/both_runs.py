"""The last lines of several runs of pytest → one as of a single run, with their sum."""

import re
import sys

LAST = re.compile(r"=+ (?P<counts>\d.*) in (?P<seconds>[\d.]+)s.* =+")


def together(log: str) -> str:
    counts: dict[str, int] = {}
    seconds = 0.0
    for found in filter(None, map(LAST.fullmatch, log.splitlines())):
        seconds += float(found["seconds"])
        for count in found["counts"].split(", "):
            number, word = count.split(" ", 1)
            counts[word] = counts.get(word, 0) + int(number)
    clock = f"{seconds // 3600:.0f}:{seconds // 60 % 60:02.0f}:{seconds % 60:02.0f}"
    told = ", ".join(f"{number} {word}" for word, number in counts.items())
    return f" {told} in {seconds:.2f}s ({clock}) ".center(80, "=")


if __name__ == "__main__":
    print(together(sys.stdin.read()))
