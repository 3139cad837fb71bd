"""Which sentences have most to do with a question: by their words, and on request by an embedding model as well."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from resumable_nb.terminal import one_line
from resumable_nb.values.secrets import contains_secret

STOP_WORDS = """
a after all also an and any are as at be been before but by can could do does for from had has have how if in into
is it its may more most no not of on one or other our out see should so some such than that the their them then
there these they this to too use used using was we were what when where which while who why will with would you your
""".split()  # noqa: SIM905 - forty lines of one word each are harder to read
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
"""Text in a script that does not part its words: Chinese, Japanese, Thai, Lao, Burmese, Khmer."""
_DEPTH = 50
_K = 60
_indexing = threading.Lock()  # branches of a step search at once, and the first search makes the index


def fused(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Several rankings as one: each gives `1 / (60 + rank)` to what it ranks, and the sums count.

    Reciprocal rank fusion: G. V. Cormack, C. L. A. Clarke, S. Büttcher, "Reciprocal rank fusion outperforms Condorcet
    and individual rank learning methods", SIGIR 2009, https://doi.org/10.1145/1571941.1572114. Scores of different
    kinds are not compared; equal sums are in the order of what is ranked.
    """
    sums: dict[int, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            sums[item] = sums.get(item, 0.0) + 1 / (_K + rank)
    return sorted(sums, key=lambda item: (-sums[item], item))


def _with_pairs(text: str) -> str:
    """A text in which each two characters that stand together are a word, where the script does not part its words.

    As search engines do it (https://lucene.apache.org/core/9_12_0/analysis/common/org/apache/lucene/analysis/cjk/).
    """
    return UNSPACED.sub(lambda run: f" {' '.join(map(''.join, itertools.pairwise(run[0])))} ", text)


class Ranking:
    """An index of texts. It is made by the first search.

    Args:
        texts: what is ranked.
        embed: the name of an embedding model, asked through the same server as `ask`; None: words only.

    Attributes:
        failures: in a sentence, why the embedding model is left out.
    """

    def __init__(self, texts: Sequence[str], embed: str | None) -> None:
        self._texts, self._embed = texts, embed
        self._asking = threading.Lock()  # branches search at once; the first learns whether there are vectors
        self.failures: list[str] = []

    def search(self, question: str) -> list[int]:
        """Places of the texts that have to do with a question, best first; equal ones in the order of the texts.

        With an embedding model, the nearest 50 texts are found also where they share no word with the question.
        """
        with _indexing:
            if not self._texts:
                return []
            index = self._index
        words = self._by_words(index, question)
        near = self._by_nearness(question) if self._embed and question.strip() else []
        return (
            fused([words[:_DEPTH], near]) + [place for place in words[_DEPTH:] if place not in near] if near else words
        )

    @staticmethod
    def _by_words(index: Any, question: str) -> list[int]:
        import bm25s

        asked = _with_pairs(question)
        words = bm25s.tokenize([asked], stopwords=STOP_WORDS, return_ids=False, show_progress=False)[0]
        known = [word for word in words if word in index.vocab_dict]
        if not known:
            return []
        scores = index.get_scores(known)
        return sorted((place for place, score in enumerate(scores) if score > 0), key=lambda place: -scores[place])

    @cached_property
    def _index(self) -> Any:
        import bm25s

        index = bm25s.BM25()
        texts = [_with_pairs(text) for text in self._texts]
        index.index(bm25s.tokenize(texts, stopwords=STOP_WORDS, show_progress=False), show_progress=False)
        return index

    def prepare(self) -> None:
        """Have the vectors of the texts, and tell who counts here what they cost.

        Raises:
            Exception: what the meter of a budget raises; nothing further was sent.
        """
        from resumable_nb.llm.embeddings import NoVectors, share

        with self._asking:
            if not self._embed or not self._texts:
                return
            share(self._texts, self._embed)
            try:
                _ = self.failures or self._matrix
            except (NoVectors, ValueError) as error:
                self._fail(error)

    def _by_nearness(self, question: str) -> list[int]:
        """By the cosine of the vectors. Once they cannot be had, this index goes without: its order stays the same."""
        from resumable_nb.llm.embeddings import NoVectors, vectors

        if self._embed is None or contains_secret(question.encode("utf-8", "replace")):
            return []
        self.prepare()
        with self._asking:
            if self.failures:
                return []
            try:
                places, matrix = self._matrix
                nearness = matrix @ vectors([question], self._embed)[question]
            except (NoVectors, ValueError) as error:
                self._fail(error)
                return []
        return [places[int(row)] for row in (-nearness).argsort(kind="stable")[:_DEPTH]]

    def _fail(self, error: Exception) -> None:
        why = one_line(str(error).rstrip("."), 200)
        self.failures.append(
            f"Sentences were ranked by their words alone (BM25): the embedding model could not be asked. {why}."
        )

    @cached_property
    def _matrix(self) -> tuple[list[int], Any]:
        """Which texts have a vector, and these. What looks like a credential is not sent anywhere."""
        import numpy as np

        from resumable_nb.llm.embeddings import vectors

        sent = [place for place, text in enumerate(self._texts) if not contains_secret(text.encode("utf-8", "replace"))]
        found = vectors([self._texts[place] for place in sent], self._embed or "")
        return sent, np.stack([found[self._texts[place]] for place in sent])
