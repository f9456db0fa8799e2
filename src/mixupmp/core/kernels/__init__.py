"""H^aug: label-preserving augmentation kernels by modality, and the list of them by name."""

from mixupmp.core.kernels.images import HorizontalFlip, PadCrop, RandomResizedCrop, cifar_kernel
from mixupmp.core.kernels.kernel import Compose, Kernel, OnBatch, as_kernel, identity, uses_global_generator
from mixupmp.core.kernels.series import FrequencyMask, Gain, GaussianNoise, TimeMask, TimeShift, WindowWarp
from mixupmp.core.kernels.text import SpanCut, TokenDropout, TokenSwap

KERNELS: dict[str, Kernel] = {
    "pad-crop": PadCrop(4),
    "flip": HorizontalFlip(),
    "random-resized-crop": RandomResizedCrop(),
    "cifar": cifar_kernel(),
    "token-dropout": TokenDropout(),
    "token-swap": TokenSwap(),
    "span-cut": SpanCut(),
    "time-shift": TimeShift(),
    "noise": GaussianNoise(),
    "gain": Gain(),
    "window-warp": WindowWarp(),
    "time-mask": TimeMask(),
    "frequency-mask": FrequencyMask(),
}
"""Every kernel as a settings file names it: kernel = ["pad-crop", "flip"]."""

__all__ = [
    "KERNELS",
    "Compose",
    "FrequencyMask",
    "Gain",
    "GaussianNoise",
    "HorizontalFlip",
    "Kernel",
    "OnBatch",
    "PadCrop",
    "RandomResizedCrop",
    "SpanCut",
    "TimeMask",
    "TimeShift",
    "TokenDropout",
    "TokenSwap",
    "WindowWarp",
    "as_kernel",
    "cifar_kernel",
    "identity",
    "uses_global_generator",
]
