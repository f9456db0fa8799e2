"""The paper's networks, each with an optional dropout rate; `catalog` has them by name."""

from mixupmp.networks.catalog import Network, NetworkFactory, named
from mixupmp.networks.cnn import CNN
from mixupmp.networks.mlp import MLP
from mixupmp.networks.resnet import BasicBlock, ResNet18, WideBlock, WideResNet

__all__ = ["CNN", "MLP", "BasicBlock", "Network", "NetworkFactory", "ResNet18", "WideBlock", "WideResNet", "named"]
