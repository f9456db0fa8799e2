"""The catalog of datasets: those that load by name.

To add one, write its reader ``(root, download, seed) -> Dataset`` in a file of its own and one line of `_LISTED`. Then
`load`, ``--data`` on the command line and its help know it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mixupmp.core.encoders import Encoder
from mixupmp.core.errors import UnknownName, check
from mixupmp.core.rows import Dataset
from mixupmp.data import cifar, idx, sound_files, text_files
from mixupmp.data.clusters import clusters
from mixupmp.data.digits import digits
from mixupmp.data.files import Published, Root

Reader = Callable[..., Dataset]


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset by name.

    Parameters
    ----------
    read
        ``(root, download, seed) -> Dataset``, and what `takes` names.
    published
        Its files and who publishes them; None for one that needs no files.
    aliases
        Other spellings of the name.
    takes
        Further arguments of `load` that its reader takes: "tokens", "encoder".
    """

    name: str
    read: Reader
    published: Published | None = None
    aliases: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


_LISTED = (
    DatasetEntry("digits", digits),
    DatasetEntry("clusters", clusters),
    DatasetEntry("mnist", idx.mnist, idx.MNIST),
    DatasetEntry("fashion-mnist", idx.fashion_mnist, idx.FASHION_MNIST, ("fmnist", "fashionmnist", "fashion_mnist")),
    DatasetEntry("cifar10", cifar.cifar10, cifar.CIFAR10, ("cifar-10",)),
    DatasetEntry("cifar100", cifar.cifar100, cifar.CIFAR100, ("cifar-100",)),
    DatasetEntry("notmnist", idx.notmnist, idx.NOTMNIST),
    DatasetEntry("clinc150", text_files.clinc150, text_files.CLINC150, takes=("tokens", "encoder")),
    DatasetEntry("fsdd", sound_files.fsdd, sound_files.FSDD, takes=("encoder",)),
    DatasetEntry("fsdd-speakers", sound_files.fsdd_speakers, sound_files.FSDD, takes=("encoder",)),
)
DATASETS: dict[str, DatasetEntry] = {entry.name: entry for entry in _LISTED}
"""Every dataset by its name; those that need no files come first."""


def load(
    name: str = "digits",
    root: Root = None,
    download: bool = False,
    seed: int = 0,
    *,
    tokens: str = "words",
    encoder: Encoder | None = None,
) -> Dataset:
    """A dataset of the catalog.

    Parameters
    ----------
    name
        One of `DATASETS`.
    root
        The folder in which published files are looked for first, then $MIXUPMP_DATA, then the cache folder.
    download
        Fetch files that are not there from their publisher, with checksums.
    seed
        Draws the rows, or the split, of a dataset that does not come with its publisher's split.
    tokens
        What sentences are split into: "words", or "pieces" of words.
    encoder
        How sentences or sounds become numbers: the encoder of a fit; None: one for the dataset's own training rows.

    Returns
    -------
    Dataset
        Its rows are in memory.
    """
    known = name.lower()
    for entry in DATASETS.values():
        if known in (entry.name, *entry.aliases):
            must = f"left out for {entry.name}, which holds no sentences"
            check(tokens == "words" or "tokens" in entry.takes, "tokens", tokens, must)
            given = {"tokens": tokens, "encoder": encoder}
            return entry.read(root, download, seed, **{name: given[name] for name in entry.takes})
    raise UnknownName("dataset", name, DATASETS)
