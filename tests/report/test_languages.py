"""Korean beside English: messages, the catalogue, and what a page of them holds."""

import copy
import json
import pickle
import re
from collections import Counter
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

import profiler.report
from profiler.analysis import Bound, headline
from profiler.analysis.analyze import analyze
from profiler.analysis.redundant_work import RedundancyEvidence
from profiler.analysis.step_outliers import OutlierCause
from profiler.analysis.table_text import label, labels, worded_cell
from profiler.cli.main import command_line
from profiler.cli.options import Language
from profiler.report import catalogue, html_page
from profiler.report.language import (
    LANGUAGES,
    OTHERS,
    page_messages,
    spoken,
    spoken_template,
    translations,
)
from profiler.text import Note, in_language, joined, notes_text, said, sentence
from tests.queued_runs import QueuedCall, QueuedPipeline
from tests.report.rendered import page_of
from tests.runs import EPOCH, tiny_run
from tests.trace.samples import small_bundle

HANGUL = re.compile(r"[가-힣]")
POLITE = re.compile(r"(습니다|입니다|십시오|세요|해요|어요|아요|하라)(?=[.!?,:\s]|$)")
KO = {"{n} calls of {name}": "{name}의 호출 {n}개", "calls": "호출", "{a}, {b}": "wrong"}


PLACE = re.compile(r"\{(\w+)\}")


def test_said_is_its_english_text():
    """Whoever does not care about languages gets a plain string."""
    text = said("{n} calls of {name}", n=3, name="vae")
    assert (text, len(text), hash(text)) == ("3 calls of vae", 14, hash("3 calls of vae"))
    assert json.dumps({text: text}) == '{"3 calls of vae": "3 calls of vae"}'


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_copies_keep_their_languages(again):
    """A finding that was copied, or came from another process, can still be given in Korean."""
    text = again(said("{n} calls of {name}", n=3, name=said("calls")))
    assert text == "3 calls of calls"
    assert text.given_in(KO) == "호출의 호출 3개"


def test_a_template_is_looked_up_and_its_values_are_not():
    """The name of a submodule that reads like a message stays as the trace has it."""
    text = said("{n} calls of {name}", n=3, name="calls")
    assert text.given_in(KO) == "calls의 호출 3개"
    assert in_language("calls", KO) == "calls"


def test_values_may_have_languages_themselves():
    """A message within a message, and messages that stand in a row."""
    inner = said("{n} calls of {name}", n=3, name=said("calls"))
    assert inner.given_in(KO) == "호출의 호출 3개"
    assert joined("; ", [inner, "x"]).given_in(KO) == "호출의 호출 3개; x"
    assert joined("; ", [inner, "x"]) == "3 calls of calls; x"


def test_a_missing_message_is_english():
    """A catalogue without the template leaves it, with its values in their language."""
    assert said("{what} again", what=said("calls")).given_in(KO) == "호출 again"


def test_values_never_become_templates():
    """A trace's `{n}` is text, and so are attributes and indices of values."""
    hostile = "{n} {0} {name.__class__} {name[0]}"
    assert said("{name}: {n}", name=hostile, n=1) == f"{hostile}: 1"
    assert said("{n.real} {} {missing}", n=1) == "{n.real} {} {missing}"


def test_changes_apply_to_each_language():
    """Escaping and full stops are done to the text of each language; capitals to English alone."""
    text = said("{name} calls", name="a<b").changed(lambda t: t.replace("<", "&lt;"))
    assert sentence(text) == "A&lt;b calls."
    assert sentence(text).given_in({"{name} calls": "{name} 호출"}) == "a&lt;b 호출."
    assert sentence("plain") == "Plain."


def test_html_of_a_message_holds_its_languages_escaped():
    """In a span where there are others; data of a trace cannot leave the attribute."""
    name = "\"><script>'"
    html = spoken(said("Operators of {submodule}", submodule=name))
    assert html.startswith('<span data-ko="')
    assert html.endswith("</span>")
    assert "<script" not in html
    assert html.count('"') == 2
    assert spoken("plain & <b>") == "plain &amp; &lt;b&gt;"


def test_marked_elements_of_the_frame_get_their_languages():
    """`data-say` stands for the text of an element, `data-say-NAME` for an attribute of it."""
    html = '<a class="x" title="Steps" data-say data-say-title>\n  Calls</a><b data-say>No such</b>'
    assert spoken_template(html) == (
        '<a class="x" title="Steps" data-ko="호출" data-ko-title="단계">\n  Calls</a><b>No such</b>'
    )


def test_only_messages_of_a_page_travel_with_it():
    """Literals of its scripts and texts of its tables; not what traces say."""
    data = {"columns": [{"label": said("share")}], "values": {"layer": [said("Steps")]}}
    found = page_messages(['x = say("Close"); say(variable); message("Keys")'], data)
    assert found == {"ko": {"Close": "닫기", "Keys": "단축키", "share": "비율"}}


def test_places_of_texts_in_a_figure():
    """The path of each text that reads differently, through mappings and lists."""
    chart = {"data": [{"name": said("idle"), "x": [1, 2], "y": ["idle", said("median")]}]}
    assert translations(chart) == {
        "ko": [(["data", 0, "name"], "유휴"), (["data", 0, "y", 1], "중앙값")]
    }


