"""Sentences as rows of token numbers: words, or pieces of words, both learned from the training text."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

from mixupmp.core.errors import check, check_known, is_whole
from mixupmp.core.kernels.text import PADDING

UNKNOWN = 1  # the token number of a word that is not in the vocabulary
FIRST = 2  # that of its first word
INSIDE = "##"  # begins a piece that goes on with a word
_WORD = re.compile(r"\w+(?:'\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Vocabulary:
    """Sentences as rows of token numbers, a word or punctuation mark each, in lower case.

    Parameters
    ----------
    words
        Those with a number of their own; any other is the unknown word.
    length
        Tokens of a row: longer sentences are cut, shorter ones are padded with zeros.
    """

    words: tuple[str, ...]
    length: int

    def __post_init__(self) -> None:
        check(len(self.words) > 0, "words", self.words, "at least one word")
        check(is_whole(self.length), "length", self.length, "a whole number of tokens, at least 1")

    @classmethod
    def of(cls, sentences: Iterable[str], most: int = 20_000, least: int = 2, longest: int = 64) -> Self:
        """The words of the training text.

        Parameters
        ----------
        most
            So many of the most frequent words.
        least
            How often a word must occur; rarer ones teach the network what an unknown word is like.
        longest
            Tokens of a row at most; it has as many as 99% of the sentences need.
        """
        tokens = [tokens_of(sentence) for sentence in sentences]
        counts = Counter(word for sentence in tokens for word in sentence)
        often = sorted(word for word, count in counts.items() if count >= least) or sorted(counts)
        words = sorted(sorted(often, key=lambda word: -counts[word])[:most])
        return cls(tuple(words), _usual(map(len, tokens), longest))

    @property
    def size(self) -> int:
        """How many token numbers there are."""
        return FIRST + len(self.words)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words, FIRST)}

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """(rows, length) int64."""
        wrong = next((sentence for sentence in sentences if not isinstance(sentence, str)), None)
        check(wrong is None and not isinstance(sentences, str), "sentences", wrong or sentences, "a list of sentences")
        rows = torch.full((len(sentences), self.length), PADDING, dtype=torch.int64)
        for row, sentence in zip(rows, sentences, strict=True):
            tokens = self._tokens(sentence)[: self.length]
            row[: len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
        return rows

    def _tokens(self, sentence: str) -> list[int]:
        """At least the first `length` tokens."""
        return [self.numbers.get(word, UNKNOWN) for word in tokens_of(sentence)]

    def text(self, row: Tensor) -> str:
        """The sentence of a row, as the network sees it."""
        shown = ("[?]" if t == UNKNOWN else self.words[t - FIRST] for t in row.long().tolist() if t != PADDING)
        return " ".join(shown).replace(f" {INSIDE}", "")


def tokens_of(sentence: str) -> list[str]:
    """The words and punctuation marks of a sentence."""
    return _WORD.findall(sentence.lower())


@dataclass(frozen=True)
class WordPieces(Vocabulary):
    """Sentences as rows of token numbers, for words or pieces of them, in lower case.

    Pieces are learned from the training text by merging the most frequent pair of neighbors, letters first (byte-pair
    encoding, Sennrich et al. 2016). A word is cut into the longest pieces that there are, from its start (WordPiece, Wu
    et al. 2016): a frequent word is one piece, a new word is spelled, and only a new letter is unknown.

    Parameters
    ----------
    words
        The pieces; those within a word begin with "##".
    length
        Tokens of a row: longer sentences are cut, shorter ones are padded with zeros.
    """

    @classmethod
    def of(cls, sentences: Iterable[str], most: int = 4_000, least: int = 2, longest: int = 64) -> Self:
        """The pieces of the training text.

        Parameters
        ----------
        most
            So many pieces, beside the single letters.
        least
            How often a letter, or a pair that is merged, must occur.
        longest
            Tokens of a row at most; it has as many as 99% of the sentences need.
        """
        texts = list(sentences)
        counts = Counter(word for sentence in texts for word in tokens_of(sentence))
        letters = Counter[str]()
        for word, count in counts.items():
            for letter in _spelled(word):
                letters[letter] += count
        kept = [letter for letter, count in letters.items() if count >= least] or list(letters)
        pieces = cls(tuple(sorted({*kept, *_merged(counts, most, least)})), longest)
        return cls(pieces.words, _usual((len(pieces._tokens(text)) for text in texts), longest))

    def _tokens(self, sentence: str) -> list[int]:
        found: list[int] = []
        for word in tokens_of(sentence):
            if len(found) >= self.length:
                break
            found += self._pieces(word)
        return found

    def _pieces(self, word: str) -> list[int]:
        whole_word = self.numbers.get(word)
        if whole_word is not None:
            return [whole_word]
        found: list[int] = []
        start = 0
        while start < len(word) and len(found) < self.length:
            before = INSIDE if start else ""
            ends = range(min(len(word), start + self._longest), start, -1)
            known = ((end, self.numbers.get(before + word[start:end])) for end in ends)
            start, number = next(((end, n) for end, n in known if n is not None), (start + 1, UNKNOWN))
            found.append(number)
        return found

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.words))


TOKENIZERS: dict[str, type[Vocabulary]] = {"words": Vocabulary, "pieces": WordPieces}
"""What a sentence is cut into, by name."""


def vocabulary_of(sentences: Iterable[str], tokens: str = "words") -> Vocabulary:
    """The vocabulary of a training text, of one of `TOKENIZERS`."""
    check_known("tokens", tokens, TOKENIZERS)
    return TOKENIZERS[tokens].of(sentences)


def _usual(lengths: Iterable[int], longest: int) -> int:
    """As many tokens as 99% of the sentences have."""
    rising = sorted(lengths) or [1]
    return max(1, min(longest, rising[int(0.99 * (len(rising) - 1))]))


def _spelled(word: str) -> list[str]:
    return [word[0], *(INSIDE + letter for letter in word[1:])]


def _merged(counts: Counter[str], most: int, least: int) -> set[str]:
    """So many pieces of these words, each the most frequent pair of neighbors when its turn comes."""
    words = [(_spelled(word), count) for word, count in sorted(counts.items())]
    together: Counter[tuple[str, str]] = Counter()
    where: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for place, (pieces, count) in enumerate(words):
        for pair in pairwise(pieces):
            together[pair] += count
            where[pair].add(place)
    heap = [(-count, pair) for pair, count in together.items()]
    heapify(heap)
    found: set[str] = set()
    while heap and len(found) < most:
        count, pair = heappop(heap)
        if -count < least:
            break
        if -count != together[pair]:
            continue  # its present count is in the heap too
        found.add(_joined(pair))
        changed: set[tuple[str, str]] = set()
        for place in sorted(where.pop(pair)):
            changed |= _merge(words[place][0], words[place][1], pair, place, together, where)
        for other in changed - {pair}:
            if together[other] > 0:
                heappush(heap, (-together[other], other))
        together[pair] = 0
    return found


def _merge(
    pieces: list[str],
    count: int,
    pair: tuple[str, str],
    place: int,
    together: Counter[tuple[str, str]],
    where: defaultdict[tuple[str, str], set[int]],
) -> set[tuple[str, str]]:
    """Join a pair wherever it is in one word, in place; returns the pairs whose counts have changed."""
    before = list(pairwise(pieces))
    at = 0
    while at < len(pieces) - 1:
        if (pieces[at], pieces[at + 1]) == pair:
            pieces[at : at + 2] = [_joined(pair)]
        at += 1
    after = list(pairwise(pieces))
    for old in before:
        together[old] -= count
    for new in after:
        together[new] += count
        where[new].add(place)
    return {*before, *after}


def _joined(pair: tuple[str, str]) -> str:
    return pair[0] + pair[1].removeprefix(INSIDE)
