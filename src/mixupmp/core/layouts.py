"""Which axis of an array of images or videos is the channels: by rule where it is plain, else by a named layout."""

from __future__ import annotations

from mixupmp.core.errors import BadData, check

# What `layout=` may be, as letters for the axes: N rows, C channels, T time, H height, W width.
ARRAY_LAYOUTS = ("NHW", "NCHW", "NHWC", "NCT", "NTC", "NCTHW", "NTCHW", "NTHWC")
LAYOUTS = ("table", "tokens", *ARRAY_LAYOUTS)
MOST_CHANNELS = 12  # beyond it an axis is taken for height, width or time


def check_layout(layout: str | None, dimensions: int | None = None) -> None:
    """Raise `InvalidArgument` unless this is a layout, of an array of so many dimensions."""
    known = [name for name in LAYOUTS if dimensions is None or name not in ARRAY_LAYOUTS or len(name) == dimensions]
    must = f"one of {', '.join(known)}" + ("" if dimensions is None else f" for an array of {dimensions} axes")
    check(layout is None or layout in known, "layout", layout, must)


def layout_of(shape: tuple[int, ...], name: str = "X", remedy: str = "") -> str:
    """The layout of images (4 axes) or videos (5) of this shape; an error that names the option where it is unclear.

    One axis of at most 12 is the channels. Of several such, the one of 1 or 3; else the one that leaves a square.
    `remedy` is what the error says to do, where there is no option.
    """
    places = {4: {1: "NCHW", 3: "NHWC"}, 5: {1: "NCTHW", 2: "NTCHW", 4: "NTHWC"}}[len(shape)]
    for plausible in (
        [axis for axis in places if shape[axis] <= MOST_CHANNELS],
        [axis for axis in places if shape[axis] in (1, 3)],
        [axis for axis in places if _square(shape, axis)],
    ):
        if len(plausible) == 1:
            return places[plausible[0]]
    remedy = remedy or f"pass {' or '.join(f'layout={layout!r}' for layout in places.values())}"
    raise BadData(f"{name} of shape {shape} does not tell which axis is the channels: {remedy}.")


def _square(shape: tuple[int, ...], channels: int) -> bool:
    """Whether height and width are equal, and differ from the channels, where those are this axis."""
    height, width = [size for axis, size in enumerate(shape) if axis not in (0, channels)][-2:]
    return height == width != shape[channels]


def channels_first(layout: str) -> tuple[int, ...]:
    """The axes of this layout in the order in which a network gets them: N, C, then as they are."""
    if "C" not in layout:
        return tuple(range(len(layout)))
    channels = layout.index("C")
    return (0, channels, *(axis for axis in range(1, len(layout)) if axis != channels))
