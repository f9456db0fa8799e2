"""Sentences as rows of words, and of pieces of words."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixupmp.core.errors import UnknownName
from mixupmp.core.tokenizers import Vocabulary, WordPieces, tokens_of, vocabulary_of

TEXT = ["What's my balance?", "what is my balance", "pay my bill, please", "Pay the bill"]
LOWER = ["low low low low low", "lower lower", "newest newest newest newest newest newest", "widest widest widest"]


def test_tokens_are_words_and_marks_in_lower_case() -> None:
    assert tokens_of("What's up, Doc? 3.5%") == ["what's", "up", ",", "doc", "?", "3", ".", "5", "%"]


def test_rare_words_are_unknown_and_the_rest_comes_back() -> None:
    vocabulary = Vocabulary.of(TEXT)
    assert vocabulary.words == ("balance", "bill", "my", "pay")
    rows = vocabulary(["Pay my dog", "", "my " * 50])
    assert rows.shape == (3, vocabulary.length)
    assert rows[0].tolist()[:4] == [5, 4, 1, 0]
    assert [vocabulary.text(row) for row in rows] == ["pay my [?]", "", " ".join(["my"] * vocabulary.length)]
    assert int(rows.max()) < vocabulary.size == 6


def test_the_most_frequent_words_and_the_usual_length_are_kept() -> None:
    sentences = ["a a a b b c"] * 99 + ["d " * 40]
    assert Vocabulary.of(sentences, most=2).words == ("a", "b")
    assert Vocabulary.of(sentences).length == 6
    assert Vocabulary.of(["a b c d"], longest=3) == Vocabulary(("a", "b", "c", "d"), 3)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=5))
def test_any_text_becomes_tokens(sentences: list[str]) -> None:
    rows = Vocabulary(("a", "b"), 7)(sentences)
    assert rows.dtype == torch.int64
    assert set(rows.flatten().tolist()) <= {0, 1, 2, 3}


def pieces_in(vocabulary: WordPieces, sentence: str) -> list[str]:
    return [vocabulary.words[token - 2] if token > 1 else "?" for token in vocabulary([sentence])[0].tolist() if token]


def test_pairs_are_merged_in_the_order_of_their_frequency() -> None:
    """The example of Sennrich et al. (2016), where ties go by the alphabet."""
    letters = {"l", "##o", "##w", "##e", "##r", "n", "##s", "##t", "w", "##i", "##d"}
    for most, expected in ((1, {"##es"}), (2, {"##es", "##est"}), (4, {"##es", "##est", "##ow", "low"})):
        assert set(WordPieces.of(LOWER, most).words) == letters | expected
    assert pieces_in(WordPieces.of(LOWER, 4), "lowest slow") == ["low", "##est", "?", "?", "##ow"]


def by_the_book(sentences: list[str], most: int, least: int = 2) -> set[str]:
    """The same merges by counting all pairs anew before each of them."""
    counts = Counter(word for sentence in sentences for word in tokens_of(sentence))
    words = {word: [word[0], *(f"##{letter}" for letter in word[1:])] for word in counts}
    found: set[str] = set()
    while len(found) < most:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in words.items():
            pairs.update(dict.fromkeys(pairwise(pieces), 0))
            for pair in pairwise(pieces):
                pairs[pair] += counts[word]
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < least:
            break
        joined = best[0] + best[1].removeprefix("##")
        found.add(joined)
        for pieces in words.values():
            at = 0
            while at < len(pieces) - 1:
                if (pieces[at], pieces[at + 1]) == best:
                    pieces[at : at + 2] = [joined]
                at += 1
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab c", max_size=12), max_size=8), st.integers(1, 20))
def test_counts_that_are_kept_give_the_merges_of_counting_anew(sentences: list[str], most: int) -> None:
    counts = Counter(f"{place}{letter}" for s in sentences for w in tokens_of(s)
                     for place, letter in (("##" if k else "", c) for k, c in enumerate(w)))  # fmt: skip
    kept = {letter for letter, count in counts.items() if count >= 2} or set(counts)
    if kept:
        assert set(WordPieces.of(sentences, most).words) == kept | by_the_book(sentences, most)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*"paymbilxz"]), min_size=1, max_size=12).map("".join))
def test_any_word_of_known_letters_comes_back(word: str) -> None:
    vocabulary = WordPieces.of([*TEXT, *("paymbilxz"[k:] + "paymbilxz" * 2 for k in range(9))], least=1, longest=64)
    vocabulary = WordPieces(vocabulary.words, 64)
    (row,) = vocabulary([word])
    assert 1 not in row.tolist()
    assert vocabulary.text(row) == word


def test_what_was_never_seen() -> None:
    vocabulary = WordPieces.of(["payable bills", "pay the bill", "able"] * 2)
    assert pieces_in(vocabulary, "pay") == ["pay"]
    assert pieces_in(vocabulary, "billable") == ["bill", "##able"]
    assert pieces_in(vocabulary, "pay\u00fc") == ["pay", "?"]  # a letter that no sentence has
    assert vocabulary.text(vocabulary(["payable bill"])[0]) == "payable bill"
    assert vocabulary([""]).sum() == 0
    assert vocabulary(["pay " * 99]).shape == (1, vocabulary.length)


def test_the_order_of_sentences_does_not_matter() -> None:
    assert WordPieces.of(TEXT) == WordPieces.of(TEXT[::-1])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=5))
def test_any_text_becomes_pieces(sentences: list[str]) -> None:
    vocabulary = WordPieces.of(sentences) if any(map(tokens_of, sentences)) else WordPieces(("a",), 2)
    rows = vocabulary(sentences)
    assert rows.dtype == torch.int64
    assert 0 <= int(rows.min()) <= int(rows.max()) < vocabulary.size


def test_learning_and_cutting_cost_little() -> None:
    generator = torch.Generator().manual_seed(0)
    words = ["".join(chr(97 + k) for k in torch.randint(26, (8,), generator=generator).tolist()) for _ in range(2000)]
    sentences = [" ".join(words[k] for k in torch.randint(2000, (9,), generator=generator)) for _ in range(5000)]
    started = time.process_time()
    vocabulary = WordPieces.of(sentences)
    vocabulary(sentences)
    assert time.process_time() - started < 10  # about one second; counting anew for each merge takes minutes
    started = time.process_time()
    vocabulary(["x" * 1_000_000])  # a hostile word is cut no farther than a row is long
    assert time.process_time() - started < 1


def test_tokenizers_by_name() -> None:
    assert vocabulary_of(TEXT) == Vocabulary.of(TEXT)
    assert vocabulary_of(TEXT, "pieces") == WordPieces.of(TEXT)
    with pytest.raises(UnknownName, match="tokens 'syllables'"):
        vocabulary_of(TEXT, "syllables")
