"""From what people have, sentences, sounds, tables, to rows of numbers: what a run must keep to be asked alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import torch
from torch import Tensor

from mixupmp.core.columns import Columns
from mixupmp.core.errors import InvalidArgument, check, number, whole
from mixupmp.core.kernels.text import PADDING

UNKNOWN = 1  # the token number of a word that is not in the vocabulary
FIRST = 2  # that of its first word
SAMPLES_LIMIT = 2**26  # of a sound, in memory as floats: 256 MB
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
        check(whole(self.length), "length", self.length, "a whole number of tokens, at least 1")

    @classmethod
    def of(cls, sentences: Iterable[str], most: int = 20_000, least: int = 2, longest: int = 64) -> Vocabulary:
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
        lengths = sorted(map(len, tokens)) or [1]
        return cls(tuple(words), max(1, min(longest, lengths[int(0.99 * (len(lengths) - 1))])))

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
            tokens = [self.numbers.get(word, UNKNOWN) for word in tokens_of(sentence)[: self.length]]
            row[: len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
        return rows

    def text(self, row: Tensor) -> str:
        """The sentence of a row, as the network sees it."""
        return " ".join("[?]" if t == UNKNOWN else self.words[t - FIRST] for t in row.long().tolist() if t != PADDING)


def tokens_of(sentence: str) -> list[str]:
    """The words and punctuation marks of a sentence."""
    return _WORD.findall(sentence.lower())


@dataclass(frozen=True)
class Spectrogram:
    """Sounds as pictures: log-spectrograms by `torch.stft`, bytes of (1, bands, frames), the highest band first.

    Decibels below the loudest point of a recording, from `-floor` (0) to 0 (255).

    Parameters
    ----------
    rate
        Samples a second.
    seconds
        Longer recordings are cut, shorter ones end in silence.
    window
        Samples of a Hann window; half a window lies between frames.
    bands
        Equal parts of the frequencies up to half the rate, whose power is averaged.
    """

    rate: int
    seconds: float = 1.0
    window: int = 256
    bands: int = 64
    floor: float = 80.0

    def __post_init__(self) -> None:
        check(whole(self.rate), "rate", self.rate, "a whole number of samples a second")
        check(number(self.seconds) and 0 < self.seconds < inf, "seconds", self.seconds, "positive and finite")
        check(number(self.floor) and 0 < self.floor < inf, "floor", self.floor, "positive and finite")
        check(whole(self.window, 4) and self.window % 2 == 0, "window", self.window, "an even number, at least 4")
        check(
            self.samples <= SAMPLES_LIMIT,
            "seconds",
            self.seconds,
            f"at most {SAMPLES_LIMIT / self.rate:g} at this rate",
        )
        check(self.samples >= self.window, "window", self.window, f"at most {self.samples}, the samples of a row")
        divides = whole(self.bands) and self.window // 2 % self.bands == 0
        check(divides, "bands", self.bands, f"a divisor of {self.window // 2}, half of the window")

    @property
    def samples(self) -> int:
        """How many samples of a recording are looked at."""
        return round(self.rate * self.seconds)

    def __call__(self, waves: Sequence[Tensor]) -> Tensor:
        """uint8 (rows, 1, bands, frames) of waves, each (samples,) float."""
        wrong = next((w for w in waves if not (isinstance(w, Tensor) and w.ndim == 1 and w.is_floating_point())), None)
        if wrong is not None or len(waves) == 0:
            given = waves if wrong is None else wrong
            raise InvalidArgument("waves", given, "a list of float tensors (samples,), at least one")
        heard = torch.zeros(len(waves), self.samples)
        for row, wave in zip(heard, waves, strict=True):
            row[: len(wave)] = wave[: self.samples]
        return torch.cat([self._pictures(block) for block in heard.split(256)])

    def _pictures(self, waves: Tensor) -> Tensor:
        window = torch.hann_window(self.window)
        spectrum = torch.stft(waves, self.window, self.window // 2, window=window, return_complex=True)
        power = spectrum[:, 1:].abs().square()  # without the constant part
        bands = power.unflatten(1, (self.bands, -1)).mean(2).flip(1)
        loudest = bands.flatten(1).amax(1).clamp(min=1e-12).view(-1, 1, 1)
        decibels = 10 * (bands / loudest).clamp(min=1e-12).log10()
        return ((decibels / self.floor + 1).clamp(min=0) * 255).round().to(torch.uint8).unsqueeze(1)


Encoder = Vocabulary | Spectrogram | Columns
