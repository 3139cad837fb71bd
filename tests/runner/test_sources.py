"""Texts of this machine, their sentences, and the search in them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from resumable_nb.research import sources
from resumable_nb.research.sources import Texts, load, numbered, sentences

PROSE = """A *context manager* is an object that defines the runtime context to
be established. The context manager handles the entry into, and the exit from, the desired
runtime context.

   >>> with open("x") as f: pass

| a | table |

Short one. Another paragraph stands here, and it ends with a question about something?
"""


def test_every_sentence_stands_word_for_word_where_it_says():
    """Of all texts of this machine: what is quoted is in the source, at its location."""
    texts = load()

    assert len(texts.sentences) > 1_000
    assert all(texts.quotes(s.text, s.source, s.location) for s in texts.sentences)


@given(st.text(alphabet="aB .!?\n\"'é", max_size=300))
def test_sentences_of_any_text_are_quotations(text):
    """Whatever the text, a sentence cut from it is found again, and none overlaps another."""
    texts, found = Texts({"s": text}), list(sentences(text, "s"))

    assert all(texts.quotes(s.text, s.source, s.location) for s in found)
    assert all(before.end <= after.start for before, after in pairwise(found))


def test_a_quotation_that_was_changed_is_not_one():
    """Another word, another place, another source: none of them is accepted."""
    texts = Texts({"s": PROSE, "t": "nothing"})
    first, second = list(sentences(PROSE, "s"))[:2]

    assert texts.quotes(first.text, "s", first.location)
    assert not texts.quotes(first.text.replace("runtime", "compile"), "s", first.location)
    assert not texts.quotes(first.text, "s", second.location)
    assert not texts.quotes(first.text, "t", first.location)
    assert not texts.quotes(first.text, "u", first.location)
    assert not texts.quotes(first.text, "s", "somewhere")


def test_code_tables_and_fragments_are_no_sentences():
    """Only prose of a length that can be quoted."""
    assert [s.text[:20] for s in sentences(PROSE, "s")] == [
        "A *context manager* ",
        "The context manager ",
        "Another paragraph st",
    ]


def test_the_best_sentence_comes_first_and_the_order_is_always_the_same():
    """Equal scores keep the order of the texts; unknown words find nothing."""
    texts = Texts({"s": PROSE})

    assert texts.search("How does it handle the exit?", 5)[0].text.startswith("The context manager handles")
    assert texts.search("context", 5) == texts.search("context", 5)
    assert texts.search("zebra", 5) == texts.search("", 5) == []
    assert texts.search("context", 5, within="other") == []


def test_equal_sentences_of_several_texts_are_found_once():
    """Python's reference repeats whole sections."""
    assert len(Texts({"a": PROSE, "b": PROSE}).sentences) == 3


def test_numbers_begin_with_one():
    """As a person counts, and as the model is asked to answer."""
    assert numbered(list(sentences(PROSE, "s"))[:2]).startswith("1. A *context manager*")
    assert sources.load().keys()
