"""The paper's networks, each with an optional dropout rate; `catalog` has them by name."""

from mixupmp.core.plan import NetworkFactory
from mixupmp.networks.audio import AudioCNN
from mixupmp.networks.catalog import NETWORKS, Network, NetworkEntry, named
from mixupmp.networks.cnn import CNN
from mixupmp.networks.mlp import MLP
from mixupmp.networks.resnet import BasicBlock, ResNet18, WideBlock, WideResNet
from mixupmp.networks.tabular import PiecewiseLinear, TabularMLP, quantile_edges
from mixupmp.networks.text import TextCNN

__all__ = [
    "CNN",
    "MLP",
    "NETWORKS",
    "AudioCNN",
    "BasicBlock",
    "Network",
    "NetworkEntry",
    "NetworkFactory",
    "PiecewiseLinear",
    "ResNet18",
    "TabularMLP",
    "TextCNN",
    "WideBlock",
    "WideResNet",
    "named",
    "quantile_edges",
]
