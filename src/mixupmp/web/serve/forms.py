"""The one file of a multipart form (RFC 7578). Its body is in memory and bounded: no parser of streams is needed."""

from __future__ import annotations

import re

from mixupmp.web.serve.limits import unusable

_BOUNDARY = re.compile(r"boundary=(?:\"([^\"]{1,70})\"|([^\s;,\"]{1,70}))", re.IGNORECASE)
_NAME = re.compile(rb"\bname=\"?file\"?(?:[;\s]|$)", re.IGNORECASE)
MOST_PARTS = 8


def file_of(content_type: str, body: bytes) -> tuple[str, bytes]:
    """The content type and the bytes of the part that is named "file"."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise unusable("The form names no boundary, so its parts cannot be told apart.")
    boundary = b"\r\n--" + (found[1] or found[2]).encode("latin-1", "replace")
    # With a line break in front, the first boundary looks like the others.
    parts = (b"\r\n" + body).split(boundary, MOST_PARTS)[1:]
    for part in parts:
        if part.startswith(b"--"):
            break
        headers, blank, content = part.partition(b"\r\n\r\n")
        kinds = {name.strip().lower(): value.strip() for name, value in map(_split, headers.split(b"\r\n"))}
        if blank and _NAME.search(kinds.get(b"content-disposition", b"")):
            kind = kinds.get(b"content-type", b"application/octet-stream").decode("latin-1")
            return kind.partition(";")[0].strip().lower(), content
    raise unusable("The form must hold a file, in a part named 'file'.")


def _split(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name, value