def test_words_of_analyses_have_languages_and_names_do_not():
    """A code, a cell of several notes; what is no code stays."""
    assert label(Bound.COMPUTE).given_in(catalogue("ko")) == "연산 바운드"
    path = Note.of(RedundancyEvidence.PATH, name="text_embedder")
    cell = notes_text([path, Note.of(RedundancyEvidence.EQUAL_SHAPES)])
    pieces = worded_cell(cell, RedundancyEvidence)
    assert pieces == "path text_embedder, equal shapes"
    assert pieces.given_in(catalogue("ko")) == "경로 text_embedder, 같은 형상"
    assert labels(["compute", "my.layer", None], Bound) == ["compute-bound", "my.layer", ""]
    assert labels([None], OutlierCause) == ["no other track explains it"]


@pytest.mark.parametrize("language", OTHERS)
def test_translations_have_the_same_places(language):
    """Each value stands in a translation as often as in the original."""
    different = {
        template: given
        for template, given in catalogue(language).items()
        if Counter(PLACE.findall(template)) != Counter(PLACE.findall(given))
    }
    assert not different


def test_korean_is_korean_and_plain():
    """Nothing is left in English but names, units and formulas; no polite endings."""
    same = {text for text, given in catalogue("ko").items() if not HANGUL.search(given)}
    assert all(len(text.split()) < 4 or "_ns" in text or "," in text for text in same), same
    assert not [given for given in catalogue("ko").values() if POLITE.search(given)]


def test_korean_names_the_same_columns_and_options():
    """A column or an option of the command line that an English text names, the Korean one names
    too: they are what a reader looks up, or types."""
    named = re.compile(r"(?<![\w{-])(?:--[a-z]+(?:-[a-z]+)*|[a-z_]+_(?:ns|bytes|ratio))(?![\w}])")
    for english, korean in catalogue("ko").items():
        missing = [name for name in named.findall(english) if name not in korean]
        assert not missing, f"{missing} of {english!r} not in {korean!r}"


def test_no_particle_follows_a_name():
    """Which one is right depends on the last sound of a name or number, which a template cannot
    know; after a percent sign it is known."""
    particle = re.compile(r"\{(\w+)\}(?:은|는|이|가|을|를|와|과|으로|로)(?=[\s,.()]|$)")
    percent = re.compile(r"(\w+_)?share(_2)?|part|bound")
    for korean in catalogue("ko").values():
        assert all(percent.fullmatch(name) for name in particle.findall(korean)), korean


def test_catalogues_are_sorted_and_packed():
    """One entry a line in the order of their English, so that changes are easy to read."""
    for language in OTHERS:
        text = (Path(profiler.report.__file__).parent / "languages" / f"{language}.json").read_text(
            encoding="utf-8"
        )
        entries = json.loads(text)
        assert list(entries) == sorted(entries)
        assert len(text.splitlines()) == len(entries) + 2


def test_translated_titles_of_the_page_stand_beside_their_english():
    """Every heading that the catalogue has carries its Korean; others may be English only."""
    page = page_of(analyze(tiny_run()), EPOCH)
    known = []
    for element in re.findall(r"<(?:h2|h3)[^>]*>(?:(?!</(?:h2|h3)>).)*", page.sections):
        text = unescape(re.sub(r"<[^>]+>", "", element))
        if text in catalogue("ko"):
            known.append(text)
            assert "data-ko=" in element, element
    assert "Idle time" in known


def test_the_page_knows_the_language_it_opens_in():
    """`auto` leaves it to the reader's browser."""
    run = tiny_run()
    assert '"language":"ko"' in html_page(run, analyze(run), "ko")
    assert '"language":"auto"' in html_page(run, analyze(run))


def test_a_launch_bound_headline_is_korean_throughout():
    """What a device does and waits for has words of its own in the sentence."""
    call = QueuedCall("transformer", "batched", kernels=50)
    run = QueuedPipeline((), [[call]] * 2, ()).simulated().run
    text = headline(analyze(run), 10**9)
    assert "waits for the host" in text
    korean = in_language(text, catalogue("ko"))
    assert "호스트 대기" in korean
    assert "waits" not in korean


def test_pages_hold_both_languages_of_their_headline():
    """In the heading and in the title of the window."""
    run = tiny_run()
    page = html_page(run, analyze(run))
    assert re.search(r'<title data-ko="[^"]*단계', page)
    assert re.search(r'<h1><span data-ko="[^"]*단계', page)


def test_the_option_names_the_languages_that_there_are():
    """`--language` takes those for which there is a catalogue, and English."""
    assert tuple(each.value for each in Language) == LANGUAGES


def test_the_command_line_chooses_the_first_language(tmp_path):
    """`--language ko` is in the page; a language that nobody wrote is refused, and nothing is
    written."""
    bundle = small_bundle(tmp_path)
    page = tmp_path / "page.html"
    asked = ["analyze", str(bundle), "--html", str(page), "--language"]
    refused = CliRunner().invoke(command_line(), [*asked, "fr"])
    assert (refused.exit_code, page.exists()) == (2, False)
    assert CliRunner().invoke(command_line(), [*asked, "ko"]).exit_code == 0
    assert '"language":"ko"' in page.read_text(encoding="utf-8")
