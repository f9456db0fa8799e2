"""The paper's networks, each with an optional dropout rate; `catalog` has them by name."""

from mixupmp.core.plan import NetworkFactory
from mixupmp.networks.catalog import NETWORKS, NetworkEntry, named
from mixupmp.networks.cnn import CNN
from mixupmp.networks.mlp import MLP
from mixupmp.networks.network import Network
from mixupmp.networks.resnet import BasicBlock, ResNet18, WideBlock, WideResNet
from mixupmp.networks.tabular import PiecewiseLinear, TabularMLP, quantile_edges

__all__ = [
    "CNN",
    "MLP",
    "NETWORKS",
    "BasicBlock",
    "Network",
    "NetworkEntry",
    "NetworkFactory",
    "PiecewiseLinear",
    "ResNet18",
    "TabularMLP",
    "WideBlock",
    "WideResNet",
    "named",
    "quantile_edges",
]
